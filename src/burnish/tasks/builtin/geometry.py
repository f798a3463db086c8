"""Families about shapes and points."""

from burnish.tasks.builtin.inputs import listed, whole
from burnish.tasks.builtin.tables import tupled
from burnish.tasks.family import Family, easy, hard, medium

side = whole(1, 30)
point = tupled(whole(-9, 9), whole(-9, 9))

SHAPES = Family(
    name="shape_measures",
    tasks=(
        easy(
            "rectangle_area(width, height)",
            "returns the area of a rectangle",
            "return width * height",
            examples=("2, 3", "5, 1"),
            hidden=("0, 4", "7, 7", "10, 20", "1, 9"),
            draw=(side, side),
        ),
        easy(
            "square_perimeter(side)",
            "returns the perimeter of a square with sides of length `side`",
            "return 4 * side",
            examples=("2", "5"),
            hidden=("0", "1", "10", "25"),
            draw=(side,),
        ),
        easy(
            "circle_diameter(radius)",
            "returns the diameter of a circle",
            "return 2 * radius",
            examples=("2", "5"),
            hidden=("0", "1", "10", "25"),
            draw=(side,),
        ),
        easy(
            "cube_volume(side)",
            "returns the volume of a cube with edges of length `side`",
            "return side ** 3",
            examples=("2", "5"),
            hidden=("0", "3", "10", "4"),
            draw=(whole(2, 20),),
        ),
        easy(
            "third_angle(a, b)",
            "returns the third angle of a triangle whose other two angles are `a` and `b` degrees; all three together "
            "are 180 degrees",
            "return 180 - a - b",
            examples=("90, 45", "60, 60"),
            hidden=("1, 1", "100, 50", "30, 90", "20, 20"),
            draw=(whole(1, 80), whole(1, 80)),
        ),
        medium(
            "box_surface(a, b, c)",
            "returns the surface area of a box with edges of length `a`, `b` and `c`",
            "return 2 * (a * b + b * c + a * c)",
            examples=("1, 2, 3", "1, 1, 1"),
            hidden=("2, 2, 2", "0, 4, 5", "10, 1, 1", "3, 4, 5"),
            draw=(side, side, side),
        ),
        hard(
            "triangle_kind(a, b, c)",
            "returns how many sides of a triangle with sides `a`, `b` and `c` are equal (3, 2 or 0), "
            "or None if no such triangle exists because one side is not shorter than the other two together",
            """
            if 2 * max(a, b, c) >= a + b + c:
                return None
            return {1: 3, 2: 2, 3: 0}[len({a, b, c})]
            """,
            examples=("2, 2, 2", "1, 2, 5"),
            hidden=("3, 4, 5", "3, 3, 5", "1, 2, 3", "5, 3, 5"),
            draw=(whole(1, 5), whole(1, 5), whole(1, 5)),
        ),
    ),
)

POINTS = Family(
    name="points",
    heldout=True,
    tasks=(
        easy(
            "is_origin(x, y)",
            "returns True if `x` and `y` are both 0, and False otherwise",
            "return x == 0 and y == 0",
            examples=("0, 0", "1, 0"),
            hidden=("0, 1", "0, 0", "-1, 1", "5, 5"),
            draw=(whole(0, 1), whole(0, 1)),
        ),
        easy(
            "moved_point(x, y, dx, dy)",
            "returns the tuple of `x` plus `dx` and `y` plus `dy`",
            "return (x + dx, y + dy)",
            examples=("1, 2, 3, 4", "0, 0, -1, 1"),
            hidden=("0, 0, 0, 0", "5, 5, -5, -5", "1, 0, 0, 1", "-3, 4, 10, 20"),
            draw=(whole(-9, 9), whole(-9, 9), whole(-9, 9), whole(-9, 9)),
        ),
        easy(
            "grid_steps(x, y)",
            "returns the sum of the absolute values of `x` and `y`",
            "return abs(x) + abs(y)",
            examples=("3, 4", "-1, 2"),
            hidden=("0, 0", "-5, -5", "7, -1", "0, -9"),
            draw=(whole(-9, 9), whole(-9, 9)),
        ),
        medium(
            "squared_distance(p, q)",
            "returns the square of the distance between the points `p` and `q`, which are tuples (x, y)",
            "return (p[0] - q[0]) ** 2 + (p[1] - q[1]) ** 2",
            examples=("(0, 0), (3, 4)", "(1, 1), (1, 1)"),
            hidden=("(0, 0), (1, 0)", "(-1, -1), (1, 1)", "(5, 2), (2, 5)", "(0, 9), (0, -1)"),
            draw=(point, point),
        ),
        medium(
            "bounding_box(points)",
            "returns a tuple (smallest x, smallest y, largest x, largest y) for the list `points` of tuples (x, y), "
            "which is not empty",
            """
            xs = [x for x, y in points]
            ys = [y for x, y in points]
            return (min(xs), min(ys), max(xs), max(ys))
            """,
            examples=("[(1, 5), (3, 2)]", "[(0, 0)]"),
            hidden=("[(7, -7)]", "[(1, 1), (2, 2), (3, 3)]", "[(0, 9), (9, 0)]", "[(-1, 4), (-2, 8), (5, 6)]"),
            draw=(listed(point, 1, 4),),
        ),
    ),
)

FAMILIES = (SHAPES, POINTS)
