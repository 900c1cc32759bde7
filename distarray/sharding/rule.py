"""ShardingRule: one line per operation that says which loops it has and what may be cut.

The grammar::

    rule     = operands "->" results ["|" clause {"," clause}]
    operands = [term {"," term}]          results = [term {"," term}]
    term     = {loop [halo] | "1"} with "..." allowed first   halo = ["-" n] ["+" n]   clause = loop ":" kind
    kind     = "sum" | "prod" | "max" | "min" | "any" | "all" | "moments" | "argmax" | "argmin" | "whole" | "new(n)"

A loop is a single word; each axis of each operand and result runs over one loop, or is ``1``: an axis of extent 1
(broadcast in operands, kept in results). An axis of an operand that runs over ``i-2+1`` has a halo: what is made for
the elements from `a` up to `b` of the loop needs those of the axis from `a - 2` up to `b + 1`, as far as there are any.
So it may be longer or shorter than its loop. A loop of the operands that some result lacks *reduces*, by ``sum`` if
nothing is said. ``whole`` loops may not be cut. All others are *parallel*; those that stand only in results are
ordinary parallel loops, whose extent is ``new(n)`` or comes with the result's shape. Nothing before ``->`` means no
operands; nothing after it means one result of rank 0. ``()`` is a term of rank 0, needed only for a lone operand.

``...`` stands for any number of leading axes, which broadcast as in numpy: aligned at their last, extents equal or 1.
`ShardingRule.resolve` replaces it by loops ``_0``, ``_1``, ... (leading first), and by ``1`` where an operand is
broadcast.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

from distarray.errors import ShardingError
from distarray.sharding.sharding import MONOIDS

ELLIPSIS = "..."
_ONE = "1"
_LOOP = re.compile(r"[^\W\d]\w*")
_LEADING = re.compile(r"_\d+")
_HALO = re.compile(r"([^\W\d]\w*)(?:-(\d+))?(?:\+(\d+))?")
_NEW = re.compile(r"new\(\s*(\d+)\s*\)")
_Terms: TypeAlias = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, repr=False)
class ShardingRule:
    """A ShardingRule is the loops of an operation, and how each may be cut.

    Parameters
    ----------
    operands, results
        Per operand and result the loop of each axis; ``"1"`` for an axis of extent 1, ``"..."`` (first only) for any
        leading axes, and in operands ``"i-2+1"`` for an axis with a halo around the loop ``"i"``.
    kinds
        Monoid of reducing loops, ``"whole"``, or ``"new(n)"``, by loop. Reducing loops that are not named get
        ``"sum"``; parallel loops have no kind.

    Raises
    ------
    ShardingError
        If a loop is named twice in one term, ``...`` is not first, or a kind does not fit its loop.

    Examples
    --------
    >>> rule = ShardingRule.parse("... i k, ... k j -> ... i j")
    >>> rule.loops, rule.parallel, dict(rule.reducing)
    (('...', 'i', 'k', 'j'), ('...', 'i', 'j'), {'k': 'sum'})
    >>> rule.bind([(5, 2, 3), (3, 4)])
    {'_0': 5, 'i': 2, 'k': 3, 'j': 4}
    >>> str(rule)
    '... i k, ... k j -> ... i j'
    """

    operands: _Terms
    results: _Terms
    kinds: Mapping[str, str] = field(default_factory=dict)
    #: All loops, in the order of their first appearance.
    loops: tuple[str, ...] = field(init=False, compare=False)
    #: Loops that may be cut freely.
    parallel: tuple[str, ...] = field(init=False, compare=False)
    #: Monoid of each loop that may be cut if its partial results are combined.
    reducing: Mapping[str, str] = field(init=False, compare=False)
    #: Loops that may not be cut.
    whole: tuple[str, ...] = field(init=False, compare=False)
    #: Extent of each ``new(n)`` loop.
    new: Mapping[str, int] = field(init=False, compare=False)
    #: Whether ``...`` stands somewhere, so that `resolve` is needed before planning.
    has_ellipsis: bool = field(init=False, compare=False)
    _hash: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        operands = tuple(map(tuple, self.operands))
        results = tuple(map(tuple, self.results))
        for term in operands:
            _check_term(tuple(map(loop_of, term)))
        for term in results:
            _check_term(term)
        in_operands = _loops_of(operands)
        loops = _loops_of(operands + results)
        has_ellipsis = ELLIPSIS in loops
        if has_ellipsis and any(map(_LEADING.fullmatch, loops)):
            raise ShardingError("loops named _0, _1, .. are what '...' stands for; give the others another name")
        if not results:
            raise ShardingError("a rule needs a result; nothing after '->' is one result of rank 0")
        for loop in in_operands:
            if not any(loop in term for term in (*operands, *results)):
                raise ShardingError(f"loop {loop!r} has no extent: every axis that runs over it has a halo")
        reduced = [loop for loop in in_operands if not all(loop in term for term in results)]
        kinds: dict[str, str] = {}
        new: dict[str, int] = {}
        for loop, kind in self.kinds.items():
            if loop not in loops:
                raise ShardingError(f"clause '{loop}: {kind}' is about a loop that is in no operand and no result")
            extent = _NEW.fullmatch(kind)
            if extent is not None:
                if loop in in_operands:
                    raise ShardingError(f"clause '{loop}: {kind}': the extent of {loop!r} comes from the operands")
                new[loop] = int(extent[1])
                kind = f"new({new[loop]})"
            elif kind in MONOIDS:
                if loop not in reduced:
                    raise ShardingError(
                        f"clause '{loop}: {kind}': loop {loop!r} does not reduce; "
                        "only loops of the operands that a result lacks do"
                    )
            elif kind != "whole":
                raise ShardingError(
                    f"clause '{loop}: {kind}': {kind!r} is no kind; use {', '.join(MONOIDS)}, whole or new(n)"
                )
            kinds[loop] = kind
        for loop in reduced:
            kinds.setdefault(loop, "sum")
        ordered = {loop: kinds[loop] for loop in loops if loop in kinds}
        put = object.__setattr__
        put(self, "operands", operands)
        put(self, "results", results)
        put(self, "kinds", MappingProxyType(ordered))
        put(self, "loops", loops)
        put(self, "parallel", tuple(loop for loop in loops if loop not in kinds or loop in new))
        put(self, "reducing", MappingProxyType({loop: kind for loop, kind in ordered.items() if kind in MONOIDS}))
        put(self, "whole", tuple(loop for loop, kind in ordered.items() if kind == "whole"))
        put(self, "new", MappingProxyType(new))
        put(self, "has_ellipsis", has_ellipsis)
        put(self, "_hash", hash((operands, results, tuple(ordered.items()))))

    @staticmethod
    @lru_cache(maxsize=1024)
    def parse(text: str) -> ShardingRule:
        """Return the rule written as `text`; the inverse of ``str``. Rules are cached by their text.

        Raises
        ------
        ShardingError
            If the text does not follow the grammar.
        """
        head, bar, tail = text.partition("|")
        left, arrow, right = head.partition("->")
        if not arrow or "->" in right or "|" in tail:
            raise ShardingError(f"{text!r} is no rule; write for example 'i k, k j -> i j' or 'i j -> i | j: max'")
        kinds: dict[str, str] = {}
        for clause in tail.split(",") if bar else ():
            loop, colon, kind = (part.strip() for part in clause.partition(":"))
            if not colon or not loop or not kind:
                raise ShardingError(f"{text!r}: {clause.strip()!r} is no clause; write loop: kind")
            if loop in kinds:
                raise ShardingError(f"{text!r}: loop {loop!r} has two clauses, {kinds[loop]!r} and {kind!r}")
            kinds[loop] = kind
        try:
            return ShardingRule(_terms(left) if left.strip() else (), _terms(right), kinds)
        except ShardingError as error:
            raise ShardingError(f"{text!r}: {error}") from None

    def resolve(
        self, operand_shapes: Sequence[Sequence[int]], result_shapes: Sequence[Sequence[int]] | None = None
    ) -> ShardingRule:
        """Return this rule for operands of these shapes, with ``...`` replaced by loops ``_0``, ``_1``, ...

        Where an operand's leading axis has extent 1 and the loop has not, the operand gets ``1`` there: it broadcasts,
        and is never cut. A rule without ``...`` is returned as it is.

        Parameters
        ----------
        operand_shapes
            One shape per operand.
        result_shapes
            Needed only if ``...`` stands in results alone.

        Raises
        ------
        ShardingError
            If an operand has too few axes, or leading axes do not broadcast.

        Examples
        --------
        >>> str(ShardingRule.parse("..., ... -> ...").resolve([(4, 1), (3,)]))
        '_0 1, _1 -> _0 _1'
        """
        self._check_count("operand", self.operands, operand_shapes)
        if not self.has_ellipsis:
            return self
        lead = self._leading(operand_shapes, result_shapes)
        names = tuple(f"_{i}" for i in range(len(lead)))

        def operand(term: tuple[str, ...], shape: Sequence[int]) -> tuple[str, ...]:
            if term[:1] != (ELLIPSIS,):
                return term
            own = len(shape) - (len(term) - 1)
            skip = len(lead) - own
            return (
                tuple(_ONE if shape[i] == 1 and lead[skip + i] != 1 else names[skip + i] for i in range(own)) + term[1:]
            )

        operands = tuple(operand(term, shape) for term, shape in zip(self.operands, operand_shapes, strict=True))
        results = tuple(names + term[1:] if term[:1] == (ELLIPSIS,) else term for term in self.results)
        kinds = {loop: kind for loop, kind in self.kinds.items() if loop != ELLIPSIS}
        if ELLIPSIS in self.kinds:
            kinds |= dict.fromkeys(names, self.kinds[ELLIPSIS])
        return ShardingRule(operands, results, kinds)

    def bind(
        self, operand_shapes: Sequence[Sequence[int]], result_shapes: Sequence[Sequence[int]] | None = None
    ) -> dict[str, int]:
        """Return the extent of every loop for arrays of these shapes; the loops are those of `resolve`.

        Parameters
        ----------
        operand_shapes
            One shape per operand. Named loops must agree exactly (broadcasting is said by ``1``), leading axes
            broadcast.
        result_shapes
            One shape per result. Needed for loops that stand only in results and are not ``new(n)``; checked
            wherever given.

        Raises
        ------
        ShardingError
            If the number of arrays or of axes is wrong, extents disagree, or an extent is not known.
        """
        rule = self.resolve(operand_shapes, result_shapes)
        extents: dict[str, int] = {}
        rule._bind_terms("operand", rule.operands, operand_shapes, extents)
        extents.update(rule.new)
        if result_shapes is not None:
            rule._check_count("result", rule.results, result_shapes)
            rule._bind_terms("result", rule.results, result_shapes, extents)
        for loop in rule.loops:
            if loop not in extents:
                raise ShardingError(
                    f"rule '{self}': loop {loop!r} stands in results only; give the results' shapes or '{loop}: new(n)'"
                )
        for term, shape in zip(rule.operands, operand_shapes, strict=True):
            for axis, (loop, n) in enumerate(zip(term, shape, strict=True)):
                if has_halo(loop) and extents[loop_of(loop)] > n + halo_of(loop)[0]:
                    raise ShardingError(f"rule '{self}': axis {axis} of extent {n} is too short for its loop {loop!r}")
        return {loop: extents[loop] for loop in rule.loops}

    def _bind_terms(self, role: str, terms: _Terms, shapes: Sequence[Sequence[int]], extents: dict[str, int]) -> None:
        for number, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
            if len(term) != len(shape):
                raise ShardingError(
                    f"rule '{self}': {role} {number} has {len(shape)} axes {tuple(shape)}, "
                    f"but its term '{' '.join(term)}' has {len(term)}"
                )
            for axis, (loop, n) in enumerate(zip(term, shape, strict=True)):
                if has_halo(loop):
                    continue
                known = 1 if loop == _ONE else extents.setdefault(loop, n)
                if known != n:
                    raise ShardingError(
                        f"rule '{self}': axis {axis} of {role} {number} has extent {n}, but loop {loop!r} has {known}"
                    )

    def _leading(
        self, operand_shapes: Sequence[Sequence[int]], result_shapes: Sequence[Sequence[int]] | None
    ) -> tuple[int, ...]:
        """Broadcast extents of the axes that ``...`` stands for."""
        leads = self._leads("operand", self.operands, operand_shapes)
        if not leads and result_shapes is not None:
            self._check_count("result", self.results, result_shapes)
            leads = self._leads("result", self.results, result_shapes)[:1]
        if not leads:
            raise ShardingError(f"rule '{self}': '...' stands in results only; give the results' shapes")
        ndim = max(map(len, leads))
        extents = [1] * ndim
        for lead in leads:
            for i, n in enumerate(lead, start=ndim - len(lead)):
                if n not in (1, extents[i]) and extents[i] != 1:
                    raise ShardingError(
                        f"rule '{self}': leading axes of the shapes {', '.join(str(tuple(s)) for s in operand_shapes)} "
                        f"do not broadcast: {extents[i]} and {n}"
                    )
                extents[i] = n if extents[i] == 1 else extents[i]
        return tuple(extents)

    def _leads(self, role: str, terms: _Terms, shapes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        leads = []
        for number, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
            if term[:1] == (ELLIPSIS,):
                own = len(shape) - (len(term) - 1)
                if own < 0:
                    raise ShardingError(
                        f"rule '{self}': {role} {number} has {len(shape)} axes {tuple(shape)}, "
                        f"but its term '{' '.join(term)}' needs at least {len(term) - 1}"
                    )
                leads.append(tuple(shape[:own]))
        return leads

    def _check_count(self, role: str, terms: _Terms, shapes: Sequence[Sequence[int]]) -> None:
        if len(terms) != len(shapes):
            raise ShardingError(f"rule '{self}' has {len(terms)} {role}s, but {len(shapes)} shapes are given")

    def __hash__(self) -> int:
        return self._hash

    # Slots would pickle the cached hash and the mapping proxies, which cannot be pickled.
    def __reduce__(self) -> tuple[Any, ...]:  # Any: the return type of object.__reduce__
        return ShardingRule, (self.operands, self.results, dict(self.kinds))

    def __str__(self) -> str:
        """Return the rule in the grammar; kinds that go without saying are left out."""
        left = "()" if self.operands == ((),) else ", ".join(map(" ".join, self.operands))
        right = ", ".join(map(" ".join, self.results))
        said = [f"{loop}: {kind}" for loop, kind in self.kinds.items() if kind != "sum"]
        # Terms of rank 0 print as nothing, which would leave double spaces.
        text = " ".join(f"{left} -> {right}".split())
        return f"{text} | {', '.join(said)}" if said else text

    def __repr__(self) -> str:
        return f"ShardingRule.parse({str(self)!r})"


def loop_of(word: str) -> str:
    """Return the loop that an axis runs over, whatever its halo is."""
    found = _HALO.fullmatch(word)
    return word if found is None else found[1]


def halo_of(word: str) -> tuple[int, int]:
    """Return how many elements of an axis are needed before and behind those of its loop.

    >>> halo_of("i-2+1"), halo_of("i")
    ((2, 1), (0, 0))
    """
    found = _HALO.fullmatch(word)
    return (0, 0) if found is None else (int(found[2] or 0), int(found[3] or 0))


def has_halo(word: str) -> bool:
    """Return whether an axis runs over its loop with a halo, of any number of elements."""
    return loop_of(word) != word


def _loops_of(terms: _Terms) -> tuple[str, ...]:
    return tuple(dict.fromkeys(loop_of(loop) for term in terms for loop in term if loop != _ONE))


def _check_term(term: tuple[str, ...]) -> None:
    for position, loop in enumerate(term):
        if loop == _ONE:
            continue
        if loop == ELLIPSIS:
            if position:
                raise ShardingError(f"term '{' '.join(term)}': '...' stands for leading axes and must come first")
        elif not _LOOP.fullmatch(loop):
            raise ShardingError(f"term '{' '.join(term)}': {loop!r} is no loop; use single words, '...' or 1")
        if term.count(loop) > 1:
            # The tiles of such an operand would be the diagonal ones only; a diagonal is a view, not a loop.
            raise ShardingError(f"term '{' '.join(term)}' names loop {loop!r} twice; take the diagonal first")


def _terms(text: str) -> _Terms:
    terms = [tuple(part.split()) for part in text.split(",")]
    return tuple([() if words == ("()",) else words for words in terms])
