"""Special functions are SciPy's: the table tests itself against ``scipy.special``."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.special

import distarray as dx
from distarray.ops import special
from distarray.testing import force_tiles

UFUNCS = [name for name in special.__all__ if name != "sinc"]
#: SciPy warns where their first arguments are not whole.
WHOLE = {"bdtr": 2, "bdtrc": 2, "bdtri": 2, "nbdtr": 2, "nbdtrc": 2, "nbdtri": 2, "expn": 1, "pdtri": 1, "yn": 1}


def operands(name: str, dtype: str) -> list[np.ndarray]:
    """As many arrays of numbers in (0, 1), (0, 9) and (0, 1) as the function takes; they broadcast."""
    rng = np.random.default_rng(len(name))
    shapes = [(7, 5), (7, 1), (5,)]
    values = [rng.random(shape) * size for shape, size in zip(shapes, (1, 9, 1))]
    whole = WHOLE.get(name, 0)
    return [v.astype("i8" if i < whole else dtype) for i, v in enumerate(values[: getattr(scipy.special, name).nin])]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize("name", UFUNCS)
def test_special_functions_are_scipys(kit, name: str, dtype: str) -> None:
    hosts = operands(name, dtype)
    ufunc = getattr(scipy.special, name)
    try:
        with np.errstate(all="ignore"):
            expected = ufunc(*hosts)
    except TypeError:
        with pytest.raises(TypeError):
            getattr(special, name)(*map(kit.node, hosts))
        return
    with np.errstate(all="ignore"):
        kit.assert_same(getattr(special, name)(*map(kit.node, hosts)), expected)


@pytest.mark.parametrize("name", ["erf", "xlogy", "betainc"])
def test_special_functions_of_several_tiles_are_the_same_bits(name: str) -> None:
    hosts = operands(name, "f8")
    with force_tiles(3):
        x = getattr(dx.special, name)(*map(dx.asarray, hosts))
        np.testing.assert_array_equal(x.compute(), getattr(scipy.special, name)(*hosts))


def test_python_scalars_are_weak() -> None:
    host = np.linspace(0.1, 1, 5, dtype="f4")
    x = dx.asarray(host)
    assert dx.special.boxcox(x, 2.0).dtype == scipy.special.boxcox(host, 2.0).dtype == np.float32
    np.testing.assert_array_equal(dx.special.expn(2, x).compute(), scipy.special.expn(2, host))
    assert float(dx.special.erf(0.5)) == scipy.special.erf(0.5)


def test_function_of_knows_scipys_ufuncs_and_no_others() -> None:
    assert special.function_of(scipy.special.erf) is special.erf
    # functions of one name
    assert special.function_of(scipy.special.exp2) is special.exp2
    assert special.function_of(np.exp2) is None
    assert special.function_of(scipy.special.airy) is None


def test_scipy_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, distarray as dx; dx.special.erf; assert 'scipy.special' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(filter(None, sys.path))})
