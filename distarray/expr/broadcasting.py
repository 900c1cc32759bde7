"""The common shape of operands, that of a value in what it is written to, and what a reduction leaves of a shape.

NumPy's own function ends at 32 axes.
"""

from __future__ import annotations

from collections.abc import Collection


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which shapes broadcast, or raise numpy's error.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        offset = rank - len(shape)
        for i, n in enumerate(shape):
            if n != 1:
                have = result[offset + i]
                if have == 1:
                    result[offset + i] = n
                elif have != n:
                    raise ValueError(
                        "operands could not be broadcast together with shapes "
                        + " ".join(str(s).replace(" ", "") for s in shapes)
                        + f": axis {offset + i - rank} has extents {have} and {n}"
                    )
    return tuple(result)


def reduced_shape(shape: tuple[int, ...], axes: Collection[int], keepdims: bool) -> tuple[int, ...]:
    """Return the shape of a reduction over `axes`, which stay as 1 with `keepdims`.

    >>> reduced_shape((2, 3, 4), (0, 2), True), reduced_shape((2, 3, 4), (0, 2), False)
    ((1, 3, 1), (3,))
    """
    return tuple([1 if a in axes else n for a, n in enumerate(shape) if keepdims or a not in axes])


def shape_within(value: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape in which a value is written into one of this shape: without its first axes, as long as there are
    too many and they have extent 1. None where it does not broadcast.

    >>> shape_within((1, 1, 4), (3, 4)), shape_within((2, 4), (3, 4))
    ((1, 4), None)
    """
    while len(value) > len(shape) and value[0] == 1:
        value = value[1:]
    if len(value) > len(shape):
        return None
    for n, m in zip(value[::-1], shape[::-1]):
        if n not in (1, m):
            return None
    return value
