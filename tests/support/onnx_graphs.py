"""Random ONNX models with operators of all classes, as hypothesis draws them."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from onnx import helper, numpy_helper

#: Of any number, bounded or nearly so: chains of them stay finite.
UNARY = "Abs Atan Cos Erf Floor Ceil Round HardSigmoid Identity Neg Relu LeakyRelu Elu Selu Sigmoid Sign Sin"
UNARY += " Softplus Softsign Tanh Celu ThresholdedRelu Shrink"
#: What came with later opsets.
LATER = {"HardSwish": 14, "Mish": 18, "Gelu": 20}
BINARY = "Add Sub Mul Max Min Mean Sum"
COMPARISONS = "Less LessOrEqual Greater GreaterOrEqual Equal"
REDUCTIONS = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSumExp"


class Growing:
    """A graph that grows by nodes that fit what is there."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.opset = draw(st.integers(13, 26))
        self.dtype = draw(st.sampled_from([np.dtype("f4"), np.dtype("f8")]))
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.shapes: dict[str, tuple[int, ...]] = {}

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op: str, inputs: list[str], *shapes: tuple[int, ...] | None, **attributes: Any) -> list[str]:
        """Add a node with an output for each shape; those without one are read by nobody."""
        number = len(self.nodes)
        names = [f"v{number}", *[f"v{number}_{i}" for i in range(1, len(shapes))]]
        self.nodes.append(helper.make_node(op, inputs, names, f"n{number}", **attributes))
        self.shapes.update({name: shape for name, shape in zip(names, shapes, strict=True) if shape is not None})
        return names

    def pick(self, rank: int = 0) -> str:
        return self.draw(st.sampled_from([name for name, shape in self.shapes.items() if len(shape) >= rank]))

    def axes(self, rank: int) -> list[int]:
        chosen = self.draw(st.sets(st.integers(0, rank - 1), min_size=1, max_size=rank))
        return [a - rank if self.draw(st.booleans()) else a for a in sorted(chosen)]

    def grow(self) -> None:
        kinds = "unary binary where compare reduce matmul transpose reshape slice concat expand pad gather softmax sums"
        kinds += " split top position gemm einsum scatter batch layer creation loss"
        getattr(self, self.draw(st.sampled_from(kinds.split())))()

    # ------------------------------------------------------------------------------------------------- the nodes

    def unary(self) -> None:
        x = self.pick()
        left = {"Celu"} if self.dtype == np.float64 else set()  # takes none
        left |= set() if self.shapes[x] else {"Softsign"}  # the reference takes none
        names = [op for op in UNARY.split() if op not in left]
        names += [op for op, since in LATER.items() if since <= self.opset]
        self.node(self.draw(st.sampled_from(names)), [x], self.shapes[x])

    def beside(self) -> tuple[str, str, tuple[int, ...]]:
        """Two arrays that broadcast: one that is there, and another or a constant of some of its axes."""
        x = self.pick()
        shape = self.shapes[x]
        same = [name for name, own in self.shapes.items() if own == shape]
        if self.draw(st.booleans()):
            return x, self.draw(st.sampled_from(same)), shape
        own = tuple(n if self.draw(st.booleans()) else 1 for n in shape)[self.draw(st.integers(0, len(shape))) :]
        values = np.linspace(-1.5, 2, int(np.prod(own)), dtype=self.dtype).reshape(own)
        return x, self.constant(values), shape

    def binary(self) -> None:
        x, y, shape = self.beside()
        self.node(self.draw(st.sampled_from(BINARY.split())), [x, y], shape)

    def where(self) -> None:
        x, y, shape = self.beside()
        name = f"m{len(self.nodes)}"
        self.nodes.append(helper.make_node("Less", [x, y], [name]))
        self.node("Where", [name, x, y], shape)

    def compare(self) -> None:
        x, y, shape = self.beside()
        name = f"m{len(self.nodes)}"
        self.nodes.append(helper.make_node(self.draw(st.sampled_from(COMPARISONS.split())), [x, y], [name]))
        self.node("Cast", [name], shape, to=helper.np_dtype_to_tensor_dtype(self.dtype))

    def reduce(self) -> None:
        x = self.pick(1)
        shape = self.shapes[x]
        axes, keep = self.axes(len(shape)), self.draw(st.booleans())
        gone = {a % len(shape) for a in axes}
        result = tuple(1 if a in gone else n for a, n in enumerate(shape) if keep or a not in gone)
        op = self.draw(st.sampled_from(REDUCTIONS.split()))
        if op != "ReduceSum" and self.opset < 18:
            self.node(op, [x], result, keepdims=int(keep), axes=axes)
        else:
            self.node(op, [x, self.constant(np.asarray(axes, np.int64))], result, keepdims=int(keep))

    def matmul(self) -> None:
        x = self.pick(1)
        shape = self.shapes[x]
        n = self.draw(st.integers(1, 4))
        weights = np.linspace(-0.5, 0.5, shape[-1] * n, dtype=self.dtype).reshape(shape[-1], n)
        self.node("MatMul", [x, self.constant(weights)], (*shape[:-1], n))

    def transpose(self) -> None:
        x = self.pick(1)
        shape = self.shapes[x]
        order = self.draw(st.permutations(range(len(shape))))
        self.node("Transpose", [x], tuple(shape[a] for a in order), perm=order)

    def reshape(self) -> None:
        if all(len(shape) < 2 for shape in self.shapes.values()):
            return self.expand()
        x = self.pick(2)
        shape = self.shapes[x]
        a = self.draw(st.integers(0, len(shape) - 2))
        joined = (*shape[:a], shape[a] * shape[a + 1], *shape[a + 2 :])
        wanted = [-1 if i == a else 0 if i < a else n for i, n in enumerate(joined)]
        self.node("Reshape", [x, self.constant(np.asarray(wanted, np.int64))], joined)
        return None

    def slice(self) -> None:
        x = self.pick(1)
        shape = self.shapes[x]
        axis = self.draw(st.integers(0, len(shape) - 1))
        start, stop = sorted(self.draw(st.tuples(*[st.integers(0, shape[axis])] * 2)))
        step = self.draw(st.sampled_from([1, 2, -1]))
        index = range(start, stop, step) if step > 0 else range(stop, start, step)
        chosen = range(shape[axis])[slice(index.start, index.stop, step)]
        if not len(chosen):
            return self.transpose()
        given = [self.constant(np.asarray([v], np.int64)) for v in (index.start, index.stop, axis - len(shape), step)]
        self.node("Slice", [x, *given], tuple(len(chosen) if a == axis else n for a, n in enumerate(shape)))
        return None

    def concat(self) -> None:
        x = self.pick(1)
        shape = self.shapes[x]
        axis = self.draw(st.integers(0, len(shape) - 1))
        self.node("Concat", [x, x], tuple(2 * n if a == axis else n for a, n in enumerate(shape)), axis=axis)

    def expand(self) -> None:
        x = self.pick()
        shape = (2, *self.shapes[x])
        if len(shape) <= 4:
            self.node("Expand", [x, self.constant(np.asarray(shape, np.int64))], shape)

    def pad(self) -> None:
        x = self.pick(1)
        shape = self.shapes[x]
        n = len(shape)
        widths = self.draw(st.lists(st.integers(0, 2), min_size=2 * n, max_size=2 * n))
        result = tuple(size + widths[a] + widths[n + a] for a, size in enumerate(shape))
        self.node("Pad", [x, self.constant(np.asarray(widths, np.int64)), self.constant(self.dtype.type(0.5))], result)

    def gather(self) -> None:
        x = self.pick(1)
        shape = self.shapes[x]
        axis = self.draw(st.integers(0, len(shape) - 1))
        n = shape[axis]
        at = self.draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=3))
        self.node(
            "Gather",
            [x, self.constant(np.asarray(at, np.int64))],
            (*shape[:axis], len(at), *shape[axis + 1 :]),
            axis=axis,
        )

    def softmax(self) -> None:
        x = self.pick(1)
        op = self.draw(st.sampled_from(["Softmax", "LogSoftmax"]))
        self.node(op, [x], self.shapes[x], axis=self.draw(st.integers(-1, len(self.shapes[x]) - 1)))

    def sums(self) -> None:
        x = self.pick(1)
        axis = self.constant(np.int64(self.draw(st.integers(0, len(self.shapes[x]) - 1))))
        exclusive, reverse = self.draw(st.tuples(st.integers(0, 1), st.integers(0, 1)))
        self.node("CumSum", [x, axis], self.shapes[x], exclusive=exclusive, reverse=reverse)

    # ---------------------------------------------------------- several outputs, and classes that are seldom met

    def split(self) -> None:
        x = self.pick(1)
        shape = self.shapes[x]
        axis = self.draw(st.integers(0, len(shape) - 1))
        if shape[axis] < 2:
            return self.transpose()
        first = self.draw(st.integers(1, shape[axis] - 1))
        sizes = (first, shape[axis] - first)
        made = [(*shape[:axis], n, *shape[axis + 1 :]) for n in sizes]
        self.node("Split", [x, self.constant(np.asarray(sizes, np.int64))], *made, axis=axis)
        return None

    def top(self) -> None:
        x = self.pick(1)
        *rest, n = self.shapes[x]
        k = self.draw(st.integers(1, n))
        # which of equal elements is meant depends on sums that are done in another order
        self.node("TopK", [x, self.constant(np.asarray([k], np.int64))], (*rest, k), None)

    def position(self) -> None:
        shape = self.shapes["x0"]
        axis = self.draw(st.integers(0, len(shape) - 1))
        name = f"p{len(self.nodes)}"
        op = self.draw(st.sampled_from(["ArgMax", "ArgMin"]))
        self.nodes.append(helper.make_node(op, ["x0"], [name], name, axis=axis, keepdims=0))
        element = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.node("Cast", [name], (*shape[:axis], *shape[axis + 1 :]), to=element)

    def matrix(self) -> str:
        """An array of two axes: one that is there, or the lengths of all axes but the first joined."""
        found = [name for name, shape in self.shapes.items() if len(shape) == 2]
        if found:
            return self.draw(st.sampled_from(found))
        x = self.pick()
        shape = self.shapes[x]
        (name,) = self.node("Flatten", [x], (int(np.prod(shape[:1])), int(np.prod(shape[1:]))))
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(np.linspace(-0.5, 0.75, int(np.prod(shape)), dtype=self.dtype).reshape(shape))

    def gemm(self) -> None:
        x = self.matrix()
        turned, n = self.draw(st.booleans()), self.draw(st.integers(1, 4))
        m, k = self.shapes[x][::-1] if turned else self.shapes[x]
        beside = [self.weights(n)] if self.draw(st.booleans()) else []
        self.node("Gemm", [x, self.weights(n, k), *beside], (m, n), transA=int(turned), transB=1, alpha=0.5)

    def einsum(self) -> None:
        x = self.matrix()
        m, k = self.shapes[x]
        self.node("Einsum", [x, self.weights(3, k)], (3, m), equation="ab,cb->ca")

    def scatter(self) -> None:
        x = self.pick(1)
        shape = self.shapes[x]
        at = np.zeros((*shape[:-1], 1), np.int64)
        self.node("ScatterElements", [x, self.constant(at), self.weights(*at.shape)], shape, axis=-1)

    def batch(self) -> None:
        if self.opset < 14:  # the reference has another formula there than ONNX
            return self.gemm()
        x = self.matrix()
        n = self.shapes[x][1]
        variance = self.constant(np.linspace(0.5, 2, n, dtype=self.dtype))
        inputs = [x, *[self.weights(n) for _ in range(3)], variance]
        self.node("BatchNormalization", inputs, self.shapes[x])
        return None

    def layer(self) -> None:
        if self.opset < 17:
            return self.softmax()
        x = self.pick(1)
        self.node("LayerNormalization", [x, self.weights(self.shapes[x][-1])], self.shapes[x])
        return None

    def creation(self) -> None:
        x = self.matrix()
        shape = self.shapes[x]
        if self.draw(st.booleans()):
            self.node("EyeLike", [x], shape, k=self.draw(st.integers(-1, 1)))
        else:
            value = numpy_helper.from_array(np.asarray([0.5], self.dtype))
            self.node("ConstantOfShape", [self.constant(np.asarray(shape, np.int64))], shape, value=value)

    def loss(self) -> None:
        x = self.matrix()
        n, classes = self.shapes[x]
        labels = self.constant(np.arange(n) % classes)
        how = self.draw(st.sampled_from(["mean", "sum", "none"]))
        self.node("SoftmaxCrossEntropyLoss", [x, labels], (n,) if how == "none" else (), reduction=how)


@st.composite
def models(draw: Any) -> tuple[Any, dict[str, Any]]:
    graph = Growing(draw)
    feeds = {}
    for i in range(draw(st.integers(1, 2))):
        shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
        feeds[f"x{i}"] = np.random.default_rng(i).standard_normal(shape).astype(graph.dtype)
        graph.shapes[f"x{i}"] = shape
    for _ in range(draw(st.integers(1, 7))):
        graph.grow()
    made = [name for name in graph.shapes if name not in feeds] or [*feeds]
    element = helper.np_dtype_to_tensor_dtype(graph.dtype)
    inputs = [helper.make_tensor_value_info(n, element, x.shape) for n, x in feeds.items()]
    outputs = [helper.make_tensor_value_info(n, element, graph.shapes[n]) for n in made]
    proto = helper.make_graph(graph.nodes, "random", inputs, outputs, graph.constants)
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", graph.opset)]), feeds
