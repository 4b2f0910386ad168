"""What an op says of an operand of codes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CodedOperand:
    """An operand of codes, and the names of the op's fields that say how they are read: the attribute of its dtype, its
    scale and zero points (of several operands where they share the attributes), the attributes of the zero points' mode
    and of how the codes are packed (`""` where they are not)."""

    operand: str
    dtype: str
    scale: str
    zero_points: tuple[str, ...]
    mode: str
    packing: str = ""


def product_sides(lhs: str, rhs: str, a: str = "lhs", b: str = "rhs") -> tuple[CodedOperand, CodedOperand]:
    """The activations `lhs`, whose other fields begin with `a`; the weights `rhs`, which may be packed, with `b`."""
    return (
        CodedOperand(lhs, f"{a}_dtype", f"{a}_scale", (f"{a}_zero_point",), f"{a}_zero_mode"),
        CodedOperand(rhs, f"{b}_dtype", f"{b}_scale", (f"{b}_zero_point",), f"{b}_zero_mode", f"{b}_packing"),
    )
