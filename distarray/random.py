"""Random numbers that do not depend on the cut: the same seed gives the same array on any team, device and sharding.

There is no global state: ``rng = dx.random.default_rng(seed)``, and functions take ``rng``. The numbers are not those
of numpy.
"""

from distarray.composed.random import Generator, default_rng

__all__ = ["Generator", "choice", "default_rng", "normal", "rand", "randint", "randn", "random", "seed", "uniform"]

# What numpy's global state was for, each with the way out.


def _refused(name: str, instead: str) -> TypeError:
    from distarray.errors import NotSupportedError

    return NotSupportedError(
        f"random.{name} uses a global state, which distarray does not have; use "
        f"rng = distarray.random.default_rng(seed) and rng.{instead}"
    )


def seed(*args: object, **kwargs: object) -> None:
    """Refuse: there is no global state."""
    raise _refused("seed", "random(shape)")


def rand(*args: object, **kwargs: object) -> None:
    """Refuse: there is no global state."""
    raise _refused("rand", "random(shape)")


def randn(*args: object, **kwargs: object) -> None:
    """Refuse: there is no global state."""
    raise _refused("randn", "standard_normal(shape)")


def randint(*args: object, **kwargs: object) -> None:
    """Refuse: there is no global state."""
    raise _refused("randint", "integers(low, high, shape)")


def random(*args: object, **kwargs: object) -> None:
    """Refuse: there is no global state."""
    raise _refused("random", "random(shape)")


def uniform(*args: object, **kwargs: object) -> None:
    """Refuse: there is no global state."""
    raise _refused("uniform", "uniform(low, high, shape)")


def normal(*args: object, **kwargs: object) -> None:
    """Refuse: there is no global state."""
    raise _refused("normal", "normal(loc, scale, shape)")


def choice(*args: object, **kwargs: object) -> None:
    """Refuse: there is no global state."""
    raise _refused("choice", "choice(a, shape)")
