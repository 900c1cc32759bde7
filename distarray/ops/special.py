"""Special functions: elementwise functions of ``scipy.special``, on the blocks of whatever carries a node.

A line ``erf = ufunc("special.erf", 1)`` is the whole operation: its kernel is SciPy's ufunc (CuPy's on a GPU), found
when a program first names ``special.erf``, and its dtypes are asked of that ufunc. SciPy is imported with the first
call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.lazy import loaded
from distarray.ops.elementwise import sinc
from distarray.ops.families import Array, ufunc


def function_of(ufunc: np.ufunc) -> Callable[..., Array] | None:
    """Return the function of this table that a ufunc of SciPy has; None for any other ufunc."""
    # Who holds a ufunc of SciPy's has imported it.
    name, scipys = ufunc.__name__, loaded("scipy.special")
    theirs: Any = getattr(scipys, name, None) if name in __all__ else None
    # With SCIPY_ARRAY_API=1 the ufunc is wrapped by what dispatches on arrays.
    return globals()[name] if theirs is not None and getattr(theirs, "__wrapped__", theirs) is ufunc else None


# ----------------------------------------------------------------------------------------------- one operand

cbrt = ufunc("special.cbrt", 1)
cosdg = ufunc("special.cosdg", 1)
cosm1 = ufunc("special.cosm1", 1)
cotdg = ufunc("special.cotdg", 1)
dawsn = ufunc("special.dawsn", 1)
digamma = ufunc("special.digamma", 1)
ellipe = ufunc("special.ellipe", 1)
ellipk = ufunc("special.ellipk", 1)
ellipkm1 = ufunc("special.ellipkm1", 1)
entr = ufunc("special.entr", 1)
erf = ufunc("special.erf", 1)
erfc = ufunc("special.erfc", 1)
erfcinv = ufunc("special.erfcinv", 1)
erfcx = ufunc("special.erfcx", 1)
erfi = ufunc("special.erfi", 1)
erfinv = ufunc("special.erfinv", 1)
exp1 = ufunc("special.exp1", 1)
exp10 = ufunc("special.exp10", 1)
exp2 = ufunc("special.exp2", 1)
expi = ufunc("special.expi", 1)
expit = ufunc("special.expit", 1)
expm1 = ufunc("special.expm1", 1)
exprel = ufunc("special.exprel", 1)
gamma = ufunc("special.gamma", 1)
gammaln = ufunc("special.gammaln", 1)
gammasgn = ufunc("special.gammasgn", 1)
i0 = ufunc("special.i0", 1)
i0e = ufunc("special.i0e", 1)
i1 = ufunc("special.i1", 1)
i1e = ufunc("special.i1e", 1)
j0 = ufunc("special.j0", 1)
j1 = ufunc("special.j1", 1)
k0 = ufunc("special.k0", 1)
k0e = ufunc("special.k0e", 1)
k1 = ufunc("special.k1", 1)
k1e = ufunc("special.k1e", 1)
log1p = ufunc("special.log1p", 1)
log_expit = ufunc("special.log_expit", 1)
log_ndtr = ufunc("special.log_ndtr", 1)
loggamma = ufunc("special.loggamma", 1)
logit = ufunc("special.logit", 1)
ndtr = ufunc("special.ndtr", 1)
ndtri = ufunc("special.ndtri", 1)
psi = ufunc("special.psi", 1)
rgamma = ufunc("special.rgamma", 1)
sindg = ufunc("special.sindg", 1)
spence = ufunc("special.spence", 1)
tandg = ufunc("special.tandg", 1)
wofz = ufunc("special.wofz", 1)
y0 = ufunc("special.y0", 1)
y1 = ufunc("special.y1", 1)
zetac = ufunc("special.zetac", 1)

# ---------------------------------------------------------------------------------------------- two operands

beta = ufunc("special.beta", 2)
betaln = ufunc("special.betaln", 2)
binom = ufunc("special.binom", 2)
boxcox = ufunc("special.boxcox", 2)
boxcox1p = ufunc("special.boxcox1p", 2)
chdtr = ufunc("special.chdtr", 2)
chdtrc = ufunc("special.chdtrc", 2)
chdtri = ufunc("special.chdtri", 2)
expn = ufunc("special.expn", 2)
gammainc = ufunc("special.gammainc", 2)
gammaincc = ufunc("special.gammaincc", 2)
gammainccinv = ufunc("special.gammainccinv", 2)
gammaincinv = ufunc("special.gammaincinv", 2)
huber = ufunc("special.huber", 2)
hyp0f1 = ufunc("special.hyp0f1", 2)
inv_boxcox = ufunc("special.inv_boxcox", 2)
inv_boxcox1p = ufunc("special.inv_boxcox1p", 2)
iv = ufunc("special.iv", 2)
ive = ufunc("special.ive", 2)
jv = ufunc("special.jv", 2)
kl_div = ufunc("special.kl_div", 2)
kv = ufunc("special.kv", 2)
kve = ufunc("special.kve", 2)
owens_t = ufunc("special.owens_t", 2)
pdtr = ufunc("special.pdtr", 2)
pdtrc = ufunc("special.pdtrc", 2)
pdtri = ufunc("special.pdtri", 2)
poch = ufunc("special.poch", 2)
pseudo_huber = ufunc("special.pseudo_huber", 2)
rel_entr = ufunc("special.rel_entr", 2)
stdtr = ufunc("special.stdtr", 2)
stdtrit = ufunc("special.stdtrit", 2)
xlog1py = ufunc("special.xlog1py", 2)
xlogy = ufunc("special.xlogy", 2)
yn = ufunc("special.yn", 2)
yv = ufunc("special.yv", 2)

# -------------------------------------------------------------------------------------------- three operands

bdtr = ufunc("special.bdtr", 3)
bdtrc = ufunc("special.bdtrc", 3)
bdtri = ufunc("special.bdtri", 3)
betainc = ufunc("special.betainc", 3)
betaincc = ufunc("special.betaincc", 3)
betaincinv = ufunc("special.betaincinv", 3)
fdtr = ufunc("special.fdtr", 3)
fdtrc = ufunc("special.fdtrc", 3)
fdtri = ufunc("special.fdtri", 3)
gdtr = ufunc("special.gdtr", 3)
gdtrc = ufunc("special.gdtrc", 3)
hyp1f1 = ufunc("special.hyp1f1", 3)
lpmv = ufunc("special.lpmv", 3)
nbdtr = ufunc("special.nbdtr", 3)
nbdtrc = ufunc("special.nbdtrc", 3)
nbdtri = ufunc("special.nbdtri", 3)
radian = ufunc("special.radian", 3)
voigt_profile = ufunc("special.voigt_profile", 3)

__all__ = ["sinc", *[name for name, value in globals().items() if isinstance(value, ufunc)]]
