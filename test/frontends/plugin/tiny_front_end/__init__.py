"""A front end for `.tiny` files, which hold the sizes `M K N` of an int8 product of their two arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from qmlir.errors import Diagnostic, FrontEndError
from qmlir.frontends import ImportOptions, Raising, Tensor

_PRODUCT = """
func.func @main(%x: tensor<{m}x{k}xi8>, %w: tensor<{k}x{n}xi8>) -> tensor<{m}x{n}xi32> {{
  %0 = "qmlir.scaled_matmul"(%x, %w)
      {{operand_names = ["lhs", "rhs"]}}
      : (tensor<{m}x{k}xi8>, tensor<{k}x{n}xi8>) -> tensor<{m}x{n}xi32>
  return %0 : tensor<{m}x{n}xi32>
}}
"""


class TinyFrontEnd:
    name = "tiny"

    def accepts(self, obj: Any) -> bool:
        return isinstance(obj, (str, os.PathLike)) and Path(obj).suffix == ".tiny"

    def import_(self, obj: Any, *, context: Any, options: ImportOptions) -> Any:
        from qmlir.core.mlir import ir

        words = Path(obj).read_text().split()
        if words == ["wrong"]:
            return "not a module"
        if words == ["defect"]:
            return {}["sizes"]
        if len(words) != 3 or not all(w.isdigit() for w in words):
            raise FrontEndError([Diagnostic(f"expected three sizes, got {len(words)} words", f"{options.name}:1:1")])
        m, k, n = map(int, words)
        options.report.add_raised("tiny.product", options.name, "qmlir.scaled_matmul")
        return ir.Module.parse(_PRODUCT.format(m=m, k=k, n=n))


def raise_twice(op: Raising) -> Tensor:
    """Raise `com.acme.Twice`, which doubles i8 codes and returns f32."""
    result: Tensor = op.build("dequant", input=op.operand(0), scale=np.float32(2.0))
    return result
