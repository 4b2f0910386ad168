"""scaled_matmul to linalg.

Three forms, by what is multiplied:

* integers, scales constant along K: one i8 x i8 -> i32 contraction; zero points as integer corrections;
* codes with scales in groups of K: the same with the groups as a batch axis, then an f32 sum over groups;
* a float side (weight only): the other is dequantised to that side's type, one float contraction into f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from ....core.mlir import arith
from ....dialect.ods import FieldView, OpError
from ....dialect.ops.product import ProductOp
from ....dialect.ops.scaled_matmul import ScaledMatmulOp
from ....ir.build import Arg, Extent, dims, element, elementwise, filled, generic, scalar
from ....ir.facts import PRESENT, SCALES_GROUPS
from ....ir.scalars import add, cast_f, const, i32, sub, to_f32
from .contraction import contract, parameter_axes, row_sums, side_axes
from .corrections import add_corrections
from .epilogue import Inputs, Named, finish
from .values import Side, constant_sums, dequantized, make_side, split_groups

if TYPE_CHECKING:
    from ....core.mlir import ir


def lower_scaled_matmul(op: ScaledMatmulOp) -> list[ir.Value]:
    """The lowering rule of the op."""
    lhs_shape = dims(op.lhs)
    rank_a, rank_b = op.lhs.type.rank, op.rhs.type.rank
    row_a, k_a = (rank_a - 1, rank_a - 2) if op.lhs_transposed else (rank_a - 2, rank_a - 1)
    row_b, k_b = (rank_b - 2, rank_b - 1) if op.rhs_transposed else (rank_b - 1, rank_b - 2)
    rhs_shape = dims(op.rhs)
    for i, s in enumerate(op.rhs_codes_shape()):
        if s is not None:
            rhs_shape[i] = s
    if op.rhs_packing != "none" and op.rhs_codes_shape()[-1] is None:
        raise OpError("a packed 'rhs' needs a static last axis")
    a = make_side("lhs", op.lhs, op.lhs_code, lhs_shape, row_a, k_a, scale=op.lhs_scale, zero=op.lhs_zero_point,
                  mode=op.lhs_zero_mode, packing="none", global_scale=op.lhs_global_scale)  # fmt: skip
    b = make_side("rhs", op.rhs, op.rhs_code, rhs_shape, row_b, k_b, scale=op.rhs_scale, zero=op.rhs_zero_point,
                  mode=op.rhs_zero_mode, packing=op.rhs_packing, codebook=op.codebook,
                  global_scale=op.rhs_global_scale)  # fmt: skip
    b = replace(b, sum=constant_sums(a, b, op.rhs, op.rhs_code, op.rhs_packing, k_b))
    m, n = lhs_shape[row_a], rhs_shape[row_b]
    k = lhs_shape[k_a] if isinstance(lhs_shape[k_a], int) else rhs_shape[k_b]
    batch = _broadcast(lhs_shape[: rank_a - 2], rhs_shape[: rank_b - 2])
    return [product(op, a, b, batch, m, n, k)]


def _broadcast(a: Sequence[Extent], b: Sequence[Extent]) -> list[Extent]:
    """Batch sizes of the result."""
    out: list[Extent] = []
    for i in range(max(len(a), len(b))):
        x = a[len(a) - 1 - i] if i < len(a) else 1
        y = b[len(b) - 1 - i] if i < len(b) else 1
        out.append(y if isinstance(x, int) and x == 1 else x)
    return out[::-1]


# A replacement of `contract`: makes the accumulator `[batch.., M, N]` from the tensor of lhs values, a function that
# makes the values of a side, and the bounds of integer values.
SideNumbers: TypeAlias = "Callable[[Side], ir.Value]"
ContractionBuilder: TypeAlias = "Callable[[ir.Value, SideNumbers, tuple[int, int] | None], ir.Value]"


def product(
    op: ProductOp | FieldView,
    a: Side,
    b: Side,
    batch: list[Extent],
    m: Extent,
    n: Extent,
    k: Extent,
    contraction: ContractionBuilder | None = None,
) -> ir.Value:
    """Contraction and epilogue of two sides; result `[batch.., M, N]`. With a `contraction`, scales must be constant
    along K, and `b` needs only what the epilogue reads: its scale, sums, and codes of the right rank."""
    sizes = [*batch, m, n]
    if a.plain or b.plain:
        to = op.compute_dtype or (a if a.plain else b).d.name
        return _float_product(op, a, b, sizes, to, contraction)
    if not isinstance(k, int):
        raise OpError("K is dynamic; make it static")
    group = math.gcd(a.block or k, b.block or k)
    if a.block is None and b.block is None and not b.float_zero:
        return _one_group(op, a, b, sizes, k, contraction)
    return _many_groups(op, a.with_group(group), b.with_group(group), sizes, k, group)


def _accumulate(
    a: Side, b: Side, sizes: list[Extent], numbers: SideNumbers, bounds: tuple[int, int] | None,
    contraction: ContractionBuilder | None,
) -> ir.Value:  # fmt: skip
    """The accumulator `[batch.., M, N]` over all of K."""
    if contraction is not None:
        return contraction(numbers(a), numbers, bounds)
    nb = len(sizes) - 2
    a_axes, b_axes = side_axes(a, sizes[:nb], nb, nb + 2), side_axes(b, sizes[:nb], nb + 1, nb + 2)
    return contract(numbers(a), a_axes, numbers(b), b_axes, sizes, nb + 3, range(nb + 2), bounds)


def _float_product(
    op: ProductOp | FieldView, a: Side, b: Side, sizes: list[Extent], to: str, contraction: ContractionBuilder | None
) -> ir.Value:
    nb = len(sizes) - 2
    acc = _accumulate(a, b, sizes, lambda side: dequantized(side, to), None, contraction)
    inputs = Inputs()
    inputs.add("acc", acc, range(nb + 2))
    return finish(op, sizes, inputs, lambda named: named["acc"])


def _decoded(side: Side, to: str) -> Side:
    """A side with table codes decoded to floats of type `to`; integers and floats stay."""
    if side.d.kind != "table":
        return side
    plain = replace(side, scale=None, zero=None, block=None, global_scale=None)
    return replace(side, codes=dequantized(plain, to))


def number_type(a: Side, b: Side) -> str:
    """The shortest float type that represents the values of all codes of both sides exactly: matrix instructions need
    short operands of one type. One-byte floats are left to the target, which may have an instruction for them."""

    def short(side: Side) -> bool:
        if side.d.is_int:
            return side.d.bits <= 8 and side.zero is None  # minus a zero point it may be any i32
        return side.d.name in ("e2m1", "f16") or (side.d.kind == "float" and side.d.bits == 8)

    return "f16" if short(a) and short(b) else "f32"


def _one_group(
    op: ProductOp | FieldView,
    a: Side,
    b: Side,
    sizes: list[Extent],
    k: int,
    contraction: ContractionBuilder | None,
) -> ir.Value:
    """A product whose scales and zero points are constant along K."""
    nb = len(sizes) - 2
    m_loop, n_loop, k_loop = nb, nb + 1, nb + 2
    integer = a.integer and b.integer
    inputs = Inputs()
    if integer:
        bounds = (a.magnitude(), b.magnitude())
        a_axes, b_axes = side_axes(a, sizes[:nb], m_loop, k_loop), side_axes(b, sizes[:nb], n_loop, k_loop)
        acc = _accumulate(a, b, sizes, lambda side: side.codes, bounds, contraction)
        inputs.add("acc", acc, range(nb + 2))
        correction = add_corrections(inputs, a, b, a.codes, b.codes, a_axes, b_axes, sizes, list(range(nb + 2)),
                                     nb, m_loop, n_loop, None, k)  # fmt: skip
    else:
        to = number_type(a, b)
        acc = _accumulate(a, b, sizes, lambda side: _numbers(side, to), None, contraction)
        inputs.add("acc", acc, range(nb + 2))
        correction = None
    if op.bias is not None and op.bias_stage == "acc":
        inputs.aligned("acc_bias", op.bias, sizes)
    raw = op.out_code.name == "i32"
    if not raw:
        for side, row in ((a, m_loop), (b, n_loop)):
            if side.scale is not None:
                inputs.add(f"{side.name}_scale", side.scale, parameter_axes(side, side.scale, sizes[:nb], row, None))
            if side.global_scale is not None:
                inputs.add(f"{side.name}_global", side.global_scale, (None,) * side.global_scale.type.rank)

    def start(named: Named) -> ir.Value:
        value = named["acc"]
        if correction is not None:
            value = correction(named)
        if "acc_bias" in named:
            value = arith.addi(value, named["acc_bias"])
        if raw:
            return value
        return apply_globals(scaled(to_f32(value), named), named)

    return finish(op, sizes, inputs, start)


def _numbers(side: Side, to: str) -> ir.Value:
    """The values of codes minus their zero point, in type `to`, for a float contraction; float codes stay."""
    if side.d.kind == "float":
        return side.codes
    bare = replace(side, scale=None, global_scale=None)
    return dequantized(bare, to)


def scaled(value: ir.Value, named: Named) -> ir.Value:
    """Step 2: `value * (s_a * s_b)`, the product of the scales formed first."""
    factors = [to_f32(named[s]) for s in ("lhs_scale", "rhs_scale") if s in named]
    if not factors:
        return value
    return arith.mulf(value, arith.mulf(*factors) if len(factors) == 2 else factors[0])


def apply_globals(value: ir.Value, named: Named) -> ir.Value:
    """Multiply by the global scales: one per tensor, as in NVFP4."""
    for name in ("lhs_global", "rhs_global"):
        if name in named:
            value = arith.mulf(value, to_f32(named[name]))
    return value


def _many_groups(op: ProductOp | FieldView, a: Side, b: Side, sizes: list[Extent], k: int, group: int) -> ir.Value:
    """Scales or zero points in groups of K: exact sums inside a group, f32 over groups in ascending order."""
    nb = len(sizes) - 2
    groups = k // group
    # Loops of the contraction: batch.., g, m, n, k. The accumulator is [batch.., G, M, N].
    g_loop, m_loop, n_loop, k_loop = nb, nb + 1, nb + 2, nb + 3
    to = number_type(a, b)
    a, b = _decoded(a, to), _decoded(b, to)
    integer = a.integer and b.integer
    wide = [*sizes[:nb], groups, *sizes[nb:]]
    inputs = Inputs()
    a_codes, b_codes = (split_groups(s, group) for s in (a, b))
    a_axes, b_axes = side_axes(a, sizes[:nb], m_loop, k_loop, g_loop), side_axes(b, sizes[:nb], n_loop, k_loop, g_loop)
    bounds = (a.magnitude(), b.magnitude()) if integer else None
    if not integer:
        a_codes, b_codes = (_plain_codes(s, c, to) for s, c in ((a, a_codes), (b, b_codes)))
    keep = list(range(nb + 3))
    acc = contract(a_codes, a_axes, b_codes, b_axes, wide, nb + 4, keep, bounds)
    inputs.add("acc", acc, keep)
    correction = None
    if integer:
        correction = add_corrections(inputs, a, b, a_codes, b_codes, a_axes, b_axes, wide, keep, nb, m_loop, n_loop,
                                     g_loop, group)  # fmt: skip
        if b.float_zero and "lhs_sum" not in inputs.names:
            sums = row_sums(a_codes, a_axes, wide, keep)
            inputs.add("lhs_sum", sums, [x for x in keep if x in a_axes])
    for side, row in ((a, m_loop), (b, n_loop)):
        if side.scale is not None:
            inputs.add(f"{side.name}_scale", side.scale, parameter_axes(side, side.scale, sizes[:nb], row, g_loop))
    if op.bias is not None and op.bias_stage == "acc":  # only if all of K is one group
        axes = Arg.aligned(op.bias, sizes).axes
        inputs.add("acc_bias", op.bias, [axis if axis is None or axis < nb else axis + 1 for axis in axes])
    if b.float_zero:
        if not integer:
            raise OpError(f"rhs_zero_mode '{b.mode}' needs integer codes on both sides, or a plain float 'lhs'")
        assert b.zero is not None
        inputs.add("float_zero", b.zero, parameter_axes(b, b.zero, sizes[:nb], n_loop, g_loop))
        if a.int_zero and a.zero is not None and "lhs_zero" not in inputs.names:
            inputs.add("lhs_zero", a.zero, parameter_axes(a, a.zero, sizes[:nb], m_loop, g_loop))

    def term(*scalars: ir.Value) -> ir.Value:
        named = inputs.named(scalars[:-1])
        total = scalars[-1]
        value = correction(named) if correction is not None else named["acc"]
        if "acc_bias" in named:
            value = arith.addi(value, named["acc_bias"])
        part = scaled(to_f32(value), named)
        if b.float_zero:
            row = named["lhs_sum"]
            if a.int_zero:
                za = a.whole_zero(named["lhs_zero"]) if "lhs_zero" in named else scalar(0, i32())
                za = arith.subi(za, scalar(a.offset, i32()))
                row = arith.subi(row, arith.muli(za, scalar(group, i32())))
            fix = to_f32(named["float_zero"])
            if "lhs_scale" in named:
                fix = arith.mulf(to_f32(named["lhs_scale"]), fix)
            fix = arith.mulf(to_f32(row), fix)
            part = add(part, fix) if b.mode == "offset_float" else sub(part, fix)
        return add(total, part)

    out_axes = [x for x in keep if x != g_loop]
    scales_only = inputs.names == ["acc", "lhs_scale", "rhs_scale"] and correction is None
    facts = {SCALES_GROUPS: PRESENT} if scales_only else None
    y = generic(inputs.args, filled(sizes, const(0.0)), out_axes, nb + 3, term, facts=facts)
    last = Inputs()
    last.add("y", y, range(nb + 2))
    for side in (a, b):
        if side.global_scale is not None:
            last.add(f"{side.name}_global", side.global_scale, (None,) * side.global_scale.type.rank)
    return finish(op, sizes, last, lambda named: apply_globals(named["y"], named))


def _plain_codes(side: Side, codes: ir.Value, to: str) -> ir.Value:
    """Codes as values of type `to` for a float contraction by groups. Integer codes with a zero point are refused: they
    cannot be mixed with tables yet."""
    if side.d.kind != "int":
        return codes
    if side.int_zero:
        raise OpError(f"'{side.name}' has an integer zero point, but the other side has float codes")
    sizes = dims(codes)
    t = element(to)
    return elementwise([Arg.aligned(codes, sizes)], sizes, t, lambda x: cast_f(to_f32(x), t))
