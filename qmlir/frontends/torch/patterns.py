"""Raising patterns of `torch.ops.qmlir.*`: each call becomes the operation of its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.mlir import arith, ir
from ...ir.build import as_index, collapse, dims, expand, filled, scalar
from ...ir.scalars import gelu_tanh
from ...spec import TensorSpec
from ..raising import NotQuantised, Raising, Tensor, raises, register_raising
from ..sampled import MODES, PADDINGS, grid_sampled
from ..tensors import elementwise
from .custom_ops import NAMESPACE, OPERATIONS, register
from .node import TorchNode
from .views import reshape_between


def _pattern(name: str) -> Callable[[TorchNode], Tensor | Sequence[Tensor]]:
    def raise_call(op: TorchNode) -> Tensor | Sequence[Tensor]:
        operands = {n: t for n, t in zip(op.tensor_names, op.operands, strict=True) if t is not None}
        attributes = {k: list(v) if isinstance(v, (list, tuple)) else v for k, v in op.attributes.items()
                      if v is not None}  # fmt: skip
        if name == "scaled_matmul":
            return _scaled_matmul(op, operands, attributes)
        if name == "dynamic_quantize":
            return _dynamic_quantize(op, operands, attributes)
        found: Tensor | Sequence[Tensor] = op.build(name, **operands, **attributes)
        return found

    return raise_call


def _scaled_matmul(op: Raising, operands: dict[str, Tensor], attributes: dict[str, object]) -> Tensor:
    """With one weight for all batches, collapse the batch axes into the rows: one product."""
    lhs, rhs = operands["lhs"], operands["rhs"]
    rank = len(lhs.shape)
    if rank <= 2 or len(rhs.shape) != 2 or attributes.get("lhs_transposed"):
        found: Tensor = op.build("scaled_matmul", **operands, **attributes)
        return found
    with op.location:
        sizes = dims(lhs.value)[:-1]
        for name in ("lhs", "lhs_scale", "lhs_zero_point", "c", "act_scale", "out_scale", "out_zero_point"):
            t = operands.get(name)
            if t is not None and len(t.shape) == rank:
                operands[name] = _rows(t)
        product = op.build("scaled_matmul", **operands, **attributes)
        value = product.value
        n = product.shape[-1]
        wide = _split_rows(value, sizes, n)
    return Tensor(TensorSpec((*lhs.shape[:-1], n), product.dtype), wide)


def _rows(t: Tensor) -> Tensor:
    """Collapse all axes except the last into one."""
    if t.array is not None:
        return Tensor.constant(t.array.reshape(-1, t.array.shape[-1]), t.dtype)
    rank = len(t.shape)
    spec = TensorSpec((_product(t.shape[:-1]), t.shape[-1]), t.dtype)
    if sum(s is None for s in t.shape[:-1]) < 2:
        return Tensor(spec, collapse(t.value, [list(range(rank - 1)), [rank - 1]]))
    sizes = dims(t.value)
    rows = as_index(sizes[0])
    for s in sizes[1:-1]:
        rows = arith.muli(rows, as_index(s))
    return Tensor(spec, reshape_between(t.value, [rows, sizes[-1]]))


def _product(shape: Sequence[int | None]) -> int | None:
    total = 1
    for s in shape:
        if s is None:
            return None
        total *= s
    return total


def _split_rows(value: ir.Value, sizes: Sequence[ir.Value | int], n: int | None) -> ir.Value:
    """Split the rows into axes of `sizes`."""
    wide = [*sizes, dims(value)[-1] if n is None else n]
    if sum(not isinstance(s, int) for s in sizes) < 2:
        return expand(value, [list(sizes), wide[-1:]])
    return reshape_between(value, wide)


def _dynamic_quantize(op: Raising, operands: dict[str, Tensor], attributes: dict[str, object]) -> Sequence[Tensor]:
    results = op.build("dynamic_quantize", **operands, **attributes)
    if len(results) == 3:
        return list(results)
    codes, scale = results
    with op.location:
        zero = filled(dims(scale.value), scalar(0, ir.IntegerType.get_signless(32)))
    return [codes, scale, Tensor(TensorSpec(scale.shape, "i32"), zero)]


@raises("torch.aten.gelu")
def gelu(op: TorchNode) -> Tensor:
    """Gelu with `approximate="tanh"`, which torch-mlir computes with 0.797724 instead of sqrt(2 / pi)."""
    x = op.operand(0)
    if op.attributes["approximate"] != "tanh" or x.dtype not in ("f32", "f16", "bf16"):
        raise NotQuantised  # torch-mlir computes the other one right
    half = x.dtype != "f32"  # computed in f32 and rounded once

    def body(v: ir.Value) -> ir.Value:
        wide = arith.extf(ir.F32Type.get(), v) if half else v
        return arith.truncf(v.type, gelu_tanh(wide)) if half else gelu_tanh(wide)

    with op.location:
        return elementwise(body, [x], x.dtype)


register()
for _name in OPERATIONS:
    register_raising(f"torch.{NAMESPACE}.{_name}", _pattern(_name))


@raises("torch.aten.grid_sampler", "torch.aten.grid_sampler_2d", "torch.aten.grid_sampler_3d")
def _grid_sampler(op: TorchNode) -> Tensor:
    """Built by `grid_sampled`, because torch-mlir's conversion reads outside of the image."""
    a = op.attributes
    mode, padding = MODES[a["interpolation_mode"]], PADDINGS[a["padding_mode"]]
    return grid_sampled(op.operand(0), op.operand(1), mode, padding, bool(a["align_corners"]))
