"""Corrections of an integer accumulator for zero points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....core.mlir import arith
from ....ir.build import Extent, scalar
from ....ir.scalars import i32
from .contraction import parameter_axes, row_sums
from .epilogue import Inputs, Named
from .values import Side

if TYPE_CHECKING:
    from ....core.mlir import ir


def add_corrections(
    inputs: Inputs, a: Side, b: Side, a_codes: ir.Value, b_codes: ir.Value, a_axes: Sequence[int | None],
    b_axes: Sequence[int | None], sizes: list[Extent], keep: list[int], nb: int, m_loop: int, n_loop: int,
    g_loop: int | None, k: int,
) -> Callable[[Named], ir.Value] | None:  # fmt: skip
    """Integer corrections for zero points: add their operands to `inputs` and return the body that applies them to
    `acc`; None if no correction is needed.

    With `za = zero_a - offset_a` (likewise `zb`):
    `sum (a - za)(b - zb) = sum ab - za * sum b - zb * sum a + K * za * zb`. `keep` are the loops of the
    accumulator, `sizes` their trip counts, `k` the number of elements of K that one accumulator sums.
    """
    za_due, zb_due = a.int_zero, b.int_zero and not b.float_zero
    if b.float_zero:
        zb_due = b.offset != 0
    if not (za_due or zb_due):
        return None
    for side, due, row in ((a, za_due, m_loop), (b, zb_due, n_loop)):
        if due and side.zero is not None and not side.float_zero:
            inputs.add(f"{side.name}_zero", side.zero, parameter_axes(side, side.zero, sizes[:nb], row, g_loop))
    if zb_due:
        sums = row_sums(a_codes, a_axes, sizes, keep)
        inputs.add("lhs_sum", sums, [x for x in keep if x in a_axes])
    if za_due:
        if b.sum is not None:
            # `b.sum` has all batch axes, also those of size one, and no axis of groups.
            inputs.add("rhs_sum", b.sum, (*b_axes[: b.batch], n_loop))
        else:
            inputs.add("rhs_sum", row_sums(b_codes, b_axes, sizes, keep), [x for x in keep if x in b_axes])

    return correction_body(a, b, za_due, zb_due, k)


def correction_body(a: Side, b: Side, za_due: bool, zb_due: bool, k: int) -> Callable[[Named], ir.Value]:
    """The body that corrects `acc` of a product or a convolution by the scalars `lhs_zero`, `rhs_zero` (if absent: the
    offset of the stored codes alone), `lhs_sum` and `rhs_sum`. `k` is the number of terms of one accumulator."""

    def zero_of(side: Side, named: Named) -> ir.Value:
        zero = named.get(f"{side.name}_zero")
        if zero is None:
            return scalar(-side.offset, i32())
        value = side.whole_zero(zero)
        return arith.subi(value, scalar(side.offset, i32())) if side.offset else value

    def body(named: Named) -> ir.Value:
        value = named["acc"]
        za = zero_of(a, named) if za_due else None
        zb = zero_of(b, named) if zb_due else None
        if za is not None:
            value = arith.subi(value, arith.muli(za, named["rhs_sum"]))
        if zb is not None:
            value = arith.subi(value, arith.muli(zb, named["lhs_sum"]))
        if za is not None and zb is not None:
            value = arith.addi(value, arith.muli(scalar(k, i32()), arith.muli(za, zb)))
        return value

    return body
