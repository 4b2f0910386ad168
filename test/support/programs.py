"""Programs that several tests compile."""

from __future__ import annotations


def product(m: int, k: int, n: int) -> str:
    """The text of an int8 product of two arguments; its result is the i32 sums."""
    lhs, rhs, out = f"tensor<{m}x{k}xi8>", f"tensor<{k}x{n}xi8>", f"tensor<{m}x{n}xi32>"
    return f"""
func.func @main(%x: {lhs}, %w: {rhs}) -> {out} {{
  %0 = "qmlir.scaled_matmul"(%x, %w) {{
    operand_names = ["lhs", "rhs"]
  }} : ({lhs}, {rhs}) -> {out}
  return %0 : {out}
}}
"""
