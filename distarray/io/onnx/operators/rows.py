"""All rows: what each operator of ONNX is of this package.

What is in no table runs as the function that its schema is, or by a kernel of ``onnx.reference``.
"""

from distarray.io.onnx.operators import (
    contractions,
    control_flow,
    creation,
    elementwise,
    movement,
    pooling,
    reductions,
)
from distarray.io.onnx.operators.call import Row

ROWS: dict[str, Row] = {
    **elementwise.ROWS,
    **reductions.ROWS,
    **pooling.ROWS,
    **contractions.ROWS,
    **movement.ROWS,
    **creation.ROWS,
    **control_flow.ROWS,
}
