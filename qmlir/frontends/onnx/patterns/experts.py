"""com.microsoft's mixtures of experts: MoE with float weights, and QMoE with quantised weights.

Source: onnxruntime, docs/ContribOperators.md, and contrib_ops/cpu/moe. onnxruntime's CPU kernel of QMoE divides the
routing weights by their sum even if normalize_routing_weights is 0; its other kernels and this pattern obey the
attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....core.mlir import arith, ir
from ....dialect.reference.packing import unpack
from ....ir.build import dims, expand
from ....ir.scalars import activate, const, gelu_by_sigmoid, sigmoid
from ....spec import TensorSpec
from ...raising import PatternDeclined, Tensor, raises
from ...tensors import at_index, cast_real, elementwise, in_rows, real
from ..model import refuse
from ..node import Node
from .common import ints, onnx_op
from .heads import without

_CODES = {2: "u2", 4: "u4", 8: "u8"}


_PLAIN: dict[str, Callable[[ir.Value], ir.Value]] = {
    "relu": lambda v: activate(v, "relu", None), "gelu": gelu_by_sigmoid, "silu": lambda v: activate(v, "silu", None),
    "identity": lambda v: v,
}  # fmt: skip


@raises("onnx.com.microsoft.MoE", "onnx.com.microsoft.QMoE")
def mixture_of_experts(op: Node) -> Tensor:
    """(input, router_probs, then weights, their scales in QMoE, and biases of fc1, fc2 and fc3, ..): selects the best
    experts of each row by the softmax of its logits, and sums their results `fc2 act(fc1 x)` by weight."""
    coded = op.proto.op_type == "QMoE"
    without(op, "use_sparse_mixer", "swiglu_limit_after_activation")
    op.plain = not coded
    x, unflatten = in_rows(op.operand(0))
    logits = real(in_rows(op.operand(1))[0])
    ids, weights = _routed(op, logits, op.optional(14) if coded else None)

    def product(layer: int, lhs: Tensor, **more: object) -> Tensor:
        side = _coded(op, layer) if coded else {"rhs": op.operand(2 + 2 * (layer - 1))}
        bias = op.optional((4 if coded else 3) + (3 if coded else 2) * (layer - 1))
        made: Tensor = op.build("grouped_matmul", lhs=real(lhs), expert_ids=ids, rhs_transposed=True, out_dtype="f32",
                                bias=None if bias is None else real(bias), **side, **more)  # fmt: skip
        return made

    hidden = _activated(op, product, x, 8 if coded else 6)
    made = product(2, hidden, routing_weights=weights)
    return op.sized_as(0, cast_real(unflatten(made), x.dtype))


def _routed(op: Node, logits: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
    """The experts of each row and their weights: the softmax of the logits, or those `given`; divided by their sum if
    normalize_routing_weights is set."""
    divided = bool(op.attributes.get("normalize_routing_weights", 0))
    ids, weights = op.build("route", logits=logits, topk=int(op.attributes.get("k", 1)), scoring="softmax",
                            renormalize=divided)  # fmt: skip
    if given is None:
        return ids, weights
    weights = real(onnx_op(op, "GatherElements", real(in_rows(given)[0]), ids, axis=1))
    if divided:
        weights = onnx_op(op, "Div", weights, onnx_op(op, "ReduceSum", weights, ints([1]), keepdims=1))
    return ids, weights


def _activated(op: Node, product: Callable[..., Tensor], x: Tensor, third: int) -> Tensor:
    """The activations of the rows, from the first layer or, for an unfused swiglu, from the first and the third."""
    kind = op.attributes.get("activation_type", "relu")
    if kind in _PLAIN:
        return elementwise(_PLAIN[kind], [product(1, x)], "f32")
    if kind != "swiglu":
        raise PatternDeclined(f"the activation {kind!r}; {', '.join(_PLAIN)} and swiglu are imported")
    fusion = int(op.attributes.get("swiglu_fusion", 0))
    both = product(1, x)
    if fusion == 0:
        if op.optional(third) is None:
            raise PatternDeclined("swiglu without fusion needs the weights of fc3")
        gate, value = both, product(3, x)
    else:
        gate, value = _halves(both, neighbours=fusion == 1)
    alpha, beta = (float(op.attributes.get(f"activation_{n}", d)) for n, d in (("alpha", 1.0), ("beta", 0.0)))
    limit = float(op.attributes.get("swiglu_limit", np.inf))

    def body(g: ir.Value, v: ir.Value) -> ir.Value:
        if np.isfinite(limit):
            g = arith.minimumf(g, const(limit))
            v = arith.maximumf(arith.minimumf(v, const(limit)), const(-limit))
        return arith.mulf(arith.mulf(g, sigmoid(arith.mulf(g, const(alpha)))), arith.addf(v, const(beta)))

    return elementwise(body, [gate, value], "f32")


def _halves(t: Tensor, neighbours: bool) -> Sequence[Tensor]:
    """The even and the odd columns of `[T, k, 2 F]` if `neighbours`; otherwise its first and second half."""
    *lead, width = dims(t.value)
    assert isinstance(width, int)
    half = width // 2
    pair = (half, 2) if neighbours else (2, half)
    split = Tensor(TensorSpec((*t.shape[:2], *pair), t.dtype), expand(t.value, [[lead[0]], [lead[1]], [*pair]]))
    return [at_index(split, 3 if neighbours else 2, i) for i in (0, 1)]


def _coded(op: Node, layer: int) -> dict[str, object]:
    """The weights of a layer of QMoE as operands of `grouped_matmul`; the codes are unpacked along K, low bits
    first."""
    quant = op.attributes.get("quant_type", "int")
    if quant != "int" or int(op.attributes.get("weights_prepacked", 0)) > 0:
        raise refuse(f"QMoE with quant_type {quant!r} or prepacked weights is not imported", op.where)
    at = 2 + 3 * (layer - 1)
    bits = int(op.attributes.get(f"fc{layer}_expert_weight_bits", op.attributes.get("expert_weight_bits", 4)))
    if bits not in _CODES:
        raise PatternDeclined(f"codes of {bits} bits; {', '.join(map(str, _CODES))} are imported")
    packed, scale = op.constant(at).view(np.uint8), op.constant(at + 1).astype(np.float32)
    width = packed.shape[-1] * 8 // bits
    codes = unpack(packed, _CODES[bits], "low_first", width)
    scale = scale.reshape(*codes.shape[:2], -1)
    zero = np.full(scale.shape, 1 << (bits - 1), np.int32)
    if op.optional(10 + layer) is not None:
        given = op.constant(10 + layer).view(np.uint8)
        count = scale.size // scale.shape[0] if given.ndim == 2 else scale.shape[2]
        zero = unpack(given, _CODES[bits], "low_first", count).astype(np.int32).reshape(scale.shape)
    return {"rhs": Tensor.constant(codes, _CODES[bits]), "rhs_scale": Tensor.constant(scale),
            "rhs_zero_point": Tensor.constant(zero), "rhs_zero_mode": "int"}  # fmt: skip
