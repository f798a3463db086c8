"""Families about one or two numbers: arithmetic, divisibility, comparison, digits."""

from burnish.tasks.builtin.inputs import listed, one_of, quarters, whole
from burnish.tasks.family import Family, easy, hard, medium

ARITHMETIC = (
    easy(
        "add(a, b)", "returns the sum of the two numbers", "return a + b",
        examples=("2, 3", "-1, 1"), hidden=("0, 0", "7, 0", "-4, -6", "0.5, 0.25"),
        draw=(whole(-99, 99), whole(-99, 99)),
    ),
    easy(
        "subtract(a, b)", "returns a minus b", "return a - b",
        examples=("5, 3", "1, 4"), hidden=("0, 0", "0, 7", "-4, -6", "0.5, 0.25"),
        draw=(whole(-99, 99), whole(-99, 99)),
    ),
    easy(
        "multiply(a, b)", "returns the product of the two numbers", "return a * b",
        examples=("2, 3", "-1, 5"), hidden=("0, 9", "7, 1", "-4, -6", "0.5, 4"), draw=(whole(-99, 99), whole(-99, 99)),
    ),
    easy(
        "square(n)", "returns the square of the number", "return n * n",
        examples=("3", "-2"), hidden=("0", "1", "12", "0.5"), draw=(whole(-50, 50),),
    ),
    easy(
        "next_number(n)", "returns the whole number that comes after n", "return n + 1",
        examples=("3", "-1"), hidden=("0", "-5", "99", "1000"), draw=(whole(-500, 500),),
    ),
    medium(
        "calculate(a, operator, b)",
        "returns the result of a and b under the operator, which is one of the texts '+', '-' and '*'",
        "return a + b if operator == '+' else a - b if operator == '-' else a * b",
        examples=("2, '+', 3", "2, '*', 3"), hidden=("5, '-', 7", "0, '+', 0", "-2, '*', 4", "9, '-', 9"),
        draw=(whole(-20, 20), one_of("+", "-", "*"), whole(-20, 20)),
    ),
)  # fmt: skip

DIVISIBILITY = (
    easy(
        "is_even(n)", "returns True if the number is even, otherwise False", "return n % 2 == 0",
        examples=("4", "7"), hidden=("0", "1", "-2", "-3", "100"), draw=(whole(-99, 99),),
    ),
    easy(
        "is_odd(n)", "returns True if the number is odd, otherwise False", "return n % 2 == 1",
        examples=("4", "7"), hidden=("0", "1", "-2", "-3", "100"), draw=(whole(-99, 99),),
    ),
    easy(
        "is_multiple(a, b)", "returns True if a is a multiple of b, otherwise False; b is not 0", "return a % b == 0",
        examples=("6, 3", "7, 3"), hidden=("0, 5", "5, 10", "-9, 3", "8, 1", "9, 2"), draw=(whole(0, 20), whole(1, 4)),
    ),
    medium(
        "multiple_of_3_and_5(n)",
        "returns True if the number can be divided by both 3 and 5 without a rest, otherwise False",
        "return n % 3 == 0 and n % 5 == 0",
        examples=("15", "9"), hidden=("0", "5", "30", "-15", "31"), draw=(one_of(3, 10, 45, 60, 61, 25, 27),),
    ),
    hard(
        "fizz_buzz(n)",
        "returns 'FizzBuzz' if n is a multiple of 3 and of 5, 'Fizz' if it is only a multiple of 3, 'Buzz' "
        "if it is only a multiple of 5, and otherwise the number as a text",
        "return ('Fizz' * (n % 3 == 0) + 'Buzz' * (n % 5 == 0)) or str(n)",
        examples=("3", "15"), hidden=("1", "5", "9", "10", "30", "98"), draw=(whole(1, 99),),
    ),
)  # fmt: skip

DIVISION = (
    easy(
        "whole_quotient(a, b)", "returns how many whole times b fits into a; a is 0 or more and b is 1 or more",
        "return a // b",
        examples=("7, 2", "12, 3"), hidden=("0, 5", "4, 5", "10, 1", "100, 7"), draw=(whole(0, 99), whole(1, 9)),
    ),
    easy(
        "remainder(a, b)", "returns the remainder when a is divided by b; a is 0 or more and b is 1 or more",
        "return a % b",
        examples=("7, 2", "9, 3"), hidden=("0, 5", "4, 5", "10, 1", "100, 7"), draw=(whole(0, 99), whole(1, 9)),
    ),
    easy(
        "half(n)", "returns half of the number, as a float", "return n / 2",
        examples=("4", "5"), hidden=("0", "1", "-3", "100"), draw=(whole(-99, 99),),
    ),
    medium(
        "divide_or_none(a, b)",
        "returns a divided by b as a float, or None if b is 0", "return a / b if b != 0 else None",
        examples=("6, 2", "1, 0"), hidden=("0, 0", "0, 5", "1, 4", "-9, 2"), draw=(whole(-9, 9), one_of(-2, 0, 1, 4)),
    ),
    hard(
        "groups_needed(people, size)",
        "returns the smallest number of groups of at most size members that hold all people",
        "return (people + size - 1) // size",
        examples=("10, 3", "9, 3"), hidden=("0, 4", "1, 4", "4, 4", "5, 4", "7, 1"), draw=(whole(0, 60), whole(1, 9)),
    ),
)  # fmt: skip

COMPARE_NUMBERS = (
    easy(
        "larger(a, b)", "returns the larger of the two numbers", "return max(a, b)",
        examples=("2, 3", "5, -1"), hidden=("0, 0", "-4, -6", "7, 8", "0.5, 0.25"), draw=(whole(-9, 9), whole(-9, 9)),
    ),
    easy(
        "smallest_of_three(a, b, c)", "returns the smallest of the three numbers", "return min(a, b, c)",
        examples=("2, 3, 1", "5, 7, 6"), hidden=("0, 0, 0", "4, -6, 1", "2, 2, 3", "9, 8, 7"),
        draw=(whole(-9, 9), whole(-9, 9), whole(-9, 9)),
    ),
    easy(
        "is_positive(n)", "returns True if the number is greater than 0, otherwise False", "return n > 0",
        examples=("5", "-2"), hidden=("0", "1", "-1", "0.5"), draw=(whole(-3, 3),),
    ),
    easy(
        "is_between(n, low, high)", "returns True if n is at least low and at most high, otherwise False",
        "return low <= n <= high",
        examples=("5, 1, 10", "0, 1, 10"), hidden=("1, 1, 10", "10, 1, 10", "11, 1, 10", "3, 3, 3", "-4, -3, 0"),
        draw=(whole(-6, 16), whole(-4, 4), whole(5, 12)),
    ),
    medium(
        "sign(n)", "returns 1 if the number is positive, -1 if it is negative, and 0 if it is zero",
        "return (n > 0) - (n < 0)",
        examples=("5", "-2"), hidden=("0", "1", "-1", "100"), draw=(whole(-3, 3),),
    ),
    medium(
        "clamp(n, low, high)", "returns low if n is less than low, high if n is greater than high, and otherwise n",
        "return max(low, min(n, high))",
        examples=("5, 1, 10", "12, 1, 10"), hidden=("0, 1, 10", "1, 1, 10", "10, 1, 10", "-9, -3, 0", "4, 4, 4"),
        draw=(whole(-9, 20), whole(-4, 4), whole(5, 12)),
    ),
)  # fmt: skip

DIGITS = (
    easy(
        "last_digit(n)", "returns the last digit of a whole number that is 0 or more, as a number", "return n % 10",
        examples=("123", "7"), hidden=("0", "10", "99", "2048"), draw=(whole(0, 9999),),
    ),
    easy(
        "num_digits(n)", "returns how many digits a whole number that is 0 or more has", "return len(str(n))",
        examples=("123", "7"), hidden=("0", "10", "99", "100000"), draw=(whole(0, 99999),),
    ),
    easy(
        "has_digit(n, digit)",
        "returns True if the digit appears in the whole number n, which is 0 or more, otherwise False",
        "return str(digit) in str(n)",
        examples=("123, 2", "123, 4"), hidden=("0, 0", "10, 0", "99, 8", "5050, 5"), draw=(whole(0, 999), whole(0, 4)),
    ),
    medium(
        "digit_sum(n)", "returns the sum of the digits of a whole number that is 0 or more",
        "return sum(int(digit) for digit in str(n))",
        examples=("123", "7"), hidden=("0", "10", "99", "100100"), draw=(whole(0, 99999),),
    ),
    medium(
        "reverse_digits(n)",
        "returns the whole number n, which is 0 or more, with its digits in reverse order, as a number",
        "return int(str(n)[::-1])",
        examples=("123", "7"), hidden=("0", "10", "120", "9001"), draw=(whole(0, 99999),),
    ),
    hard(
        "digital_root(n)",
        "adds up the digits of n, which is 0 or more, again and again until one digit is left, and returns that digit",
        """
        while n > 9:
            n = sum(int(digit) for digit in str(n))
        return n
        """,
        examples=("123", "99"), hidden=("0", "9", "10", "98765", "199"), draw=(whole(0, 99999),),
    ),
)  # fmt: skip

DISTANCE = (
    easy(
        "absolute(n)", "returns the absolute value of the number", "return abs(n)",
        examples=("-3", "5"), hidden=("0", "-1", "-0.5", "42"), draw=(whole(-99, 99),),
    ),
    easy(
        "negate(n)", "returns the number with the opposite sign", "return -n",
        examples=("3", "-5"), hidden=("0", "1", "-0.5", "42"), draw=(whole(-99, 99),),
    ),
    easy(
        "distance(a, b)", "returns the distance between the two numbers, which is never negative", "return abs(a - b)",
        examples=("2, 5", "9, 2"), hidden=("0, 0", "-3, 3", "-7, -2", "10, 9"), draw=(whole(-50, 50), whole(-50, 50)),
    ),
    medium(
        "is_close_to(a, b, limit)", "returns True if the two numbers differ by at most the limit, otherwise False",
        "return abs(a - b) <= limit",
        examples=("3, 5, 2", "3, 9, 2"), hidden=("0, 0, 0", "5, 3, 2", "5, 2, 2", "-1, 1, 3", "-9, 9, 10"),
        draw=(whole(-5, 5), whole(-5, 5), whole(0, 6)),
    ),
    medium(
        "city_distance(x1, y1, x2, y2)", "returns the distance between x1 and x2 plus the distance between y1 and y2; "
        "both distances are never negative",
        "return abs(x1 - x2) + abs(y1 - y2)",
        examples=("0, 0, 3, 4", "1, 1, 1, 1"), hidden=("3, 4, 0, 0", "-1, -2, 1, 2", "5, 0, 0, 5", "0, 0, 0, -7"),
        draw=(whole(-9, 9), whole(-9, 9), whole(-9, 9), whole(-9, 9)),
    ),
    hard(
        "closest_to(numbers, target)",
        "returns the number of the list, which is not empty, that is closest to the target; "
        "if two are equally close, returns the smaller one",
        "return min(numbers, key=lambda n: (abs(n - target), n))",
        examples=("[1, 5, 9], 6", "[2, 8], 5"), hidden=("[3], 10", "[8, 2], 5", "[-4, 4, 7], 0", "[1, 2, 3], 9"),
        draw=(listed(whole(-9, 9), 1, 5), whole(-9, 9)),
    ),
)  # fmt: skip

ROUNDING = (
    easy(
        "to_whole(x)", "returns the float x, which is 0 or more, as a whole number, without the part after the point",
        "return int(x)",
        examples=("3.7", "5.0"), hidden=("0.0", "0.99", "12.5", "100.25"), draw=(quarters(0, 99),),
    ),
    easy(
        "round_one(x)", "returns the number rounded to one decimal", "return round(x, 1)",
        examples=("3.14159", "2.5"), hidden=("0.0", "1.26", "-7.01", "99.99"), draw=(one_of(0.12, 5.57, -2.718, 8.0),),
    ),
    easy(
        "round_two(x)", "returns the number rounded to two decimals", "return round(x, 2)",
        examples=("3.14159", "2.5"), hidden=("0.0", "1.239", "-7.001", "9.999"),
        draw=(one_of(0.1234, 5.5551, -2.718, 8.0),),
    ),
    medium(
        "fraction_part(x)", "returns the part after the point of a float that is 0 or more, for example 0.25 for 3.25",
        "return x - int(x)",
        examples=("3.25", "5.0"), hidden=("0.0", "0.75", "12.5", "100.25"), draw=(quarters(0, 99),),
    ),
    hard(
        "round_to_ten(n)",
        "returns the multiple of 10 that is nearest to the whole number n, which is 0 or more; a number "
        "that ends in 5 is rounded up",
        "return (n + 5) // 10 * 10",
        examples=("12", "17"), hidden=("0", "4", "5", "15", "25", "99"), draw=(whole(0, 999),),
    ),
)  # fmt: skip

POWERS = (
    easy(
        "cube(n)", "returns the number to the power of three", "return n ** 3",
        examples=("2", "-1"), hidden=("0", "1", "5", "-4"), draw=(whole(-20, 20),),
    ),
    easy(
        "power(base, exponent)", "returns the base raised to the exponent, a whole number that is 0 or more",
        "return base ** exponent",
        examples=("2, 3", "5, 1"), hidden=("0, 2", "7, 0", "-2, 3", "10, 4"), draw=(whole(-6, 6), whole(0, 5)),
    ),
    easy(
        "square_root(n)", "returns the square root of a square number such as 9, as a float", "return n ** 0.5",
        examples=("9", "16"), hidden=("0", "1", "25", "144"), draw=(one_of(4, 36, 49, 64, 81, 100, 121, 400),),
    ),
    medium(
        "is_square(n)",
        "returns True if the whole number n, which is 0 or more, is the square of a whole number, otherwise "
        "False",
        "return round(n ** 0.5) ** 2 == n",
        examples=("16", "15"), hidden=("0", "1", "2", "144", "145"), draw=(one_of(9, 10, 24, 25, 49, 50, 99, 100),),
    ),
    hard(
        "is_power_of_two(n)",
        "returns True if n, which is 1 or more, can be reached by doubling 1 zero or more times, otherwise False",
        """
        while n % 2 == 0:
            n = n // 2
        return n == 1
        """,
        examples=("8", "6"), hidden=("1", "2", "3", "1024", "1000"), draw=(one_of(4, 12, 16, 20, 32, 48, 64, 66),),
    ),
)  # fmt: skip

FAMILIES: tuple[Family, ...] = (
    Family(name="arithmetic", tasks=ARITHMETIC),
    Family(name="divisibility", tasks=DIVISIBILITY),
    Family(name="division", tasks=DIVISION),
    Family(name="compare_numbers", tasks=COMPARE_NUMBERS),
    Family(name="digits", tasks=DIGITS, heldout=True),
    Family(name="distance", tasks=DISTANCE, heldout=True),
    Family(name="rounding", tasks=ROUNDING),
    Family(name="powers", tasks=POWERS),
)
