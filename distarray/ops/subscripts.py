"""Subscripts of ``einsum``: from numpy's two spellings to the labels of each operand and of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from distarray.arguments import shown
from distarray.expr.expr import Expr

#: Labels: letters or what the user listed; Ellipsis where it stood.
Term: TypeAlias = tuple[Any, ...]
#: What labels may be listed in. An array of ours is an operand, whose labels are missing.
_LISTS = (list, tuple, range, np.ndarray)


def parse_subscripts(operands: Sequence[Any]) -> tuple[list[Term], Term | None, list[Any]]:
    """Return the labels of the operands, of the result if given, and the arrays."""
    if not operands:
        raise ValueError("einsum: give a subscripts string and its operands, or operands each followed by its labels")
    if isinstance(operands[0], str):
        text = operands[0].replace(" ", "")
        left, arrow, right = text.partition("->")
        if "->" in right or ("-" in left or ">" in left):
            raise ValueError("einstein sum subscript string does not contain proper '->' output specified")
        terms = [_letters(t) for t in left.split(",")]
        arrays = list(operands[1:])
        if len(terms) != len(arrays):
            raise ValueError(
                f"{'more' if len(terms) < len(arrays) else 'fewer'} operands provided to einstein sum function than "
                f"specified in the subscripts string: {len(arrays)} for {operands[0]!r}"
            )
        return terms, _letters(right) if arrow else None, arrays
    items = list(operands)
    goal = items.pop() if len(items) % 2 else ()
    result = tuple(goal) if len(operands) % 2 and isinstance(goal, _LISTS) else None
    arrays, terms = items[::2], items[1::2]
    for labels in (*terms, goal):
        if not isinstance(labels, _LISTS):
            raise TypeError(
                "einsum: give a subscripts string first, or after each operand the list of its labels, not "
                f"{shown(labels)}"
            )
        for label in labels:
            if label is not ... and not hasattr(label, "__index__"):
                raise TypeError(f"einsum: each subscript must be either an integer or an ellipsis, not {shown(label)}")
    return [tuple(t) for t in terms], result, arrays


def _letters(term: str) -> Term:
    head, dots, tail = term.partition("...")
    for c in head + tail:
        if not (c.isascii() and c.isalpha()):
            raise ValueError(f"invalid subscript '{c}' in einstein sum subscripts string, subscripts must be letters")
    return (*head, ..., *tail) if dots else tuple(head)


def resolve_ellipses(terms: Sequence[Term], result: Term | None, nodes: Sequence[Any]) -> tuple[list[Term], Term]:
    """Return terms with labels ``(0,), (1,)`` .. for the axes of ``...``, and the result's term, implicit or not."""
    widths = []
    for i, (term, node) in enumerate(zip(terms, nodes)):
        named = len(term) - (... in term)
        if named > node.ndim:
            raise ValueError(
                f"einstein sum subscripts string contains too many subscripts for operand {i}: {named} for rank "
                f"{node.ndim}"
            )
        if ... not in term and named < node.ndim:
            raise ValueError(
                "operand has more dimensions than subscripts given in einstein sum, but no '...' ellipsis provided to "
                f"broadcast the extra dimensions: operand {i} has {node.ndim}, subscripts {named}"
            )
        widths.append(node.ndim - named if ... in term else 0)
    wide = max(widths, default=0)

    def resolved(term: Term, width: int) -> Term:
        if ... not in term:
            return term
        at = term.index(...)
        return (*term[:at], *((i,) for i in range(wide - width, wide)), *term[at + 1 :])

    resolved_terms = [resolved(term, width) for term, width in zip(terms, widths)]
    found = [label for term in resolved_terms for label in term]
    if result is None:
        once = sorted({label for label in found if found.count(label) == 1 and not isinstance(label, tuple)})
        return resolved_terms, (*((i,) for i in range(wide)), *once)
    if ... not in result and wide:
        raise ValueError(
            "output has fewer dimensions than operands: the output subscripts must include '...' to keep the "
            "broadcast dimensions"
        )
    target = resolved(result, wide)
    for label in target:
        if label not in found:
            raise ValueError(
                f"einstein sum subscripts string included output subscript {label!r} which never appeared in an input"
            )
        if target.count(label) > 1:
            raise ValueError(f"einstein sum subscripts string includes output subscript {label!r} multiple times")
    return resolved_terms, target


def extents_of(terms: Sequence[Term], nodes: Sequence[Expr]) -> dict[Any, int]:
    """Return the extent of each label, in the order in which labels appear; an axis of extent 1 broadcasts.

    Raises
    ------
    ValueError
        If a label stands for axes of unlike extents; those of one operand do not broadcast.
    """
    extents: dict[Any, int] = {}
    for node, term in zip(nodes, terms):
        own = dict(zip(term, node.shape))
        for label, n in zip(term, node.shape):
            if own[label] != n:
                raise ValueError(
                    f"dimensions in operand for collapsing index {label!r} don't match ({n} != {own[label]}): the axes "
                    "of a label that stands twice in one operand have one extent"
                )
            known = extents.get(label, 1)
            if known != n and 1 not in (known, n):
                raise ValueError(
                    f"operand has a mismatch in its core dimension: label {label!r} has extents {known} and {n}"
                )
            extents[label] = n if known == 1 else known
    return extents
