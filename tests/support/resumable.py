"""A program that saves its state every few steps and goes on from it: ``python resumable.py PATH STEPS EVERY [told]``.

It prints the step and the bits of its state where its loop begins, where it ends, and, if it is told to, after each
save. It is run as a process, to be killed with its workers.
"""

from __future__ import annotations

import sys
from hashlib import blake2b
from typing import Any

import numpy as np

import distarray as dx

SHAPE = 240, 64


def first_state() -> dict[str, Any]:
    rng = dx.random.default_rng(5)
    return {
        "x": rng.standard_normal(SHAPE, sharding=(dx.current_team().axes, None)),
        "seen": dx.zeros(SHAPE[1], dtype="i8"),
        "rng": rng,
        "step": 0,
    }


def stepped(x: Any, seen: Any, rng: Any, step: int) -> dict[str, Any]:
    """Return the state after one step: stencil, random numbers, a write into a view, and reductions across the cut."""
    x = 0.9 * x + 0.05 * (dx.roll(x, 1, axis=0) + dx.roll(x, -1, axis=0))
    x = x - 0.01 * x.mean(axis=0)
    x[step % SHAPE[0] :: 7] += rng.standard_normal(SHAPE[1])
    seen = seen + (x > x.max(axis=0) * 0.5).sum(axis=0)
    return {"x": x, "seen": seen, "rng": rng, "step": step + 1}


def digest(state: dict[str, Any]) -> str:
    """Return the bits of a state as a short text."""
    host = [np.asarray(state[name]).tobytes() for name in ("x", "seen")]
    return blake2b(b"".join(host) + repr(state["rng"].bit_generator.state).encode(), digest_size=8).hexdigest()


def say(word: str, state: dict[str, Any]) -> None:
    sys.stdout.write(f"{word} {state['step']} {digest(state)}\n")
    sys.stdout.flush()


def run(path: str, n_steps: int, every: int, is_told: bool) -> None:
    try:
        state = dx.load_state(path)
    except FileNotFoundError:
        state = first_state()
    say("at", state)
    while state["step"] < n_steps:
        state = stepped(**state)
        if state["step"] % every == 0:
            dx.save_state(path, **state)
            if is_told:
                say("at", state)
    say("end", state)


if __name__ == "__main__":
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, memory_limit="512MiB"
        ) as cluster,
        distributed.Client(cluster),
        dx.config.set(planner="propagation", block_bytes=4096),  # else work that is so small runs at one worker
    ):
        run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:] == ["told"])
