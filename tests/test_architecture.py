"""The layers hold: who may import whom, read from the source of every module, imports inside functions included."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest
from helpers import no_garbage_collected

from distarray.composed.placing import WhereAndLayout

LEAVES = set(
    "arguments caches config deferral dtypes errors forks hooks lazy scoped tables types".split()
    + "union_find version weak".split()
)
#: Of a file, and of a function without its docstring.
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 600, 80
PURE = {"sharding", "expr", "ops", "planner", "lower"}

#: Layer -> layers it may import, besides itself. "root" is distarray/*.py that is no leaf: the public namespaces.
ALLOWED: dict[str, set[str]] = dict.fromkeys(LEAVES, LEAVES)
ALLOWED["sharding"] = LEAVES
ALLOWED["expr"] = ALLOWED["sharding"] | {"sharding"}
ALLOWED["ops"] = ALLOWED["expr"] | {"expr"}
ALLOWED["planner"] = ALLOWED["expr"] | {"expr"}
ALLOWED["kernels"] = ALLOWED["expr"] | {"expr"}
ALLOWED["lower"] = ALLOWED["planner"] | {"planner", "kernels"}
ALLOWED["runtime"] = ALLOWED["lower"] | {"lower"}
ALLOWED["diagnostics"] = ALLOWED["runtime"] | {"runtime"}
ALLOWED["array"] = ALLOWED["diagnostics"] | {"diagnostics", "ops"}
ALLOWED["composed"] = ALLOWED["array"] | {"array"}
ALLOWED["io"] = ALLOWED["composed"] | {"composed"}
ALLOWED["testing"] = ALLOWED["composed"] | {"composed"}
ALLOWED["root"] = ALLOWED["composed"] | {"composed", "io", "testing"}

#: What runs tasks and what computes on GPUs, and the layers that know them: runtime, kernels, and the adapters of io.
ENGINES = {"dask", "distributed", "cupy", "cupyx"}
ENGINE_LAYERS = {"kernels": {"cupy", "cupyx"}, "runtime": {"dask", "distributed"}, "io": ENGINES}
#: Modules elsewhere that may, each for one reason.
ENGINE_EXCEPTIONS = {
    "distarray.kernels.devices": {"distributed"},  # a worker asks which of its GPUs is its own
    "distarray.config": {"dask"},  # options live in dask.config
    "distarray.array.dask_protocol": {"dask", "distributed"},  # a DistArray is a Dask collection
}

BANNED_NAMES = {"core", "utils", "util", "common", "helpers", "helper", "misc"}
PUBLIC_NAMESPACES = {"distarray", *(f"distarray.{name}" for name in "fft linalg random special testing".split())}


@dataclass(frozen=True)
class Module:
    """A module of the package as text: nothing here is imported."""

    name: str
    source: str
    is_package: bool = False

    @property
    def layer(self) -> str:
        return layer_of(self.name)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, self.name)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))


def layer_of(name: str) -> str:
    """Layer of a dotted module name below ``distarray``."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ALLOWED and parts[1] != "root" else "root"


@cache
def read_package() -> list[Module]:
    # find_spec of a top-level name does not run it
    spec = importlib.util.find_spec("distarray")
    assert spec is not None
    assert spec.submodule_search_locations
    root = Path(spec.submodule_search_locations[0])
    modules = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules.append(Module(name, path.read_text(encoding="utf-8"), is_package))
    # A collection lets another thread run, and until Python 3.11.8 one that parses too spoils what is parsed here
    # (python/cpython#106905).
    with no_garbage_collected():
        for module in modules:
            assert module.tree
    return modules


def origin(module: Module, node: ast.ImportFrom) -> str:
    """Dotted name of what a module imports from."""
    base = node.module or ""
    if not node.level:
        return base
    package = module.name.split(".")
    above = node.level - module.is_package
    return ".".join([*package[: len(package) - above], *([base] if base else [])])


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that `module` imports anywhere in its text.

    ``from a import b`` gives ``a.b``: whether b is a module does not matter, its layer is told by the prefix.
    """
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, f"{origin(module, node)}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            target = node.args[0].value
            if called in {"import_module", "__import__"} and isinstance(target, str):
                yield node.lineno, target


def layer_violations(module: Module) -> list[str]:
    found = []
    for line, target in imports(module):
        where = f"{module.name}:{line}"
        top = target.split(".")[0]
        if top == "distarray":
            other = layer_of(target)
            if other != module.layer and other not in ALLOWED[module.layer]:
                found.append(f"{where} imports {target}: {module.layer} must not know {other}")
        elif (
            top in ENGINES
            and top not in ENGINE_LAYERS.get(module.layer, set())
            and top not in ENGINE_EXCEPTIONS.get(module.name, set())
        ):
            found.append(f"{where} imports {target}: {module.layer} must not know {top}")
    return found


def name_violations(module: Module) -> list[str]:
    return [
        f"{module.name}: {part!r} says nothing; name the file after its subject"
        for part in module.name.split(".")
        if part.strip("_") in BANNED_NAMES
    ]


#: First words of fragments: what is read of a function alone, in an editor, is a sentence about it.
FRAGMENT = re.compile(r"(A|An|As|By|For each|How|In all|Likewise|Of|Same|Than|The|What|Whether|Which|numpy's)\b")


def docstring_fragments(module: Module) -> list[str]:
    """Functions whose docstrings have no verb that says what they do, such as "Of a box."."""
    functions = [n for n in module.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [
        f"{module.name}:{n.lineno} {n.name} does not say what it does"
        for n in functions
        if FRAGMENT.match(ast.get_docstring(n) or "")
    ]


def docstring_violations(module: Module) -> list[str]:
    return [] if ast.get_docstring(module.tree) else [f"{module.name} has no docstring"]


def reassignments(module: Module) -> list[str]:
    """Names of other modules of the package that a module assigns: an import upwards that nobody sees.

    What a lower layer asks of a higher one is a name of `distarray.hooks`, which is there for it.
    """
    imported: dict[str, str] = {}
    for node in module.nodes:
        if isinstance(node, ast.Import):
            imported |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {alias.asname or alias.name: f"{origin(module, node)}.{alias.name}" for alias in node.names}
    others = {other.name for other in read_package()} - {"distarray.hooks"}
    found: list[str] = []
    for node in module.nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in [t for whole in targets for t in (whole.elts if isinstance(whole, ast.Tuple) else [whole])]:
            if isinstance(target, ast.Attribute):
                owner = imported.get(ast.unparse(target.value))
                if owner in others:
                    found.append(f"{module.name}:{target.lineno} assigns {owner}.{target.attr}")
    return found


#: What decides a node's place and plan: set when it is made, and where what is lost goes to another team.
NODE_FIELDS = {"op", "params", "pin", "dtype"}
NODE_FIELDS_SET_BY = {"distarray.expr.expr", "distarray.runtime.rehome"}


def node_changes(module: Module) -> list[str]:
    """Fields of nodes that are assigned after the node was made: another thread, or another array, may have it."""
    if module.name in NODE_FIELDS_SET_BY:
        return []
    found: list[str] = []
    for node in module.nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Attribute) and target.attr in NODE_FIELDS and ast.unparse(target.value) != "self":
                found.append(f"{module.name}:{target.lineno} assigns {ast.unparse(target)}")
    return found


def _sections(docstring: str) -> dict[str, list[str]]:
    """The names that numpydoc sections of a docstring explain, by the heading of the section."""
    found: dict[str, list[str]] = {}
    lines = docstring.splitlines()
    heading = ""
    for i, line in enumerate(lines):
        under = lines[i + 1] if i + 1 < len(lines) else ""
        if re.fullmatch(r"-{3,}", under.strip()) and line.strip():
            heading = line.strip()
            found[heading] = []
        elif heading and line and not line[0].isspace() and not re.fullmatch(r"-{3,}", line):
            found[heading] += [name.lstrip("*") for name in re.split(r",\s*", line.split(" : ")[0].strip())]
    return found


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    args = function.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    spelled = any(isinstance(d, ast.Name) and d.id == "spells_where" for d in function.decorator_list)
    return {*[arg.arg for arg in every if arg is not None], *(WhereAndLayout.__annotations__ if spelled else ())}


def _members(node: ast.ClassDef) -> set[str]:
    """Names of the fields, attributes and methods of a class, and the arguments of its constructor."""
    found: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "self":
            found.add(inner.attr)
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            found.add(inner.id)
        elif isinstance(inner, ast.FunctionDef):
            found.add(inner.name)
            if inner.name in ("__init__", "__new__"):
                found |= _arguments(inner)
    return found


def docstring_name_violations(module: Module) -> list[str]:
    """What docstrings explain and what is not there: parameters of functions, fields of classes.

    The parameters of a class whose constructor is a base's are not judged.
    """
    found: list[str] = []
    for node in module.nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        sections = _sections(ast.get_docstring(node) or "")
        if isinstance(node, ast.ClassDef):
            own = _members(node)
            is_whole = not node.bases or any(isinstance(n, ast.FunctionDef) and n.name == "__init__" for n in node.body)
            explained = [*sections.get("Attributes", ()), *(sections.get("Parameters", ()) if is_whole else ())]
        else:
            own = _arguments(node)
            explained = sections.get("Parameters", [])
        found += [f"{module.name}:{node.lineno} {node.name} has no {name}" for name in explained if name not in own]
    return found


def size_violations(module: Module) -> list[str]:
    """What is too long to be read at once: files, and functions without their docstrings."""
    n_lines = module.source.count("\n")
    found = [f"{module.name} has {n_lines} lines, over {MOST_LINES}"] if n_lines > MOST_LINES else []
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            is_explained = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            assert first.end_lineno is not None
            assert node.end_lineno is not None
            n = node.end_lineno - node.lineno + 1 - is_explained * (first.end_lineno - first.lineno + 1)
            if n > MOST_LINES_OF_A_FUNCTION:
                found.append(f"{module.name}:{node.lineno} {node.name} has {n} lines, over {MOST_LINES_OF_A_FUNCTION}")
    return found


def dunder_all_violations(module: Module) -> list[str]:
    if module.name not in PUBLIC_NAMESPACES:
        return []
    for node in module.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return []
    return [f"{module.name} is public and has no __all__"]


CHECKS = [
    layer_violations,
    name_violations,
    reassignments,
    node_changes,
    docstring_violations,
    docstring_fragments,
    docstring_name_violations,
    size_violations,
    dunder_all_violations,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_package_has_no_violations(check):
    found = [violation for module in read_package() for violation in check(module)]
    assert not found, "\n" + "\n".join(found)


def test_one_name_is_one_class():
    """Who reads `Placement`, `Problem` or `Traffic` knows which one is meant; private ones count without their dash."""
    homes: dict[str, list[str]] = {}
    for module in read_package():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), []).append(module.name)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_one_name_is_one_file_of_the_middle():
    """Three `plans` and two `traffic` stood between expressions and tasks."""
    homes: dict[str, list[str]] = {}
    for module in read_package():
        if module.layer in ("planner", "lower", "runtime") and not module.is_package:
            homes.setdefault(module.name.rsplit(".", 1)[1], []).append(module.name)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_every_module_belongs_to_a_layer():
    strays = {
        module.name
        for module in read_package()
        if module.layer == "root" and (module.name.count(".") > 1 or (module.is_package and module.name != "distarray"))
    }
    assert not strays


def test_public_namespaces_exist():
    assert {module.name for module in read_package()} >= PUBLIC_NAMESPACES


def test_layers_have_no_cycle_and_ops_and_planner_are_strangers():
    for upper, lowers in ALLOWED.items():
        for lower in lowers - LEAVES:
            assert upper not in ALLOWED[lower]
    for stranger in ("planner", "kernels", "lower", "runtime", "diagnostics"):
        assert stranger not in ALLOWED["ops"]
        assert "ops" not in ALLOWED[stranger]
    assert not PURE & set(ENGINE_LAYERS)


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Sets of two or more modules that reach each other: imports that run late or for types only count too."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        left = [start]
        while left:
            for other in edges.get(left.pop(), set()) - found:
                found.add(other)
                left.append(other)
        return found

    reaches = {name: reached(name) for name in edges}
    tangles = {tuple(sorted({a} | {b for b in reaches[a] if a in reaches.get(b, set())})) for a in edges}
    return sorted([list(names) for names in tangles if len(names) > 1])


def folder_of(name: str) -> str:
    return ".".join(name.split(".")[1:-1])


def test_files_of_a_folder_import_each_other_in_one_direction():
    modules = read_package()
    names = {module.name for module in modules}
    edges: dict[str, set[str]] = {}
    for module in modules:
        targets = {target if target in names else target.rpartition(".")[0] for _, target in imports(module)}
        edges[module.name] = {t for t in targets & names if t != module.name and folder_of(t) == folder_of(module.name)}
    assert cycles(edges) == []


def test_cycles_are_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert cycles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


VIOLATIONS = [
    ("distarray.planner.plan", "import distarray.ops.families", "planner must not know ops"),
    ("distarray.ops.fft", "from distarray.planner import plan", "ops must not know planner"),
    ("distarray.ops.fft", "from distarray import planner", "ops must not know planner"),
    ("distarray.ops.fft", "from ..lower.lower import lower", "ops must not know lower"),
    ("distarray.ops.fft", "def f():\n    from .. import array", "ops must not know array"),
    ("distarray.expr.expr", "import distarray as dx", "expr must not know root"),
    ("distarray.expr.expr", "from distarray import zeros", "expr must not know root"),
    (
        "distarray.sharding.mesh",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from distarray.expr import Expr",
        "sharding must not know expr",
    ),
    ("distarray.lower.lower", "from distarray.diagnostics import trace", "lower must not know diagnostics"),
    ("distarray.io.npy", "from distarray.testing import counting", "io must not know testing"),
    ("distarray.errors", "from distarray.sharding.mesh import Mesh", "errors must not know sharding"),
    ("distarray.planner.cost", "import dask", "planner must not know dask"),
    ("distarray.ops.sorting", "def f():\n    import cupy as cp", "ops must not know cupy"),
    ("distarray.array.array", "from distarray.composed.views import real", "array must not know composed"),
    ("distarray.array.array", "from distributed import Client", "array must not know distributed"),
    ("distarray.array.array", "import importlib\nimportlib.import_module('dask.array')", "array must not know dask"),
    ("distarray.config", "import distributed", "config must not know distributed"),
]


@pytest.mark.parametrize(("name", "source", "reason"), VIOLATIONS)
def test_violation_of_the_layers_is_found(name, source, reason):
    found = layer_violations(Module(name, source))
    assert len(found) == 1
    assert found[0].startswith(f"{name}:{source.count(chr(10)) + 1} imports")
    assert found[0].endswith(reason)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("distarray.array.array", "from distarray.ops import fft\nfrom ..diagnostics import explain"),
        ("distarray.runtime.executors", "import dask.threaded\nfrom distarray.planner.plan import Plan"),
        ("distarray.config", "import dask.config"),
        ("distarray.array.dask_protocol", "from dask.highlevelgraph import HighLevelGraph"),
        ("distarray.io.dask", "import dask.array as da"),
        ("distarray.linalg", "from distarray.array.namespace import svd"),
        ("distarray.expr.rewrite", "from distarray import config, errors\nfrom .expr import Expr\nimport numpy as np"),
    ],
)
def test_import_that_the_layers_allow_is_passed(name, source):
    assert layer_violations(Module(name, source)) == []


def test_relative_import_in_a_package_counts_from_the_package():
    assert list(imports(Module("distarray.expr", "from .op import Op", is_package=True))) == [
        (1, "distarray.expr.op.Op")
    ]
    assert list(imports(Module("distarray.expr.op", "from .expr import Expr"))) == [(1, "distarray.expr.expr.Expr")]


@pytest.mark.parametrize(
    ("check", "module"),
    [
        (name_violations, Module("distarray.planner.utils", '"""Doc."""')),
        (name_violations, Module("distarray.array._core", '"""Doc."""')),
        (docstring_violations, Module("distarray.planner.cost", "x = 1")),
        (docstring_fragments, Module("distarray.planner.cost", 'def f(box):\n    """Of a box."""')),
        (reassignments, Module("distarray.array.array", "from distarray.expr import bind\nbind.adopt = print")),
        (reassignments, Module("distarray.array.array", "from distarray.expr import bind as b\nx, b.adopt = 1, print")),
        (reassignments, Module("distarray.array.array", "from ..expr import bind\nbind.adopt = print")),
        (reassignments, Module("distarray.array.a", "import distarray.expr.bind\ndistarray.expr.bind.adopt = print")),
        (node_changes, Module("distarray.ops.a", "def f(node, cut):\n    node.pin = cut")),
        (
            docstring_name_violations,
            Module(
                "distarray.planner.cost",
                'def f(x):\n    """Doc.\n\n    Parameters\n    ----------\n    x, y\n        Text.\n    """',
            ),
        ),
        (
            docstring_name_violations,
            Module(
                "distarray.planner.cost",
                'class A:\n    """Doc.\n\n    Attributes\n    ----------\n    x\n    y\n    """\n    x: int',
            ),
        ),
        (size_violations, Module("distarray.planner.cost", "\n" * 601)),
        (size_violations, Module("distarray.planner.cost", "def f():\n" + "    x = 1\n" * 80)),
        (dunder_all_violations, Module("distarray.linalg", '"""Doc."""\nx = 1')),
    ],
)
def test_violation_of_the_house_rules_is_found(check, module):
    assert len(check(module)) == 1
    assert module.name in check(module)[0]
