"""Which fields of an op describe an operand of codes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CodedOperand:
    """An operand of codes, and the names of the op's fields that say how they are decoded: the attribute with its
    dtype, its scale, its zero points (of several operands if they share the attributes), and the attributes with the
    zero mode and the packing (`""` if the codes cannot be packed)."""

    operand: str
    dtype: str
    scale: str
    zero_points: tuple[str, ...]
    mode: str
    packing: str = ""


def product_sides(lhs: str, rhs: str, a: str = "lhs", b: str = "rhs") -> tuple[CodedOperand, CodedOperand]:
    """The activations `lhs` and the weights `rhs`, which may be packed. `a`, `b`: the prefixes of their fields."""
    return (
        CodedOperand(lhs, f"{a}_dtype", f"{a}_scale", (f"{a}_zero_point",), f"{a}_zero_mode"),
        CodedOperand(rhs, f"{b}_dtype", f"{b}_scale", (f"{b}_zero_point",), f"{b}_zero_mode", f"{b}_packing"),
    )
