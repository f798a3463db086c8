"""Families about small texts with a format: separated fields, settings, lines, paths, number texts."""

from burnish.tasks.builtin.inputs import one_of, text, whole, word
from burnish.tasks.family import Family, easy, hard, medium

digits = text(1, 6, "0123456789")

FIELDS = Family(
    name="comma_fields",
    tasks=(
        easy(
            "comma_fields(line)",
            "returns a list of the parts of the string `line` between commas",
            "return line.split(',')",
            examples=("'a,b,c'", "'x'"),
            hidden=("'1,2'", "'a,,b'", "'one two,three'", "'p,q,r,s,'"),
            draw=(text(3, 9, "ab,"),),
        ),
        easy(
            "comma_line(fields)",
            "returns the strings of the list `fields` joined by commas",
            "return ','.join(fields)",
            examples=("['a', 'b', 'c']", "['x']"),
            hidden=("[]", "['1', '2']", "['a', '', 'b']", "['one two', 'three']"),
        ),
        easy(
            "first_field(line)",
            "returns the part of the string `line` before its first comma; `line` has at least one comma",
            "return line.split(',')[0]",
            examples=("'a,b,c'", "'red,1'"),
            hidden=("',x'", "'ab,'", "'one two,three'", "'10,20,30'"),
        ),
        medium(
            "comma_numbers(line)",
            "returns a list of the whole numbers in the string `line`, which are separated by commas",
            "return [int(part) for part in line.split(',')]",
            examples=("'1,2,3'", "'7'"),
            hidden=("'0,0'", "'-5,5'", "'10,20,30,40'", "'9,08'"),
        ),
        medium(
            "fields_to_dict(header, line)",
            "returns a dict that maps each name in the comma-separated string `header` to the part at the same place "
            "of the comma-separated string `line`",
            "return dict(zip(header.split(','), line.split(',')))",
            examples=("'name,age', 'Ann,30'", "'x', '1'"),
            hidden=("'a,b,c', '1,2,3'", "'k', ''", "'one two,y', 'p,q r'", "'id,city,zip', '7,Rome,00100'"),
        ),
    ),
)

SETTINGS = Family(
    name="settings_text",
    heldout=True,
    tasks=(
        easy(
            "is_turned_on(value)",
            "returns True if the string `value` is 'on', and False otherwise",
            "return value == 'on'",
            examples=("'on'", "'off'"),
            hidden=("''", "'ON'", "'on'", "'one'"),
            draw=(one_of("on", "off", "no", "yes", "ono", "o"),),
        ),
        easy(
            "setting_line(name, value)",
            "returns the string made of `name`, an `=` sign and `value`, both of which are strings",
            "return name + '=' + value",
            examples=("'color', 'red'", "'size', '10'"),
            hidden=("'a', 'b'", "'', 'x'", "'long name', '1'", "'key', ''"),
            draw=(word(), digits),
        ),
        easy(
            "is_comment(line)",
            "returns True if the string `line` starts with `#`, and False otherwise",
            "return line.startswith('#')",
            examples=("'# note'", "'color=red'"),
            hidden=("''", "'#'", "'a # b'", "' # note'"),
            draw=(text(1, 4, "# a"),),
        ),
        medium(
            "setting_pair(line)",
            "returns a tuple of the texts before and after the only `=` sign of the string `line`, both without spaces "
            "around them",
            "name, value = line.split('=')\nreturn (name.strip(), value.strip())",
            examples=("'color = red'", "'size=10'"),
            hidden=("' a=b '", "'x   =   y'", "'long name = 1'", "'key= '"),
        ),
        medium(
            "num_settings(lines)",
            "returns how many strings of the list `lines` contain an `=` sign",
            "return sum(1 for line in lines if '=' in line)",
            examples=("['a=1', '# note', 'b=2']", "[]"),
            hidden=("['x']", "['=', '==', 'a']", "['k=v', 'k=v', 'k=v']", "['', ' = ']"),
        ),
        hard(
            "settings_dict(text)",
            "returns a dict from name to value for the string `text`, whose lines have the form name=value; "
            "lines without `=` are left out",
            """
            settings = {}
            for line in text.split('\\n'):
                if '=' in line:
                    name, value = line.split('=')
                    settings[name] = value
            return settings
            """,
            examples=("'a=1\\nb=2'", "'# none'"),
            hidden=("''", "'x=y'", "'a=1\\n\\n# c\\nd=4'", "'k=1\\nk=2'"),
        ),
    ),
)

LINES = Family(
    name="lines_of_text",
    tasks=(
        easy(
            "line_list(text)",
            "returns a list of the lines of the string `text`, which are separated by `\\n`",
            "return text.split('\\n')",
            examples=("'a\\nb'", "'one line'"),
            hidden=("'x\\ny\\nz'", "'a\\n\\nb'", "'hello world\\nbye'", "'1\\n2\\n3\\n4'"),
        ),
        easy(
            "first_line(text)",
            "returns the first line of the string `text`, whose lines are separated by `\\n`",
            "return text.split('\\n')[0]",
            examples=("'a\\nb'", "'one line'"),
            hidden=("'x\\ny\\nz'", "'\\nb'", "'hello world\\nbye'", "'10\\n20'"),
        ),
        easy(
            "text_of_lines(lines)",
            "returns the strings of the list `lines` joined by `\\n`",
            "return '\\n'.join(lines)",
            examples=("['a', 'b']", "['one line']"),
            hidden=("[]", "['x', 'y', 'z']", "['a', '', 'b']", "['hello world', 'bye']"),
        ),
        medium(
            "num_blank_lines(text)",
            "returns how many lines of the string `text`, which are separated by `\\n`, are empty",
            "return sum(1 for line in text.split('\\n') if line == '')",
            examples=("'a\\n\\nb'", "'a'"),
            hidden=("''", "'x\\ny'", "'a\\n\\n\\nb\\n\\nc'", "'\\nb'"),
        ),
        hard(
            "numbered_lines(text)",
            "returns the string `text` with every line put after its number and a colon, so that `'a\\nb'` becomes "
            "`'1:a\\n2:b'`",
            "return '\\n'.join(f'{i}:{line}' for i, line in enumerate(text.split('\\n'), 1))",
            examples=("'a\\nb'", "'one line'"),
            hidden=("''", "'x\\ny\\nz'", "'a\\n\\nb'", "'1:a\\n2:b'"),
        ),
    ),
)

PATHS = Family(
    name="path_text",
    heldout=True,
    tasks=(
        easy(
            "file_name(path)",
            "returns the part of the string `path` after its last `/`, or all of `path` if it has no `/`",
            "return path.split('/')[-1]",
            examples=("'home/ann/a.txt'", "'b.py'"),
            hidden=("'/x'", "'a/b'", "'one/two/three/four.md'", "'c d/e f.txt'"),
            draw=(text(3, 8, "ab/"),),
        ),
        easy(
            "join_path(folder, name)",
            "returns the string made of `folder`, a `/` and `name`",
            "return folder + '/' + name",
            examples=("'home', 'a.txt'", "'a/b', 'c'"),
            hidden=("'x', 'y'", "'', 'root'", "'one two', 'three'", "'src/main', 'run.py'"),
            draw=(word(), word()),
        ),
        easy(
            "is_python_file(name)",
            "returns True if the string `name` ends with `.py`, and False otherwise",
            "return name.endswith('.py')",
            examples=("'main.py'", "'notes.txt'"),
            hidden=("''", "'py'", "'a.pyc'", "'folder/b.py'"),
            draw=(one_of("a.py", "b.txt", "py", "c.py", "d.py.txt", "e.md", "f/g.py", ".py"),),
        ),
        medium(
            "parent_folder(path)",
            "returns the part of the string `path` before its last `/`; `path` has at least one `/`",
            "return path.rsplit('/', 1)[0]",
            examples=("'home/ann/a.txt'", "'src/b.py'"),
            hidden=("'/x'", "'a/b'", "'one/two/three/four.md'", "'c d/e f/g'"),
            draw=(one_of("a/b/c", "x/y", "home/user/docs/f.txt", "/root", "k/l/m/n"),),
        ),
    ),
)

NUMBER_TEXTS = Family(
    name="number_texts",
    tasks=(
        easy(
            "text_to_number(text)",
            "returns the whole number that the string `text` stands for",
            "return int(text)",
            examples=("'12'", "'-3'"),
            hidden=("'0'", "'007'", "'100000'", "' 5 '"),
            draw=(digits,),
        ),
        easy(
            "number_to_text(n)",
            "returns the whole number `n` as a string",
            "return str(n)",
            examples=("12", "-3"),
            hidden=("0", "7", "100000", "-99"),
            draw=(whole(-999, 999),),
        ),
        easy(
            "times_text(n, text)",
            "returns `n` times the whole number that the string `text` stands for",
            "return n * int(text)",
            examples=("2, '12'", "3, '-3'"),
            hidden=("0, '5'", "1, '007'", "-2, '10'", "10, '10'"),
            draw=(whole(-9, 9), digits),
        ),
        medium(
            "sum_of_text(text)",
            "returns the value of the string `text`, in which whole numbers are separated by `+`",
            "return sum(int(part) for part in text.split('+'))",
            examples=("'1+2+3'", "'7'"),
            hidden=("'0+0'", "'10 + 20'", "'100+1+1+1'", "'9+09'"),
        ),
        hard(
            "roman_to_number(text)",
            "returns the number that the string `text` of the Roman digits I (1), V (5) and X (10) stands for; a digit "
            "before a larger one is subtracted, all others are added",
            """
            values = [{'I': 1, 'V': 5, 'X': 10}[digit] for digit in text]
            return sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0]))
            """,
            examples=("'VII'", "'IX'"),
            hidden=("'I'", "'IV'", "'XXXIX'", "'XIV'"),
            draw=(one_of("II", "VI", "VIII", "XI", "XII", "XIX", "XXIV", "XXX", "XVI", "XXVII", "XIII"),),
        ),
    ),
)

FAMILIES = (FIELDS, SETTINGS, LINES, PATHS, NUMBER_TEXTS)
