"""Families of rules that refer to themselves: values of recurrences, lists of terms, halving and counting steps."""

from burnish.tasks.builtin.inputs import whole
from burnish.tasks.family import Family, easy, hard, medium

RECURRENCES = Family(
    name="recurrences",
    tasks=(
        easy(
            "nth_odd(n)",
            "returns the `n`-th odd number, where 1 is the first one and 3 is the second one",
            "return 2 * n - 1",
            examples=("1", "2"),
            hidden=("3", "5", "10", "100"),
            draw=(whole(4, 60),),
        ),
        easy(
            "doubled_times(x, n)",
            "returns `x` after doubling it `n` times",
            "return x * 2 ** n",
            examples=("3, 2", "5, 0"),
            hidden=("0, 4", "1, 10", "-2, 1", "7, 3"),
            draw=(whole(-9, 9), whole(0, 8)),
        ),
        easy(
            "after_steps(start, step, n)",
            "returns the number that is reached from `start` after adding `step` `n` times",
            "return start + step * n",
            examples=("1, 2, 3", "5, 4, 0"),
            hidden=("0, 0, 9", "10, -1, 10", "-3, 3, 2", "7, 1, 1"),
            draw=(whole(-9, 9), whole(-9, 9), whole(0, 9)),
        ),
        medium(
            "triple_sum_term(n)",
            "returns the item at position `n` (counted from 0) of the sequence that starts with 0, 1, 1, where each "
            "further item is the sum of the three before it",
            "a, b, c = 0, 1, 1\nfor _ in range(n):\n    a, b, c = b, c, a + b + c\nreturn a",
            examples=("0", "4"),
            hidden=("1", "2", "3", "10"),
            draw=(whole(3, 20),),
        ),
        hard(
            "collatz_steps(n)",
            "returns how many steps it takes from the whole number `n` to 1, where a step halves an even number and "
            "turns an odd number x into 3 * x + 1",
            "steps = 0\nwhile n != 1:\n    n = n // 2 if n % 2 == 0 else 3 * n + 1\n    steps += 1\nreturn steps",
            examples=("1", "6"),
            hidden=("2", "3", "16", "27"),
            draw=(whole(2, 60),),
        ),
    ),
)

TERMS = Family(
    name="lists_of_terms",
    tasks=(
        easy(
            "first_odds(n)",
            "returns a list of the first `n` odd numbers, starting with 1",
            "return list(range(1, 2 * n, 2))",
            examples=("3", "1"),
            hidden=("0", "2", "5", "10"),
            draw=(whole(0, 15),),
        ),
        easy(
            "first_multiples(x, n)",
            "returns a list of the first `n` multiples of `x`: `x`, 2 times `x`, and so on",
            "return [x * i for i in range(1, n + 1)]",
            examples=("3, 4", "5, 1"),
            hidden=("2, 0", "0, 3", "-1, 3", "10, 5"),
            draw=(whole(-9, 9), whole(0, 7)),
        ),
        easy(
            "first_squares(n)",
            "returns a list of the squares of the whole numbers from 1 to `n`",
            "return [i * i for i in range(1, n + 1)]",
            examples=("3", "1"),
            hidden=("0", "2", "5", "10"),
            draw=(whole(0, 15),),
        ),
        medium(
            "halvings(n)",
            "returns a list that starts with the positive whole number `n` and goes on with half of the number before, "
            "rounded down, until it reaches 1",
            "terms = [n]\nwhile terms[-1] > 1:\n    terms.append(terms[-1] // 2)\nreturn terms",
            examples=("10", "1"),
            hidden=("2", "3", "16", "100"),
            draw=(whole(4, 200),),
        ),
        hard(
            "triangle_row(n)",
            "returns row number `n` (counted from 0) of Pascal's triangle as a list; row 0 is `[1]` and row 2 is "
            "`[1, 2, 1]`",
            "row = [1]\nfor _ in range(n):\n    row = [1, *[a + b for a, b in zip(row, row[1:])], 1]\nreturn row",
            examples=("0", "3"),
            hidden=("1", "2", "4", "6"),
            draw=(whole(3, 9),),
        ),
    ),
)

GROWTH = Family(
    name="growth_and_decay",
    tasks=(
        easy(
            "height_after(start, days, growth)",
            "returns the height of a plant that is `start` high and grows by `growth` on each of `days` days",
            "return start + days * growth",
            examples=("10, 3, 2", "5, 0, 4"),
            hidden=("0, 1, 1", "7, 7, 7", "100, 10, 1", "0, 0, 3"),
            draw=(whole(0, 50), whole(0, 20), whole(0, 9)),
        ),
        easy(
            "candle_left(height, hours)",
            "returns the height of a candle that loses 1 each hour after `hours` hours, but never less than 0",
            "return max(0, height - hours)",
            examples=("10, 3", "2, 5"),
            hidden=("0, 0", "7, 7", "100, 1", "1, 50"),
            draw=(whole(0, 20), whole(0, 20)),
        ),
        easy(
            "water_left(liters, cups)",
            "returns how many of `liters` liters are left after `cups` cups of 2 liters each were taken out",
            "return liters - 2 * cups",
            examples=("10, 3", "8, 4"),
            hidden=("5, 0", "7, 1", "100, 20", "2, 1"),
            draw=(whole(40, 99), whole(0, 20)),
        ),
        medium(
            "years_to_double(money, goal)",
            "returns how many years it takes until `money`, which doubles every year, is at least `goal`",
            "years = 0\nwhile money < goal:\n    money *= 2\n    years += 1\nreturn years",
            examples=("1, 8", "5, 5"),
            hidden=("10, 1", "1, 9", "3, 100", "1, 1000"),
            draw=(whole(1, 9), whole(1, 500)),
        ),
        hard(
            "bounces(height, limit)",
            "returns a list of the heights that a ball dropped from the whole number `height` reaches after each "
            "bounce: half of the height before, rounded down, for as long as that is at least `limit` (at least 1)",
            "heights = []\nwhile height // 2 >= limit:\n    height //= 2\n    heights.append(height)\nreturn heights",
            examples=("20, 3", "1, 1"),
            hidden=("8, 8", "8, 4", "100, 1", "7, 2"),
            draw=(whole(1, 90), whole(1, 9)),
        ),
    ),
)

FAMILIES = (RECURRENCES, TERMS, GROWTH)
