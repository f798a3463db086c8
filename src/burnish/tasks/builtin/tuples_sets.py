"""Families about tuples and sets: algebra of sets, distinctness, building tuples, records."""

from burnish.tasks.builtin.inputs import distinct, listed, one_of, whole, word
from burnish.tasks.builtin.tables import number_set, tupled
from burnish.tasks.family import Family, easy, hard, medium

person = tupled(word(), whole(1, 90))

SET_ALGEBRA = Family(
    name="set_algebra",
    tasks=(
        easy(
            "set_union(a, b)",
            "returns the set of the numbers that are in the set `a` or in the set `b`",
            "return a | b",
            examples=("{1, 2}, {2, 3}", "set(), {5}"),
            hidden=("set(), set()", "{1}, {1}", "{4, 5}, {6}", "{0, -1}, set()"),
            draw=(number_set(), number_set()),
        ),
        easy(
            "set_overlap(a, b)",
            "returns the set of the numbers that are in both sets `a` and `b`",
            "return a & b",
            examples=("{1, 2}, {2, 3}", "{1}, {5}"),
            hidden=("set(), {1}", "{1, 2, 3}, {1, 3, 2}", "{4, 5}, {6}", "{7, 8, 9}, {9, 8}"),
            draw=(number_set(2), number_set(2)),
        ),
        easy(
            "only_in_first(a, b)",
            "returns the set of the numbers that are in the set `a` but not in the set `b`",
            "return a - b",
            examples=("{1, 2}, {2, 3}", "{1}, {1}"),
            hidden=("set(), {1}", "{1, 2, 3}, set()", "{4, 5}, {6}", "{7, 8, 9}, {9, 8}"),
            draw=(number_set(2), number_set(2)),
        ),
        medium(
            "shared_by_all(sets)",
            "returns the set of the numbers that are in every set of the list `sets`, which is not empty",
            "return set.intersection(*sets)",
            examples=("[{1, 2}, {2, 3}, {2}]", "[{1}, {5}]"),
            hidden=("[{4, 5}]", "[set(), {1}]", "[{1, 2, 3}, {3, 2}, {2, 3, 4}]", "[{8}, {8}, {8}]"),
            draw=(listed(number_set(5, 9), 1, 3),),
        ),
        hard(
            "in_exactly_one(sets)",
            "returns the set of the numbers that are in exactly one of the sets in the list `sets`",
            """
            everything = set().union(*sets)
            return {n for n in everything if sum(n in s for s in sets) == 1}
            """,
            examples=("[{1, 2}, {2, 3}, {2}]", "[{1}, {1}]"),
            hidden=("[]", "[{4, 5}]", "[{1}, {1}, {1}]", "[{1, 2}, {3}, {3, 4}, set()]"),
            draw=(listed(number_set(1, 5), 1, 4),),
        ),
    ),
)

DISTINCTNESS = Family(
    name="distinctness",
    tasks=(
        easy(
            "num_distinct(items)",
            "returns how many different values are in the list `items`",
            "return len(set(items))",
            examples=("[1, 2, 1]", "[]"),
            hidden=("[5, 5, 5]", "['a', 'b', 'a', 'c']", "[0]", "[1, 2, 3, 4]"),
            draw=(listed(whole(0, 4), 2, 8),),
        ),
        easy(
            "all_different(items)",
            "returns True if no value occurs twice in the list `items`, and False otherwise",
            "return len(items) == len(set(items))",
            examples=("[1, 2, 3]", "[1, 2, 1]"),
            hidden=("[]", "[7, 7]", "['x', 'y', 'z', 'y']", "['only']"),
            draw=(listed(whole(0, 9), 2, 5),),
        ),
        easy(
            "same_members(a, b)",
            "returns True if the lists `a` and `b` hold the same values, where order and repeats do not matter, "
            "and False otherwise",
            "return set(a) == set(b)",
            examples=("[1, 2], [2, 1, 1]", "[1], [1, 3]"),
            hidden=("[], []", "[1, 2], [1]", "['a', 'b'], ['b', 'a']", "[], [0]"),
            draw=(listed(whole(1, 2), 1, 4), listed(whole(1, 2), 1, 4)),
        ),
        medium(
            "values_seen_twice(items)",
            "returns a sorted list of the values that occur at least twice in the list `items`, each once",
            "return sorted({item for item in items if items.count(item) > 1})",
            examples=("[3, 1, 3, 2, 1]", "[1, 2]"),
            hidden=("[]", "[5, 5, 5]", "['b', 'a', 'b', 'a', 'c']", "[0, 1, 0]"),
            draw=(listed(whole(0, 5), 3, 9),),
        ),
        hard(
            "first_repeated(items)",
            "returns the first item of the list `items` that is equal to an earlier item, or None if there is none",
            """
            seen = set()
            for item in items:
                if item in seen:
                    return item
                seen.add(item)
            return None
            """,
            examples=("[1, 2, 3, 2, 1]", "[1, 2]"),
            hidden=("[]", "[9, 9]", "['a', 'b', 'c', 'c', 'a']", "[1, 2, 3, 4, 1]"),
            draw=(listed(whole(0, 6), 3, 7),),
        ),
    ),
)

TUPLE_BUILDING = Family(
    name="tuple_building",
    heldout=True,
    tasks=(
        easy(
            "make_pair(a, b)",
            "returns the tuple of `a` and `b`",
            "return (a, b)",
            examples=("1, 2", "'x', 'y'"),
            hidden=("0, 0", "None, True", "[1], 'a'", "-5, 5"),
            draw=(whole(-99, 99), word()),
        ),
        easy(
            "swap_pair(pair)",
            "returns the tuple of two items `pair` with its items swapped",
            "return (pair[1], pair[0])",
            examples=("(1, 2)", "('x', 'y')"),
            hidden=("(0, 1)", "(None, True)", "([1], 'a')", "(-5, 5)"),
            draw=(tupled(whole(-99, -1), whole(0, 99)),),
        ),
        easy(
            "smallest_and_largest(numbers)",
            "returns a tuple of the smallest and the largest number of the list `numbers`, which is not empty",
            "return (min(numbers), max(numbers))",
            examples=("[3, 1, 2]", "[5]"),
            hidden=("[-1, -2]", "[0, 0, 0]", "[10, 20, 5, 7]", "[1, 2]"),
            draw=(listed(whole(-20, 20), 1, 6),),
        ),
        medium(
            "sorted_pair(a, b)",
            "returns a tuple of the two numbers `a` and `b` with the smaller one first",
            "return (a, b) if a < b else (b, a)",
            examples=("5, 2", "1, 4"),
            hidden=("3, 3", "-1, -2", "0, 9", "10, -10"),
            draw=(whole(-9, 9), whole(-9, 9)),
        ),
        medium(
            "with_position(items)",
            "returns a list of tuples (position, item) for the items of the list `items`, where positions start at 0",
            "return list(enumerate(items))",
            examples=("['a', 'b']", "[7]"),
            hidden=("[]", "[0, 0]", "['x', 'y', 'z']", "[[1], None]"),
            draw=(listed(word(), 1, 5),),
        ),
        hard(
            "all_unordered_pairs(items)",
            "returns a list of the tuples (first, second) for every two items of the list `items`, where `first` comes "
            "before `second` in `items`, ordered by the place of `first` and then of `second`",
            """
            pairs = []
            for i in range(len(items)):
                for j in range(i + 1, len(items)):
                    pairs.append((items[i], items[j]))
            return pairs
            """,
            examples=("[1, 2, 3]", "['a', 'b']"),
            hidden=("[]", "[1]", "[3, 2, 1, 0]", "['x', 'x']"),
            draw=(distinct(0, 20, 4),),
        ),
    ),
)

RECORDS = Family(
    name="tuple_records",
    tasks=(
        easy(
            "person_name(person)",
            "returns the name of `person`, a tuple (name, age)",
            "return person[0]",
            examples=("('Ann', 30)", "('Bo', 5)"),
            hidden=("('Cy', 0)", "('', 9)", "('Dora', 77)", "('Ann', 31)"),
            draw=(person,),
        ),
        easy(
            "is_adult(person)",
            "returns True if the age of `person`, a tuple (name, age), is at least 18, and False otherwise",
            "return person[1] >= 18",
            examples=("('Ann', 30)", "('Bo', 5)"),
            hidden=("('Cy', 18)", "('Di', 17)", "('Ed', 0)", "('Flo', 99)"),
            draw=(tupled(word(), whole(10, 26)),),
        ),
        easy(
            "all_names(people)",
            "returns a list of the names in `people`, a list of tuples (name, age)",
            "return [name for name, age in people]",
            examples=("[('Ann', 30), ('Bo', 5)]", "[]"),
            hidden=("[('Cy', 1)]", "[('B', 2), ('A', 2)]", "[('x', 0), ('x', 1)]", "[('p', 9), ('q', 8), ('r', 7)]"),
            draw=(listed(person, 1, 4),),
        ),
        medium(
            "total_age(people)",
            "returns the sum of the ages in `people`, a list of tuples (name, age)",
            "return sum(age for name, age in people)",
            examples=("[('Ann', 30), ('Bo', 5)]", "[]"),
            hidden=("[('Cy', 1)]", "[('B', 2), ('A', 2)]", "[('x', 0), ('y', 0)]", "[('p', 90), ('q', 8), ('r', 7)]"),
            draw=(listed(person, 1, 4),),
        ),
        medium(
            "names_of_age(people, age)",
            "returns a list of the names of those in `people`, a list of tuples (name, age), whose age is `age`",
            "return [name for name, years in people if years == age]",
            examples=("[('Ann', 30), ('Bo', 5)], 5", "[('Ann', 30)], 31"),
            hidden=("[], 0", "[('B', 2), ('A', 2)], 2", "[('x', 0), ('y', 1)], 0", "[('p', 9), ('q', 8), ('r', 9)], 9"),
            draw=(listed(tupled(word(), one_of(5, 6)), 2, 5), one_of(5, 6)),
        ),
    ),
)

FAMILIES = (SET_ALGEBRA, DISTINCTNESS, TUPLE_BUILDING, RECORDS)
