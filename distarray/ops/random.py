"""Random numbers as functions of the global index: every cut, team and device gives the same ones.

Three operations are made from the position of an element and a key, like any created array: words of 64 random bits,
uniform and normal numbers. So a part is made where it lies, what does not fit in memory is made again, and the numbers
do not depend on the number of members. All other distributions are elementwise functions of these; `sampled` are those
that numpy has no functions for, of words and parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.arguments import parse_shape
from distarray.expr.bind import bind, bind_create, bind_map, unbox
from distarray.expr.expr import Environment, Expr
from distarray.expr.op import Op, declare
from distarray.ops.families import Array
from distarray.ops.manipulation import broadcast_to
from distarray.types import DTypeLike

#: 64 random bits, as unsigned integers. runtime of this one and the next two: the key, an integer below 2**128.
RANDOM_BITS = declare("random_bits", "create", is_drawn=True)
#: Numbers in [0, 1): multiples of 2**-53, or of 2**-24 in single precision.
RANDOM_UNIFORM = declare("random_uniform", "create", is_drawn=True)
#: Normally distributed numbers of mean 0 and deviation 1.
RANDOM_NORMAL = declare("random_normal", "create", is_drawn=True)

#: By name; operands: words and the parameters in the order of numpy's; params: (dtype of the result,).
SAMPLERS = {
    name: declare(f"random_{name}", "map")
    for name in (
        *("binomial", "gamma", "hypergeometric", "integers", "log_gamma", "logseries", "poisson", "vonmises", "zipf"),
    )
}
#: The same of numbers as parameters, made from the position without words; runtime: (key, *parameters).
DRAWN = {name: declare(f"drawn_{name}", "create", is_drawn=True) for name in SAMPLERS}
#: Vectors of counts along the last axis; operands: words, the number of draws, and the parameter of each category.
VECTOR_SAMPLERS = {
    name: declare(f"random_{name}", "block", rule="..., ..., ... k -> ... k | k: whole")
    for name in ("multinomial", "multivariate_hypergeometric")
}


def drawn(op: Op, shape: Any, dtype: DTypeLike, key: int, env: Environment, parameters: tuple[Any, ...] = ()) -> Expr:
    """Return what an operation makes of the positions and a key; the parameters are Python's numbers."""
    runtime = (key, *parameters) if parameters else key
    return bind_create(op, parse_shape(shape), np.dtype(dtype), env, (), runtime)


def sampled(name: str, dtype: DTypeLike, words: Array, *parameters: Array) -> Array:
    """Return numbers of the distribution `name`, one for each of `words`, to whose shape the parameters broadcast."""
    return bind_map(SAMPLERS[name], (words, *parameters), (np.dtype(dtype).str,))


def sampled_vectors(name: str, words: Array, n: Array, parameters: Array) -> Array:
    """Return vectors of counts of the distribution `name`, one along a last axis for each of `words`.

    `n` broadcasts to the shape of `words`, and `parameters` to that shape and the categories.
    """
    operands = unbox(name, (words, n, parameters))
    node, count, weights = operands.nodes
    assert isinstance(node, Expr)
    assert isinstance(count, Expr)
    assert isinstance(weights, Expr)
    shape = (*node.shape, weights.shape[-1])
    spread = (node, broadcast_to(count, node.shape), broadcast_to(weights, shape))
    return operands.box(bind(VECTOR_SAMPLERS[name], spread, shape, np.dtype(np.int64)))
