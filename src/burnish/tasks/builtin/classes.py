"""Families of small classes: records, computing methods, changing state, containers."""

import textwrap
from collections.abc import Callable
from random import Random

from burnish.tasks.family import Family, TaskSpec
from burnish.types import Band


def class_task(
    band: Band,
    name: str,
    has: str,
    body: str,
    *,
    examples: tuple[str, ...],
    hidden: tuple[str, ...],
    draw: Callable[[Random], str] | None = None,
) -> TaskSpec:
    """A task about one class. `has` completes "Write a Python class `name` that ..."; cases are whole expressions.

    Example: class_task("easy", "Dog", "takes `name` and keeps it in the attribute `name`",
        "def __init__(self, name):\\n    self.name = name", examples=("Dog('Rex').name",), hidden=("Dog('').name",))
    """
    return TaskSpec(
        name=name,
        band=band,
        instruction=f"Write a Python class `{name}` {has}.",
        reference=f"class {name}:\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n",
        examples=examples,
        hidden=hidden,
        random_inputs=draw,
    )


RECORDS = Family(
    name="record_classes",
    tasks=(
        class_task(
            "easy",
            "Dog",
            "whose constructor takes `name` and stores it in the attribute `name`",
            "def __init__(self, name):\n    self.name = name",
            examples=("Dog('Rex').name", "Dog('Bello').name"),
            hidden=("Dog('').name", "Dog('A').name", "Dog(name='Lady').name", "[Dog('x').name, Dog('y').name]"),
            draw=lambda rng: f"Dog('{rng.choice(['Max', 'Pip', 'Bo', 'Ace', 'Sam'])}').name",
        ),
        class_task(
            "easy",
            "Book",
            "whose constructor takes `title` and `author` and stores them in attributes of the same names",
            "def __init__(self, title, author):\n    self.title = title\n    self.author = author",
            examples=("Book('Emma', 'Austen').title", "Book('Emma', 'Austen').author"),
            hidden=(
                "Book('A', 'B').title",
                "Book('A', 'B').author",
                "Book(author='X', title='Y').author",
                "[b := Book('One', 'Two'), (b.title, b.author)][-1]",
            ),
        ),
        class_task(
            "easy",
            "Pixel",
            "whose constructor takes `x` and `y` and stores them in the attributes `x` and `y`",
            "def __init__(self, x, y):\n    self.x = x\n    self.y = y",
            examples=("Pixel(1, 2).x", "Pixel(1, 2).y"),
            hidden=("Pixel(0, 5).x", "Pixel(0, 5).y", "Pixel(y=3, x=4).x", "[p := Pixel(-1, 8), p.x + p.y][-1]"),
            draw=lambda rng: f"[p := Pixel({rng.randint(0, 9)}, {rng.randint(10, 99)}), (p.x, p.y)][-1]",
        ),
        class_task(
            "medium",
            "Person",
            "whose constructor takes `first` and `last` and whose method `full_name()` returns both names with a space "
            "between them",
            """
            def __init__(self, first, last):
                self.first = first
                self.last = last

            def full_name(self):
                return self.first + ' ' + self.last
            """,
            examples=("Person('Ada', 'King').full_name()", "Person('Bo', 'Li').full_name()"),
            hidden=(
                "Person('a', 'b').full_name()",
                "Person('Mary Ann', 'Roe').full_name()",
                "Person(last='Z', first='Y').full_name()",
                "len(Person('abc', 'defg').full_name())",
            ),
        ),
    ),
)

METHODS = Family(
    name="computing_classes",
    tasks=(
        class_task(
            "easy",
            "Square",
            "whose constructor takes `side` and whose method `area()` returns the area of the square",
            "def __init__(self, side):\n    self.side = side\n\ndef area(self):\n    return self.side ** 2",
            examples=("Square(3).area()", "Square(1).area()"),
            hidden=("Square(0).area()", "Square(2).area()", "Square(10).area()", "Square(side=5).area()"),
            draw=lambda rng: f"Square({rng.randint(2, 40)}).area()",
        ),
        class_task(
            "easy",
            "Adder",
            "whose constructor takes `n` and whose method `add(x)` returns the sum of `n` and `x`",
            "def __init__(self, n):\n    self.n = n\n\ndef add(self, x):\n    return self.n + x",
            examples=("Adder(3).add(4)", "Adder(1).add(-1)"),
            hidden=(
                "Adder(0).add(0)",
                "Adder(5).add(7)",
                "Adder(-10).add(3)",
                "[a := Adder(2), a.add(1), a.add(1)][-1]",
            ),
            draw=lambda rng: f"Adder({rng.randint(-9, 9)}).add({rng.randint(-9, 9)})",
        ),
        class_task(
            "easy",
            "Room",
            "whose constructor takes `width` and `length` and whose method `area()` returns their product",
            """
            def __init__(self, width, length):
                self.width = width
                self.length = length

            def area(self):
                return self.width * self.length
            """,
            examples=("Room(3, 4).area()", "Room(1, 5).area()"),
            hidden=("Room(0, 7).area()", "Room(2, 2).area()", "Room(10, 20).area()", "Room(length=6, width=9).area()"),
            draw=lambda rng: f"Room({rng.randint(1, 20)}, {rng.randint(1, 20)}).area()",
        ),
        class_task(
            "medium",
            "Product",
            "whose constructor takes `price` and `amount`, whose method `total()` returns `price` times `amount`, and "
            "whose method `is_free()` returns True if `price` is 0 and False otherwise",
            """
            def __init__(self, price, amount):
                self.price = price
                self.amount = amount

            def total(self):
                return self.price * self.amount

            def is_free(self):
                return self.price == 0
            """,
            examples=("Product(3, 4).total()", "Product(0, 4).is_free()"),
            hidden=(
                "Product(5, 0).total()",
                "Product(5, 0).is_free()",
                "Product(0, 1).is_free()",
                "Product(7, 8).total()",
            ),
            draw=lambda rng: f"Product({rng.randint(1, 20)}, {rng.randint(1, 20)}).total()",
        ),
    ),
)

STATE = Family(
    name="state_classes",
    tasks=(
        class_task(
            "easy",
            "Tally",
            "with an attribute `count` that starts at 0 and a method `up()` that adds 1 to it",
            "def __init__(self):\n    self.count = 0\n\ndef up(self):\n    self.count += 1",
            examples=("Tally().count", "[t := Tally(), t.up(), t.count][-1]"),
            hidden=(
                "[t := Tally(), t.up(), t.up(), t.count][-1]",
                "Tally().count",
                "[a := Tally(), b := Tally(), a.up(), b.count][-1]",
                "[t := Tally(), [t.up() for _ in range(7)], t.count][-1]",
            ),
        ),
        class_task(
            "easy",
            "Lamp",
            "with an attribute `on` that starts as False and a method `press()` that turns False into True and True "
            "into False",
            "def __init__(self):\n    self.on = False\n\ndef press(self):\n    self.on = not self.on",
            examples=("Lamp().on", "[x := Lamp(), x.press(), x.on][-1]"),
            hidden=(
                "Lamp().on",
                "[x := Lamp(), x.press(), x.on][-1]",
                "[x := Lamp(), x.press(), x.press(), x.on][-1]",
                "[x := Lamp(), x.press(), x.press(), x.press(), x.on][-1]",
            ),
        ),
        class_task(
            "easy",
            "Score",
            "whose constructor takes `points` and stores it in the attribute `points`, and whose method `win(n)` adds "
            "`n` to it",
            "def __init__(self, points):\n    self.points = points\n\ndef win(self, n):\n    self.points += n",
            examples=("Score(5).points", "[s := Score(5), s.win(2), s.points][-1]"),
            hidden=(
                "Score(0).points",
                "[s := Score(0), s.win(3), s.win(4), s.points][-1]",
                "[s := Score(10), s.win(-3), s.points][-1]",
                "[a := Score(1), b := Score(2), a.win(9), b.points][-1]",
            ),
            draw=lambda rng: f"[s := Score({rng.randint(0, 9)}), s.win({rng.randint(1, 9)}), s.points][-1]",
        ),
        class_task(
            "hard",
            "Wallet",
            "whose constructor takes `money`, stored in the attribute `money`, and whose method `spend(n)` takes `n` "
            "away from it and returns True, or changes nothing and returns False if there is less than `n`",
            """
            def __init__(self, money):
                self.money = money

            def spend(self, n):
                if n > self.money:
                    return False
                self.money -= n
                return True
            """,
            examples=("[w := Wallet(10), w.spend(3), w.money][-1]", "Wallet(2).spend(3)"),
            hidden=(
                "Wallet(3).spend(3)",
                "[w := Wallet(2), w.spend(3), w.money][-1]",
                "[w := Wallet(9), w.spend(4), w.spend(6), w.money][-1]",
                "[w := Wallet(9), [w.spend(4), w.spend(5), w.spend(1)]][-1]",
            ),
            draw=lambda rng: f"[w := Wallet({rng.randint(1, 9)}), w.spend({rng.randint(1, 9)}), w.money][-1]",
        ),
    ),
)

CONTAINERS = Family(
    name="container_classes",
    heldout=True,
    tasks=(
        class_task(
            "easy",
            "Holder",
            "whose constructor takes `item` and whose method `get()` returns that item",
            "def __init__(self, item):\n    self.item = item\n\ndef get(self):\n    return self.item",
            examples=("Holder(5).get()", "Holder('a').get()"),
            hidden=("Holder(None).get()", "Holder([1, 2]).get()", "Holder(item=7).get()", "Holder('').get()"),
            draw=lambda rng: f"Holder({rng.randint(-99, 99)}).get()",
        ),
        class_task(
            "easy",
            "Bag",
            "whose constructor takes the list `items` and whose method `size()` returns how many items it has",
            "def __init__(self, items):\n    self.items = items\n\ndef size(self):\n    return len(self.items)",
            examples=("Bag([1, 2]).size()", "Bag([]).size()"),
            hidden=("Bag(['x']).size()", "Bag([0, 0, 0]).size()", "Bag(items=[[], []]).size()", "Bag([1] * 9).size()"),
            draw=lambda rng: f"Bag({[rng.randint(0, 9) for _ in range(rng.randint(0, 9))]}).size()",
        ),
        class_task(
            "easy",
            "Basket",
            "with an attribute `items` that starts as an empty list and a method `put(item)` that appends `item` to it",
            "def __init__(self):\n    self.items = []\n\ndef put(self, item):\n    self.items.append(item)",
            examples=("Basket().items", "[b := Basket(), b.put('egg'), b.items][-1]"),
            hidden=(
                "[b := Basket(), b.put(1), b.put(2), b.items][-1]",
                "[a := Basket(), b := Basket(), a.put(1), b.items][-1]",
                "[b := Basket(), b.put('x'), b.put('x'), len(b.items)][-1]",
                "[b := Basket(), b.put([]), b.items][-1]",
            ),
        ),
        class_task(
            "medium",
            "Stack",
            "that starts empty, with a method `push(x)` that adds `x` and a method `pop()` that removes and returns "
            "the item added last",
            """
            def __init__(self):
                self.items = []

            def push(self, x):
                self.items.append(x)

            def pop(self):
                return self.items.pop()
            """,
            examples=("[s := Stack(), s.push(1), s.push(2), s.pop()][-1]", "[s := Stack(), s.push('a'), s.pop()][-1]"),
            hidden=(
                "[s := Stack(), s.push(1), s.push(2), s.pop(), s.pop()][-1]",
                "[s := Stack(), s.push(3), s.pop(), s.push(4), s.pop()][-1]",
                "[s := Stack(), t := Stack(), s.push(5), t.push(6), s.pop()][-1]",
                "[s := Stack(), [s.push(c) for c in 'xyz'], [s.pop() for _ in range(3)]][-1]",
            ),
        ),
        class_task(
            "hard",
            "Undo",
            "whose constructor takes `value`, stored in the attribute `value`; `set(x)` changes it to `x`; `undo()` "
            "brings back the value before the last `set` not yet undone, or does nothing if there is none",
            """
            def __init__(self, value):
                self.value = value
                self.before = []

            def set(self, x):
                self.before.append(self.value)
                self.value = x

            def undo(self):
                if self.before:
                    self.value = self.before.pop()
            """,
            examples=("[u := Undo(1), u.set(2), u.value][-1]", "[u := Undo(1), u.set(2), u.undo(), u.value][-1]"),
            hidden=(
                "[u := Undo(5), u.undo(), u.value][-1]",
                "[u := Undo(1), u.set(2), u.set(3), u.undo(), u.value][-1]",
                "[u := Undo(1), u.set(2), u.set(3), u.undo(), u.undo(), u.undo(), u.value][-1]",
                "[u := Undo('a'), u.set('b'), u.undo(), u.set('c'), u.value][-1]",
            ),
        ),
    ),
)

FAMILIES = (RECORDS, METHODS, STATE, CONTAINERS)
