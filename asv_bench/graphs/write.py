"""Graph files of the workloads beside this script: ``python asv_bench/graphs/write.py`` writes them.

They are what ``python -m distarray plan`` takes; a test asks whether they are up to date.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from distarray.testing import eingraphs

HERE = Path(__file__).parent

Json = dict[str, Any]
#: heads, width of a head, inner layer: of the LLaMA models with 7 and 65 billion weights.
LLAMA = {"7b": {"h": 32, "d": 128, "m": 11008}, "65b": {"h": 64, "d": 128, "m": 22016}}


def graphs() -> dict[str, Json]:
    """Every workload, by the name of its file."""
    made: dict[str, Json] = {}
    for s in (8000, 12000, 16000, 32000):
        # 12000 is there for 6 workers
        p, parts = (6, {"parts": "any"}) if s == 12000 else (8, {})
        for kind in ("square", "skew"):
            made[f"exp1_{kind}_{s}"] = {**eingraphs.matrix_chain(s, p, skew=kind == "skew"), **parts}
    for b in (128, 512):
        for f in (8192, 65536, 597540):
            made[f"ffnn_forward_b{b}_f{f}"] = eingraphs.ffnn(b, f, forward=True)
            made[f"ffnn_step_b{b}_f{f}"] = eingraphs.ffnn(b, f)
    for model, sizes in LLAMA.items():
        made[f"llama_{model}_block"] = eingraphs.llama(**sizes, norms=False)
        for layers in (1, 2, 4, 8):
            made[f"llama_{model}_norms_{layers}"] = eingraphs.llama(**sizes, layers=layers)
    return made | {
        "matmul_square": eingraphs.matmul(8000, 8000, 8000),
        "matmul_tall": eingraphs.matmul(262144, 1024, 1024, 16),
        "matmul_inner": eingraphs.matmul(1024, 262144, 1024, 16),
        "matmul_outer": eingraphs.matmul(32768, 64, 32768, 16),
        "attention_scores": eingraphs.scores(),
        "attention_heads": eingraphs.heads(),
        "attention_multihead": eingraphs.attention(),
        "mttkrp": eingraphs.mttkrp(),
        "ttm_chain": eingraphs.ttm_chain(),
        "gram": eingraphs.gram(),
        "matrix_powers": eingraphs.matrix_powers(),
        "chain_64": eingraphs.chain(64),
        "elementwise_100": eingraphs.elementwise(100),
    }


def as_text(graph: Json) -> str:
    """A graph as JSON with one node a line."""
    rest = {key: value for key, value in graph.items() if key != "nodes"}
    nodes = ",\n  ".join(json.dumps(node) for node in graph["nodes"])
    return f'{json.dumps(rest)[:-1]}, "nodes": [\n  {nodes}\n]}}\n'


def texts() -> dict[str, str]:
    """The text of every file, by its name."""
    return {f"{name}.json": as_text(graph) for name, graph in graphs().items()}


if __name__ == "__main__":
    for name, text in texts().items():
        (HERE / name).write_text(text)
