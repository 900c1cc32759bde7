"""Handwritten digits, from raw pixels to a classifier: one text for numpy, for threads and for a cluster.

    python docs/examples/classify.py              # distarray on the threads of this process
    python docs/examples/classify.py --cluster 4  # distarray on a Dask cluster of four worker processes
    python docs/examples/classify.py --numpy      # the same text with numpy

1797 images of 8 x 8 pixels are standardised, turned to their principal components, grouped by k-means without
looking at the labels, and told apart by logistic regression (Newton's method, one digit against the rest, all ten at
once). `run` is plain numpy: in-place updates, views, masks, ``while`` loops on a number. All three print the same
figures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data" / "digits.csv.gz"

#: Called after each iteration with the name of the loop and its number: ``on_step("kmeans", 3)``.
OnStep = Callable[[str, int], None]


def load(path: Path = DATA) -> tuple[np.ndarray, np.ndarray]:
    """Pixels ``f64[1797, 64]`` and labels ``i64[1797]``."""
    table = np.loadtxt(path, delimiter=",")
    return table[:, :-1], table[:, -1].astype(np.int64)


def standardise(xp: Any, x: Any) -> int:
    """Give each column of `x` mean 0 and deviation 1, in place; columns that never vary become 0.

    Returns the number of columns that vary.
    """
    x -= x.mean(axis=0)
    scale = x.std(axis=0)
    constant = scale == 0
    scale[constant] = 1.0
    x /= scale
    return int(xp.count_nonzero(~constant))


def principal_components(xp: Any, x: Any, k: int) -> tuple[Any, Any]:
    """Directions ``(columns, k)`` of largest variance of the centred `x`, and the share of the variance of each."""
    covariance = x.T @ x / (x.shape[0] - 1)
    values, vectors = xp.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]  # eigh sorts upwards
    share = values[:k] / values.sum()
    directions = vectors[:, :k].copy()
    # An eigenvector has no sign of its own: let its largest entry be positive.
    largest = xp.argmax(xp.abs(directions), axis=0)
    directions *= xp.sign(directions[largest, xp.arange(k)])
    return directions, share


def squared_distances(xp: Any, x: Any, centres: Any) -> Any:
    """``|x - c|^2`` for every row of `x` and every row of `centres`."""
    return (x * x).sum(axis=1)[:, None] - 2.0 * (x @ centres.T) + (centres * centres).sum(axis=1)


def kmeans(xp: Any, x: Any, k: int, tol: float, on_step: OnStep) -> tuple[Any, Any, int]:
    """Centres ``(k, columns)``, the label of each row, and the iterations that Lloyd's algorithm took."""
    centres = x[:k].copy()
    shift, step = tol + 1.0, 0
    while shift > tol:
        label = xp.argmin(squared_distances(xp, x, centres), axis=1)
        member = (label[:, None] == xp.arange(k)).astype(x.dtype)
        counts = member.sum(axis=0)
        filled = (counts > 0)[:, None]
        moved = xp.where(filled, (member.T @ x) / xp.maximum(counts, 1.0)[:, None], centres)
        shift = float(xp.max(xp.linalg.vector_norm(moved - centres, axis=1)))
        centres[...] = moved
        step += 1
        on_step("kmeans", step)
    label = xp.argmin(squared_distances(xp, x, centres), axis=1)
    return centres, label, step


def one_hot(xp: Any, label: Any, k: int) -> Any:
    """Row r is the unit vector of ``label[r]``."""
    return xp.take(xp.eye(k), label, axis=0)


def with_bias(xp: Any, x: Any) -> Any:
    """`x` with a column of ones before it."""
    out = xp.ones((x.shape[0], x.shape[1] + 1))
    out[:, 1:] = x
    return out


def sigmoid(xp: Any, z: Any) -> Any:
    return 1.0 / (1.0 + xp.exp(-z))


def logistic(xp: Any, x: Any, y: Any, ridge: float, tol: float, on_step: OnStep) -> tuple[Any, float, int]:
    """Weights ``(classes, columns)`` of one-against-the-rest logistic regression by Newton's method.

    Parameters
    ----------
    x
        Rows with a leading column of ones, which the ridge leaves alone.
    y
        The classes of the rows, one-hot.

    Returns
    -------
    tuple
        The weights, the mean loss at them, and the Newton steps taken.
    """
    penalty = ridge * xp.eye(x.shape[1])
    penalty[0, 0] = 0.0
    t = xp.zeros((y.shape[1], x.shape[1]))
    change, step = tol + 1.0, 0
    while change > tol:
        p = sigmoid(xp, x @ t.T)
        gradient = (p - y).T @ x
        gradient[:, 1:] += ridge * t[:, 1:]
        hessian = xp.einsum("nk,ni,nj->kij", p * (1.0 - p), x, x)
        hessian += penalty
        delta = xp.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        t -= delta
        change = float(xp.max(xp.abs(delta)))
        step += 1
        on_step("newton", step)
    z = x @ t.T
    # log(1 + exp(-|z|)) + max(z, 0) - y z is the loss of one row and class, without overflow.
    loss = xp.log1p(xp.exp(-xp.abs(z))) + xp.maximum(z, 0.0) - y * z
    return t, float(loss.sum(axis=1).mean()), step


def run(
    xp: Any,
    pixels: np.ndarray,
    digits: np.ndarray,
    on_step: OnStep = lambda name, step: None,
    explain: bool = False,
) -> dict[str, Any]:
    """All figures of the example, computed in the namespace `xp`.

    Parameters
    ----------
    xp
        ``numpy`` or ``distarray``.
    pixels, digits
        As `load` returns them.
    on_step
        Called after each iteration of k-means and of Newton's method.
    explain
        Say also how the test images are classified and counted (distarray only).

    Returns
    -------
    dict
        Python numbers and lists of them by name; with `explain` also the text ``"explanation"``.
    """
    x = xp.asarray(pixels, copy=True)
    digit = xp.asarray(digits)
    classes = int(digit.max()) + 1

    varying = standardise(xp, x)
    directions, share = principal_components(xp, x, 20)
    scores = x @ directions

    centres, label, rounds = kmeans(xp, scores, classes, 1e-9, on_step)
    inertia = squared_distances(xp, scores, centres).min(axis=1).sum()
    found = one_hot(xp, label, classes).T @ one_hot(xp, digit, classes)  # rows are clusters, columns are digits
    purity = found.max(axis=1).sum() / found.sum()

    design = with_bias(xp, scores)
    train, test = design[::2], design[1::2]
    weights, loss, steps = logistic(xp, train, one_hot(xp, digit[::2], classes), 1.0, 1e-8, on_step)
    guess = xp.argmax(test @ weights.T, axis=1)
    right = guess == digit[1::2]
    confusion = one_hot(xp, digit[1::2], classes).T @ one_hot(xp, guess, classes)
    hardest = xp.asarray(pixels)[1::2][~right]  # the images that were taken for another digit
    figures = {
        "rows": x.shape[0],
        "columns_that_vary": varying,
        "variance_share": share.tolist(),
        "score_deviation": scores.std(axis=0).tolist(),
        "kmeans_iterations": rounds,
        "kmeans_inertia": float(inertia),
        "kmeans_sizes": xp.count_nonzero(label[:, None] == xp.arange(classes), axis=0).tolist(),
        "kmeans_purity": float(purity),
        "centre_norms": xp.linalg.vector_norm(centres, axis=1).tolist(),
        "newton_steps": steps,
        "train_loss": loss,
        "weight_norms": xp.linalg.vector_norm(weights, axis=1).tolist(),
        "test_accuracy": float(right.mean()),
        "mistaken_images": hardest.shape[0],
        "mistaken_ink": float(hardest.mean()),
        "recall": (confusion.diagonal() / confusion.sum(axis=1)).tolist(),
        "confusion": confusion.tolist(),
    }
    if explain:
        hits = xp.count_nonzero(xp.argmax(test @ weights.T, axis=1) == digit[1::2])
        figures["explanation"] = str(hits.explain())
    return figures


def report(figures: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [
        f"images {figures['rows']}, pixels that vary {figures['columns_that_vary']}",
        "variance of the first components  " + " ".join(f"{v:.10f}" for v in figures["variance_share"][:4]),
        f"k-means   iterations {figures['kmeans_iterations']}, inertia {figures['kmeans_inertia']:.8f}, "
        f"purity {figures['kmeans_purity']:.10f}",
        f"logistic  Newton steps {figures['newton_steps']}, loss {figures['train_loss']:.12f}, "
        f"accuracy on the other half {figures['test_accuracy']:.10f}",
        "",
        "digit  recall        taken for 0  1  2  3  4  5  6  7  8  9",
    ]
    for digit, (recall, row) in enumerate(zip(figures["recall"], figures["confusion"], strict=True)):
        lines.append(f"{digit:5d}  {recall:.8f}  " + " " * 9 + " ".join(f"{int(n):2d}" for n in row))
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--numpy", action="store_true", help="run the same text with numpy")
    where.add_argument("--cluster", type=int, metavar="N", help="on a local Dask cluster of N worker processes")
    parser.add_argument(
        "--block-bytes", type=int, default=64 * 1024, help="arrays up to this size are one block (default %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, with all digits")
    args = parser.parse_args(argv)

    pixels, digits = load()
    if args.numpy:
        figures = run(np, pixels, digits)
    else:
        import distarray as dx

        # The images are 0.9 MB: without this they would be one block, and there would be nothing to distribute.
        with dx.config.set(block_bytes=args.block_bytes):
            if args.cluster:
                from dask.distributed import Client, LocalCluster

                cluster = LocalCluster(n_workers=args.cluster, threads_per_worker=1, dashboard_address=":0")
                with cluster, Client(cluster):
                    figures = run(dx, pixels, digits, explain=True)
            else:
                figures = run(dx, pixels, digits, explain=True)
    explanation = figures.pop("explanation", None)
    print(report(figures))
    if explanation:
        print(f"\nHow the test images are classified and counted:\n\n{explanation}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
