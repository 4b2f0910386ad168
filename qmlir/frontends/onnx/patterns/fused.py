"""com.microsoft's float operators that onnxruntime's optimisers fuse from two or three ONNX operators.

Products and convolutions are split into ONNX's operators again, to which their patterns apply; activations become one
loop.
Source: onnxruntime, docs/ContribOperators.md; cpu/activation/activations.h for the activations' defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....core.mlir import arith, ir
from ....ir.scalars import const, gelu, gelu_by_sigmoid, sigmoid
from ...raising import PatternDeclined, Tensor, raises
from ...tensors import cast_real, elementwise, real
from ..node import Node
from .common import Parts


def _activated(op: Node, f: Callable[[ir.Value], ir.Value]) -> Tensor:
    """`f` of the first input, or of its sum with the second."""
    op.plain = True
    x, bias = op.operand(0), op.optional(1)
    wide = [real(t) for t in (x, bias) if t is not None]

    def body(v: ir.Value, *rest: ir.Value) -> ir.Value:
        return f(arith.addf(v, rest[0]) if rest else v)

    return op.sized_as(0, cast_real(elementwise(body, wide, "f32"), x.dtype))


@raises("onnx.com.microsoft.Gelu", "onnx.com.microsoft.BiasGelu")
def gelu_of_sum(op: Node) -> Tensor:
    """`x / 2 (1 + erf(x / sqrt 2))` of the input, or of its sum with a bias."""
    return _activated(op, gelu)


@raises("onnx.com.microsoft.FastGelu")
def fast_gelu(op: Node) -> Tensor:
    """`x sigmoid(2 u)`, u = sqrt(2 / pi) (x + 0.044715 x^3), of the input, or of its sum with a bias."""
    return _activated(op, gelu_by_sigmoid)


@raises("onnx.com.microsoft.QuickGelu")
def quick_gelu(op: Node) -> Tensor:
    """`x sigmoid(alpha x)`."""
    alpha = float(op.attributes.get("alpha", 1.702))
    return _activated(op, lambda v: arith.mulf(v, sigmoid(arith.mulf(v, const(alpha)))))


# ------------------------------------------------------------------------------------ split


@raises("onnx.com.microsoft.FusedMatMul", "onnx.com.microsoft.TransposeMatMul")
def fused_matmul(op: Node) -> Sequence[Tensor]:
    """`alpha A B`, either side transposed: Transpose, MatMul and Mul."""
    parts = Parts(op)
    sides = []
    for i, side in enumerate("AB"):
        rank, name = len(op.operand(i).shape), op.proto.input[i]
        order = list(range(rank))
        if op.attributes.get(f"transBatch{side}", 0):  # the first axis moves behind the other batch axes
            order = [*order[1:-1], order[0], order[-1]]
        if op.attributes.get(f"trans{side}", 0) and rank > 1:
            order[-2:] = order[:-3:-1]
        sides.append(name if order == list(range(rank)) else parts.add("Transpose", name, perm=order))
    alpha = float(op.attributes.get("alpha", 1.0))
    product = parts.add("MatMul", *sides)
    if alpha != 1.0:
        parts.add("Mul", product, parts.number(alpha, op.operand(0)))
    return parts.done()


@raises("onnx.com.microsoft.FusedGemm")
def fused_gemm(op: Node) -> Sequence[Tensor]:
    """Gemm, followed by the activation."""
    parts = Parts(op)
    given = {k: v for k, v in op.attributes.items() if k in ("alpha", "beta", "transA", "transB")}
    _activation(op, parts, parts.add("Gemm", *op.proto.input, **given), "activation_alpha", "activation_beta")
    return parts.done()


@raises("onnx.com.microsoft.FusedConv")
def fused_conv(op: Node) -> Sequence[Tensor]:
    """Conv, followed by the sum with Z and the activation."""
    parts = Parts(op)
    given = {k: v for k, v in op.attributes.items() if k not in ("activation", "activation_params")}
    made = parts.add("Conv", *op.proto.input[:3], **given)
    if len(op.proto.input) > 3 and op.proto.input[3]:
        made = parts.add("Add", made, op.proto.input[3])
    _activation(op, parts, made)
    return parts.done()


# By the name of an activation: the attributes for its parameters, in order.
_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "Relu": (), "Tanh": (), "Sigmoid": (), "Softplus": (), "Softsign": (), "HardSwish": (), "LeakyRelu": ("alpha",),
    "Elu": ("alpha",), "ThresholdedRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": ("min", "max"),
}  # fmt: skip


def _activation(op: Node, parts: Parts, of: str, *names: str) -> None:
    """Add the activation that the attribute `activation` names; its parameters are the attributes `names`, or the list
    `activation_params`."""
    kind = op.attributes.get("activation", "")
    if not kind:
        return
    if kind not in _ACTIVATIONS:
        raise PatternDeclined(f"the activation {kind!r}; {', '.join(sorted(_ACTIVATIONS))} are imported")
    values = op.attributes.get("activation_params") or [op.attributes[n] for n in names if n in op.attributes]
    if kind == "Clip":
        parts.add("Clip", of, *(parts.number(float(v), op.operand(0)) for v in values))
        return
    parts.add(kind, of, **dict(zip(_ACTIVATIONS[kind], map(float, values), strict=False)))
