"""Random numbers as functions of the global index: every cut, team and device gives the same ones.

Each operation is made from the position of an element and a key, like any created array; so a part is made where it
lies, what does not fit in memory is made again, and the numbers do not depend on the number of members. Distributions
with other parameters are elementwise functions of these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.expr.bind import bind_create
from distarray.expr.expr import Environment, Expr
from distarray.expr.op import declare
from distarray.ops.creation import _shape
from distarray.sharding.sharding import Sharding
from distarray.types import DTypeLike

__all__ = ["random_bits", "random_normal", "random_uniform"]

#: runtime of all: the key, an integer below 2**64.
RANDOM_BITS = declare("random_bits", "create")
RANDOM_UNIFORM = declare("random_uniform", "create")
RANDOM_NORMAL = declare("random_normal", "create")


def random_bits(shape: Any, key: int, env: Environment, pin: Sharding | None = None) -> Expr:
    """64 random bits per element, as unsigned integers."""
    return bind_create(RANDOM_BITS, _shape(shape), np.dtype(np.uint64), env, (), key, pin)


def random_uniform(shape: Any, dtype: DTypeLike, key: int, env: Environment, pin: Sharding | None = None) -> Expr:
    """Numbers in [0, 1): multiples of ``2**-53``, or of ``2**-24`` in single precision."""
    return bind_create(RANDOM_UNIFORM, _shape(shape), np.dtype(dtype), env, (), key, pin)


def random_normal(shape: Any, dtype: DTypeLike, key: int, env: Environment, pin: Sharding | None = None) -> Expr:
    """Normally distributed numbers of mean 0 and deviation 1."""
    return bind_create(RANDOM_NORMAL, _shape(shape), np.dtype(dtype), env, (), key, pin)
