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
from distarray.expr.op import declare
from distarray.ops.families import Array
from distarray.ops.manipulation import broadcast_to
from distarray.sharding.sharding import Sharding
from distarray.types import DTypeLike

#: runtime of all: the key, an integer below 2**128.
RANDOM_BITS = declare("random_bits", "create", is_drawn=True)
RANDOM_UNIFORM = declare("random_uniform", "create", is_drawn=True)
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


def random_bits(shape: Any, key: int, env: Environment, pin: Sharding | None = None) -> Expr:
    """Return 64 random bits per element, as unsigned integers."""
    return bind_create(RANDOM_BITS, parse_shape(shape), np.dtype(np.uint64), env, (), key, pin)


def random_uniform(shape: Any, dtype: DTypeLike, key: int, env: Environment, pin: Sharding | None = None) -> Expr:
    """Return numbers in [0, 1): multiples of ``2**-53``, or of ``2**-24`` in single precision."""
    return bind_create(RANDOM_UNIFORM, parse_shape(shape), np.dtype(dtype), env, (), key, pin)


def random_normal(shape: Any, dtype: DTypeLike, key: int, env: Environment, pin: Sharding | None = None) -> Expr:
    """Return normally distributed numbers of mean 0 and deviation 1."""
    return bind_create(RANDOM_NORMAL, parse_shape(shape), np.dtype(dtype), env, (), key, pin)


def drawn(name: str, shape: Any, dtype: DTypeLike, key: int, parameters: tuple[Any, ...], env: Environment) -> Expr:
    """Return numbers of the distribution `name`; the parameters are Python's numbers."""
    return bind_create(DRAWN[name], parse_shape(shape), np.dtype(dtype), env, (), (key, *parameters))


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
