"""The table of operator classes: each operator of ONNX stands in exactly one row, with the names of its schema.

Constant inputs are in `NodeFacts.attrs` under the names that stand here; ``?`` marks what may be left out, ``*`` what
may be repeated. The rules are in `loop_rules` and `movement_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType

from distarray.io.onnx import loop_rules, movement_rules
from distarray.io.onnx.forms import TensorForm
from distarray.io.onnx.node_facts import NodeFacts


@dataclass(frozen=True, slots=True)
class OperatorClass:
    """An OperatorClass is what operators have in common whose outputs follow from their inputs by one rule.

    Parameters
    ----------
    name
        Of the class; several rules may share one.
    number, sentence
        The rule.
    rule
        Returns the natural form of each output.
    operators
        Lines of names of operators, and of their inputs and outputs.
    """

    name: str
    number: str
    sentence: str
    rule: Callable[[NodeFacts], list[TensorForm]]
    operators: str

    @property
    def is_supported(self) -> bool:
        """Return whether nodes of it can be annotated."""
        return self.rule is not loop_rules.unsupported

    @property
    def is_elementwise(self) -> bool:
        """Return whether an element of the output is made of those at its index, whatever the axes are."""
        return self.rule in (loop_rules.unary, loop_rules.nary, loop_rules.unary_or_nary)

    @property
    def has_parameters(self) -> bool:
        """Return whether inputs beyond the first have axes of their own."""
        return self.rule is loop_rules.unary

    @property
    def is_summed(self) -> bool:
        """Return whether what members have of a loop that the output lacks is a partial result of it."""
        return self.name in ("reduction", "product")


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """An OperatorRow is one operator: its class, and the names that its schema has for inputs and outputs."""

    group: OperatorClass
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


#: A block for each class: its name, the number of the rule, the rule and what it says; then the operators, those beside
#: each other whose inputs and outputs have the same names.
_CLASSES = """
unary | U-1 | unary | the output has the form of the input
Abs BitwiseNot Ceil Celu Elu Floor Gelu HardSigmoid HardSwish IsInf IsNaN LeakyRelu Mish Neg Not Reciprocal: X -> Y
RegexFullMatch Relu Round Selu Sigmoid Softplus Sqrt Swish ThresholdedRelu: X -> Y
Acos Acosh Asin Asinh Atan Atanh Bernoulli BitCast Cast Cos Cosh Erf Exp Identity Log Shrink Sign Sin: input -> output
Sinh Softsign Tan Tanh: input -> output
CastLike: input target_type -> output
Clip: input min? max? -> output
Dropout: data ratio? training_mode? -> output mask?

unary | U-1 | unary_or_nary | the output has the form of the input; more inputs than one are n-ary
Max: data_0* -> max
Min: data_0* -> min

unary | N-1 | quantize | like the input per tensor; per axis the scale broadcasts
DequantizeLinear: x x_scale x_zero_point? -> y
QuantizeLinear: x y_scale y_zero_point? -> y

unary | U-2 | shape_vector | the output is whole on the owners of the shape vector
ConstantOfShape: input -> output

n-ary | N-1 | nary | axes broadcast from the right, and cuts that meet are identical
Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Mod Mul Or Sub Xor: A B -> C
BitShift Pow StringConcat: X Y -> Z
Mean: data_0* -> mean
PRelu: X slope -> Y
Sum: data_0* -> sum
SwiGLU: A B -> Y
Where: condition X Y -> output

n-ary | N-1 | batch_normalization | parameters broadcast along the channels
BatchNormalization: X scale B input_mean input_var -> Y running_mean? running_var?

reduction | R-1 | reduction | axes that stay keep their cuts; what is reduced is on all devices that took part
ArgMax ArgMin: data -> reduced
ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd: data axes? -> reduced
ReduceSum ReduceSumSquare: data axes? -> reduced

product | M-1 | matmul | M and N keep their cuts, and those of K are identical
MatMul: A B -> Y
MatMulInteger: A B a_zero_point? b_zero_point? -> Y
QLinearMatMul: a a_scale a_zero_point b b_scale b_zero_point y_scale y_zero_point -> y

product | M-3 | gemm | a product to which C is added once, as an n-ary operation
Gemm: A B C? -> Y

product | M-5 | einsum | labels of the output keep their cuts, and the others are summed
Einsum: Inputs* -> Output

along an axis | L-1 | along_axis | parallel on the other axes; the axes that it runs along are whole
Compress: input condition -> output
CumProd CumSum: x axis -> y
Det LRN MeanVarianceNormalization: X -> Y
GroupNormalization: X scale bias -> Y
Hardmax LogSoftmax Softmax: input -> output
RMSNormalization: X scale -> Y
ReverseSequence: input sequence_lens -> Y
TopK: X K -> Values Indices
Unique: X -> Y indices? inverse_indices? counts?

along an axis | L-1 | one_hot | parallel on the axes of the indices; the new axis is whole
OneHot: indices depth values -> output

movement | V-1 | move | axes carried over keep their cuts
CenterCropPad: input_data shape -> output_data
Concat: inputs* -> concat_result
DepthToSpace Flatten SpaceToDepth: input -> output
Expand: input shape -> output
Gather GatherElements GatherND: data indices -> output
Pad: data pads constant_value? axes? -> output
Reshape: data shape -> reshaped
Resize: X roi? scales? sizes? -> Y
Scatter ScatterElements ScatterND: data indices updates -> output
Slice: data starts ends axes? steps? -> output
Split: input split? -> outputs*
Squeeze: data axes? -> squeezed
TensorScatter: past_cache update write_indices? -> present_cache
Tile: input repeats -> output
Transpose: data -> transposed
Trilu: input k? -> output
Unsqueeze: data axes -> expanded
Upsample: X scales -> Y

creation | C-1 | create | made in place from global indices, whole unless an output spec says otherwise
BlackmanWindow HammingWindow HannWindow: size -> output
Constant RandomNormal RandomUniform: -> output
EyeLike Multinomial RandomNormalLike RandomUniformLike: input -> output
Range: start limit delta -> output
Shape: data -> shape
Size: data -> size

composite | K-1 | dynamic_quantize | reduced to a scale and a zero point, then unary
DynamicQuantizeLinear: x -> y y_scale y_zero_point

composite | K-1 | loss | the classes are whole, the other axes parallel or reduced
NegativeLogLikelihoodLoss: input target weight? -> loss
SoftmaxCrossEntropyLoss: scores labels weights? -> output log_prob?

composite | F-1 | unsupported | not supported with annotations
Attention: Q K V attn_mask? past_key? past_value? nonpad_kv_seqlen? -> Y present_key? present_value? qk_matmul_output?
CausalConvWithState: input weight bias? past_state? -> output present_state
LinearAttention: query key value past_state? decay? beta? -> output present_state
RotaryEmbedding: X cos_cache sin_cache position_ids? -> Y

unsupported | F-1 | unsupported | not supported with annotations
AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool TfIdfVectorizer: X -> Y
ConcatFromSequence: input_sequence -> concat_result
Conv ConvTranspose: X W B? -> Y
ConvInteger: x w x_zero_point? w_zero_point? -> y
DFT: input dft_length? axis? -> output
DeformConv: X W offset B? mask? -> Y
GRU RNN: X W R B? sequence_lens? initial_h? -> Y? Y_h?
If: cond -> outputs*
InstanceNormalization: input scale B -> output
LSTM: X W R B? sequence_lens? initial_h? initial_c? P? -> Y? Y_h? Y_c?
LayerNormalization: X Scale B? -> Y Mean? InvStdDev?
Loop: M? cond? v_initial* -> v_final_and_scan_outputs*
LpNormalization OptionalGetElement: input -> output
MaxPool: X -> Y Indices?
MaxRoiPool: X rois -> Y
MelWeightMatrix: num_mel_bins dft_length sample_rate lower_edge_hertz upper_edge_hertz -> output
Optional OptionalHasElement: input? -> output
STFT: signal frame_step window? frame_length? -> output
Scan: initial_state_and_scan_inputs* -> final_state_and_scan_outputs*
SequenceAt: input_sequence position -> tensor
SequenceConstruct: inputs* -> output_sequence
SequenceEmpty: -> output
SequenceErase: input_sequence position? -> output_sequence
SequenceInsert: input_sequence tensor position? -> output_sequence
SequenceLength: input_sequence -> length
SequenceMap: input_sequence additional_inputs* -> out_sequence*
SplitToSequence: input split? -> output_sequence

refuse | F-1 | unsupported | not supported with annotations
AffineGrid: theta size -> grid
Col2Im: input image_shape block_shape -> output
GridSample: X grid -> Y
ImageDecoder: encoded_stream -> image
MaxUnpool: X I output_shape? -> output
NonMaxSuppression: boxes scores max_output_boxes_per_class? iou_threshold? score_threshold? -> selected_indices
NonZero StringNormalizer: X -> Y
QLinearConv: x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B? -> y
RoiAlign: X rois batch_indices -> Y
StringSplit: X -> Y Z
"""


def _classes() -> Iterator[OperatorClass]:
    rules = {**vars(loop_rules), **vars(movement_rules)}
    for block in _CLASSES.strip().split("\n\n"):
        head, _, operators = block.partition("\n")
        name, number, rule, sentence = (cell.strip() for cell in head.split("|"))
        yield OperatorClass(name, number, sentence, rules[rule], operators)


CLASSES = tuple(_classes())


def _rows() -> dict[str, OperatorRow]:
    rows: dict[str, OperatorRow] = {}
    for group in CLASSES:
        for line in group.operators.splitlines():
            op_types, _, signature = line.partition(":")
            inputs, outputs = ([name.rstrip("?*") for name in side.split()] for side in signature.split("->"))
            for op_type in op_types.split():
                assert op_type not in rows, f"{op_type} is in two classes"
                rows[op_type] = OperatorRow(group, tuple(inputs), tuple(outputs))
    return rows


#: The row of each operator.
OPERATORS = MappingProxyType(_rows())
