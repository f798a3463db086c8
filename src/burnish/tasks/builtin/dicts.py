"""Families about dicts: look-ups, views, building, changing, adding up."""

from burnish.tasks.builtin.inputs import distinct, listed, whole, word
from burnish.tasks.builtin.tables import key, one_to_one, table
from burnish.tasks.family import Family, easy, hard, medium

LOOKUP = Family(
    name="dict_lookup",
    tasks=(
        easy(
            "value_or_zero(d, key)",
            "returns the value of `key` in the dict `d`, or 0 if `key` is not in `d`",
            "return d.get(key, 0)",
            examples=("{'a': 5, 'b': 7}, 'b'", "{'a': 5}, 'z'"),
            hidden=("{}, 'a'", "{'x': -3}, 'x'", "{1: 'one'}, 1", "{'k': 2, 'm': 4}, 'n'"),
            draw=(table(3), key()),
        ),
        easy(
            "value_or_default(d, key, default)",
            "returns the value of `key` in the dict `d`, or `default` if `key` is not in `d`",
            "return d.get(key, default)",
            examples=("{'a': 1}, 'a', 9", "{'a': 1}, 'b', 9"),
            hidden=("{}, 'a', 'none'", "{'q': [1, 2]}, 'q', []", "{'a': 0}, 'a', 5", "{2: 'two'}, 3, 'three'"),
            draw=(table(3), key(), whole(10, 99)),
        ),
        easy(
            "has_key(d, key)",
            "returns True if `key` is a key of the dict `d`, and False otherwise",
            "return key in d",
            examples=("{'a': 1}, 'a'", "{'a': 1}, 'b'"),
            hidden=("{}, 'a'", "{'a': None}, 'a'", "{'a': 'b'}, 'b'", "{3: 0, 4: 1}, 4"),
            draw=(table(4), key()),
        ),
        medium(
            "first_known(d, keys)",
            "returns the value in the dict `d` of the first item of the list `keys` that is a key of `d`, "
            "or None if there is no such item",
            "for key in keys:\n    if key in d:\n        return d[key]\nreturn None",
            examples=("{'a': 1, 'b': 2}, ['x', 'b', 'a']", "{'a': 1}, ['q']"),
            hidden=("{'a': 1}, []", "{}, ['a']", "{'a': 0, 'b': 5}, ['a', 'b']", "{'m': 'M'}, ['k', 'l', 'm']"),
            draw=(table(2, 5), listed(key(), 2, 4)),
        ),
        hard(
            "look_deep(d, path)",
            "returns the value found by following the keys in the list `path` through the nested dict `d`, "
            "or None if a key is missing",
            "for key in path:\n    if key not in d:\n        return None\n    d = d[key]\nreturn d",
            examples=("{'a': {'b': 3}}, ['a', 'b']", "{'a': {'b': 3}}, ['a', 'c']"),
            hidden=(
                "{'a': 1}, ['a']",
                "{'a': {'b': {'c': 'end'}}}, ['a', 'b', 'c']",
                "{}, ['a', 'b']",
                "{'a': {'b': 4}, 'x': {'b': 6}}, ['x', 'b']",
            ),
        ),
    ),
)

VIEWS = Family(
    name="dict_views",
    tasks=(
        easy(
            "key_list(d)",
            "returns a list of the keys of the dict `d`",
            "return list(d.keys())",
            examples=("{'a': 1, 'b': 2}", "{}"),
            hidden=("{'x': 0}", "{3: 'c', 1: 'a'}", "{'b': 1, 'a': 2, 'c': 3}", "{(1, 2): None}"),
            draw=(table(),),
        ),
        easy(
            "value_list(d)",
            "returns a list of the values of the dict `d`",
            "return list(d.values())",
            examples=("{'a': 1, 'b': 2}", "{}"),
            hidden=("{'x': 0}", "{3: 'c', 1: 'a'}", "{'b': 7, 'a': 7}", "{'k': None, 'm': [1]}"),
            draw=(table(),),
        ),
        easy(
            "sorted_keys(d)",
            "returns a sorted list of the keys of the dict `d`",
            "return sorted(d)",
            examples=("{'b': 1, 'a': 2}", "{3: 'x', 1: 'y', 2: 'z'}"),
            hidden=("{}", "{'z': 0, 'y': 1, 'x': 2}", "{10: 0, -10: 0}", "{'one': 1, 'four': 4, 'two': 2}"),
            draw=(table(2),),
        ),
        easy(
            "pair_list(d)",
            "returns a list of the (key, value) tuples of the dict `d`",
            "return list(d.items())",
            examples=("{'a': 1, 'b': 2}", "{}"),
            hidden=("{'x': 0}", "{3: 'c', 1: 'a'}", "{'b': [7], 'a': None}", "{'q': 'r'}"),
            draw=(table(),),
        ),
        medium(
            "key_of_largest(d)",
            "returns the key of the dict `d` whose value is largest; `d` is not empty and no two values are equal",
            "return max(d, key=d.get)",
            examples=("{'a': 1, 'b': 5, 'c': 2}", "{'x': 4}"),
            hidden=("{'a': -1, 'b': -5}", "{'z': 9, 'a': 3}", "{1: 20, 2: 10}", "{'p': 0, 'q': -2, 'r': 1}"),
            draw=(one_to_one(4),),
        ),
    ),
)

BUILD = Family(
    name="dict_build",
    tasks=(
        easy(
            "pair_up(keys, values)",
            "returns a dict that maps each item of the list `keys` to the item at the same place in `values`",
            "return dict(zip(keys, values))",
            examples=("['a', 'b'], [1, 2]", "[], []"),
            hidden=("['x'], [None]", "[1, 2, 3], ['a', 'b', 'c']", "['k', 'm'], [0, 0]", "[5], [[6]]"),
            draw=(distinct(0, 30, 4), listed(key(), 4, 4)),
        ),
        easy(
            "squares_table(n)",
            "returns a dict that maps each whole number from 1 to `n` to its square",
            "return {i: i * i for i in range(1, n + 1)}",
            examples=("3", "1"),
            hidden=("0", "2", "5", "10"),
            draw=(whole(3, 12),),
        ),
        easy(
            "lengths_table(words)",
            "returns a dict that maps each word of the list `words` to its length",
            "return {word: len(word) for word in words}",
            examples=("['cat', 'horse']", "[]"),
            hidden=("['a']", "['', 'ab']", "['same', 'same']", "['one', 'two', 'three']"),
            draw=(listed(word(), 1, 5),),
        ),
        medium(
            "tally_items(items)",
            "returns a dict that maps each item of the list `items` to how many times it occurs",
            "table = {}\nfor item in items:\n    table[item] = table.get(item, 0) + 1\nreturn table",
            examples=("['a', 'b', 'a']", "[]"),
            hidden=("[1, 1, 1]", "['x']", "[2, 1, 2, 3, 3, 3]", "['no', 'on', 'no']"),
            draw=(listed(whole(0, 3), 3, 9),),
        ),
        hard(
            "group_by_length(words)",
            "returns a dict that maps each word length to the list of the words of that length, "
            "in the order of the list `words`",
            """
                groups = {}
                for word in words:
                    groups.setdefault(len(word), []).append(word)
                return groups
            """,
            examples=("['a', 'bb', 'c']", "[]"),
            hidden=("['one', 'two', 'six']", "['x', 'yy', 'zzz']", "['aa', 'aa']", "['', 'b', '']"),
            draw=(listed(word(), 3, 6),),
        ),
    ),
)

CHANGE = Family(
    name="dict_change",
    heldout=True,
    tasks=(
        easy(
            "with_entry(d, key, value)",
            "returns the dict `d` with `key` set to `value`",
            "return {**d, key: value}",
            examples=("{'a': 1}, 'b', 2", "{'a': 1}, 'a', 5"),
            hidden=("{}, 'x', 0", "{1: 1}, 2, 'two'", "{'a': 1, 'b': 2}, 'b', None", "{'k': 3}, 'm', 3"),
            draw=(table(), key(), whole(30, 99)),
        ),
        easy(
            "merge_two(a, b)",
            "returns one dict with all entries of the dicts `a` and `b`; where both have a key, the value of `b` wins",
            "return {**a, **b}",
            examples=("{'x': 1}, {'y': 2}", "{'x': 1}, {'x': 3}"),
            hidden=("{}, {}", "{'a': 1}, {}", "{}, {'a': 1}", "{'a': 1, 'b': 2}, {'b': 5, 'c': 6}"),
            draw=(table(), table()),
        ),
        easy(
            "without_key(d, key)",
            "returns the dict `d` without the entry of `key`; `key` is always in `d`",
            "return {k: v for k, v in d.items() if k != key}",
            examples=("{'a': 1, 'b': 2}, 'a'", "{'x': 0}, 'x'"),
            hidden=("{1: 'a', 2: 'b'}, 2", "{'a': None}, 'a'", "{'a': 1, 'b': 1, 'c': 1}, 'b'", "{0: 0, 5: 5}, 0"),
            draw=(table(8, 8), key()),
        ),
        medium(
            "swap_keys_values(d)",
            "returns a dict that maps each value of the dict `d` to its key; no two values are equal",
            "return {value: key for key, value in d.items()}",
            examples=("{'a': 1, 'b': 2}", "{}"),
            hidden=("{'x': 'y'}", "{1: 'one', 2: 'two'}", "{'k': 0}", "{'p': 'q', 'r': 's'}"),
            draw=(one_to_one(3),),
        ),
        hard(
            "add_counts(a, b)",
            "returns a dict with the keys of both dicts `a` and `b`, where each value is the sum of the values in `a` "
            "and `b` (a missing key counts as 0)",
            "return {key: a.get(key, 0) + b.get(key, 0) for key in [*a, *b]}",
            examples=("{'x': 1}, {'x': 2, 'y': 3}", "{}, {'z': 4}"),
            hidden=("{}, {}", "{'a': 1}, {}", "{'a': 1, 'b': 2}, {'b': 3, 'a': 4}", "{'k': -1}, {'k': 1}"),
            draw=(table(3), table(3)),
        ),
    ),
)

SUMS = Family(
    name="dict_totals",
    tasks=(
        easy(
            "total_of_values(d)",
            "returns the sum of the values of the dict `d`",
            "return sum(d.values())",
            examples=("{'a': 1, 'b': 2}", "{}"),
            hidden=("{'x': -4}", "{1: 10, 2: 20, 3: 30}", "{'a': 5, 'b': -5}", "{'k': 7, 'm': 8}"),
            draw=(table(),),
        ),
        easy(
            "largest_value(d)",
            "returns the largest value of the dict `d`, which is not empty",
            "return max(d.values())",
            examples=("{'a': 1, 'b': 2}", "{'x': 0}"),
            hidden=("{'a': -3, 'b': -8}", "{9: 1, 1: 4}", "{'z': 6, 'y': 2, 'x': 3}", "{'k': 100}"),
            draw=(table(1),),
        ),
        easy(
            "num_entries(d)",
            "returns how many keys the dict `d` has",
            "return len(d)",
            examples=("{'a': 1, 'b': 2}", "{}"),
            hidden=("{'x': 9}", "{1: 1, 2: 2, 3: 3}", "{'a': {'b': 1, 'c': 2}}", "{4: 0, 5: 0, 6: 0, 7: 0}"),
            draw=(table(0, 8),),
        ),
        medium(
            "count_above(d, limit)",
            "returns how many values of the dict `d` are greater than `limit`",
            "return sum(1 for value in d.values() if value > limit)",
            examples=("{'a': 1, 'b': 5, 'c': 9}, 4", "{'a': 1}, 1"),
            hidden=("{}, 0", "{'x': 3, 'y': 4}, -1", "{'x': -2, 'y': -1}, 0", "{'a': 7, 'b': 8, 'c': 9}, 7"),
            draw=(table(3), whole(-15, 15)),
        ),
        medium(
            "cart_total(cart, prices)",
            "returns the total price of a shopping cart: the dict `cart` maps names to amounts, the dict `prices` maps "
            "names to the price of one piece",
            "return sum(amount * prices[name] for name, amount in cart.items())",
            examples=("{'egg': 2, 'tea': 1}, {'egg': 3, 'tea': 5}", "{}, {'egg': 3}"),
            hidden=(
                "{'a': 1}, {'a': 7, 'b': 9}",
                "{'a': 0}, {'a': 4}",
                "{'b': 10, 'a': 1}, {'a': 1, 'b': 2}",
                "{'x': 3, 'y': 3}, {'y': 1, 'x': 4}",
            ),
            draw=(table(1, 4, whole(0, 9)), table(8, 8, whole(1, 9))),
        ),
    ),
)

FAMILIES = (LOOKUP, VIEWS, BUILD, CHANGE, SUMS)
