"""Families about units of measure and about money."""

from burnish.tasks.builtin.inputs import one_of, whole
from burnish.tasks.family import Family, easy, hard, medium

MEASURES = Family(
    name="measures",
    heldout=True,
    tasks=(
        easy(
            "days_to_hours(days)",
            "returns how many hours `days` days have",
            "return days * 24",
            examples=("1", "7"),
            hidden=("0", "2", "10", "365"),
            draw=(whole(3, 99),),
        ),
        easy(
            "feet_to_inches(feet)",
            "returns how many inches `feet` feet are; a foot has 12 inches",
            "return feet * 12",
            examples=("1", "5"),
            hidden=("0", "2", "10", "100"),
            draw=(whole(3, 99),),
        ),
        easy(
            "full_weeks(days)",
            "returns how many full weeks `days` days have, as a whole number",
            "return days // 7",
            examples=("14", "10"),
            hidden=("0", "6", "7", "365"),
            draw=(whole(3, 99),),
        ),
        medium(
            "total_seconds(hours, minutes, seconds)",
            "returns how many seconds `hours` hours, `minutes` minutes and `seconds` seconds are together",
            "return hours * 3600 + minutes * 60 + seconds",
            examples=("0, 1, 5", "1, 0, 0"),
            hidden=("0, 0, 0", "2, 30, 15", "0, 0, 59", "24, 0, 1"),
            draw=(whole(0, 9), whole(0, 59), whole(0, 59)),
        ),
        medium(
            "celsius_to_fahrenheit(celsius)",
            "returns the temperature `celsius` in degrees Fahrenheit: nine fifths of it plus 32",
            "return celsius * 9 / 5 + 32",
            examples=("0", "100"),
            hidden=("-40", "10", "25", "5"),
            draw=(one_of(*range(-50, 100, 5)),),
        ),
        hard(
            "feet_and_inches(inches)",
            "returns a string like '5 ft 7 in' for the whole number `inches`; a foot has 12 inches",
            "return f'{inches // 12} ft {inches % 12} in'",
            examples=("67", "12"),
            hidden=("0", "11", "25", "100"),
            draw=(whole(10, 200),),
        ),
    ),
)

MONEY = Family(
    name="money",
    heldout=True,
    tasks=(
        easy(
            "total_cost(price, amount, shipping)",
            "returns the cost of `amount` things at `price` each, plus `shipping`",
            "return price * amount + shipping",
            examples=("5, 3, 0", "10, 1, 4"),
            hidden=("7, 0, 1", "2, 2, 2", "20, 5, 9", "1, 9, 0"),
            draw=(whole(1, 30), whole(0, 9), whole(0, 9)),
        ),
        easy(
            "change_due(paid, price, discount)",
            "returns how much money comes back to someone who paid `paid` for a thing that costs `price` minus "
            "`discount`",
            "return paid - (price - discount)",
            examples=("10, 7, 1", "5, 5, 0"),
            hidden=("20, 1, 1", "100, 55, 10", "8, 6, 0", "50, 49, 40"),
            draw=(whole(50, 99), whole(20, 50), whole(0, 20)),
        ),
        easy(
            "can_afford(money, price)",
            "returns True if `money` is at least `price`, and False otherwise",
            "return money >= price",
            examples=("10, 7", "3, 5"),
            hidden=("5, 5", "0, 1", "99, 100", "2, 0"),
            draw=(whole(0, 9), whole(0, 9)),
        ),
        medium(
            "bill_with_tip(bill, percent)",
            "returns `bill` plus a tip of `percent` percent of it, rounded to 2 decimals",
            "return round(bill + bill * percent / 100, 2)",
            examples=("100, 10", "50, 0"),
            hidden=("0, 20", "200, 15", "40, 50", "10, 100"),
            draw=(whole(1, 90), one_of(0, 5, 10, 20, 25)),
        ),
        hard(
            "num_coins(cents)",
            "returns the smallest number of coins of 25, 10, 5 and 1 cents that together are worth `cents`",
            "num = 0\nfor coin in (25, 10, 5, 1):\n    num += cents // coin\n    cents %= coin\nreturn num",
            examples=("30", "4"),
            hidden=("0", "25", "41", "99"),
            draw=(whole(1, 120),),
        ),
    ),
)

FAMILIES = (MEASURES, MONEY)
