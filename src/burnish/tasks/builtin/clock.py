"""Families about the clock face, months and weekdays. Whole numbers throughout."""

from burnish.tasks.builtin.inputs import one_of, whole
from burnish.tasks.builtin.tables import tupled
from burnish.tasks.family import Family, easy, hard, medium

CLOCK_FACE = Family(
    name="clock_face",
    tasks=(
        easy(
            "is_full_hour(minute)",
            "returns True if `minute` is 0, and False otherwise",
            "return minute == 0",
            examples=("0", "15"),
            hidden=("59", "0", "30", "1"),
            draw=(one_of(0, 0, 0, 1, 10, 30, 59),),
        ),
        easy(
            "hour_later(hour, n)",
            "returns which hour (0 to 23) it is `n` hours after `hour`; after 23 comes 0",
            "return (hour + n) % 24",
            examples=("10, 3", "23, 2"),
            hidden=("0, 0", "23, 1", "12, 24", "5, 50"),
            draw=(whole(0, 23), whole(0, 60)),
        ),
        easy(
            "minutes_left(minute)",
            "returns how many minutes are left until the next full hour, where `minute` (1 to 59) minutes of this hour "
            "are over",
            "return 60 - minute",
            examples=("50", "15"),
            hidden=("1", "59", "30", "45"),
            draw=(whole(1, 59),),
        ),
        medium(
            "twelve_hour(hour)",
            "returns the hour from 1 to 12 that a clock with hands shows at `hour` (0 to 23); at 0 and 12 it shows 12",
            "return 12 if hour % 12 == 0 else hour % 12",
            examples=("15", "9"),
            hidden=("0", "12", "13", "23"),
            draw=(whole(0, 23),),
        ),
        hard(
            "minutes_until(start, end)",
            "returns how many minutes lie from the time `start` to the time `end`, both tuples (hour, minute); if "
            "`end` is earlier in the day than `start`, it is on the next day",
            "return ((end[0] - start[0]) * 60 + end[1] - start[1]) % 1440",
            examples=("(9, 0), (10, 30)", "(23, 0), (1, 0)"),
            hidden=("(0, 0), (0, 0)", "(12, 45), (13, 15)", "(0, 1), (0, 0)", "(22, 30), (6, 15)"),
            draw=(tupled(whole(0, 23), whole(0, 59)), tupled(whole(0, 23), whole(0, 59))),
        ),
    ),
)

MONTHS = Family(
    name="months_and_weekdays",
    tasks=(
        easy(
            "next_weekday(day)",
            "returns the number of the weekday after `day`; weekdays are numbered from 0 to 6 and after 6 comes 0",
            "return (day + 1) % 7",
            examples=("2", "6"),
            hidden=("0", "1", "4", "5"),
        ),
        easy(
            "months_left(month)",
            "returns how many months of the year are left after the month number `month` (1 to 12)",
            "return 12 - month",
            examples=("1", "12"),
            hidden=("2", "6", "11", "7"),
        ),
        easy(
            "is_summer(month)",
            "returns True if the month number `month` is 6, 7 or 8, and False otherwise",
            "return month in (6, 7, 8)",
            examples=("7", "1"),
            hidden=("5", "6", "8", "9"),
        ),
        medium(
            "is_leap_year(year)",
            "returns True if `year` is divisible by 4 but not by 100, or is divisible by 400, and False otherwise",
            "return year % 4 == 0 and year % 100 != 0 or year % 400 == 0",
            examples=("2024", "2023"),
            hidden=("1900", "2000", "2100", "1996"),
            draw=(whole(1990, 2030),),
        ),
        medium(
            "quarter_of(month)",
            "returns the quarter of the year (1 to 4) of the month number `month`; months 1 to 3 are in quarter 1",
            "return (month + 2) // 3",
            examples=("2", "12"),
            hidden=("1", "3", "4", "9"),
        ),
        medium(
            "days_in_month(month)",
            "returns how many days the month number `month` (1 to 12) has in a year that is not a leap year",
            "return [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1]",
            examples=("1", "4"),
            hidden=("2", "8", "11", "12"),
            draw=(whole(1, 12),),
        ),
    ),
)

FAMILIES = (CLOCK_FACE, MONTHS)
