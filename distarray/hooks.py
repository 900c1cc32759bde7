"""What lower layers ask of higher ones: imports go down only, and these are all the calls that go up.

A lower layer asks ``hooks.adopt()``. A layer that knows the answer assigns it, once, where it is imported: the comment
names the file. None: no such layer is loaded, and who asks says what holds then. Types are those of the layer that
answers, hence ``Any`` here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

# ------------------------------------------------------------ sharding asks, runtime answers: `array/environment.py`

#: Who the members of a new team are: from (the client that the user named or None, members wanted, None for all that
#: there are) to (the client to use or None, members in rank order).
resolve_members: Callable[[Any, int | None], tuple[Any, tuple[Any, ...]]] | None = None
#: How a client is called in a pickle; None if it has no name and stays behind.
name_client: Callable[[Any], Any] | None = None
#: The client of such a name where the pickle arrives, or None.
find_client: Callable[[Any], Any] | None = None
#: Of a team that follows a cluster and came in a pickle, the one that its client here has if that is the same, else the
#: team itself.
known_following: Callable[[Any], Any] | None = None

# ------------------------------------------------------------------------------------ expr asks, runtime answers

#: Whether an array, given by its node, is larger than the memory of its members. `runtime/retention.py`.
is_beyond_memory: Callable[[Any], bool] | None = None

#: Whether a look at a part of a pending array, given by its node, is to make what makes this part (the second node)
#: alone. `runtime/retention.py`.
is_made_apart: Callable[[Any, Any], bool] | None = None

# --------------------------------------------------------------------------------- kernels ask, runtime answers

#: Who helps with the kernels of this thread (`kernels.threads.Helpers`), or None. `runtime/permits.py`.
find_helpers: Callable[[], Any] | None = None
#: Whether this process compiles what comes often (`kernels.compiler`). `runtime/memory.py`.
may_compile: Callable[[], bool] | None = None

# -------------------------------------------------------------------------- expr, ops and runtime ask, array answers

#: Where operations on host data alone take place: (environment, how their results are boxed). `array/array.py`.
adopt: Callable[[], tuple[Any, Callable[[Any], Any]]] | None = None
#: An elementwise operation, and a function of arrays, on small arrays that are here: computed and boxed; None where it
#: has to wait. From the operation, its arguments and static parameters; from the function, its arrays, its other
#: arguments and its options. `array/at_call.py`.
map_at_call: Callable[..., Any] | None = None
call_at_call: Callable[..., Any] | None = None
#: The same of an elementwise operation whose result goes into an array: whether that was done, from the operation,
#: its operands and the array. `array/at_call.py`.
update_at_call: Callable[..., bool] | None = None
#: The same of a function of numpy's that moves elements or counts: from it, its arguments, options, and what bounds its
#: result. `array/by_numpy.py`.
call_by_numpy: Callable[..., Any] | None = None
#: Whether an array of an environment that a handle of this thread refers to waits for somebody to look at it.
#: `array/window.py`.
is_waiting: Callable[[Any], bool] | None = None
#: Operands of several environments in one, where they go by themselves; None if they do not. From the arguments, their
#: nodes, and the environment if it is settled, to (the nodes there, that environment). `array/following.py`.
meet: Callable[[Any, Any, Any], tuple[list[Any], Any] | None] | None = None
#: A context in which what is new is made in an environment. `array/environment.py`.
within: Callable[[Any], AbstractContextManager[None]] | None = None
#: Runs a program that asks for values (`ops.programs`), given its name, and returns what it made. `array/array.py`.
drive: Callable[[str, Any], Any] | None = None
#: What the steps of a contraction order cost in an objective: ``paper``, elements moved; ``time``, predicted seconds.
#: `array/array.py`.
planned_cost: Callable[[Any, Any, Any], float] | None = None
#: Called when blocks that are waited for turn out to have failed on a cluster. `array/window.py`.
on_failure: Callable[[], None] | None = None
#: The environment in which new arrays on a device are made. `array/environment.py`.
new_arrays_environment: Callable[[str], Any] | None = None

# ------------------------------------------------------------------------------------ expr asks, io answers

#: The node, in an environment, of data of others that are read by tasks (memory maps above ``literal-max-bytes``, dask
#: arrays); None if this process reads them at the call. `__init__.py`.
lazily_read: Callable[[Any, Any], Any] | None = None

# ------------------------------------------------------------------------------- expr and array ask, composed answers

#: Nested sequences that hold arrays with axes, as one array, boxed; None of all else. `__init__.py`.
nested: Callable[[Any], Any] | None = None
#: The module whose ``array_ufunc`` and ``array_function`` call the functions that numpy's are on arrays; it is loaded
#: when numpy asks for the first time. `__init__.py`.
numpy_protocol: Callable[[], Any] | None = None
