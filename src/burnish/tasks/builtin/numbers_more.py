"""Families about numbers in use: series, factors, money, number systems, grades."""

from burnish.tasks.builtin.inputs import listed, one_of, text, whole
from burnish.tasks.family import Family, easy, hard, medium

SERIES = (
    easy(
        "sum_to(n)", "returns the sum of the whole numbers from 1 to n; n is 0 or more", "return sum(range(n + 1))",
        examples=("3", "1"), hidden=("0", "2", "10", "100"), draw=(whole(3, 200),),
    ),
    easy(
        "numbers_to(n)",
        "returns a list of the whole numbers from 1 to n; n is 0 or more", "return list(range(1, n + 1))",
        examples=("3", "1"), hidden=("0", "2", "5", "10"), draw=(whole(3, 15),),
    ),
    easy(
        "countdown(n)", "returns a list of the whole numbers from n down to 1; n is 0 or more",
        "return list(range(n, 0, -1))",
        examples=("3", "1"), hidden=("0", "2", "5", "10"), draw=(whole(3, 15),),
    ),
    medium(
        "factorial(n)", "returns the product of the whole numbers from 1 to n; for 0 it returns 1",
        """
        result = 1
        for i in range(2, n + 1):
            result *= i
        return result
        """,
        examples=("3", "5"), hidden=("0", "1", "2", "10"), draw=(whole(3, 14),),
    ),
    medium(
        "sum_of_squares_to(n)", "returns 1*1 + 2*2 + ... + n*n; n is 0 or more",
        "return sum(i * i for i in range(1, n + 1))",
        examples=("3", "1"), hidden=("0", "2", "5", "10"), draw=(whole(3, 40),),
    ),
    hard(
        "fibonacci(n)",
        "returns the Fibonacci number at position n, where positions 0 and 1 hold 0 and 1 and each later "
        "number is the sum of the two before it",
        """
        a, b = 0, 1
        for _ in range(n):
            a, b = b, a + b
        return a
        """,
        examples=("5", "7"), hidden=("0", "1", "2", "3", "20"), draw=(whole(3, 40),),
    ),
)  # fmt: skip

FACTORS = (
    easy(
        "is_factor(a, n)", "returns True if a divides n without a rest, otherwise False; a and n are 1 or more",
        "return n % a == 0",
        examples=("3, 6", "4, 6"), hidden=("1, 1", "7, 7", "6, 3", "5, 100", "9, 100"),
        draw=(whole(1, 4), whole(1, 20)),
    ),
    medium(
        "divisors(n)", "returns a sorted list of the whole numbers that divide n without a rest; n is 1 or more",
        "return [i for i in range(1, n + 1) if n % i == 0]",
        examples=("6", "7"), hidden=("1", "2", "12", "36"), draw=(whole(1, 60),),
    ),
    medium(
        "is_prime(n)", "returns True if n, which is 0 or more, is a prime number, otherwise False",
        "return n > 1 and all(n % i for i in range(2, n))",
        examples=("7", "9"), hidden=("0", "1", "2", "4", "25", "97"), draw=(whole(2, 50),),
    ),
    medium(
        "greatest_common_divisor(a, b)",
        "returns the largest whole number that divides both a and b without a rest; a and b are 1 or more",
        "return max(i for i in range(1, min(a, b) + 1) if a % i == 0 and b % i == 0)",
        examples=("12, 18", "5, 7"), hidden=("1, 1", "6, 6", "4, 100", "100, 4", "21, 14"),
        draw=(whole(1, 60), whole(1, 60)),
    ),
    hard(
        "prime_factors(n)", "returns the list of prime numbers whose product is n, from small to large; n is 2 or more",
        """
        factors = []
        while n > 1:
            factor = next(i for i in range(2, n + 1) if n % i == 0)
            factors.append(factor)
            n = n // factor
        return factors
        """,
        examples=("12", "7"), hidden=("2", "9", "30", "64", "97"), draw=(whole(2, 99),),
    ),
)  # fmt: skip

NUMBER_SYSTEMS = (
    easy(
        "to_binary(n)", "returns the whole number n, which is 0 or more, in binary as a text without '0b' at its start",
        "return bin(n)[2:]",
        examples=("5", "8"), hidden=("0", "1", "10", "255"), draw=(whole(2, 500),),
    ),
    easy(
        "from_binary(text)", "returns the number that a text of binary digits such as '101' stands for",
        "return int(text, 2)",
        examples=("'101'", "'1000'"), hidden=("'0'", "'1'", "'0011'", "'11111111'"), draw=(text(1, 8, "01"),),
    ),
    medium(
        "count_ones(n)", "returns how many digits 1 the whole number n, which is 0 or more, has in binary",
        "return bin(n).count('1')",
        examples=("5", "8"), hidden=("0", "1", "7", "255"), draw=(whole(2, 500),),
    ),
    hard(
        "to_base(n, base)",
        "returns the whole number n, which is 1 or more, written in the given base from 2 to 10, as a text",
        """
        digits = ''
        while n:
            digits = str(n % base) + digits
            n = n // base
        return digits
        """,
        examples=("5, 2", "11, 3"), hidden=("1, 2", "9, 10", "8, 8", "123, 10", "80, 9"),
        draw=(whole(1, 200), whole(2, 9)),
    ),
)  # fmt: skip

GRADES = (
    easy(
        "has_passed(score)", "returns True if the score is 50 or more, otherwise False", "return score >= 50",
        examples=("80", "20"), hidden=("0", "49", "50", "51", "100"), draw=(whole(30, 70),),
    ),
    easy(
        "is_grown_up(age)", "returns True if the age is at least 18, otherwise False", "return age >= 18",
        examples=("30", "12"), hidden=("0", "17", "18", "19", "99"), draw=(whole(10, 26),),
    ),
    easy(
        "add_bonus(score, bonus)",
        "returns the score plus the bonus, but at most 100", "return min(score + bonus, 100)",
        examples=("80, 5", "95, 10"), hidden=("0, 0", "100, 0", "90, 10", "91, 10", "50, 20"),
        draw=(whole(60, 100), whole(0, 30)),
    ),
    medium(
        "points_missing(score)", "returns how many points a score is below 50; a score of 50 or more gives 0",
        "return max(0, 50 - score)",
        examples=("45", "80"), hidden=("0", "49", "50", "51", "100"), draw=(whole(30, 70),),
    ),
    medium(
        "letter_grade(score)",
        "returns 'A' for a score of 90 or more, 'B' for 80 to 89, 'C' for 70 to 79, and 'F' below 70",
        "return 'A' if score >= 90 else 'B' if score >= 80 else 'C' if score >= 70 else 'F'",
        examples=("95", "72"), hidden=("0", "69", "70", "79", "80", "89", "90"), draw=(whole(60, 100),),
    ),
    hard(
        "best_average(scores)",
        "returns the average, as a float, of the scores of a list after its lowest score is left out "
        "once; the list has at least two scores",
        "return (sum(scores) - min(scores)) / (len(scores) - 1)",
        examples=("[1, 5, 7]", "[4, 4]"), hidden=("[0, 9]", "[8, 2, 2]", "[10, 0, 20, 30, 40]", "[-4, -2]"),
        draw=(listed(one_of(0, 4, 8, 12, 20), 2, 5),),
    ),
)  # fmt: skip

MONEY = (
    easy(
        "total_price(price, count)", "returns what count items cost when one item costs price", "return price * count",
        examples=("3, 4", "10, 1"), hidden=("0, 5", "7, 0", "2.5, 4", "12, 12"), draw=(whole(1, 50), whole(0, 20)),
    ),
    easy(
        "money_back(paid, price)", "returns how much money a customer who paid gets back", "return paid - price",
        examples=("10, 7", "5, 5"), hidden=("1, 0", "20, 1", "50, 49", "2.5, 1.25"), draw=(whole(50, 99), whole(1, 49)),
    ),
    easy(
        "can_buy(money, price)", "returns True if the money is enough to pay the price, otherwise False",
        "return money >= price",
        examples=("10, 7", "5, 8"), hidden=("0, 0", "7, 7", "6, 7", "99, 100"), draw=(whole(0, 9), whole(0, 9)),
    ),
    medium(
        "ticket_price(age)", "returns 0 for an age below 6, 5 for an age from 6 to 17, and 10 for an age of 18 or more",
        "return 0 if age < 6 else 5 if age < 18 else 10",
        examples=("4", "30"), hidden=("0", "5", "6", "17", "18", "90"), draw=(whole(0, 25),),
    ),
    hard(
        "fewest_coins(amount)",
        "returns the smallest number of coins worth 10, 5 and 1 that make up the amount, which is 0 or "
        "more",
        "return amount // 10 + amount % 10 // 5 + amount % 5",
        examples=("16", "4"), hidden=("0", "5", "10", "19", "99"), draw=(whole(0, 200),),
    ),
)  # fmt: skip

FAMILIES: tuple[Family, ...] = (
    Family(name="series", tasks=SERIES),
    Family(name="factors", tasks=FACTORS),
    Family(name="money", tasks=MONEY),
    Family(name="number_systems", tasks=NUMBER_SYSTEMS),
    Family(name="grades", tasks=GRADES),
)
