"""Graphs of the workloads that EinDecomp is judged by, as the JSON of graph files.

Those of the EinDecomp paper, and what else contracts: single products, attention, tensor kernels. Sizes are those of
the paper, or given. Usual ways to cut them, to be compared with, are in `distarray.testing.labellings`.
"""

from __future__ import annotations

import random
from typing import Any

__all__ = [
    "attention",
    "chain",
    "elementwise",
    "ffnn",
    "gram",
    "heads",
    "llama",
    "matmul",
    "matrix_chain",
    "matrix_powers",
    "mttkrp",
    "random_graph",
    "scores",
    "ttm_chain",
]

Json = dict[str, Any]


def _graph(name: str, inputs: dict[str, list[int]], ops: list[tuple[str, str, list[str]]], p: int) -> Json:
    nodes: list[Json] = [{"id": i, "shape": shape} for i, shape in inputs.items()]
    nodes += [{"id": v, "expr": expr, "inputs": given} for v, expr, given in ops]
    return {"name": name, "p": p, "nodes": nodes}


def matmul(m: int, k: int, n: int, p: int = 8) -> Json:
    """Make the graph of one product."""
    return _graph("matmul", {"A": [m, k], "B": [k, n]}, [("C", "ij,jk->ik", ["A", "B"])], p)


def matrix_chain(s: int, p: int = 8, *, skew: bool = False) -> Json:
    """Return experiment 1: ``Y = (A x B) + (C x (D x E))``."""
    t = s // 10
    if skew:
        shapes = {"A": [s, t], "B": [t, s], "C": [s, t], "D": [t, 10 * s], "E": [10 * s, s]}
    else:
        shapes = {name: [s, s] for name in "ABCDE"}
    product = "ij,jk->ik"
    ops = [
        ("DE", product, ["D", "E"]),
        ("CDE", product, ["C", "DE"]),
        ("AB", product, ["A", "B"]),
        ("Y", "ij,ij->ij", ["AB", "CDE"]),
    ]
    return _graph("matrix chain", shapes, ops, p)


def chain(n: int, s: int = 4096, p: int = 8) -> Json:
    """Return a product of `n + 1` square matrices, from the left: `n` operations."""
    names = [f"A{i}" for i in range(n + 1)]
    ops = [(f"P{i}", "ij,jk->ik", ["A0" if i == 1 else f"P{i - 1}", f"A{i}"]) for i in range(1, n + 1)]
    return _graph("chain of products", {name: [s, s] for name in names}, ops, p)


def elementwise(n: int = 100, s: int = 4096, p: int = 8) -> Json:
    """Return `n` elementwise operations and reductions: rows are centred again and again, and two branches are
    added.
    """
    ops: list[tuple[str, str, list[str]]] = []
    x, before = "A", "B"
    while len(ops) < n:
        k = len(ops)
        step = [
            (f"m{k}", "ij->i", [x]), (f"d{k}", "ij,i->ij", [x, f"m{k}"]), (f"e{k}", "ij->ij", [f"d{k}"]),
            (f"s{k}", "ij,ij->ij", [f"e{k}", before]),
        ]  # fmt: skip
        ops += step[: n - k]
        x, before = f"s{k}", f"d{k}"
    return _graph("elementwise and reductions", {"A": [s, s], "B": [s, s]}, ops, p)


def ffnn(b: int = 128, f: int = 8192, h: int = 8192, o: int = 14588, p: int = 4, *, forward: bool = False) -> Json:
    """Return experiment 2: a training step of a network with one hidden layer; updated weights keep their layout.

    Parameters
    ----------
    forward
        Only the result of the network.
    """
    shapes = {"X": [b, f], "W1": [f, h], "W2": [h, o], "T": [b, o]}
    ops = [("Z1", "bf,fh->bh", ["X", "W1"]), ("H", "bh->bh", ["Z1"]), ("Z2", "bh,ho->bo", ["H", "W2"])]
    if forward:
        del shapes["T"]
        return _graph("ffnn forward", shapes, ops, p)
    ops += [
        ("dZ2", "bo,bo->bo", ["Z2", "T"]), ("dW2", "bh,bo->ho", ["H", "dZ2"]), ("dH", "bo,ho->bh", ["dZ2", "W2"]),
        ("dZ1", "bh,bh->bh", ["dH", "Z1"]), ("dW1", "bf,bh->fh", ["X", "dZ1"]), ("W1n", "fh,fh->fh", ["W1", "dW1"]),
        ("W2n", "ho,ho->ho", ["W2", "dW2"]),
    ]  # fmt: skip
    return {**_graph("ffnn", shapes, ops, p), "equal": [["W1", "W1n"], ["W2", "W2n"]]}


def attention(s: int = 4096, h: int = 32, d: int = 128, a: int = 4096, p: int = 8) -> Json:
    """Make the graph of multi-head attention with softmax."""
    shapes = {"x": [s, a], "wq": [a, h, d], "wk": [a, h, d], "wv": [a, h, d], "wo": [a, h, d]}
    ops = [(name, "sa,ahd->shd", ["x", f"w{name}"]) for name in "qkv"]
    ops += [("S", "shd,thd->hst", ["q", "k"]), *_softmax("S", "hst", "hs")]
    ops += [("o", "hst,thd->shd", ["Y_S", "v"]), ("out", "shd,ahd->sa", ["o", "wo"])]
    return _graph("attention", shapes, ops, p)


def heads(b: int = 1, h: int = 8, s: int = 16384, d: int = 128, p: int = 8) -> Json:
    """Return attention on queries, keys and values that are there, for several heads, with scale and softmax."""
    shapes = {name: [b, h, s, d] for name in "QKV"}
    ops = [("S", "bhsd,bhtd->bhst", ["Q", "K"]), ("Z", "bhst->bhst", ["S"]), *_softmax("Z", "bhst", "bhs")]
    ops.append(("O", "bhst,bhtd->bhsd", ["Y_Z", "V"]))
    return _graph("attention of heads", shapes, ops, p)


def scores(s: int = 16384, d: int = 128, p: int = 8) -> Json:
    """Return the scores of attention: one product."""
    return _graph("attention scores", {"Q": [s, d], "K": [s, d]}, [("S", "sd,td->st", ["Q", "K"])], p)


def mttkrp(i: int = 1024, j: int = 1024, k: int = 1024, r: int = 32, p: int = 8) -> Json:
    """Return a matricised tensor times a Khatri-Rao product: one operation on three inputs."""
    shapes = {"T": [i, j, k], "B": [j, r], "C": [k, r]}
    return _graph("mttkrp", shapes, [("M", "ijk,jr,kr->ir", ["T", "B", "C"])], p)


def ttm_chain(n: int = 512, r: int = 64, p: int = 8) -> Json:
    """Return a tensor of three dimensions times a matrix along each: the core of a Tucker decomposition."""
    shapes = {"T": [n, n, n], "U": [n, r], "V": [n, r], "W": [n, r]}
    ops = [("X", "ijk,ia->ajk", ["T", "U"]), ("Y", "ajk,jb->abk", ["X", "V"]), ("Z", "abk,kc->abc", ["Y", "W"])]
    return _graph("ttm chain", shapes, ops, p)


def gram(n: int = 1_048_576, m: int = 1024, p: int = 8) -> Json:
    """Return a tall matrix times itself: one operation that reads an input twice."""
    return _graph("gram", {"A": [n, m]}, [("G", "ki,kj->ij", ["A", "A"])], p)


def matrix_powers(s: int = 8192, n: int = 3, p: int = 8) -> Json:
    """Return ``A``, ``A^2``, ``A^4``, .. by `n` squarings, and their sum: results that several operations read."""
    names = ["A", *[f"A{2**k}" for k in range(1, n + 1)]]
    ops = [(names[k], "ij,jk->ik", [names[k - 1]] * 2) for k in range(1, n + 1)]
    total = "A"
    for name in names[1:]:
        ops.append((f"S_{name}", "ij,ij->ij", [total, name]))
        total = f"S_{name}"
    return _graph("matrix powers", {"A": [s, s]}, ops, p)


def _softmax(x: str, labels: str, rest: str) -> list[tuple[str, str, list[str]]]:
    return [
        (f"C_{x}", f"{labels}->{rest}", [x]), (f"D_{x}", f"{labels},{rest}->{labels}", [x, f"C_{x}"]),
        (f"E_{x}", f"{labels}->{labels}", [f"D_{x}"]), (f"R_{x}", f"{labels}->{rest}", [f"E_{x}"]),
        (f"Y_{x}", f"{labels},{rest}->{labels}", [f"E_{x}", f"R_{x}"]),
    ]  # fmt: skip


def llama(
    b: int = 4, s: int = 4096, h: int = 32, d: int = 128, m: int = 11008, *, layers: int = 1, norms: bool = True,
    p: int = 8,
) -> Json:  # fmt: skip
    """Return experiment 3: blocks of a LLaMA model (7B by default) on a whole prompt: 19 operations, or 25 with
    norms.
    """
    shapes: dict[str, list[int]] = {"x0": [b, s, h, d]}
    ops: list[tuple[str, str, list[str]]] = []

    def norm(x: str, at: str, weight: str) -> str:
        shapes[weight] = [h, d]
        ops.extend(
            [
                (f"{at}_m", "bshd->bs", [x]), (f"{at}_d", "bshd,bs->bshd", [x, f"{at}_m"]),
                (f"{at}_n", "bshd,hd->bshd", [f"{at}_d", weight]),
            ]
        )  # fmt: skip
        return f"{at}_n"

    x = "x0"
    for layer in range(layers):

        def named(name: str, layer: int = layer) -> str:
            return f"{name}{layer}"

        for w in ("wq", "wk", "wv", "wo"):
            shapes[named(w)] = [h, d, h, d]
        shapes |= {named("w1"): [m, h, d], named("w3"): [m, h, d], named("w2"): [h, d, m]}
        y = norm(x, named("na"), named("ga")) if norms else x
        ops += [(named(v), "bsef,hdef->bshd", [y, named(f"w{v}")]) for v in "qkv"]
        score, scaled = named("S"), named("Z")
        ops += [(score, "bshd,bthd->bhst", [named("q"), named("k")]), (scaled, "bhst->bhst", [score])]
        ops += _softmax(scaled, "bhst", "bhs")
        ops += [
            (named("o"), "bhst,bthd->bshd", [f"Y_{scaled}", named("v")]),
            (named("wo_"), "bsef,hdef->bshd", [named("o"), named("wo")]),
            (named("r1_"), "bshd,bshd->bshd", [x, named("wo_")]),
        ]
        y = norm(named("r1_"), named("nf"), named("gf")) if norms else named("r1_")
        ops += [
            (named("g"), "bshd,mhd->bsm", [y, named("w1")]), (named("u"), "bshd,mhd->bsm", [y, named("w3")]),
            (named("a"), "bsm->bsm", [named("g")]), (named("m"), "bsm,bsm->bsm", [named("a"), named("u")]),
            (named("dn"), "bsm,hdm->bshd", [named("m"), named("w2")]),
            (named("r2_"), "bshd,bshd->bshd", [named("r1_"), named("dn")]),
        ]  # fmt: skip
        x = named("r2_")
    return _graph("llama", shapes, ops, p)


def random_graph(rng: random.Random, n_ops: int, p: int) -> Json:
    """Return a small directed graph of products, elementwise operations, reductions and transposes, operands
    repeated.
    """
    extents = [rng.choice((p, 2 * p, 3 * p, 6)) for _ in range(3)]
    nodes: list[Json] = []
    shapes: dict[str, list[int]] = {}
    for k in range(3):
        shape = [rng.choice(extents), rng.choice(extents)]
        node: Json = {"id": f"x{k}", "shape": shape}
        if rng.random() < 0.3:
            node["layout"] = [rng.choice([q for q in range(1, n + 1) if n % q == 0]) for n in shape]
        nodes.append(node)
        shapes[node["id"]] = shape
    for k in range(n_ops):
        name = f"v{k}"
        a = rng.choice(list(shapes)[-4:])
        m = shapes[a]
        kind = rng.choice(["product", "sum", "transpose", "pair", "self"])
        fitting = [b for b, n in shapes.items() if len(m) == 2 and len(n) == 2 and n[0] == m[1]]
        same = [b for b, n in shapes.items() if n == m]
        if kind == "product" and fitting:
            b = rng.choice(fitting)
            expr, given, shape = "ij,jk->ik", [a, b], [m[0], shapes[b][1]]
        elif kind == "sum" and len(m) == 2:
            expr, given, shape = "ij->i", [a], m[:1]
        elif kind == "transpose" and len(m) == 2:
            expr, given, shape = "ij->ji", [a], m[::-1]
        else:
            b = a if kind == "self" else rng.choice(same)
            labels = "ij"[: len(m)]
            expr, given, shape = f"{labels},{labels}->{labels}", [a, b], m
        nodes.append({"id": name, "expr": expr, "inputs": given})
        shapes[name] = shape
    return {"name": "random", "p": p, "parts": "any", "nodes": nodes}
