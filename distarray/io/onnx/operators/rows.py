"""All rows: what each operator of ONNX is of this package.

What is in no table runs as the function that its schema is, or by a kernel of ``onnx.reference``.
"""

from distarray.io.onnx.operators import (
    along_axis,
    contractions,
    control_flow,
    creation,
    elementwise,
    max_roi_pool,
    movement,
    normalization,
    pooling,
    reductions,
    resize,
    sequences,
)
from distarray.io.onnx.operators.call import Row

ROWS: dict[str, Row] = {
    **elementwise.ROWS,
    **reductions.ROWS,
    **along_axis.ROWS,
    **normalization.ROWS,
    **pooling.ROWS,
    **contractions.ROWS,
    **movement.ROWS,
    **resize.ROWS,
    **max_roi_pool.ROWS,
    **creation.ROWS,
    **sequences.ROWS,
    **control_flow.ROWS,
}
