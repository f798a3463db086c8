"""Families of bugs: the instruction shows a short broken function, the solution is the same function, repaired."""

from dataclasses import replace

from burnish.tasks.builtin.inputs import distinct, listed, one_of, whole, word
from burnish.tasks.builtin.tables import table
from burnish.tasks.family import Draw, Family, TaskSpec, function_task
from burnish.types import Band


def repair(
    band: Band,
    signature: str,
    returns: str,
    broken: str,
    fixed: str,
    *,
    examples: tuple[str, ...],
    hidden: tuple[str, ...],
    draw: tuple[Draw, ...] = (),
) -> TaskSpec:
    """A task to repair `signature`, which should return `returns`. `broken` and `fixed` are bodies.

    Example: repair("easy", "half_of(n)", "half of `n`", "return n * 2", "return n / 2", examples=("4", "3"),
        hidden=("0", "1", "-8", "9"))
    """
    spec = function_task(band, signature, returns, fixed, examples=examples, hidden=hidden, draw=draw)
    wrong = function_task(band, signature, returns, broken, examples=(), hidden=()).reference
    instruction = (
        f"This Python function has a bug. `{signature}` should return {returns}. Write the fixed function.\n\n"
        f"```python\n{wrong}```"
    )
    return replace(spec, instruction=instruction)


WRONG_OPERATOR = Family(
    name="bug_wrong_operator",
    tasks=(
        repair(
            "easy",
            "multiply_both(a, b)",
            "the product of `a` and `b`",
            "return a + b",
            "return a * b",
            examples=("2, 3", "5, 0"),
            hidden=("0, 0", "1, 1", "-2, 4", "10, 10"),
            draw=(whole(-20, 20), whole(-20, 20)),
        ),
        repair(
            "easy",
            "is_bigger(a, b)",
            "True if `a` is greater than `b`, and False otherwise",
            "return a < b",
            "return a > b",
            examples=("2, 3", "5, 0"),
            hidden=("0, 0", "1, -1", "-2, 4", "11, 10"),
            draw=(whole(-5, 5), whole(-5, 5)),
        ),
        repair(
            "easy",
            "mean_of_two(a, b)",
            "the average of `a` and `b`",
            "return a + b / 2",
            "return (a + b) / 2",
            examples=("2, 4", "5, 5"),
            hidden=("0, 0", "1, 2", "-2, 4", "10, -10"),
            draw=(whole(-20, 20), whole(-20, 20)),
        ),
        repair(
            "easy",
            "minus_tax(pay, tax)",
            "`pay` minus `tax`",
            "return tax - pay",
            "return pay - tax",
            examples=("10, 3", "5, 5"),
            hidden=("0, 0", "100, 20", "7, 0", "3, 4"),
            draw=(whole(50, 99), whole(0, 40)),
        ),
        repair(
            "medium",
            "count_in_band(numbers, low, high)",
            "how many of `numbers` are at least `low` and at most `high`",
            "return sum(1 for n in numbers if n >= low or n <= high)",
            "return sum(1 for n in numbers if n >= low and n <= high)",
            examples=("[1, 5, 9], 2, 6", "[3], 3, 3"),
            hidden=("[], 0, 1", "[1, 2, 3], 2, 9", "[-5, 5], -1, 1", "[4, 4, 8], 4, 8"),
            draw=(listed(whole(0, 9), 2, 7), whole(1, 4), whole(5, 8)),
        ),
    ),
)

OFF_BY_ONE = Family(
    name="bug_off_by_one",
    tasks=(
        repair(
            "easy",
            "final_item(items)",
            "the last item of the list `items`",
            "return items[len(items)]",
            "return items[-1]",
            examples=("[1, 2, 3]", "['x']"),
            hidden=("[0]", "[5, 5, 6]", "['a', 'b']", "[[1], [2]]"),
            draw=(listed(whole(-9, 9), 1, 6),),
        ),
        repair(
            "easy",
            "count_up_to(n)",
            "a list of the whole numbers from 0 to `n`, with `n` included",
            "return list(range(n))",
            "return list(range(n + 1))",
            examples=("3", "0"),
            hidden=("1", "2", "5", "9"),
            draw=(whole(0, 15),),
        ),
        repair(
            "easy",
            "first_three(items)",
            "a list of the first three items of the list `items`",
            "return items[:2]",
            "return items[:3]",
            examples=("[1, 2, 3, 4]", "['a', 'b', 'c']"),
            hidden=("[0, 0, 0, 0]", "[9, 8, 7, 6, 5]", "['x', 'y', 'z', 'w']", "[1, 2, 3]"),
            draw=(listed(whole(-9, 9), 3, 7),),
        ),
        repair(
            "medium",
            "add_all_items(numbers)",
            "the sum of the list `numbers`",
            "total = 0\nfor i in range(1, len(numbers)):\n    total += numbers[i]\nreturn total",
            "return sum(numbers)",
            examples=("[1, 2, 3]", "[]"),
            hidden=("[5]", "[0, 1]", "[-1, -2, 3]", "[10, 20, 30, 40]"),
            draw=(listed(whole(1, 9), 1, 6),),
        ),
        repair(
            "hard",
            "count_rises(numbers)",
            "how often a number of the list `numbers` is greater than the one before it",
            """
            count = 0
            for i in range(len(numbers)):
                if numbers[i + 1] > numbers[i]:
                    count += 1
            return count
            """,
            "return sum(1 for i in range(1, len(numbers)) if numbers[i] > numbers[i - 1])",
            examples=("[1, 2, 1, 3]", "[5]"),
            hidden=("[]", "[3, 2, 1]", "[1, 2, 3, 4]", "[0, 0, 1]"),
            draw=(listed(whole(0, 9), 2, 7),),
        ),
    ),
)

LOST_RESULT = Family(
    name="bug_lost_result",
    heldout=True,
    tasks=(
        repair(
            "easy",
            "plus_ten(n)",
            "`n` plus 10",
            "n + 10",
            "return n + 10",
            examples=("1", "-10"),
            hidden=("0", "5", "90", "-3"),
            draw=(whole(-99, 99),),
        ),
        repair(
            "easy",
            "hello_to(name)",
            "the string `'Hello '` followed by the string `name`",
            "print('Hello ' + name)",
            "return 'Hello ' + name",
            examples=("'Ann'", "''"),
            hidden=("'a'", "'World!'", "'good day'", "'OK'"),
            draw=(word(),),
        ),
        repair(
            "easy",
            "order_total(price, shipping, tip)",
            "the sum of `price`, `shipping` and `tip`",
            "total = price + shipping + tip\nreturn price",
            "return price + shipping + tip",
            examples=("10, 2, 1", "5, 5, 0"),
            hidden=("7, 0, 0", "1, 1, 1", "100, 20, 5", "0, 9, 2"),
            draw=(whole(1, 50), whole(1, 9), whole(1, 9)),
        ),
        repair(
            "medium",
            "any_is_zero(numbers)",
            "True if at least one number of the list `numbers` is 0, and False otherwise",
            "for n in numbers:\n    return n == 0",
            "return 0 in numbers",
            examples=("[1, 0]", "[1, 2]"),
            hidden=("[]", "[0]", "[3, 4, 0]", "[5, 6, 7]"),
            draw=(listed(whole(0, 4), 1, 5),),
        ),
        repair(
            "medium",
            "join_with_dash(words)",
            "the strings of the list `words` joined by `-`",
            "text = ''\nfor word in words:\n    text = '-'.join(word)\nreturn text",
            "return '-'.join(words)",
            examples=("['a', 'b']", "['one', 'two']"),
            hidden=("[]", "['cat']", "['x', 'y', 'z']", "['', '']"),
            draw=(listed(word(), 2, 4),),
        ),
    ),
)

EDGE_CASES = Family(
    name="bug_edge_case",
    tasks=(
        repair(
            "easy",
            "text_or_dash(text)",
            "the string `text`, or `'-'` if `text` is empty",
            "return text",
            "return text if text else '-'",
            examples=("'abc'", "''"),
            hidden=("''", "'x'", "' '", "'-'"),
            draw=(one_of("", "a", "ok", "no", "b c"),),
        ),
        repair(
            "easy",
            "first_or_none(items)",
            "the first item of the list `items`, or None if `items` is empty",
            "return items[0]",
            "return items[0] if items else None",
            examples=("[1, 2]", "[]"),
            hidden=("[]", "[0]", "['a', 'b']", "[[], 1]"),
            draw=(listed(whole(-9, 9), 0, 3),),
        ),
        repair(
            "medium",
            "mean_or_zero(numbers)",
            "the average of the list `numbers`, or 0 if it is empty",
            "return sum(numbers) / len(numbers)",
            "return sum(numbers) / len(numbers) if numbers else 0",
            examples=("[1, 2]", "[]"),
            hidden=("[]", "[0]", "[4, 5, 6]", "[-1, 2]"),
            draw=(listed(whole(-9, 9), 0, 4),),
        ),
        repair(
            "medium",
            "price_or_zero(prices, name)",
            "the value of `name` in the dict `prices`, or 0 if it is not there",
            "return prices[name]",
            "return prices.get(name, 0)",
            examples=("{'egg': 3}, 'egg'", "{'egg': 3}, 'tea'"),
            hidden=("{}, 'x'", "{'x': 5, 'y': 6}, 'y'", "{'x': -1}, 'x'", "{'a': 1}, 'A'"),
            draw=(table(2, 5), word()),
        ),
        repair(
            "hard",
            "largest_of_any(numbers)",
            "the largest number of the list `numbers`, which may hold negative numbers, or None if it is empty",
            "best = 0\nfor n in numbers:\n    if n > best:\n        best = n\nreturn best",
            "return max(numbers) if numbers else None",
            examples=("[-3, -1, -2]", "[]"),
            hidden=("[-7]", "[1, 5, 2]", "[-1, 0]", "[-9, -8]"),
            draw=(listed(whole(-20, 1), 0, 4),),
        ),
    ),
)

WRONG_START = Family(
    name="bug_wrong_start",
    tasks=(
        repair(
            "easy",
            "times_all(numbers)",
            "the product of the list `numbers`",
            "result = 0\nfor n in numbers:\n    result = result * n\nreturn result",
            "result = 1\nfor n in numbers:\n    result = result * n\nreturn result",
            examples=("[2, 3]", "[5]"),
            hidden=("[]", "[0, 4]", "[-1, 2, 3]", "[10, 10]"),
            draw=(listed(whole(1, 6), 1, 5),),
        ),
        repair(
            "easy",
            "glue_words(words)",
            "all strings of the list `words` joined, with nothing between them",
            "text = ' '\nfor word in words:\n    text = text + word\nreturn text",
            "text = ''\nfor word in words:\n    text = text + word\nreturn text",
            examples=("['a', 'b']", "[]"),
            hidden=("['x']", "['ab', '', 'c']", "['no', 'on']", "['1', '2', '3']"),
            draw=(listed(word(), 1, 4),),
        ),
        repair(
            "easy",
            "how_many_items(items)",
            "how many items the list `items` has",
            "count = 1\nfor item in items:\n    count = count + 1\nreturn count",
            "count = 0\nfor item in items:\n    count = count + 1\nreturn count",
            examples=("[7, 8]", "[]"),
            hidden=("[0]", "['a', 'b', 'c']", "[[], []]", "[1, 1, 1, 1, 1]"),
            draw=(listed(whole(-9, 9), 0, 9),),
        ),
        repair(
            "medium",
            "smallest_of_list(numbers)",
            "the smallest number of the list `numbers`, which is not empty",
            "best = 0\nfor n in numbers:\n    if n < best:\n        best = n\nreturn best",
            "best = numbers[0]\nfor n in numbers:\n    if n < best:\n        best = n\nreturn best",
            examples=("[3, 1, 2]", "[5]"),
            hidden=("[-1, -2]", "[9, 8, 10]", "[0, 4]", "[7, 7]"),
            draw=(distinct(1, 40, 4),),
        ),
    ),
)

FAMILIES = (WRONG_OPERATOR, OFF_BY_ONE, LOST_RESULT, EDGE_CASES, WRONG_START)
