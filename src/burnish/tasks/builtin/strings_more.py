"""Families that make new text: replacing, trimming, wrapping, joining, sorting, repeating."""

from burnish.tasks.builtin.inputs import LOWER, listed, one_of, sentence, text, whole, word
from burnish.tasks.family import Family, easy, hard, medium

REPLACE_TEXT = (
    easy(
        "remove_spaces(text)", "returns the text without its spaces", "return text.replace(' ', '')",
        examples=("'a b c'", "'hello'"), hidden=("''", "'   '", "' x'", "'go to bed'"), draw=(text(0, 10, "abC  "),),
    ),
    easy(
        "spaces_to_dashes(text)", "returns the text with every space replaced by a dash '-'",
        "return text.replace(' ', '-')",
        examples=("'a b'", "'hello'"), hidden=("''", "'  '", "'x - y'", "' end'"), draw=(text(0, 10, "abC  "),),
    ),
    easy(
        "replace_char(text, old, new)", "returns the text with every character old replaced by new",
        "return text.replace(old, new)",
        examples=("'banana', 'a', 'o'", "'hello', 'z', 'y'"),
        hidden=("'', 'a', 'b'", "'aaa', 'a', 'x'", "'A a', 'a', 'e'", "'1-2-3', '-', '+'"),
        draw=(text(0, 10, "abc"), one_of(*"abc"), one_of(*"xyz")),
    ),
    medium(
        "remove_vowels(text)", "returns the text without its vowels (a, e, i, o, u, in lower or upper case)",
        "return ''.join(c for c in text if c.lower() not in 'aeiou')",
        examples=("'hello'", "'Apple pie'"), hidden=("''", "'sky'", "'AEIOU'", "'Quiet Up'"), draw=(text(),),
    ),
    hard(
        "squeeze_text(text)",
        "returns the text with every run of equal characters next to each other reduced to one of them",
        "return ''.join(c for i, c in enumerate(text) if i == 0 or text[i - 1] != c)",
        examples=("'aabbb'", "'hello'"), hidden=("''", "'x'", "'aaaa'", "'abab'", "'1122 11'"),
        draw=(text(0, 10, "ab"),),
    ),
)  # fmt: skip

TRIM_TEXT = (
    easy(
        "trim_text(text)", "returns the text without the spaces at its start and at its end", "return text.strip()",
        examples=("'  hi '", "'a b'"), hidden=("''", "'   '", "' x'", "'y  '", "' a  b '"), draw=(text(0, 8, "ab  "),),
    ),
    easy(
        "trim_start(text)", "returns the text without the spaces at its start", "return text.lstrip()",
        examples=("'  hi '", "'a b'"), hidden=("''", "'   '", "' x'", "'y  '", "' a  b '"), draw=(text(0, 8, "ab  "),),
    ),
    easy(
        "without_last_char(text)", "returns the text without its last character; an empty text gives an empty text",
        "return text[:-1]",
        examples=("'hello'", "'ab'"), hidden=("''", "'x'", "'a '", "'xyzz'"), draw=(text(0, 8),),
    ),
    medium(
        "without_prefix(text, prefix)",
        "returns the text without the prefix at its start; if the text does not start with "
        "the prefix, returns the text unchanged",
        "return text[len(prefix):] if text.startswith(prefix) else text",
        examples=("'unhappy', 'un'", "'tree', 'un'"), hidden=("'', 'a'", "'aaa', 'a'", "'abc', 'abc'", "'xab', 'ab'"),
        draw=(text(0, 5, "ab"), text(1, 2, "ab")),
    ),
    medium(
        "only_letters(text)", "returns the text without the characters that are not letters",
        "return ''.join(c for c in text if c.isalpha())",
        examples=("'a1b2'", "'Hi there!'"), hidden=("''", "'123'", "'abc'", "'x-Y_z 0'"), draw=(text(),),
    ),
)  # fmt: skip

WRAP_TEXT = (
    easy(
        "in_brackets(text)", "returns the text with '[' put before it and ']' put after it", "return '[' + text + ']'",
        examples=("'hello'", "'a b'"), hidden=("''", "'x'", "'[1]'", "'!'"), draw=(text(),),
    ),
    easy(
        "surround(text, mark)", "returns the text with the mark put before it and after it",
        "return mark + text + mark",
        examples=("'hi', '*'", "'a b', '--'"), hidden=("'', '#'", "'x', ''", "'**', '*'", "'ok', ' '"),
        draw=(text(0, 6), text(1, 2, "*#-+")),
    ),
    easy(
        "add_period(sentence)", "returns the sentence with a period '.' added at the end", "return sentence + '.'",
        examples=("'I like tea'", "'Go'"), hidden=("''", "'Wait..'", "'a b'", "'Yes, no'"), draw=(sentence(),),
    ),
    medium(
        "pad_right(text, width)", "returns the text with spaces added at its end until it has width characters; "
        "a text that is already long enough is returned unchanged",
        "return text + ' ' * (width - len(text))",
        examples=("'ab', 4", "'hello', 3"), hidden=("'', 2", "'x', 1", "'x', 0", "'a b', 6"),
        draw=(text(0, 6), whole(0, 8)),
    ),
    hard(
        "shorten_text(text, n)",
        "returns the text unchanged if it has at most n characters, and otherwise its first n - 3 "
        "characters followed by '...'; n is at least 3",
        "return text if len(text) <= n else text[:n - 3] + '...'",
        examples=("'hello world', 8", "'hello', 8"), hidden=("'', 3", "'abc', 3", "'abcd', 3", "'a b c d', 6"),
        draw=(text(0, 12), whole(3, 10)),
    ),
)  # fmt: skip

JOIN_TEXT = (
    easy(
        "greet(name)",
        "returns 'Hello, ' followed by the name and an exclamation mark", "return 'Hello, ' + name + '!'",
        examples=("'Ada'", "'Bob'"), hidden=("''", "'X'", "'Ann Lee'", "'you'"), draw=(word(),),
    ),
    easy(
        "full_name(first, last)", "returns the first name and the last name with one space between them",
        "return first + ' ' + last",
        examples=("'Ada', 'Lovelace'", "'Bo', 'Li'"), hidden=("'A', 'B'", "'', 'x'", "'Mary Ann', 'Ray'", "'x', ''"),
        draw=(word(), word()),
    ),
    easy(
        "join_words(words)", "returns the words of the list in one text, with one space between them",
        "return ' '.join(words)",
        examples=("['I', 'like', 'tea']", "['hi']"), hidden=("[]", "['a', 'b']", "['', '']", "['one', 'two', 'three']"),
        draw=(listed(word(), 0, 4),),
    ),
    easy(
        "join_with(words, separator)", "returns the words of the list in one text, with the separator between them",
        "return separator.join(words)",
        examples=("['a', 'b', 'c'], '-'", "['hi'], ','"),
        hidden=("[], '+'", "['x', 'y'], ''", "['1', '2'], ', '", "['a'], '/'"),
        draw=(listed(word(), 0, 4), one_of(", ", "-", "/", "")),
    ),
    medium(
        "initials(name)", "returns the first letter of every word of the name, in upper case and without spaces",
        "return ''.join(word[0].upper() for word in name.split())",
        examples=("'ada lovelace'", "'Bob'"), hidden=("''", "'x y z'", "'Mary Ann Ray'", "'john F kennedy'"),
        draw=(sentence(),),
    ),
    medium(
        "join_with_and(words)", "returns the words of a list that is not empty in one text, with ' and ' between them, "
        "each word in upper case",
        "return ' and '.join(w.upper() for w in words)",
        examples=("['tea', 'milk']", "['hi']"), hidden=("['a', 'b', 'c']", "['X']", "['Up', 'down']", "['and', 'or']"),
        draw=(listed(word(), 1, 4),),
    ),
)  # fmt: skip

REPEAT_TEXT = (
    easy(
        "repeat_text(text, n)", "returns the text repeated n times", "return text * n",
        examples=("'ab', 3", "'x', 0"), hidden=("'', 5", "'hi', 1", "'a b', 2", "'-', 8"),
        draw=(text(0, 4), whole(0, 4)),
    ),
    easy(
        "star_line(n)", "returns a text of n stars '*'", "return '*' * n",
        examples=("3", "0"), hidden=("1", "2", "7", "12"), draw=(whole(0, 20),),
    ),
    easy(
        "echo_twice(text)", "returns the text two times with one space between", "return text + ' ' + text",
        examples=("'hi'", "'a b'"), hidden=("''", "'x'", "'no no'", "'42'"), draw=(text(),),
    ),
    medium(
        "double_letters(text)", "returns the text with every character written twice",
        "return ''.join(c * 2 for c in text)",
        examples=("'abc'", "'hi'"), hidden=("''", "'x'", "'aa'", "'1 2'"), draw=(text(),),
    ),
    hard(
        "stairs(n)", "returns a text of n lines, where the first line has one '#', the second has two, and so on; "
        "the lines are joined by a newline character",
        r"return '\n'.join('#' * i for i in range(1, n + 1))",
        examples=("3", "1"), hidden=("0", "2", "4", "6"), num_random=0,
    ),
)  # fmt: skip

SORT_TEXT = (
    easy(
        "sorted_letters(text)", "returns a text with the characters of the given text in sorted order",
        "return ''.join(sorted(text))",
        examples=("'hello'", "'cab'"), hidden=("''", "'x'", "'Ba'", "'3 1 2'"), draw=(text(),),
    ),
    easy(
        "sorted_words(sentence)", "returns a list of the words of the sentence in sorted order",
        "return sorted(sentence.split())",
        examples=("'tea and cake'", "'hi'"), hidden=("''", "'b a'", "'one two one'", "'B a C'"), draw=(sentence(),),
    ),
    easy(
        "unique_chars(text)",
        "returns a sorted list of the different characters of the text", "return sorted(set(text))",
        examples=("'hello'", "'aaa'"), hidden=("''", "'ba'", "'abcABC'", "'1 1'"), draw=(text(0, 8, "abAB1 "),),
    ),
    medium(
        "words_by_length(sentence)",
        "returns a list of the words of the sentence from the shortest to the longest; "
        "words of equal length keep their order",
        "return sorted(sentence.split(), key=len)",
        examples=("'three on a tree'", "'hi'"), hidden=("''", "'bb aa c'", "'longest word is last'", "'x y'"),
        draw=(sentence(),),
    ),
)  # fmt: skip

SPLIT_TEXT = (
    easy(
        "split_words(sentence)", "returns a list of the words of the sentence; words are separated by spaces",
        "return sentence.split()",
        examples=("'I like tea'", "'hi'"), hidden=("''", "'a b'", "'x y z'", "'one, two'"), draw=(sentence(),),
    ),
    easy(
        "split_commas(text)",
        "returns the list of the parts of the text between commas; the commas are not part of them",
        "return text.split(',')",
        examples=("'a,b,c'", "'hi'"), hidden=("''", "','", "'1,,2'", "'x, y'"), draw=(text(0, 8, "ab,"),),
    ),
    easy(
        "list_of_chars(text)", "returns a list of the characters of the text", "return list(text)",
        examples=("'abc'", "'hi!'"), hidden=("''", "'x'", "'a a'", "'123'"), draw=(text(),),
    ),
    easy(
        "first_word(sentence)", "returns the first word of the sentence, which has at least one word",
        "return sentence.split()[0]",
        examples=("'I like tea'", "'hello'"), hidden=("'a b'", "'x'", "'two words'", "'no, thanks'"),
        draw=(sentence(1, 4),),
    ),
    medium(
        "word_lengths(sentence)", "returns a list with the length of every word of the sentence",
        "return [len(word) for word in sentence.split()]",
        examples=("'I like tea'", "'hi'"), hidden=("''", "'a b'", "'one three'", "'x yy zzz'"), draw=(sentence(),),
    ),
    hard(
        "chunks_of(text, n)",
        "returns a list of pieces of the text, each n characters long, in order; the last piece may "
        "be shorter",
        "return [text[i:i + n] for i in range(0, len(text), n)]",
        examples=("'abcdef', 2", "'hello', 3"), hidden=("'', 2", "'abc', 1", "'ab', 5", "'a b c', 4"),
        draw=(text(0, 9, LOWER), whole(1, 4)),
    ),
)  # fmt: skip

FIND_IN_TEXT = (
    easy(
        "find_char(text, char)",
        "returns the position of the first time the character appears in the text, or -1 if it "
        "does not appear",
        "return text.find(char)",
        examples=("'hello', 'l'", "'hello', 'z'"), hidden=("'', 'a'", "'a', 'a'", "'banana', 'n'", "'Ab', 'b'"),
        draw=(text(0, 6, "abc"), one_of(*"abc")),
    ),
    easy(
        "char_at(text, i)", "returns the character of the text at position i, counted from 0", "return text[i]",
        examples=("'hello', 0", "'hello', 4"), hidden=("'x', 0", "'abc', 1", "'a b', 1", "'12345', 3"),
        draw=(text(5, 8), whole(0, 4)),
    ),
    easy(
        "text_before(text, i)", "returns the part of the text before position i", "return text[:i]",
        examples=("'hello', 2", "'abc', 0"), hidden=("'', 0", "'x', 1", "'a b c', 3", "'world', 4"),
        draw=(text(5, 8), whole(0, 5)),
    ),
    medium(
        "positions_of_char(text, char)",
        "returns a list of all the positions, counted from 0, of the character in the text",
        "return [i for i, c in enumerate(text) if c == char]",
        examples=("'banana', 'a'", "'hello', 'z'"), hidden=("'', 'a'", "'a', 'a'", "'xxx', 'x'", "'a b a', ' '"),
        draw=(text(0, 7, "abc"), one_of(*"abc")),
    ),
    medium(
        "digits_only_number(text)",
        "returns the number made of the digits in the text, in order; a text without digits "
        "gives 0",
        "return int(''.join(c for c in text if c.isdigit()) or 0)",
        examples=("'a1b2'", "'room 101'"), hidden=("''", "'none'", "'7'", "'0x9'", "'3.14'"), draw=(text(),),
    ),
)  # fmt: skip

FAMILIES: tuple[Family, ...] = (
    Family(name="replace_text", tasks=REPLACE_TEXT, heldout=True),
    Family(name="trim_text", tasks=TRIM_TEXT),
    Family(name="wrap_text", tasks=WRAP_TEXT, heldout=True),
    Family(name="join_text", tasks=JOIN_TEXT),
    Family(name="repeat_text", tasks=REPEAT_TEXT),
    Family(name="sort_text", tasks=SORT_TEXT, heldout=True),
    Family(name="split_text", tasks=SPLIT_TEXT),
    Family(name="find_in_text", tasks=FIND_IN_TEXT),
)
