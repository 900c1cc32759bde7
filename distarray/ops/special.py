"""Special functions: elementwise functions of ``scipy.special``, on the blocks of whatever carries a node.

A line ``erf = one("erf")`` is the whole operation: its kernel is SciPy's ufunc (CuPy's on a GPU), found when a program
first names ``special.erf``, and its dtypes are asked of that ufunc. SciPy is imported with the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.lazy import loaded
from distarray.ops.elementwise import sinc
from distarray.ops.families import Array, ufunc

# The lines of a table read best undivided.
__all__ = [
    "bdtr", "bdtrc", "bdtri", "beta", "betainc", "betaincc", "betaincinv", "betaln", "binom", "boxcox", "boxcox1p",
    "cbrt", "chdtr", "chdtrc", "chdtri", "cosdg", "cosm1", "cotdg", "dawsn", "digamma", "ellipe", "ellipk",
    "ellipkm1", "entr", "erf", "erfc", "erfcinv", "erfcx", "erfi", "erfinv", "exp1", "exp10", "exp2", "expi", "expit",
    "expm1", "expn", "exprel", "fdtr", "fdtrc", "fdtri", "gamma", "gammainc", "gammaincc", "gammainccinv",
    "gammaincinv", "gammaln", "gammasgn", "gdtr", "gdtrc", "huber", "hyp0f1", "hyp1f1", "i0", "i0e", "i1", "i1e",
    "inv_boxcox", "inv_boxcox1p", "iv", "ive", "j0", "j1", "jv", "k0", "k0e", "k1", "k1e", "kl_div", "kv", "kve",
    "log1p", "log_expit", "log_ndtr", "loggamma", "logit", "lpmv", "nbdtr", "nbdtrc", "nbdtri", "ndtr", "ndtri",
    "owens_t", "pdtr", "pdtrc", "pdtri", "poch", "pseudo_huber", "psi", "radian", "rel_entr", "rgamma", "sinc",
    "sindg", "spence", "stdtr", "stdtrit", "tandg", "voigt_profile", "wofz", "xlog1py", "xlogy", "y0", "y1", "yn",
    "yv", "zetac",
]  # fmt: skip


def one(name: str) -> ufunc:
    """Declare the special function `name` of one operand and make its function."""
    return ufunc(f"special.{name}", 1)


def two(name: str) -> ufunc:
    """Declare the special function `name` of two operands and make its function."""
    return ufunc(f"special.{name}", 2)


def three(name: str) -> ufunc:
    """Declare the special function `name` of three operands and make its function."""
    return ufunc(f"special.{name}", 3)


def function_of(ufunc: np.ufunc) -> Callable[..., Array] | None:
    """Return the function of this table that a ufunc of SciPy has; None for any other ufunc."""
    # Who holds a ufunc of SciPy's has imported it.
    name, scipys = ufunc.__name__, loaded("scipy.special")
    theirs: Any = getattr(scipys, name, None) if name in __all__ else None
    # With SCIPY_ARRAY_API=1 the ufunc is wrapped by what dispatches on arrays.
    return globals()[name] if theirs is not None and getattr(theirs, "__wrapped__", theirs) is ufunc else None


# ----------------------------------------------------------------------------------------------- one operand

cbrt = one("cbrt")
cosdg = one("cosdg")
cosm1 = one("cosm1")
cotdg = one("cotdg")
dawsn = one("dawsn")
digamma = one("digamma")
ellipe = one("ellipe")
ellipk = one("ellipk")
ellipkm1 = one("ellipkm1")
entr = one("entr")
erf = one("erf")
erfc = one("erfc")
erfcinv = one("erfcinv")
erfcx = one("erfcx")
erfi = one("erfi")
erfinv = one("erfinv")
exp1 = one("exp1")
exp10 = one("exp10")
exp2 = one("exp2")
expi = one("expi")
expit = one("expit")
expm1 = one("expm1")
exprel = one("exprel")
gamma = one("gamma")
gammaln = one("gammaln")
gammasgn = one("gammasgn")
i0 = one("i0")
i0e = one("i0e")
i1 = one("i1")
i1e = one("i1e")
j0 = one("j0")
j1 = one("j1")
k0 = one("k0")
k0e = one("k0e")
k1 = one("k1")
k1e = one("k1e")
log1p = one("log1p")
log_expit = one("log_expit")
log_ndtr = one("log_ndtr")
loggamma = one("loggamma")
logit = one("logit")
ndtr = one("ndtr")
ndtri = one("ndtri")
psi = one("psi")
rgamma = one("rgamma")
sindg = one("sindg")
spence = one("spence")
tandg = one("tandg")
wofz = one("wofz")
y0 = one("y0")
y1 = one("y1")
zetac = one("zetac")

# ---------------------------------------------------------------------------------------------- two operands

beta = two("beta")
betaln = two("betaln")
binom = two("binom")
boxcox = two("boxcox")
boxcox1p = two("boxcox1p")
chdtr = two("chdtr")
chdtrc = two("chdtrc")
chdtri = two("chdtri")
expn = two("expn")
gammainc = two("gammainc")
gammaincc = two("gammaincc")
gammainccinv = two("gammainccinv")
gammaincinv = two("gammaincinv")
huber = two("huber")
hyp0f1 = two("hyp0f1")
inv_boxcox = two("inv_boxcox")
inv_boxcox1p = two("inv_boxcox1p")
iv = two("iv")
ive = two("ive")
jv = two("jv")
kl_div = two("kl_div")
kv = two("kv")
kve = two("kve")
owens_t = two("owens_t")
pdtr = two("pdtr")
pdtrc = two("pdtrc")
pdtri = two("pdtri")
poch = two("poch")
pseudo_huber = two("pseudo_huber")
rel_entr = two("rel_entr")
stdtr = two("stdtr")
stdtrit = two("stdtrit")
xlog1py = two("xlog1py")
xlogy = two("xlogy")
yn = two("yn")
yv = two("yv")

# -------------------------------------------------------------------------------------------- three operands

bdtr = three("bdtr")
bdtrc = three("bdtrc")
bdtri = three("bdtri")
betainc = three("betainc")
betaincc = three("betaincc")
betaincinv = three("betaincinv")
fdtr = three("fdtr")
fdtrc = three("fdtrc")
fdtri = three("fdtri")
gdtr = three("gdtr")
gdtrc = three("gdtrc")
hyp1f1 = three("hyp1f1")
lpmv = three("lpmv")
nbdtr = three("nbdtr")
nbdtrc = three("nbdtrc")
nbdtri = three("nbdtri")
radian = three("radian")
voigt_profile = three("voigt_profile")
