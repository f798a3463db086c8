"""Families of list algorithms: slices, running values, positions, neighbours, two lists at once."""

from burnish.tasks.builtin.inputs import distinct, listed, whole, word
from burnish.tasks.family import Family, easy, hard, medium

numbers = listed(whole(-9, 9), 1, 7)

SLICES = Family(
    name="list_slices",
    tasks=(
        easy(
            "drop_first(items)",
            "returns the list `items` without its first item; `items` is not empty",
            "return items[1:]",
            examples=("[1, 2, 3]", "['x']"),
            hidden=("[0, 0]", "['a', 'b']", "[9, 8, 7, 6]", "[[1], [2]]"),
            draw=(numbers,),
        ),
        easy(
            "drop_last(items)",
            "returns the list `items` without its last item; `items` is not empty",
            "return items[:-1]",
            examples=("[1, 2, 3]", "['x']"),
            hidden=("[0, 0]", "['a', 'b']", "[9, 8, 7, 6]", "[[1], [2]]"),
            draw=(numbers,),
        ),
        easy(
            "drop_both_ends(items)",
            "returns the list `items` without its first and its last item; `items` has at least two items",
            "return items[1:-1]",
            examples=("[1, 2, 3]", "['x', 'y']"),
            hidden=("[0, 0, 0]", "['a', 'b', 'c', 'd']", "[5, 4]", "[1, 2, 3, 4, 5]"),
            draw=(listed(whole(-9, 9), 2, 8),),
        ),
        medium(
            "rotate_left(items, k)",
            "returns the list `items` with its first `k` items moved to the end; `k` is at most the length of `items`",
            "return items[k:] + items[:k]",
            examples=("[1, 2, 3, 4], 1", "['a', 'b'], 2"),
            hidden=("[], 0", "[1, 2, 3], 0", "[1, 2, 3, 4, 5], 3", "['x', 'y', 'z'], 2"),
            draw=(listed(whole(0, 9), 4, 7), whole(0, 4)),
        ),
        hard(
            "in_chunks(items, size)",
            "returns the list `items` cut into a list of lists of `size` items each; the last one may be shorter",
            "return [items[i:i + size] for i in range(0, len(items), size)]",
            examples=("[1, 2, 3, 4, 5], 2", "['a'], 3"),
            hidden=("[], 2", "[1, 2, 3, 4], 4", "[1, 2, 3], 1", "[1, 2, 3, 4, 5, 6, 7], 3"),
            draw=(listed(whole(0, 9), 2, 9), whole(1, 4)),
        ),
    ),
)

RUNNING = Family(
    name="running_values",
    tasks=(
        easy(
            "sum_of_first(numbers, n)",
            "returns the sum of the first `n` items of the list `numbers`",
            "return sum(numbers[:n])",
            examples=("[1, 2, 3], 2", "[5, 6], 0"),
            hidden=("[], 0", "[4], 1", "[-1, 1, 7], 3", "[10, 20, 30, 40], 3"),
            draw=(listed(whole(-9, 9), 4, 7), whole(0, 4)),
        ),
        easy(
            "largest_of_first(numbers, n)",
            "returns the largest of the first `n` items of the list `numbers`; `n` is at least 1",
            "return max(numbers[:n])",
            examples=("[1, 5, 3, 9], 3", "[5, 6], 1"),
            hidden=("[-4], 1", "[3, 2, 1], 2", "[-7, -1, 7], 2", "[10, 20, 30, 40], 4"),
            draw=(listed(whole(-9, 9), 4, 7), whole(1, 4)),
        ),
        easy(
            "sum_without_last(numbers)",
            "returns the sum of all items of the list `numbers` except the last one; `numbers` is not empty",
            "return sum(numbers[:-1])",
            examples=("[1, 2, 3]", "[5]"),
            hidden=("[4, 4]", "[-1, 1, 7]", "[10, 20, 30, 40]", "[0, 9]"),
            draw=(numbers,),
        ),
        medium(
            "running_totals(numbers)",
            "returns a list whose item at each place is the sum of the list `numbers` up to and including that place",
            "totals, total = [], 0\nfor n in numbers:\n    total += n\n    totals.append(total)\nreturn totals",
            examples=("[1, 2, 3]", "[]"),
            hidden=("[5]", "[0, 0, 1]", "[-1, 1, -1]", "[10, 20, 30, 40]"),
            draw=(numbers,),
        ),
        medium(
            "running_largest(numbers)",
            "returns a list whose item at each place is the largest number of the list `numbers` up to and including "
            "that place",
            "return [max(numbers[:i + 1]) for i in range(len(numbers))]",
            examples=("[1, 3, 2]", "[]"),
            hidden=("[5]", "[0, 0, 1]", "[-1, -2, -1, 4]", "[9, 7, 8, 10, 1]"),
            draw=(listed(whole(-9, 9), 3, 7),),
        ),
    ),
)

POSITIONS = Family(
    name="positions_in_lists",
    tasks=(
        easy(
            "position_of(items, x)",
            "returns the position of the first `x` in the list `items`, counted from 0; `x` is in `items`",
            "return items.index(x)",
            examples=("[5, 6, 7], 6", "['a'], 'a'"),
            hidden=("[1, 1, 2], 2", "['x', 'y', 'z'], 'z'", "[0, 3, 0, 3], 3", "[4, 4], 4"),
        ),
        easy(
            "item_at(items, i)",
            "returns the item at position `i` of the list `items`, counted from 0",
            "return items[i]",
            examples=("[5, 6, 7], 1", "['a'], 0"),
            hidden=("[1, 1, 2], 2", "['x', 'y', 'z'], 0", "[0, 3, 0, 9], 3", "[4, [5]], 1"),
            draw=(listed(whole(-9, 9), 5, 7), whole(0, 4)),
        ),
        easy(
            "last_position(items)",
            "returns the position of the last item of the list `items`, counted from 0; `items` is not empty",
            "return len(items) - 1",
            examples=("[5, 6, 7]", "['a']"),
            hidden=("[0, 0]", "['x', 'y', 'z', 'w']", "[[], [], []]", "[3]"),
            draw=(listed(word(), 1, 9),),
        ),
        medium(
            "all_positions(items, x)",
            "returns a list of all positions of `x` in the list `items`, counted from 0",
            "return [i for i, item in enumerate(items) if item == x]",
            examples=("[5, 6, 5], 5", "['a'], 'b'"),
            hidden=("[], 1", "[1, 1, 1], 1", "['x', 'y', 'z'], 'z'", "[0, 3, 0, 3], 3"),
            draw=(listed(whole(0, 2), 3, 8), whole(0, 2)),
        ),
        hard(
            "insert_position(numbers, x)",
            "returns the smallest position at which `x` can be inserted in the sorted list `numbers` so that it stays "
            "sorted, counted from 0",
            "return sum(1 for n in numbers if n < x)",
            examples=("[1, 3, 5], 4", "[1, 3, 5], 3"),
            hidden=("[], 7", "[2, 2, 2], 2", "[1, 2], 9", "[-5, 0, 5, 10], 5"),
        ),
    ),
)

NEIGHBOURS = Family(
    name="ends_and_neighbours",
    heldout=True,
    tasks=(
        easy(
            "ends_match(items)",
            "returns True if the first and the last item of the list `items` are equal, and False otherwise; "
            "`items` is not empty",
            "return items[0] == items[-1]",
            examples=("[1, 2, 1]", "[1, 2]"),
            hidden=("[7]", "['a', 'b', 'c']", "['x', 'x']", "[0, 1, 1]"),
            draw=(listed(whole(0, 1), 1, 5),),
        ),
        easy(
            "sum_of_ends(numbers)",
            "returns the sum of the first and the last number of the list `numbers`, which is not empty",
            "return numbers[0] + numbers[-1]",
            examples=("[1, 5, 2]", "[4]"),
            hidden=("[0, 0]", "[-3, 9, 9, 3]", "[10, 1]", "[2, 2, 2]"),
            draw=(numbers,),
        ),
        easy(
            "rise_of(numbers)",
            "returns the last number minus the first number of the list `numbers`, which is not empty",
            "return numbers[-1] - numbers[0]",
            examples=("[1, 5, 4]", "[4]"),
            hidden=("[5, 0]", "[-3, 9, 9, 3]", "[10, 1, 12]", "[2, 0, 1]"),
            draw=(numbers,),
        ),
        medium(
            "neighbour_differences(numbers)",
            "returns a list of the differences between each number of the list `numbers` and the number before it",
            "return [numbers[i] - numbers[i - 1] for i in range(1, len(numbers))]",
            examples=("[1, 4, 6]", "[5]"),
            hidden=("[]", "[3, 3, 3]", "[10, 0]", "[-1, 1, -2, 2]"),
            draw=(numbers,),
        ),
        hard(
            "longest_run(items)",
            "returns how long the longest run of equal items that stand next to each other in the list `items` is",
            """
            best = length = 0
            for i, item in enumerate(items):
                length = length + 1 if i and item == items[i - 1] else 1
                best = max(best, length)
            return best
            """,
            examples=("[1, 1, 2, 1]", "[]"),
            hidden=("[7]", "[1, 2, 3]", "['a', 'b', 'b', 'b', 'a']", "[0, 0, 0, 0]"),
            draw=(listed(whole(0, 1), 1, 9),),
        ),
    ),
)

TWO_LISTS = Family(
    name="two_lists",
    tasks=(
        easy(
            "joined_lists(a, b)",
            "returns one list with the items of the list `a` followed by the items of the list `b`",
            "return a + b",
            examples=("[1, 2], [3]", "[], ['x']"),
            hidden=("[], []", "[0], [0]", "['a', 'b'], []", "[1, 2, 3], [4, 5, 6]"),
            draw=(numbers, numbers),
        ),
        easy(
            "total_length(a, b)",
            "returns how many items the lists `a` and `b` have together",
            "return len(a) + len(b)",
            examples=("[1, 2], [3]", "[], ['x']"),
            hidden=("[], []", "[0, 0], [0, 0]", "['a', 'b', 'c'], []", "[9], [8, 7, 6, 5]"),
            draw=(numbers, numbers),
        ),
        easy(
            "zip_lists(a, b)",
            "returns a list of tuples, each with the items at one place of the lists `a` and `b`, "
            "which have the same length",
            "return list(zip(a, b))",
            examples=("[1, 2], ['a', 'b']", "[], []"),
            hidden=("[0], [0]", "['x', 'y', 'z'], [3, 2, 1]", "[None], [[1]]", "[4, 4], [5, 5]"),
            draw=(distinct(-9, 9, 4), distinct(-9, 9, 4)),
        ),
        medium(
            "sum_by_place(a, b)",
            "returns a list with the sum of the numbers at each place of the lists `a` and `b`, "
            "which have the same length",
            "return [x + y for x, y in zip(a, b)]",
            examples=("[1, 2], [10, 20]", "[], []"),
            hidden=("[5], [-5]", "[0, 1, 2], [0, 1, 2]", "[-1, -1], [-2, -3]", "[7, 0, 0, 7], [1, 2, 3, 4]"),
            draw=(distinct(-9, 9, 4), distinct(-9, 9, 4)),
        ),
        medium(
            "num_equal_places(a, b)",
            "returns at how many places the lists `a` and `b`, which have the same length, hold equal items",
            "return sum(1 for x, y in zip(a, b) if x == y)",
            examples=("[1, 2, 3], [1, 5, 3]", "[], []"),
            hidden=("[5], [6]", "['a', 'b'], ['b', 'a']", "[0, 0, 0], [0, 0, 0]", "['x', 'y'], ['z', 'y']"),
            draw=(listed(whole(0, 2), 4, 4), listed(whole(0, 2), 4, 4)),
        ),
    ),
)

FAMILIES = (SLICES, RUNNING, POSITIONS, NEIGHBOURS, TWO_LISTS)
