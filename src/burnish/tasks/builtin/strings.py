"""Families about one piece of text: its case, its order, its ends, what it holds."""

from burnish.tasks.builtin.inputs import LOWER, one_of, sentence, text, whole
from burnish.tasks.family import Family, easy, hard, medium

CHANGE_CASE = (
    easy(
        "to_upper(text)", "returns the text in upper case", "return text.upper()",
        examples=("'hello'", "'Ab1'"), hidden=("''", "'a'", "'MiXed case'", "'ok!'"), draw=(text(),),
    ),
    easy(
        "to_lower(text)", "returns the text in lower case", "return text.lower()",
        examples=("'Hello'", "'ABC 1'"), hidden=("''", "'Z'", "'MiXed CASE'", "'OK!'"), draw=(text(),),
    ),
    easy(
        "whisper(text)", "returns the text in lower case with three dots '...' added at the end",
        "return text.lower() + '...'",
        examples=("'Hello'", "'GO on'"), hidden=("''", "'A'", "'now'", "'So...'"), draw=(text(),),
    ),
    medium(
        "alternate_case(text)",
        "returns the text with the characters at even positions (0, 2, 4, ...) in upper case "
        "and the others in lower case",
        "return ''.join(c.upper() if i % 2 == 0 else c.lower() for i, c in enumerate(text))",
        examples=("'hello'", "'ABCD'"), hidden=("''", "'a'", "'Zz'", "'one two'"), draw=(text(),),
    ),
)  # fmt: skip

REVERSE_TEXT = (
    easy(
        "reverse_string(text)", "returns the text with its characters in reverse order", "return text[::-1]",
        examples=("'hello'", "'ab c'"), hidden=("''", "'x'", "'Level'", "'12345'"), draw=(text(),),
    ),
    easy(
        "is_palindrome(text)", "returns True if the text reads the same forwards and backwards, otherwise False",
        "return text == text[::-1]",
        examples=("'level'", "'hello'"), hidden=("''", "'ab'", "'abba'", "'abca'", "'Noon'"),
        draw=(text(0, 3, "ab"),),
    ),
    easy(
        "mirror_text(text)", "returns the text followed by the same text reversed", "return text + text[::-1]",
        examples=("'abc'", "'Hi'"), hidden=("''", "'x'", "'aa'", "'go on'"), draw=(text(),),
    ),
    medium(
        "reverse_word_order(sentence)",
        "returns the sentence with its words in reverse order, with one space between them",
        "return ' '.join(sentence.split()[::-1])",
        examples=("'I like tea'", "'hello'"), hidden=("''", "'a b'", "'one two one'", "'no on'"), draw=(sentence(),),
    ),
    hard(
        "reverse_vowels(text)",
        "returns the text with its vowels (a, e, i, o, u in lower case) in reverse order "
        "and all other characters in place",
        """
        vowels = [c for c in text if c in 'aeiou']
        return ''.join(vowels.pop() if c in 'aeiou' else c for c in text)
        """,
        examples=("'hello'", "'code it'"), hidden=("''", "'sky'", "'aeiou'", "'Apple pie'"),
        draw=(text(0, 9, "aeioukt "),),
    ),
)  # fmt: skip

COUNT_IN_TEXT = (
    easy(
        "count_char(text, char)", "returns how many times the character appears in the text", "return text.count(char)",
        examples=("'banana', 'a'", "'hello', 'z'"), hidden=("'', 'a'", "'aaaa', 'a'", "'Aa', 'a'", "'a b c', ' '"),
        draw=(text(0, 12, "abc "), one_of(*"abc ")),
    ),
    easy(
        "count_words(sentence)", "returns the number of words in the sentence; words are separated by spaces",
        "return len(sentence.split())",
        examples=("'I like tea'", "'hello'"), hidden=("''", "'a b'", "'one two three four'", "'x y z'"),
        draw=(sentence(),),
    ),
    easy(
        "count_spaces(text)", "returns the number of spaces in the text", "return text.count(' ')",
        examples=("'a b c'", "'hello'"), hidden=("''", "' '", "'   '", "'one two '"), draw=(text(0, 10, "ab  "),),
    ),
    medium(
        "count_vowels(text)", "returns the number of vowels (a, e, i, o, u, in lower or upper case) in the text",
        "return sum(1 for c in text.lower() if c in 'aeiou')",
        examples=("'hello'", "'Orange'"), hidden=("''", "'sky'", "'AEIOU'", "'a quick test'"), draw=(text(),),
    ),
    medium(
        "count_digits(text)", "returns how many characters of the text are digits",
        "return sum(1 for c in text if c.isdigit())",
        examples=("'a1b22'", "'hello'"), hidden=("''", "'2024'", "'7 up'", "'x9y8z7'"), draw=(text(),),
    ),
)  # fmt: skip

TEXT_LENGTH = (
    easy(
        "text_length(text)", "returns the number of characters in the text", "return len(text)",
        examples=("'hello'", "'a b'"), hidden=("''", "'x'", "'   '", "'twelve chars'"), draw=(text(),),
    ),
    easy(
        "chars_in_both(first, second)", "returns the number of characters of both texts together",
        "return len(first) + len(second)",
        examples=("'ab', 'cde'", "'', 'x'"), hidden=("'', ''", "'hello', ''", "'a', 'a'", "'one two', 'three'"),
        draw=(text(), text()),
    ),
    easy(
        "is_longer_than(text, n)", "returns True if the text has more than n characters, otherwise False",
        "return len(text) > n",
        examples=("'hello', 3", "'hi', 2"), hidden=("'', 0", "'a', 0", "'abc', 4", "'abcdef', 5"),
        draw=(text(0, 8), whole(0, 8)),
    ),
    medium(
        "longer_text(first, second)",
        "returns the longer of the two texts; if they have the same length, returns the first",
        "return first if len(first) >= len(second) else second",
        examples=("'ab', 'abc'", "'cat', 'dog'"), hidden=("'', ''", "'x', ''", "'', 'y'", "'zz', 'aa'", "'a', 'bb'"),
        draw=(text(0, 4, "abc"), text(0, 4, "abc")),
    ),
)  # fmt: skip

PICK_CHARS = (
    easy(
        "first_char(text)", "returns the first character of the text; the text is not empty", "return text[0]",
        examples=("'hello'", "'Z9'"), hidden=("'x'", "' a'", "'987'", "'World!'"), draw=(text(1, 8),),
    ),
    easy(
        "last_char(text)", "returns the last character of the text; the text is not empty", "return text[-1]",
        examples=("'hello'", "'Z9'"), hidden=("'x'", "'a '", "'987'", "'World!'"), draw=(text(1, 8),),
    ),
    easy(
        "drop_first_char(text)",
        "returns the text without its first character; the text is not empty", "return text[1:]",
        examples=("'hello'", "'ab'"), hidden=("'x'", "' a'", "'aab'", "'987'"), draw=(text(1, 8),),
    ),
    easy(
        "every_second_char(text)",
        "returns the characters of the text at positions 0, 2, 4 and so on", "return text[::2]",
        examples=("'abcdef'", "'hello'"), hidden=("''", "'x'", "'ab'", "'a b c d'"), draw=(text(),),
    ),
    medium(
        "middle_char(text)",
        "returns the character in the middle of a text of odd length", "return text[len(text) // 2]",
        examples=("'abc'", "'hello'"), hidden=("'x'", "'a1b'", "'1234567'", "'  .  '"),
        draw=(one_of("a", "xyz", "Bob", "level", "a-b-c", "seven77", "ninechars"),),
    ),
)  # fmt: skip

TEXT_CHECKS = (
    easy(
        "has_space(text)", "returns True if the text contains a space, otherwise False", "return ' ' in text",
        examples=("'a b'", "'hello'"), hidden=("''", "' '", "'end '", "'a_b'"), draw=(text(0, 4, "ab "),),
    ),
    easy(
        "only_digits(text)", "returns True if the text is not empty and all its characters are digits, otherwise False",
        "return text.isdigit()",
        examples=("'123'", "'12a'"), hidden=("''", "'0'", "'4.5'", "'-1'", "'99999'"), draw=(text(0, 3, "0123a"),),
    ),
    easy(
        "is_all_upper(text)", "returns True if the text is equal to itself in upper case, otherwise False",
        "return text == text.upper()",
        examples=("'ABC'", "'Abc'"), hidden=("''", "'A1!'", "'a'", "'HELLO WORLd'"), draw=(text(0, 4, "ABCa1"),),
    ),
    medium(
        "has_repeated_char(text)", "returns True if any character appears more than once in the text, otherwise False",
        "return len(set(text)) != len(text)",
        examples=("'hello'", "'world'"), hidden=("''", "'a'", "'aA'", "'abcda'", "'1 2 3'"), draw=(text(0, 5),),
    ),
    hard(
        "is_balanced(text)",
        "returns True if every '(' in the text is closed by a later ')' and every ')' closes an earlier '(', "
        "otherwise False",
        """
        depth = 0
        for c in text:
            depth += (c == '(') - (c == ')')
            if depth < 0:
                return False
        return depth == 0
        """,
        examples=("'(a)(b)'", "')('"), hidden=("''", "'('", "'())('", "'((x)y)'", "'no'"), draw=(text(0, 4, "()"),),
    ),
)  # fmt: skip

STARTS_AND_ENDS = (
    easy(
        "starts_with(text, prefix)", "returns True if the text starts with the prefix, otherwise False",
        "return text.startswith(prefix)",
        examples=("'hello', 'he'", "'hello', 'lo'"), hidden=("'', 'a'", "'a', ''", "'Hello', 'he'", "'abc', 'abc'"),
        draw=(text(0, 3, "ab"), text(1, 1, "ab")),
    ),
    easy(
        "ends_with(text, suffix)", "returns True if the text ends with the suffix, otherwise False",
        "return text.endswith(suffix)",
        examples=("'hello', 'lo'", "'hello', 'he'"), hidden=("'', 'a'", "'a', ''", "'ABC', 'bc'", "'abc', 'abc'"),
        draw=(text(0, 3, "ab"), text(1, 1, "ab")),
    ),
    easy(
        "is_question(sentence)", "returns True if the sentence ends with a question mark '?', otherwise False",
        "return sentence.endswith('?')",
        examples=("'Who is it?'", "'I am.'"), hidden=("''", "'?'", "'What? No'", "'Why ?'", "'Wait!'"),
        draw=(text(1, 3, "a??"),),
    ),
    medium(
        "starts_with_vowel(word)",
        "returns True if the first letter of the word is a vowel (a, e, i, o, u, in lower or upper case), otherwise "
        "False; an empty word gives False",
        "return word[:1].lower() in ('a', 'e', 'i', 'o', 'u')",
        examples=("'apple'", "'tree'"), hidden=("''", "'Ice'", "'sky'", "'U'", "'bee'"), draw=(text(0, 3, "aeBIxt"),),
    ),
    hard(
        "common_prefix(first, second)", "returns the longest text that both texts start with",
        """
        size = 0
        while size < min(len(first), len(second)) and first[size] == second[size]:
            size += 1
        return first[:size]
        """,
        examples=("'flower', 'flow'", "'cat', 'dog'"),
        hidden=("'', 'a'", "'same', 'same'", "'abX', 'abY'", "'ab', 'abcd'", "'xbc', 'ybc'"),
        draw=(text(0, 5, "ab"), text(0, 5, "ab")),
    ),
)  # fmt: skip

LETTER_CODES = (
    easy(
        "char_code(char)", "returns the Unicode code of the character as a number", "return ord(char)",
        examples=("'a'", "'A'"), hidden=("' '", "'z'", "'0'", "'!'"), draw=(text(1, 1),),
    ),
    easy(
        "code_to_char(code)", "returns the character with the given Unicode code", "return chr(code)",
        examples=("97", "65"), hidden=("32", "122", "48", "33"), draw=(whole(33, 126),),
    ),
    medium(
        "letter_position(letter)",
        "returns the position of a lower-case letter in the alphabet, where 'a' is 1 and 'z' is 26",
        "return ord(letter) - ord('a') + 1",
        examples=("'a'", "'c'"), hidden=("'z'", "'b'", "'m'", "'y'"), draw=(text(1, 1, LOWER),),
    ),
    hard(
        "shift_letters(text, n)",
        "moves every lower-case letter of the text n places forward in the alphabet, with 'a' after 'z', "
        "leaves all other characters as they are, and returns the new text",
        "return ''.join(chr((ord(c) - 97 + n) % 26 + 97) if 'a' <= c <= 'z' else c for c in text)",
        examples=("'abc', 1", "'xyz!', 3"), hidden=("'', 5", "'z', 1", "'Hello', 13", "'abc', 26", "'a z', 25"),
        draw=(text(0, 8, LOWER + "AB !"), whole(1, 25)),
    ),
)  # fmt: skip

WORD_CHECKS = (
    easy(
        "same_ignoring_case(first, second)",
        "returns True if the two texts are equal when upper and lower case do not matter, otherwise False",
        "return first.lower() == second.lower()",
        examples=("'Hello', 'hELLO'", "'a', 'b'"),
        hidden=("'', ''", "'A', 'a'", "'ab', 'a'", "'X1', 'x1'", "'no', 'NOT'"),
        draw=(text(1, 2, "aAb"), text(1, 2, "aAb")),
    ),
    easy(
        "same_length(first, second)", "returns True if both texts have the same number of characters, otherwise False",
        "return len(first) == len(second)",
        examples=("'cat', 'dog'", "'a', 'bb'"), hidden=("'', ''", "'', 'x'", "'abc', 'xyz'", "'ab', 'a'"),
        draw=(text(0, 2), text(0, 2)),
    ),
    easy(
        "first_in_alphabet(first, second)",
        "returns the one of two lower-case words that comes first in alphabetical order",
        "return min(first, second)",
        examples=("'cat', 'dog'", "'zoo', 'ape'"), hidden=("'a', 'a'", "'ab', 'abc'", "'bee', 'bed'", "'z', 'y'"),
        draw=(text(1, 3, "abc"), text(1, 3, "abc")),
    ),
    medium(
        "are_anagrams(first, second)",
        "returns True if the two words are made of exactly the same letters in any order, otherwise False",
        "return sorted(first) == sorted(second)",
        examples=("'listen', 'silent'", "'cat', 'car'"),
        hidden=("'', ''", "'a', 'aa'", "'abb', 'aab'", "'stop', 'pots'", "'abc', 'cab'"),
        draw=(text(2, 3, "ab"), text(2, 3, "ab")),
    ),
    medium(
        "longest_word(sentence)",
        "returns the longest word of the sentence; if several have the same length, returns the first of them",
        "return max(sentence.split(), key=len)",
        examples=("'I like tea'", "'a big cat'"), hidden=("'one'", "'aa bb'", "'x yyy zz'", "'the quick brown fox'"),
        draw=(sentence(1, 5),),
    ),
    hard(
        "longest_char_run(text)", "returns the length of the longest run of equal characters next to each other; "
        "an empty text gives 0",
        """
        best = run = 0
        for i, c in enumerate(text):
            run = run + 1 if i and text[i - 1] == c else 1
            best = max(best, run)
        return best
        """,
        examples=("'aabbb'", "'abc'"), hidden=("''", "'x'", "'aaaa'", "'abba'", "'aabaaab'"), draw=(text(0, 10, "ab"),),
    ),
)  # fmt: skip

FAMILIES: tuple[Family, ...] = (
    Family(name="change_case", tasks=CHANGE_CASE),
    Family(name="reverse_text", tasks=REVERSE_TEXT),
    Family(name="count_in_text", tasks=COUNT_IN_TEXT),
    Family(name="text_length", tasks=TEXT_LENGTH),
    Family(name="pick_chars", tasks=PICK_CHARS),
    Family(name="text_checks", tasks=TEXT_CHECKS),
    Family(name="starts_and_ends", tasks=STARTS_AND_ENDS, heldout=True),
    Family(name="letter_codes", tasks=LETTER_CODES),
    Family(name="word_checks", tasks=WORD_CHECKS),
)
