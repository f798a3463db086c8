"""Families about grids (lists of rows) and nested lists."""

from burnish.tasks.builtin.inputs import listed, whole, word
from burnish.tasks.builtin.tables import grid
from burnish.tasks.family import Family, easy, hard, medium

GRID_READING = Family(
    name="grid_reading",
    tasks=(
        easy(
            "num_rows(grid)",
            "returns how many rows the list of rows `grid` has",
            "return len(grid)",
            examples=("[[1, 2], [3, 4], [5, 6]]", "[[7]]"),
            hidden=("[]", "[[0], [0]]", "[[1, 2, 3]]", "[[1], [2], [3], [4]]"),
            draw=(grid(1, 6),),
        ),
        easy(
            "num_columns(grid)",
            "returns how many columns the list of rows `grid` has; all its rows have the same length",
            "return len(grid[0])",
            examples=("[[1, 2], [3, 4], [5, 6]]", "[[7]]"),
            hidden=("[[0], [0]]", "[[1, 2, 3]]", "[[1, 2, 3, 4], [5, 6, 7, 8]]", "[[9, 9]]"),
            draw=(grid(1, 6),),
        ),
        easy(
            "grid_cell(grid, row, column)",
            "returns the item of the list of rows `grid` at `row` and `column`, both counted from 0",
            "return grid[row][column]",
            examples=("[[1, 2], [3, 4]], 0, 1", "[[7]], 0, 0"),
            hidden=(
                "[[1, 2], [3, 4]], 1, 0",
                "[['a', 'b', 'c']], 0, 2",
                "[[0], [5], [6]], 2, 0",
                "[[1, 2], [3, 4]], 1, 1",
            ),
            draw=(grid(3, 4), whole(0, 2), whole(0, 2)),
        ),
        medium(
            "grid_column(grid, column)",
            "returns a list of the items in the column number `column` (counted from 0) of the list of rows `grid`",
            "return [row[column] for row in grid]",
            examples=("[[1, 2], [3, 4]], 0", "[[7]], 0"),
            hidden=("[[1, 2], [3, 4]], 1", "[['a', 'b', 'c']], 2", "[[0], [5], [6]], 0", "[], 3"),
            draw=(grid(3, 4), whole(0, 2)),
        ),
        medium(
            "row_totals(grid)",
            "returns a list of the sums of the rows of the list of rows `grid`",
            "return [sum(row) for row in grid]",
            examples=("[[1, 2], [3, 4]]", "[[7]]"),
            hidden=("[]", "[[0, 0], [-1, 1]]", "[[1, 2, 3]]", "[[5], [6], [7]]"),
            draw=(grid(),),
        ),
        hard(
            "turn_over(grid)",
            "returns the list of rows `grid` with rows and columns exchanged: its first row is the first column of "
            "`grid`, and so on",
            "return [list(column) for column in zip(*grid)]",
            examples=("[[1, 2], [3, 4]]", "[[1, 2, 3]]"),
            hidden=("[[5]]", "[[1], [2]]", "[['a', 'b'], ['c', 'd'], ['e', 'f']]", "[[0, 1], [0, 1]]"),
            draw=(grid(2, 4),),
        ),
    ),
)

GRID_MAKING = Family(
    name="grid_making",
    tasks=(
        easy(
            "repeated_item(item, n)",
            "returns a list that holds `item` `n` times",
            "return [item] * n",
            examples=("0, 3", "'x', 1"),
            hidden=("5, 0", "None, 2", "'ab', 4", "-1, 5"),
            draw=(word(), whole(0, 6)),
        ),
        easy(
            "row_of_zeros(n)",
            "returns a list of `n` zeros",
            "return [0] * n",
            examples=("3", "1"),
            hidden=("0", "2", "5", "10"),
            draw=(whole(0, 15),),
        ),
        easy(
            "one_column_grid(items)",
            "returns a list that holds one list for each item of the list `items`, with this item alone",
            "return [[item] for item in items]",
            examples=("[1, 2]", "['x']"),
            hidden=("[]", "[0, 0]", "['a', 'b', 'c']", "[[1], 2]"),
            draw=(listed(whole(-9, 9), 0, 6),),
        ),
        medium(
            "zero_grid(rows, columns)",
            "returns a list of `rows` lists, each with `columns` zeros",
            "return [[0] * columns for _ in range(rows)]",
            examples=("2, 3", "1, 1"),
            hidden=("0, 4", "3, 0", "4, 2", "1, 5"),
            draw=(whole(0, 5), whole(0, 5)),
        ),
        hard(
            "identity_grid(n)",
            "returns a list of `n` rows of `n` numbers, with 1 on the diagonal from top left to bottom right and 0 "
            "everywhere else",
            "return [[1 if i == j else 0 for j in range(n)] for i in range(n)]",
            examples=("2", "1"),
            hidden=("0", "3", "4", "5"),
            draw=(whole(0, 6),),
        ),
    ),
)

NESTED = Family(
    name="nested_lists",
    heldout=True,
    tasks=(
        easy(
            "is_a_list(x)",
            "returns True if `x` is a list, and False otherwise",
            "return isinstance(x, list)",
            examples=("[1, 2]", "5"),
            hidden=("[]", "'list'", "(1, 2)", "[[1]]"),
        ),
        easy(
            "wrapped(x)",
            "returns a list whose only item is `x`",
            "return [x]",
            examples=("5", "[1, 2]"),
            hidden=("None", "[]", "'abc'", "(1, 2)"),
            draw=(listed(word(), 1, 3),),
        ),
        easy(
            "list_of_both(a, b)",
            "returns a list whose two items are the lists `a` and `b`",
            "return [a, b]",
            examples=("[1, 2], [3]", "[], []"),
            hidden=("[5], []", "['a', 'b'], ['c']", "[[1]], [[2]]", "[0], [0, 0]"),
            draw=(listed(whole(0, 9), 0, 3), listed(whole(0, 9), 0, 3)),
        ),
        medium(
            "sum_of_all(lists)",
            "returns the sum of all numbers in the list of lists `lists`",
            "return sum(sum(numbers) for numbers in lists)",
            examples=("[[1, 2], [3]]", "[]"),
            hidden=("[[], [5]]", "[[-1], [1]]", "[[1, 2, 3], [4], []]", "[[10]]"),
            draw=(grid(),),
        ),
        hard(
            "nesting_depth(x)",
            "returns how deep lists are nested in `x`: 0 if `x` is not a list, 1 for a list that holds no lists, "
            "2 for `[[1], 2]`, and so on",
            """
            if not isinstance(x, list):
                return 0
            return 1 + max((nesting_depth(item) for item in x), default=0)
            """,
            examples=("[[1], 2]", "7"),
            hidden=("[]", "[1, 2]", "[[[]], [1]]", "[1, [2, [3, [4]]]]"),
        ),
    ),
)

FAMILIES = (GRID_READING, GRID_MAKING, NESTED)
