"""Families about the basics of lists: totals, counts, filters, maps, order, membership, building."""

from burnish.tasks.builtin.inputs import LOWER, distinct, listed, one_of, sentence, text, whole, word
from burnish.tasks.family import Family, easy, hard, medium

NUMBERS = listed(whole(-9, 20))
SOME_NUMBERS = listed(whole(-9, 20), 1, 7)
FEW_VALUES = listed(whole(0, 3), 0, 6)  # repeats are likely

LIST_TOTALS = (
    easy(
        "sum_list(numbers)", "returns the sum of the numbers in the list", "return sum(numbers)",
        examples=("[1, 2, 3]", "[]"), hidden=("[5]", "[-1, 1]", "[0, 0]", "[10, 20, 30, 40]"), draw=(NUMBERS,),
    ),
    easy(
        "average(numbers)", "returns the average of the numbers in the list as a float; the list is not empty",
        "return sum(numbers) / len(numbers)",
        examples=("[1, 2, 3]", "[4]"), hidden=("[0, 1]", "[-2, 2]", "[5, 5, 5, 5]", "[10, 20, 40, 50]"),
        draw=(SOME_NUMBERS,),
    ),
    medium(
        "product_list(numbers)", "returns the product of the numbers in the list; an empty list gives 1",
        """
        result = 1
        for n in numbers:
            result *= n
        return result
        """,
        examples=("[2, 3, 4]", "[]"), hidden=("[5]", "[-1, 6]", "[7, 0]", "[1, 2, 3, 4, 5]"), draw=(NUMBERS,),
    ),
    medium(
        "sum_of_squares(numbers)", "returns the sum of the squares of the numbers in the list",
        "return sum(n * n for n in numbers)",
        examples=("[1, 2, 3]", "[]"), hidden=("[5]", "[-1, 1]", "[0, 0]", "[10, -20]"), draw=(NUMBERS,),
    ),
    medium(
        "sum_even(numbers)", "returns the sum of the even numbers in the list",
        "return sum(n for n in numbers if n % 2 == 0)",
        examples=("[1, 2, 4]", "[]"), hidden=("[5]", "[-2, 1, 8]", "[0, 3]", "[10, 20, 35]"), draw=(NUMBERS,),
    ),
)  # fmt: skip

LIST_EXTREMES = (
    easy(
        "largest_in_list(numbers)", "returns the largest number of the list, which is not empty", "return max(numbers)",
        examples=("[1, 5, 3]", "[4]"), hidden=("[-3, -1, -2]", "[0, 0]", "[7, 6]", "[2, 9, 9, 1]"),
        draw=(SOME_NUMBERS,),
    ),
    easy(
        "smallest_in_list(numbers)",
        "returns the smallest number of the list, which is not empty", "return min(numbers)",
        examples=("[4, 1, 3]", "[4]"), hidden=("[-3, -1, -2]", "[0, 0]", "[7, 6]", "[2, 9, 9, 1]"),
        draw=(SOME_NUMBERS,),
    ),
    easy(
        "spread(numbers)",
        "returns the difference between the largest and the smallest number of the list, which is not empty",
        "return max(numbers) - min(numbers)",
        examples=("[4, 1, 3]", "[4]"), hidden=("[-3, 3]", "[0, 0]", "[7, 6]", "[2, 9, 9, 1]"), draw=(SOME_NUMBERS,),
    ),
    medium(
        "position_of_largest(numbers)",
        "returns the position, counted from 0, of the largest number of the list, which is not "
        "empty; if it appears more than once, returns the first position",
        "return numbers.index(max(numbers))",
        examples=("[1, 5, 3]", "[4]"), hidden=("[9, 9]", "[-3, -2]", "[7, 6, 5]", "[0, 1, 2, 3]"), draw=(SOME_NUMBERS,),
    ),
    hard(
        "second_largest(numbers)",
        "returns the second largest of the different numbers in the list, which holds at least two "
        "different numbers",
        "return sorted(set(numbers))[-2]",
        examples=("[1, 5, 3]", "[5, 5, 2]"), hidden=("[0, 1]", "[-1, -2, -3]", "[9, 8, 9, 7]", "[4, 4, 4, 3]"),
        draw=(distinct(-9, 20, 4),),
    ),
)  # fmt: skip

COUNT_IN_LIST = (
    easy(
        "list_length(items)", "returns how many items the list has", "return len(items)",
        examples=("[1, 2, 3]", "[]"), hidden=("['a']", "[0, 0]", "['a', 'b', 'c', 'd']", "[[], []]"), draw=(NUMBERS,),
    ),
    easy(
        "count_item(items, x)", "returns how many times x appears in the list", "return items.count(x)",
        examples=("[1, 2, 1], 1", "[1, 2], 3"), hidden=("[], 0", "[0], 0", "['a', 'b', 'a'], 'a'", "[5, 5, 5, 5], 5"),
        draw=(FEW_VALUES, whole(0, 3)),
    ),
    easy(
        "is_empty_list(items)", "returns True if the list has no items, otherwise False", "return len(items) == 0",
        examples=("[]", "[1, 2]"), hidden=("[0]", "['']", "[None]", "[1, 2, 3]", "list()"), num_random=0,
    ),
    medium(
        "count_even(numbers)", "returns how many numbers of the list are even",
        "return sum(1 for n in numbers if n % 2 == 0)",
        examples=("[1, 2, 4]", "[]"), hidden=("[1]", "[0]", "[-2, -3]", "[2, 4, 6, 7, 8]"), draw=(NUMBERS,),
    ),
    medium(
        "count_longer_than(words, n)", "returns how many words of the list have more than n letters",
        "return sum(1 for word in words if len(word) > n)",
        examples=("['a', 'tree', 'sky'], 2", "[], 1"),
        hidden=("['ab'], 2", "['ab'], 1", "['', 'a'], 0", "['one', 'three', 'seven'], 3"),
        draw=(listed(word()), whole(1, 5)),
    ),
)  # fmt: skip

FILTER_LIST = (
    easy(
        "keep_even(numbers)", "returns a list of the even numbers of the given list, in the same order",
        "return [n for n in numbers if n % 2 == 0]",
        examples=("[1, 2, 4]", "[]"), hidden=("[1]", "[0]", "[-2, -3]", "[8, 7, 6]"), draw=(NUMBERS,),
    ),
    easy(
        "keep_positive(numbers)",
        "returns a list of the numbers of the given list that are greater than 0, in the same order",
        "return [n for n in numbers if n > 0]",
        examples=("[1, -2, 4]", "[]"), hidden=("[0]", "[-1]", "[5]", "[3, 0, -3, 2]"), draw=(NUMBERS,),
    ),
    easy(
        "without_item(items, x)", "returns a list of the items that are not equal to x, in the same order",
        "return [item for item in items if item != x]",
        examples=("[1, 2, 1], 1", "[1, 2], 3"), hidden=("[], 0", "[0], 0", "['a', 'b', 'a'], 'b'", "[5, 6, 5, 7], 5"),
        draw=(FEW_VALUES, whole(0, 3)),
    ),
    medium(
        "words_starting_with(words, letter)",
        "returns a list of the words that start with the letter, in the same order",
        "return [word for word in words if word.startswith(letter)]",
        examples=("['apple', 'tree', 'ant'], 'a'", "['sky'], 'b'"),
        hidden=("[], 'a'", "['', 'a'], 'a'", "['Bob', 'bob'], 'b'", "['x', 'xy', 'yx'], 'x'"),
        draw=(listed(text(1, 3, "abc")), one_of(*"abc")),
    ),
    hard(
        "without_repeats(items)",
        "returns a list with every item of the given list only once, in the order in which they first appear",
        "return list(dict.fromkeys(items))",
        examples=("[3, 1, 3]", "[2, 2]"), hidden=("[]", "[1, 2, 3]", "['b', 'a', 'b']", "[2, 1, 1, 2, 0]"),
        draw=(FEW_VALUES,),
    ),
)  # fmt: skip

MAP_LIST = (
    easy(
        "double_all(numbers)", "returns a list with every number of the given list multiplied by 2",
        "return [n * 2 for n in numbers]",
        examples=("[1, 2, 3]", "[]"), hidden=("[0]", "[-4]", "[5, 5]", "[10, 0, -1]"), draw=(NUMBERS,),
    ),
    easy(
        "add_to_all(numbers, k)", "returns a list with k added to every number of the given list",
        "return [n + k for n in numbers]",
        examples=("[1, 2, 3], 10", "[], 1"), hidden=("[0], 0", "[-4], 4", "[5, 5], -5", "[7, 8], 1"),
        draw=(NUMBERS, whole(-5, 5)),
    ),
    easy(
        "lengths_of(words)", "returns a list with the number of characters of every word in the list",
        "return [len(word) for word in words]",
        examples=("['a', 'tree']", "[]"), hidden=("['']", "['xy', 'xy']", "['one', 'three']", "['a b']"),
        draw=(listed(word()),),
    ),
    easy(
        "upper_all(words)", "returns a list with every word of the given list in upper case",
        "return [word.upper() for word in words]",
        examples=("['a', 'tree']", "[]"), hidden=("['']", "['Xy', 'xY']", "['ONE', 'two']", "['a b']"),
        draw=(listed(word()),),
    ),
    medium(
        "clip_negative(numbers)", "returns a list with every negative number of the given list replaced by 0",
        "return [max(n, 0) for n in numbers]",
        examples=("[1, -2, 3]", "[]"), hidden=("[0]", "[-4]", "[5, 5]", "[-1, -2, 9]"), draw=(NUMBERS,),
    ),
    medium(
        "times_position(numbers)",
        "returns a list with every number of the given list multiplied by its position, counted "
        "from 0",
        "return [i * n for i, n in enumerate(numbers)]",
        examples=("[5, 6, 7]", "[]"), hidden=("[4]", "[1, 1, 1, 1]", "[-1, -2]", "[0, 3]"), draw=(NUMBERS,),
    ),
)  # fmt: skip

LIST_TESTS = (
    easy(
        "contains_item(items, x)", "returns True if x is in the list, otherwise False", "return x in items",
        examples=("[1, 2, 3], 2", "[1, 2, 3], 5"), hidden=("[], 1", "[0], 0", "['a'], 'A'", "['x', 'y'], 'y'"),
        draw=(FEW_VALUES, whole(0, 3)),
    ),
    easy(
        "same_first_item(a, b)",
        "returns True if the first items of the two lists are equal, otherwise False; no list is empty",
        "return a[0] == b[0]",
        examples=("[1, 2], [1, 3]", "[1], [2]"),
        hidden=("[0], [0, 0]", "['a'], ['b']", "[2, 1], [1, 2]", "['x'], ['x']"),
        draw=(listed(whole(0, 1), 1, 3), listed(whole(0, 1), 1, 3)),
    ),
    easy(
        "has_more_items(a, b)", "returns True if the list a has more items than the list b, otherwise False",
        "return len(a) > len(b)",
        examples=("[1, 2], [5]", "[1], [5]"),
        hidden=("[], []", "[], [0]", "['a'], []", "[9], [1, 2]", "[1, 1, 1], [2, 2]"),
        draw=(listed(whole(0, 9), 0, 3), listed(whole(0, 9), 0, 3)),
    ),
    medium(
        "all_even(numbers)",
        "returns True if all numbers of the list are even, otherwise False; an empty list gives True",
        "return all(n % 2 == 0 for n in numbers)",
        examples=("[2, 4]", "[2, 3]"), hidden=("[]", "[0]", "[5]", "[4, 6, 1]", "[-2, 8]"),
        draw=(listed(one_of(2, 4, 6, 10, 7), 1, 4),),
    ),
    medium(
        "any_negative(numbers)", "returns True if at least one number of the list is less than 0, otherwise False",
        "return any(n < 0 for n in numbers)",
        examples=("[1, 2]", "[1, -2]"), hidden=("[]", "[0]", "[-5]", "[3, 4, 0]", "[2, -1, 2]"),
        draw=(listed(whole(-2, 9), 1, 4),),
    ),
)  # fmt: skip

SORT_LIST = (
    easy(
        "sorted_list(numbers)", "returns a list of the given numbers from the smallest to the largest",
        "return sorted(numbers)",
        examples=("[3, 1, 2]", "[]"), hidden=("[5]", "[2, 2, 1]", "[-1, -3]", "[9, 8, 7, 6]"), draw=(NUMBERS,),
    ),
    easy(
        "sorted_down(numbers)", "returns a list of the given numbers from the largest to the smallest",
        "return sorted(numbers, reverse=True)",
        examples=("[3, 1, 2]", "[]"), hidden=("[5]", "[2, 2, 1]", "[-3, -1]", "[6, 7, 8, 9]"), draw=(NUMBERS,),
    ),
    easy(
        "reversed_list(items)", "returns a list of the given items in reverse order", "return items[::-1]",
        examples=("[1, 2, 3]", "[]"), hidden=("[5]", "['a', 'b']", "[0, 0, 1]", "[[1], [2]]"), draw=(NUMBERS,),
    ),
    medium(
        "is_sorted(numbers)",
        "returns True if the numbers of the list never get smaller from one to the next, otherwise False",
        "return numbers == sorted(numbers)",
        examples=("[1, 2, 3]", "[2, 1]"), hidden=("[]", "[5]", "[1, 1]", "[1, 3, 2]", "[-3, -4]"),
        draw=(listed(whole(0, 5), 2, 3),),
    ),
    medium(
        "smallest_three(numbers)",
        "returns a sorted list of the three smallest numbers of the list, which has at least three",
        "return sorted(numbers)[:3]",
        examples=("[5, 1, 4, 2]", "[3, 2, 1]"),
        hidden=("[0, 0, 0]", "[9, 8, 7, 6, 5]", "[-1, 5, -2, 4]", "[2, 1, 2, 1]"),
        draw=(listed(whole(-9, 20), 3, 7),),
    ),
    hard(
        "median(numbers)",
        "returns the number in the middle when the given numbers are sorted; the list has an odd number of "
        "items",
        "return sorted(numbers)[len(numbers) // 2]",
        examples=("[5, 1, 3]", "[4]"), hidden=("[2, 2, 9]", "[9, 8, 1]", "[-1, -5, -3]", "[10, 1, 7, 2, 3]"),
        draw=(distinct(-9, 20, 5),),
    ),
)  # fmt: skip

LIST_ENDS = (
    easy(
        "first_item(items)", "returns the first item of the list, which is not empty", "return items[0]",
        examples=("[1, 2, 3]", "['a']"), hidden=("[0]", "[[1], 2]", "['x', 'y']", "[-1, -2]"), draw=(SOME_NUMBERS,),
    ),
    easy(
        "last_item(items)", "returns the last item of the list, which is not empty", "return items[-1]",
        examples=("[1, 2, 3]", "['a']"), hidden=("[0]", "[1, [2]]", "['x', 'y']", "[-1, -2]"), draw=(SOME_NUMBERS,),
    ),
    easy(
        "with_item_added(items, x)", "returns a list of the given items with x added at the end", "return items + [x]",
        examples=("[1, 2], 3", "[], 'a'"), hidden=("[0], 0", "['a'], 'b'", "[[]], []", "[5, 4], -3"),
        draw=(NUMBERS, whole(0, 9)),
    ),
    easy(
        "with_item_in_front(items, x)", "returns a list that starts with x, followed by the given items",
        "return [x] + items",
        examples=("[1, 2], 3", "[], 'a'"), hidden=("[0], 1", "['a'], 'b'", "[[1]], 2", "[5, 4], -3"),
        draw=(NUMBERS, whole(0, 9)),
    ),
    medium(
        "swap_ends(items)",
        "returns a list like the given one, but with the first and the last item swapped; the list has at "
        "least two items",
        "return [items[-1]] + items[1:-1] + [items[0]]",
        examples=("[1, 2, 3]", "['a', 'b']"), hidden=("[0, 1]", "[4, 5, 6, 7]", "['x', 'y', 'z']", "[1, 1, 2]"),
        draw=(listed(whole(0, 9), 2, 6),),
    ),
)  # fmt: skip

WORD_LISTS = (
    easy(
        "shortest_word(words)",
        "returns the shortest word of the list; if several have the same length, returns the first",
        "return min(words, key=len)",
        examples=("['tree', 'a', 'sky']", "['hi']"),
        hidden=("['bb', 'aa']", "['', 'x']", "['abc', 'ab', 'xy']", "['one', 'two']"),
        draw=(listed(word(), 1, 5),),
    ),
    easy(
        "joined_length(words)", "returns the number of characters of all words in the list together",
        "return len(''.join(words))",
        examples=("['tree', 'a']", "[]"), hidden=("['']", "['x', 'y']", "['one', 'three']", "['a b', 'c']"),
        draw=(listed(word()),),
    ),
    easy(
        "sentence_from(words)",
        "returns the words of the list joined with one space between them and a period '.' at the end",
        "return ' '.join(words) + '.'",
        examples=("['I', 'like', 'tea']", "['Go']"), hidden=("[]", "['a', 'b']", "['No', 'way']", "['x', 'y', 'z']"),
        draw=(listed(word(), 1, 4),),
    ),
    medium(
        "capitalized(words)", "returns a list of the given lower-case words with their first letter in upper case",
        "return [word.capitalize() for word in words]",
        examples=("['tree', 'a']", "[]"), hidden=("['x']", "['one', 'two']", "['abc', 'b', 'cd']", "['zz']"),
        draw=(listed(text(1, 5, LOWER)),),
    ),
    medium(
        "most_words(sentences)", "returns the largest number of words in one sentence of the list, which is not empty",
        "return max(len(sentence.split()) for sentence in sentences)",
        examples=("['I like tea', 'hi']", "['one two']"),
        hidden=("['']", "['a b', 'c d']", "['x', 'y z w v']", "['', 'a']"),
        draw=(listed(sentence(), 1, 4),),
    ),
)  # fmt: skip

FAMILIES: tuple[Family, ...] = (
    Family(name="list_totals", tasks=LIST_TOTALS),
    Family(name="list_extremes", tasks=LIST_EXTREMES, heldout=True),
    Family(name="count_in_list", tasks=COUNT_IN_LIST),
    Family(name="filter_list", tasks=FILTER_LIST),
    Family(name="map_list", tasks=MAP_LIST, heldout=True),
    Family(name="list_tests", tasks=LIST_TESTS),
    Family(name="sort_list", tasks=SORT_LIST),
    Family(name="list_ends", tasks=LIST_ENDS),
    Family(name="word_lists", tasks=WORD_LISTS, heldout=True),
)
