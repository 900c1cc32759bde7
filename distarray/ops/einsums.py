"""``einsum`` with any join and any aggregation, of any number of operands.

What is computed is ``result[..] = agg over the other labels of join(x1[..], x2[..], ..)``. It becomes the cheapest of:
elementwise functions of views, and a reduction (where nothing is aggregated, or one operand has all labels: such a pass
fuses with its neighbours); products of two factors after the other (where the join distributes over the aggregation);
one kernel on all operands. The kernel is `kernels.contractions`; sums of products of two are BLAS.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any, Protocol, get_args

import numpy as np

from distarray import config, hooks
from distarray.arguments import choice
from distarray.dtypes import as_dtype
from distarray.expr.bind import bind, bind_get, unbox
from distarray.expr.expr import RESHARD, Expr, cut_of
from distarray.expr.joins import Join
from distarray.expr.op import declare
from distarray.expr.params import ContractParams, Labels
from distarray.ops.contractions import EINSUM, alone, contraction, plain_loops
from distarray.ops.creation import constant, operand_node
from distarray.ops.elementwise import astype
from distarray.ops.families import Array
from distarray.ops.lenses import permute_lens
from distarray.ops.paths import Factors, Order, Parts, chosen_order, parse_path
from distarray.ops.programs import boxed
from distarray.ops.semirings import (
    DISTRIBUTIVE,
    Joining,
    aggregate,
    aggregated_dtype,
    loop_dtypes,
    of_nothing,
    parse_agg,
    parse_join,
    summand_dtype,
    traced,
)
from distarray.ops.subscripts import extents_of, parse_subscripts, resolve_ellipses
from distarray.sharding.prime import parted
from distarray.sharding.sharding import Sharding
from distarray.types import Casting, DType, DTypeLike, NBytesLike, Shape

#: A join that is a function of the user's.
EINSUM_FUNCTION = declare("einsum_function", "contract", may_raise=True)

PLANS = ("auto", "rows", "sqrt")


class KernelPlan(Protocol):
    """A KernelPlan is what says how one kernel is cut: what ``dx.plan`` gives."""

    @property
    def kernel(self) -> tuple[Sequence[Sequence[Hashable]], Sequence[Hashable], Mapping[Any, int]]:
        """Return the labels of each operand, labels of the result, and the parts of each label."""


def einsum(
    *operands: Any,
    join: Any = "mul",
    agg: Any = "sum",
    optimize: Any = "auto",
    dtype: DTypeLike | None = None,
    casting: Casting = "safe",
    plan: str | KernelPlan | None = None,
    memory_limit: NBytesLike | None = None,
    out: Any = None,
) -> Array:
    """Return the operands joined element by element and aggregated, as subscripts say: ``"ij,jk->ik"`` is a matrix
    product.

    Parameters
    ----------
    operands
        The text and the arrays; or arrays, each followed by the list of its labels, and the labels of the result.
        Implicit results, ``...``, repeated labels and axes of extent 1, which broadcast, are as in numpy.
    join
        What is done with elements that meet. A name: of two operands ``mul``, ``add``, ``sub``, ``div``, ``floordiv``,
        ``mod``, ``pow``, ``absdiff``, ``sqdiff``, ``min``, ``max``, ``eq``, ``ne``, ``lt``, ``le``, ``gt``, ``ge``,
        ``and``, ``or``, ``xor``; of one ``identity``, ``neg``, ``abs``, ``square``, ``sqrt``, ``exp``, ``log``,
        ``reciprocal``, ``not``, ``conj``; or numpy's name of an elementwise function. A ufunc of numpy or SciPy. Or a
        function of as many arrays of one shape as there are operands, elementwise on them; it is evaluated at the call.
        More than two operands are joined from the left by ``mul``, ``add``, ``sub``, ``div``, ``min``, ``max``,
        ``and``, ``or``, ``xor`` and numpy's associative functions.
    agg
        What is done with the labels that the result lacks: ``sum``, ``prod``, ``max``, ``min``, ``any``, ``all``,
        ``xor``, or an associative ufunc of numpy or its name (``logaddexp``, ``bitwise_or``, ``gcd``, ``fmax`` ...).
    optimize
        In which order more than two operands are joined, where algebra leaves a choice: a strategy of opt_einsum,
        an order as `einsum_path` gives it, True for ``auto``, False for left to right. ``auto`` takes of the orders
        with the fewest operations the one that moves least, where operands are larger than ``block-bytes``.
    dtype
        Of what is aggregated, and so of the result: of the products; of what a function gives, which is else called
        once on arrays of two ones to find out. By default numpy's: sums of products keep the promoted dtype, as in
        ``numpy.einsum``, and operands must cast to it by `casting`; every other join and aggregation gives what the
        functions of that name give.
    casting
        How operands, and the result into ``out=``, may be cast: numpy's rules.
    plan
        How the work is cut, and so the result: what `plan` gave for one expression like this one, of arrays of any
        extents, whose operands are then joined by one kernel; ``rows``, the first axis of the result over all members;
        ``sqrt``, its first two axes into about the square root of the number of members each. None or ``auto`` leaves
        it to the planner.
    memory_limit
        Bytes that an intermediate result may take on each member. Orders that need more are not taken; if all do, one
        kernel joins all operands and makes no intermediate result.
    out
        An array that gets the result and is returned. Its dtype counts among those that sums of products promote.

    Raises
    ------
    TypeError
        If an operand of a sum of products, or `out`, does not cast to `dtype`.
    ValueError
        If the text does not fit the operands; if join, aggregation or plan is unknown; if nothing is to be aggregated
        by what has no identity (``max``, ``min``); if the plan is of another expression.
    ShardingError
        If the plan has more kernels than the team has members.

    Examples
    --------
    >>> import distarray as dx
    >>> a, b = dx.asarray([[0.0, 1.0], [4.0, 3.0]]), dx.asarray([[1.0, 1.0], [2.0, 7.0]])
    >>> dx.einsum("ik,jk->ij", a, b, join="absdiff", agg="max").tolist()  # the largest difference of two rows
    [[1.0, 6.0], [3.0, 4.0]]
    >>> dx.einsum("ij,jk->ik", a, b, join="add", agg="min").tolist()  # shortest paths of two steps
    [[1.0, 1.0], [5.0, 5.0]]
    """
    is_plain = type(optimize) is str and optimize == "auto" and dtype is plan is memory_limit is out is None
    if is_plain and hooks.call_at_call is not None and operands and isinstance(operands[0], str):
        made = hooks.call_at_call(_of_text, operands[1:], operands[:1], {"join": join, "agg": agg})
        if made is not None:
            return made
    # Who calls this writes into `out`: what is written there depends on its dtype, nothing else here does.
    expression = _Expression(operands, join, agg, dtype, casting, getattr(out, "dtype", None))
    parts = expression.parts(plan)
    is_one_kernel = plan is not None and not isinstance(plan, str)
    order = None if is_one_kernel else expression.order(optimize, memory_limit)
    # numpy tells nothing of the floating-point events of a sum of products
    with np.errstate(all="ignore") if expression.is_product else nullcontext():
        made = expression.bind(order)
    made = _cut(made, expression.goal, parts, expression.nodes)
    return boxed("einsum", expression.box, [made])[0] if expression.may_raise else expression.box(made)


def _of_text(*operands: Any, join: Any, agg: Any) -> Array:
    """Return `einsum` of the operands, the last of which is the text."""
    return einsum(operands[-1], *operands[:-1], join=join, agg=agg)


def einsum_order(
    *operands: Any,
    join: Any = "mul",
    agg: Any = "sum",
    optimize: Any = "auto",
    memory_limit: NBytesLike | None = None,
) -> Order:
    """Return the order in which `einsum` joins its operands: positions in the list of what is left, results at its
    end.
    """
    expression = _Expression(operands, join, agg, None)
    return expression.order(optimize, memory_limit) or (tuple(range(len(expression.nodes))),)


class _Expression:
    """An _Expression is the operands of a call with small integers as labels, and what is to be done with them.

    Attributes
    ----------
    nodes, labels, goal, extents
        Operands, their labels, those of the result, and the extent of each label.
    joining, agg, wanted
        The join, the monoid, and the dtype that the caller asked for.
    is_product
        Whether it is a sum of products, with the dtypes of numpy's einsum.
    """

    def __init__(
        self,
        operands: Sequence[Any],
        join: Any,
        agg: Any,
        dtype: DTypeLike | None,
        casting: Casting = "safe",
        written: DType | None = None,
    ) -> None:
        terms, result, arrays = parse_subscripts(operands)
        self.joining, self.agg = parse_join(join, len(arrays)), parse_agg(agg)
        unboxed = unbox("einsum", arrays)
        self.box = unboxed.box
        nodes = [operand_node(n, unboxed.env) for n in unboxed.nodes]
        terms, target = resolve_ellipses(terms, result, nodes)
        extents = extents_of(terms, nodes)
        number = {label: i for i, label in enumerate(extents)}
        self.labels: list[Labels] = [tuple([number[label] for label in term]) for term in terms]
        self.goal: Labels = tuple([number[label] for label in target])
        self.extents = tuple(extents.values())
        self.wanted = None if dtype is None else as_dtype(dtype)
        self.casting = choice(casting, get_args(Casting), "casting")
        self.is_product = self.agg == "sum" and self.joining.name in ("mul", "multiply")
        self.nodes = nodes
        self.nodes = self._cast(written)

    def _cast(self, written: DType | None) -> list[Expr]:
        """Return the operands in the dtype in which factors are multiplied, where they are factors; that of what the
        result is written into counts as one of theirs.
        """
        nodes = self.nodes
        if self.is_product:
            met = {f"operand {i}": n.dtype for i, n in enumerate(nodes)}
            if written is not None:
                met["out="] = written
            common = as_dtype(np.result_type(*met.values()) if self.wanted is None else self.wanted)
            if common.kind in "mM":
                raise TypeError("einsum: invalid data type for einsum")
            for name, dtype in met.items() if self.wanted is not None else ():
                if not np.can_cast(dtype, common, self.casting):
                    raise TypeError(
                        f"einsum: {name} cannot be cast from {dtype} to {common} by the rule {self.casting!r}"
                    )
        elif self.is_factored:
            common = self._join(nodes, reduces=True).dtype
        else:
            return nodes
        self.wanted = common
        return [n if n.dtype == common else astype(n, common) for n in nodes]

    @property
    def may_raise(self) -> bool:
        """Return whether elements may be no operands of the join, which is found at the call: powers of integers."""
        return self.joining.key == "power" and all(n.dtype.kind in "biu" for n in self.nodes)

    @cached_property
    def is_factored(self) -> bool:
        """Return whether the operands are factors: the join distributes over the aggregation, in one dtype for both."""
        if self.is_product:
            return True
        if len(self.labels) < 2 or (self.joining.key, self.agg) not in DISTRIBUTIVE:
            return False
        joined = self._join(self.nodes, reduces=True).dtype
        return aggregated_dtype(self.agg, joined, self.wanted) == joined

    def _join(self, nodes: Sequence[Expr], *, reduces: bool) -> Join:
        """Return the join of some operands as kernels take it."""
        dtypes = tuple([n.dtype for n in nodes])
        if self.joining.is_users:
            found = _given_dtype(self.joining, dtypes) if self.wanted is None else self.wanted
            return Join(self.joining.name, found, is_users=True)
        joining = self._of(len(nodes))
        return traced(joining, dtypes, summand_dtype(self.agg, self.wanted) if reduces else self.wanted)

    def _of(self, n: int) -> Joining:
        """Return the join of so many of the operands."""
        return self.joining if n == len(self.labels) else parse_join(self.joining.name, n)

    # ---------------------------------------------------------------------------------------------- the order

    def order(self, optimize: Any, memory_limit: NBytesLike | None) -> Order | None:
        """Return the order of the joins; None: all at once."""
        n = len(self.nodes)
        optimize = parse_path(optimize, n)
        nbytes = None if memory_limit is None else config.parse_option("memory-limit", memory_limit)
        if not self.is_factored:
            return None
        if n <= 2:
            return (tuple(range(n)),)
        members, itemsize = self.nodes[0].env.size, self.nodes[0].dtype.itemsize
        block = self.nodes[0].env.block_nbytes
        parts = None
        if members > 1 and any(x.nbytes > block for x in self.nodes):
            parts = tuple([_parts(x) for x in self.nodes])
        factors = Factors(
            tuple(self.labels), self.goal, self.extents, parts, members, itemsize, is_product=self.is_product
        )
        return chosen_order(factors, optimize, None if nbytes is None else nbytes * members // itemsize)

    # ------------------------------------------------------------------------------------------------ the cut

    def parts(self, plan: str | KernelPlan | None) -> dict[int, int]:
        """Return the parts of each label, as a plan says; none where the planner is to choose.

        Raises
        ------
        ValueError
            If there is no such plan, or it is of another expression.
        """
        n = self.nodes[0].env.size
        if plan is None or plan == "auto":
            return {}
        if plan == "rows":
            return dict.fromkeys(self.goal[:1], n)
        if plan == "sqrt":
            if len(self.goal) < 2:
                return dict.fromkeys(self.goal, n)
            rows = min([d for d in range(1, n + 1) if n % d == 0], key=lambda d: abs(math.log(d * d / n)))
            return dict(zip(self.goal, (rows, n // rows)))
        if isinstance(plan, str) or not hasattr(plan, "kernel"):
            raise ValueError(f"plan={plan!r} is unknown; known are {', '.join(PLANS)}, and what dx.plan gives")
        terms, result, parts = plan.kernel
        theirs, ours = [*terms, result], [*self.labels, self.goal]
        name = {x: label for term, own in zip(theirs, ours) for x, label in zip(term, own)}
        is_alike = [len(t) for t in theirs] == [len(t) for t in ours] and len({*name.values()}) == len(name)
        if not is_alike or [tuple([name[x] for x in t]) for t in theirs] != ours:
            text = ",".join("".join(map(str, term)) for term in terms) + "->" + "".join(map(str, result))
            raise ValueError(f"the plan is of {text}, which is not what is to be computed")
        return {name[x]: k for x, k in parts.items()}

    # ---------------------------------------------------------------------------------------------- the nodes

    def bind(self, order: Order | None) -> Expr:
        """Return the node of the result."""
        shape = tuple([self.extents[label] for label in self.goal])
        if 0 in [n for label, n in enumerate(self.extents) if label not in self.goal]:  # whatever is joined
            return self._of_nothing(shape)
        pool = list(zip(self.nodes, self.labels))
        if order is None:
            return self._joined(pool, self.goal, at_once=True)
        for positions in order:
            taken = [pool.pop(i) for i in sorted(positions, reverse=True)][::-1]
            while True:
                step, taken = taken[:2], taken[2:]
                needed = {*self.goal, *(label for _, own in (*pool, *taken) for label in own)}
                out = tuple(dict.fromkeys(label for _, own in step for label in own if label in needed))
                out = out if pool or taken else self.goal
                made = self._joined(step, out)
                if not taken:
                    break
                taken = [(made, out), *taken]
            pool.append((made, out))
        return pool[0][0]

    def _of_nothing(self, shape: Shape) -> Expr:
        """Return a result in which no elements are aggregated."""
        dtype = self.wanted
        if not self.is_product:
            dtype = aggregated_dtype(self.agg, self._join(self.nodes, reduces=True).dtype, dtype)
        assert dtype is not None
        return constant(shape, of_nothing(self.agg, dtype), dtype, self.nodes[0].env)

    def _joined(self, factors: Sequence[tuple[Expr, Labels]], out: Labels, *, at_once: bool = False) -> Expr:
        """Return some operands joined and aggregated."""
        nodes, labels = [node for node, _ in factors], [own for _, own in factors]
        if self.is_product and not (at_once and len(nodes) > 2):
            assert self.wanted is not None
            return contraction(nodes, labels, out, self.wanted)
        nodes, labels, extents = plain_loops(nodes, labels)
        if self.is_factored:
            # alone labels go first: agg_jk join(x_ij, y_jk) = agg_j join(x_ij, agg_k y_jk)
            for i, axes in enumerate(alone(tuple(labels), out)):
                if axes:
                    nodes[i] = aggregate(self.agg, nodes[i], axes, nodes[i].dtype)
                    labels[i] = tuple(label for a, label in enumerate(labels[i]) if a not in axes)
        if not self.joining.is_users:
            everything = {label for own in labels for label in own}
            widest = next((own for own in labels if len(own) == len(everything)), None)
            if everything == set(out) or widest is not None:
                return self._elementwise(nodes, labels, out, widest)
        return self._kernel(nodes, labels, out, extents)

    def _elementwise(self, nodes: Sequence[Expr], labels: Sequence[Labels], out: Labels, widest: Labels | None) -> Expr:
        """Return a pass over all loops, which is one over an operand or the result, and a reduction in that pass."""
        order = out if widest is None or set(widest) == set(out) else widest
        made = self._of(len(nodes)).function(*[_aligned(x, own, order) for x, own in zip(nodes, labels)])
        axes = tuple([a for a, label in enumerate(order) if label not in out])
        then = summand_dtype(self.agg, self.wanted) if axes else self.wanted
        if then is not None:
            made = astype(made, then, copy=False)
        if axes:
            made = aggregate(self.agg, made, axes, aggregated_dtype(self.agg, made.dtype, self.wanted))
            order = tuple([label for label in order if label in out])
        return bind_get(made, permute_lens(made.shape, [order.index(label) for label in out]))

    def _kernel(self, nodes: list[Expr], labels: Sequence[Labels], out: Labels, extents: dict[int, int]) -> Expr:
        """Return one kernel on the blocks of all these operands."""
        reduces = any(label not in out for own in labels for label in own)
        join = self._join(nodes, reduces=reduces)
        if join.steps:
            dtypes = loop_dtypes(join, [x.dtype for x in nodes])
            nodes = [astype(x, dtype, copy=False) for x, dtype in zip(nodes, dtypes)]
        dtype = aggregated_dtype(self.agg, join.dtype, self.wanted) if reduces else join.dtype
        op = EINSUM_FUNCTION if self.joining.is_users else EINSUM
        # truth values that keep their dtype are not counted
        monoid = "any" if (self.agg, dtype.kind) == ("sum", "b") else self.agg
        params = ContractParams(tuple(labels), out, join, monoid)
        late = (self.joining.function,) if self.joining.is_users else None
        return bind(op, nodes, tuple([extents[label] for label in out]), dtype, params, late)


def _given_dtype(joining: Joining, dtypes: Sequence[DType]) -> DType:
    """Return the dtype that a function of the user's gives for arrays of ones."""
    ones = [np.ones(2, dtype) for dtype in dtypes]
    for x in ones:
        x.flags.writeable = False
    given = np.asarray(joining.function(*ones))
    if given.shape != (2,):
        raise ValueError(
            f"join: {joining.name} gave an array of shape {given.shape} for arrays of shape (2,); it must work element "
            "by element"
        )
    return as_dtype(given.dtype)


def _aligned(node: Expr, own: Labels, order: Labels) -> Expr:
    """Return an operand with an axis for every label of `order`, of extent 1 where it has no such label."""
    lens = permute_lens(node.shape, [own.index(label) for label in order if label in own])
    for a, label in enumerate(order):
        if label not in own:
            lens = lens.expanded(a)
    return bind_get(node, lens)


# -------------------------------------------------------------------------------------------------------- cuts


def _parts(node: Expr) -> Parts:
    """Return the parts of an array that lies in tiles, where they divide its extents."""
    known = cut_of(node)
    if known is None or known.n_tiles == 1 or any(n % k for n, k in zip(node.shape, known.parts)):
        return None
    return known.parts


def _cut(node: Expr, goal: Labels, parts: Mapping[int, int], operands: Sequence[Expr]) -> Expr:
    """Return the result, and the work of the kernel that makes it, cut into parts of their labels."""
    team = node.env.team
    if team is None or team.size == 1 or not parts:
        return node
    is_kernel = node.op.kind == "contract" and node.pin is None and not any(node is x for x in operands)
    reduced = [label for own in node.params.operands for label in own if label not in goal] if is_kernel else []
    loops = [*goal, *dict.fromkeys(reduced)]
    sharding = parted([parts.get(label, 1) for label in loops], team.mesh)
    cut = Sharding(sharding.mesh, sharding.axes[: len(goal)])
    if is_kernel:
        return node.with_pin(cut, node.params._replace(pinned=sharding.axes[len(goal) :]))
    made: Expr = bind(RESHARD, (node,), node.shape, node.dtype, ("auto", None))
    return made.with_pin(cut)
