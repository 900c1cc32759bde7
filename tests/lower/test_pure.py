"""Planning and lowering are pure: they run where Dask cannot be imported, on members that are made up."""

import subprocess
import sys
from pathlib import Path

import distarray

WITHOUT_DASK = """
import importlib, pkgutil, sys, types

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("dask", "distributed", "cupy"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
package = types.ModuleType("distarray")  # without its __init__, which is the public namespace
package.__path__ = [PATH]
sys.modules["distarray"] = package
n = 0
for layer in ("sharding", "expr", "planner", "kernels", "lower"):
    layer = importlib.import_module(f"distarray.{layer}")
    for found in pkgutil.walk_packages(layer.__path__, layer.__name__ + "."):
        if not found.name.endswith("cupy_backend"):
            importlib.import_module(found.name)
            n += 1
assert n > 100, n

import numpy as np
from distarray.expr.bind import bind_get, bind_map, bind_reduce
from distarray.expr.expr import Environment, Expr, Stored, source
from distarray.expr.affine import Affine
from distarray.expr.op import declare
from distarray.lower.lower import PASSES, lower
from distarray.lower.site import Site
from distarray.planner.graph import canonical
from distarray.planner.plan import Limits
from distarray.planner.propagation import propagate
from distarray.planner.rates import Rates
from distarray.sharding.sharding import Sharding
from distarray.sharding.team import Team

team = Team((3,), ("T",), members=("a", "b", "c"))
env = Environment(team)
rows = Sharding(team.mesh, (("T",), ()))
stored = source(np.zeros((7, 4)), env)
stored.memo = Stored(rows, [("block", t) for t in range(3)])
add, total = declare("add", "map"), declare("sum", "reduce", monoid="sum")
turned = bind_get(stored, Affine.identity((7, 4)).flipped((0,)))
made = bind_map(add, [turned, stored])
result = bind_reduce(total, made, (0,), np.dtype(float))
order = [stored, turned, made, result]
graph = canonical(order, {id(result)}, "context")
limits = Limits(1 << 20, 1 << 20, 1 << 24)
plan = propagate(graph, env, limits)
for is_cluster in (False, True):
    template = lower(plan, graph, env, Site(is_cluster, 1 << 24, 1 << 20, Rates()), {}, {})
    kinds = [recipe.kind for recipe in template.recipes.values()]
    assert kinds.count("tile") == 3 and "combine" in kinds, kinds
    assert {template.lowered.members[key] for key in template.recipes} == {0, 1, 2}
    assert bool(template.lowered.transfers)
assert set(PASSES) >= {"program", "contract", "block", "take", "take_put", "reshape"}
assert "dask" not in sys.modules
print("pure")
"""


def test_planning_and_lowering_need_no_dask() -> None:
    code = WITHOUT_DASK.replace("PATH", repr(str(Path(distarray.__file__).parent)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "pure"
