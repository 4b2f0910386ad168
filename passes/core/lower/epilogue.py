"""The epilogue of all products as one elementwise generic (docs/semantics.md, section 4, steps 1 to 7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ....core.mlir import arith, ir
from ....dialect.constants import constant_array
from ....dialect.dtypes import DType
from ....dialect.ods import FieldView, OpError
from ....dialect.ops.common import shape_of
from ....dialect.ops.product import ProductOp
from ....dialect.reference.values import reciprocal
from ....dialect.shapes import blocks
from ....ir.build import Arg, Extent, crop, dense, drop_axes, element, elementwise, expand, repeat
from ....ir.scalars import activate, add, cast_f, const, f32, requantize, rounded, to_f32

Named: TypeAlias = "dict[str, ir.Value]"
Start: TypeAlias = "Callable[[Named], ir.Value]"


class Inputs:
    """Named operands of the generic, each with the result axes it follows."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.args: list[Arg] = []

    def add(self, name: str, value: ir.Value | None, axes: Sequence[int | None]) -> None:
        if value is not None:
            self.names.append(name)
            self.args.append(Arg(value, tuple(axes)))

    def aligned(self, name: str, value: ir.Value | None, sizes: Sequence[Extent]) -> None:
        """Add an operand that is right-aligned with the result."""
        if value is not None:
            self.names.append(name)
            self.args.append(Arg.aligned(value, sizes))

    def named(self, scalars: Sequence[ir.Value]) -> Named:
        return dict(zip(self.names, scalars, strict=True))


def finish(
    op: ProductOp | FieldView,
    sizes: list[Extent],
    inputs: Inputs,
    start: Start,
    align: Callable[[ir.Value], ir.Value] | None = None,
) -> ir.Value:
    """The result of a product.

    Args:
        sizes: the product's shape, `[.., M, N]` (before a gated activation pairs columns).
        inputs: the accumulator and whatever `start` needs.
        start: makes the i32 accumulator (raw results) or the f32 value after step 2 from the named scalars.
        align: brings epilogue operands to the product's axes (a convolution's per-filter vectors).
    """
    out = op.out_code
    fit = align or (lambda value: value)
    before = _before_activation(op, inputs, start, fit, sizes)
    if op.gated:
        y = elementwise(inputs.args, sizes, f32(), lambda *xs: before(inputs.named(xs)))
        return _gated(op, y, sizes, out, fit)
    after = _after_activation(op, inputs, out, fit, sizes)

    def body(*scalars: ir.Value) -> ir.Value:
        named = inputs.named(scalars)
        y = before(named)
        if out.name == "i32":
            return y if op.bias is None or op.bias_stage != "out" else arith.addi(y, named["bias"])
        made: ir.Value = after(activate(y, op.activation, op.act_clamp), named)
        return made

    return elementwise(inputs.args, sizes, element(out.name), body)


def _before_activation(
    op: ProductOp | FieldView, inputs: Inputs, start: Start, fit: Callable[[ir.Value], ir.Value], sizes: list[Extent]
) -> Start:
    """Steps 3 and 4."""
    gated_out = op.gated and op.bias_stage == "out"  # added after the gate, in `_gated`
    if op.bias is not None and op.bias_stage != "acc" and not gated_out:
        inputs.aligned("bias", fit(op.bias), sizes)
    if op.c is not None:
        inputs.aligned("c", fit(op.c), sizes)

    def value(named: Named) -> ir.Value:
        y = start(named)
        if op.bias is not None and op.bias_stage == "scaled":
            y = add(y, to_f32(named["bias"]))
        if op.alpha != 1.0:
            y = arith.mulf(const(op.alpha), y)
        if op.c is not None:
            y = add(y, arith.mulf(const(op.beta), to_f32(named["c"])))
        return y

    return value


def _after_activation(
    op: ProductOp | FieldView, inputs: Inputs, out: DType, fit: Callable[[ir.Value], ir.Value], sizes: list[Extent]
) -> Callable[[ir.Value, Named], ir.Value]:
    """Steps 5b to 7: the scale after the activation, the cast or requantisation, the bias after it."""

    def block_aligned(name: str, value: ir.Value | None) -> None:
        if value is not None:
            inputs.aligned(name, _per_element(fit(value), sizes), sizes)

    block_aligned("act_scale", op.act_scale)
    if op.out_scale is not None:
        known = constant_array(op.out_scale)
        if known is not None:
            # The reciprocal of a constant is formed here, in f32 as the contract says.
            block_aligned("factor", dense(reciprocal(known), "f32"))
        else:
            block_aligned("out_scale", op.out_scale)
    block_aligned("factor", op.out_multiplier)
    block_aligned("out_zero_point", op.out_zero_point)

    def value(y: ir.Value, named: Named) -> ir.Value:
        if "act_scale" in named:
            y = arith.mulf(y, to_f32(named["act_scale"]))
        if out.is_int:
            factor = to_f32(named["factor"]) if "factor" in named else None
            if "out_scale" in named:
                factor = arith.divf(const(1.0), to_f32(named["out_scale"]))
            zero = named.get("out_zero_point")
            zero = None if zero is None else to_f32(zero, unsigned=_byte(zero) and not out.signed)
            lo, hi = op.clamp or (out.lo, out.hi)
            return requantize(y, factor, zero, op.rounding, lo, hi, element(out.name))
        t = element(out.name)
        if "bias" in named and op.bias_stage == "out":
            # The sum is in the result's type: operands are rounded to it, and the sum is rounded once.
            b = named["bias"]
            y = add(rounded(y, t), to_f32(b) if b.type == t else rounded(to_f32(b), t))
        return cast_f(y, t)

    return value


def _byte(x: ir.Value) -> bool:
    return isinstance(x.type, ir.IntegerType) and x.type.width == 8


def _per_element(value: ir.Value, sizes: list[Extent]) -> ir.Value:
    """A scale that covers blocks of the result, repeated to one value per element of those axes."""
    shape = tuple(s if isinstance(s, int) else None for s in sizes)
    covered = blocks(shape_of(value), shape, "scale", "result")
    offset = len(sizes) - value.type.rank
    for axis in range(value.type.rank):
        size = covered[offset + axis]
        if size is not None and size > 1:
            value = repeat(value, axis, size)
    return value


def _gated(
    op: ProductOp | FieldView, y: ir.Value, sizes: list[Extent], out: DType, fit: Callable[[ir.Value], ir.Value]
) -> ir.Value:
    """swiglu and geglu: pairs of columns of `y` become one."""
    n = sizes[-1]
    if not isinstance(n, int):
        raise OpError("a gated activation needs a static N")
    half = n // 2
    outer = sizes[:-1]
    rank = len(sizes)
    if op.gate_layout == "halves":
        gate = crop(y, [0] * rank, [*outer, half])
        up = crop(y, [0] * (rank - 1) + [half], [*outer, half])
    else:
        pairs = expand(y, [[s] for s in outer] + [[half, 2]])
        gate, up = (_column(pairs, outer, half, which) for which in (0, 1))
    inputs = Inputs()
    inner = [*outer, half]
    inputs.add("gate", gate, range(rank))
    inputs.add("up", up, range(rank))
    if op.bias is not None and op.bias_stage == "out":
        inputs.aligned("bias", fit(op.bias), inner)
    after = _after_activation(op, inputs, out, fit, inner)
    kind = "silu" if op.activation == "swiglu" else "gelu"

    def body(*scalars: ir.Value) -> ir.Value:
        named = inputs.named(scalars)
        made: ir.Value = after(arith.mulf(activate(named["gate"], kind, None), named["up"]), named)
        return made

    return elementwise(inputs.args, inner, element(out.name), body)


def _column(pairs: ir.Value, outer: list[Extent], half: int, which: int) -> ir.Value:
    """Column `which` of `[.., half, 2]`, as `[.., half]`."""
    rank = len(outer) + 2
    one = crop(pairs, [0] * (rank - 1) + [which], [*outer, half, 1])
    return drop_axes(one, [rank - 1])
