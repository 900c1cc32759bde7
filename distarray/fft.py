"""Fourier transforms: the array API standard's functions."""

import numpy as np

from distarray.composed.creation import fftfreq, rfftfreq
from distarray.composed.numpy_arguments import spell_module
from distarray.ops.fft import *  # noqa: F403  # the names stand once, where the functions do
from distarray.ops.fft import __all__ as _DEFERRED

__all__ = [*_DEFERRED, "fftfreq", "rfftfreq"]

spell_module(globals(), np.fft)
