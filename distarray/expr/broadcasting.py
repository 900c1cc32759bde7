"""The common shape of operands: for whoever binds, indexes or computes them. NumPy's own function ends at 32 axes."""

from __future__ import annotations


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
