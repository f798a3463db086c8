"""The family about units of measure."""

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

FAMILIES = (MEASURES,)
