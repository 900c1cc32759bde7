"""Random numbers that do not depend on the cut: the same seed gives the same array on any team, device and sharding.

``rng = dx.random.default_rng(seed)`` is the interface that numpy recommends; the functions here are methods of one
`RandomState` of the process, as in numpy. The numbers are not those of numpy, whose bit generators are seeds here.
"""

from numpy.random import MT19937, PCG64, PCG64DXSM, SFC64, BitGenerator, Philox, SeedSequence

from distarray.composed.numpy_alternatives import not_here
from distarray.composed.random import Generator, RandomState, default_rng, process_state

__all__ = [
    "BitGenerator", "Generator", "MT19937", "PCG64", "PCG64DXSM", "Philox", "RandomState", "SFC64", "SeedSequence",
    "default_rng", "beta", "binomial", "bytes", "chisquare",
    "choice", "dirichlet", "exponential", "f", "gamma", "geometric", "get_state", "gumbel", "hypergeometric",
    "laplace", "logistic", "lognormal", "logseries", "multinomial", "multivariate_normal",
    "negative_binomial", "noncentral_chisquare", "noncentral_f", "normal", "pareto", "permutation", "poisson",
    "power", "rand", "randint", "randn", "random", "random_integers", "random_sample", "ranf", "rayleigh",
    "sample", "seed", "set_state", "shuffle", "standard_cauchy", "standard_exponential", "standard_gamma",
    "standard_normal", "standard_t", "triangular", "uniform", "vonmises", "wald", "weibull", "zipf",
]  # fmt: skip

beta = process_state.beta
binomial = process_state.binomial
bytes = process_state.bytes
chisquare = process_state.chisquare
choice = process_state.choice
dirichlet = process_state.dirichlet
exponential = process_state.exponential
f = process_state.f
gamma = process_state.gamma
geometric = process_state.geometric
get_state = process_state.get_state
gumbel = process_state.gumbel
hypergeometric = process_state.hypergeometric
laplace = process_state.laplace
logistic = process_state.logistic
lognormal = process_state.lognormal
logseries = process_state.logseries
multinomial = process_state.multinomial
multivariate_normal = process_state.multivariate_normal
negative_binomial = process_state.negative_binomial
noncentral_chisquare = process_state.noncentral_chisquare
noncentral_f = process_state.noncentral_f
normal = process_state.normal
pareto = process_state.pareto
permutation = process_state.permutation
poisson = process_state.poisson
power = process_state.power
rand = process_state.rand
randint = process_state.randint
randn = process_state.randn
random = process_state.random
random_integers = process_state.random_integers
random_sample = process_state.random_sample
rayleigh = process_state.rayleigh
seed = process_state.seed
set_state = process_state.set_state
shuffle = process_state.shuffle
standard_cauchy = process_state.standard_cauchy
standard_exponential = process_state.standard_exponential
standard_gamma = process_state.standard_gamma
standard_normal = process_state.standard_normal
standard_t = process_state.standard_t
triangular = process_state.triangular
uniform = process_state.uniform
vonmises = process_state.vonmises
wald = process_state.wald
weibull = process_state.weibull
zipf = process_state.zipf
ranf = sample = random_sample


def __getattr__(name: str) -> object:
    raise not_here(__name__, name)
