"""Families about conditions: gates, ranges, choosing a label."""

from burnish.tasks.builtin.inputs import one_of, whole
from burnish.tasks.builtin.tables import flag
from burnish.tasks.family import Family, easy, hard, medium

GATES = Family(
    name="logic_gates",
    heldout=True,
    tasks=(
        easy(
            "both_true(a, b)",
            "returns True if both `a` and `b` are True, and False otherwise",
            "return a and b",
            examples=("True, True", "True, False"),
            hidden=("False, False", "False, True", "True, True", "True, False"),
        ),
        easy(
            "at_least_one(a, b)",
            "returns True if `a` is True or `b` is True (or both are), and False otherwise",
            "return a or b",
            examples=("True, False", "False, False"),
            hidden=("False, False", "False, True", "True, True", "True, False"),
        ),
        easy(
            "neither(a, b)",
            "returns True if neither `a` nor `b` is True, and False otherwise",
            "return not a and not b",
            examples=("True, False", "False, False"),
            hidden=("False, False", "False, True", "True, True", "True, False"),
        ),
        easy(
            "exactly_one(a, b)",
            "returns True if exactly one of `a` and `b` is True, and False otherwise",
            "return a != b",
            examples=("True, False", "True, True"),
            hidden=("False, False", "False, True", "True, True", "True, False"),
        ),
        medium(
            "majority(a, b, c)",
            "returns True if at least two of `a`, `b` and `c` are True, and False otherwise",
            "return a + b + c >= 2",
            examples=("True, False, True", "False, False, True"),
            hidden=(
                "False, False, False",
                "True, True, True",
                "True, False, False",
                "False, True, False",
                "True, True, False",
                "False, False, True",
            ),
            draw=(flag(), flag(), flag()),
        ),
        medium(
            "parity_of(flags)",
            "returns True if an odd number of items of the list `flags` is True, and False otherwise",
            "return sum(flags) % 2 == 1",
            examples=("[True, False]", "[True, True]"),
            hidden=("[]", "[True, True, True]", "[False, False, False]", "[True, False, True, False]"),
        ),
    ),
)

RANGES = Family(
    name="number_ranges",
    tasks=(
        easy(
            "is_outside(x, low, high)",
            "returns True if `x` is less than `low` or greater than `high`, and False otherwise",
            "return x < low or x > high",
            examples=("5, 1, 10", "0, 1, 10"),
            hidden=("1, 1, 10", "10, 1, 10", "11, 1, 10", "-5, -4, -3"),
            draw=(whole(0, 12), whole(2, 4), whole(7, 9)),
        ),
        easy(
            "is_two_digit(n)",
            "returns True if `n` is at least 10 and at most 99, and False otherwise",
            "return 10 <= n <= 99",
            examples=("20", "5"),
            hidden=("10", "9", "99", "100"),
            draw=(whole(0, 199),),
        ),
        easy(
            "is_freezing(degrees)",
            "returns True if `degrees` is below 0, and False otherwise",
            "return degrees < 0",
            examples=("-5", "10"),
            hidden=("0", "-1", "1", "-40"),
            draw=(whole(-9, 9),),
        ),
        medium(
            "in_neither(x, a, b)",
            "returns True if `x` is neither between 0 and `a` nor between `b` and 100 (ends included), "
            "and False otherwise; `a` is less than `b`",
            "return not 0 <= x <= a and not b <= x <= 100",
            examples=("50, 20, 80", "10, 20, 80"),
            hidden=("20, 20, 80", "80, 20, 80", "-1, 20, 80", "101, 20, 80"),
            draw=(whole(-9, 109), whole(20, 40), whole(60, 80)),
        ),
        hard(
            "ranges_meet(a, b)",
            "returns True if the ranges `a` and `b`, given as tuples (low, high) with both ends included, have a "
            "number in common, and False otherwise",
            "return a[0] <= b[1] and b[0] <= a[1]",
            examples=("(1, 5), (4, 9)", "(1, 2), (3, 4)"),
            hidden=("(1, 3), (3, 5)", "(6, 9), (1, 5)", "(1, 10), (4, 5)", "(4, 5), (1, 10)"),
        ),
    ),
)

LABELS = Family(
    name="choosing_a_label",
    tasks=(
        easy(
            "yes_or_no(flag)",
            "returns the string 'yes' if `flag` is True, and 'no' otherwise",
            "return 'yes' if flag else 'no'",
            examples=("True", "False"),
            hidden=("1 == 1", "1 == 2", "True", "False"),
        ),
        easy(
            "day_or_night(hour)",
            "returns the string 'day' if `hour` is at least 6 and less than 18, and 'night' otherwise",
            "return 'day' if 6 <= hour < 18 else 'night'",
            examples=("12", "3"),
            hidden=("6", "5", "17", "18"),
            draw=(whole(0, 23),),
        ),
        easy(
            "odd_or_even_label(n)",
            "returns the string 'even' if the whole number `n` is even, and 'odd' if it is odd",
            "return 'even' if n % 2 == 0 else 'odd'",
            examples=("4", "7"),
            hidden=("0", "1", "-3", "100"),
            draw=(whole(-50, 50),),
        ),
        medium(
            "compare_words(a, b)",
            "returns the string 'less' if the number `a` is less than `b`, 'equal' if they are equal, and 'greater' "
            "otherwise",
            "if a < b:\n    return 'less'\nreturn 'equal' if a == b else 'greater'",
            examples=("1, 2", "3, 3"),
            hidden=("2, 1", "0, 0", "-5, -4", "9, -9"),
            draw=(whole(0, 4), whole(0, 4)),
        ),
        medium(
            "water_state(degrees)",
            "returns the string 'ice' if `degrees` is below 0, 'steam' if it is above 100, and 'water' otherwise",
            "if degrees < 0:\n    return 'ice'\nreturn 'steam' if degrees > 100 else 'water'",
            examples=("20", "-5"),
            hidden=("0", "-1", "100", "101"),
            draw=(whole(-60, 160),),
        ),
        hard(
            "hand_winner(a, b)",
            "returns the winner of a game of 'rock', 'paper' and 'scissors': 1 if `a` wins, 2 if `b` wins, 0 if they "
            "are equal; rock beats scissors, scissors beats paper, paper beats rock",
            """
            if a == b:
                return 0
            return 1 if (a, b) in [('rock', 'scissors'), ('scissors', 'paper'), ('paper', 'rock')] else 2
            """,
            examples=("'rock', 'paper'", "'rock', 'rock'"),
            hidden=("'rock', 'scissors'", "'paper', 'rock'", "'paper', 'scissors'", "'scissors', 'paper'"),
            draw=(one_of("rock", "paper", "scissors"), one_of("rock", "paper", "scissors")),
        ),
    ),
)

FAMILIES = (GATES, RANGES, LABELS)
