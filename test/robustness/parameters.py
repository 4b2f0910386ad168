"""Parameter files that do not fit the program that reads them, at load time and at compile time."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from robustness.case import Feed, rows
from safetensors.numpy import save_file

import qmlir
from qmlir.errors import QmlirError, UsageError

WEIGHTS = """
util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<2x3xi8>
util.global private @s = #flow.parameter.named<"model"::"s"> : tensor<f32>
func.func @main(%x: tensor<4x2xi8>) -> tensor<4x3xf32> {
  %w = util.global.load @w : tensor<2x3xi8>
  %s = util.global.load @s : tensor<f32>
  %0 = "qmlir.scaled_matmul"(%x, %w, %s) {
    operand_names = ["lhs", "rhs", "rhs_scale"]
  } : (tensor<4x2xi8>, tensor<2x3xi8>, tensor<f32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}
"""
W, S = np.arange(6, dtype=np.int8).reshape(2, 3), np.array(0.5, np.float32)
X = np.ones((4, 2), np.int8)


@cache
def kept() -> qmlir.Artifact:
    """A program that reads its weights from a parameter file when it is loaded."""
    return qmlir.compile(WEIGHTS)


def parameter_file(folder: Path, suffix: str, arrays: dict[str, Any]) -> Path:
    path = folder / "p.safetensors"
    save_file(arrays, path)
    if suffix == "irpa":
        tool = str(Path(sys.executable).parent / "iree-convert-parameters")
        subprocess.run([tool, f"--parameters={path}", f"--output={folder / 'p.irpa'}"], check=True, capture_output=True)
    return folder / f"p.{suffix}"


FEEDS: dict[str, Feed] = {
    "parameters to load": lambda given, folder: qmlir.load(
        kept(), parameters={"model": str(parameter_file(folder, *given))}
    ),
    "parameters to bake in": lambda given, folder: qmlir.compile(
        WEIGHTS, parameters={"model": str(parameter_file(folder, *given))}
    ),
}
FILES: list[tuple[Any, str]] = [
    (("safetensors", {"W": W, "s": S}), r"p\.safetensors has no parameter 'w'; known: s, W"),
    (("safetensors", {"w": W[:1], "s": S}), r"'w' of .* is I8 \[1, 3\], but the program declares 2x3xi8"),
    (("safetensors", {"w": W.T.copy(), "s": S}), r"'w' of .* is I8 \[3, 2\], but the program declares 2x3xi8"),
    (("safetensors", {"w": W.astype(np.int32), "s": S}), r"'w' of .* is I32 \[2, 3\], but the program declares"),
    (("safetensors", {"w": W, "s": S.astype(np.int32)}), r"'s' of .* is I32 \[\], but the program declares f32"),
    (("irpa", {"W": W, "s": S}), r"p\.irpa has no parameter 'w'; known: s, W"),
    (("irpa", {"w": W[:1], "s": S}), r"'w' of .*p\.irpa has 3 bytes, but the program declares 2x3xi8"),
    (("irpa", {"w": W, "s": S.astype(np.float64)}), r"'s' of .*p\.irpa has 8 bytes, but the program declares f32"),
]
PLACE = r"-:5:\d+: error: .*p\.\w+ has no|-:\d:\d+: error: parameter '[ws]' "
CASES = [
    *rows("parameters to load", UsageError, FILES),
    *rows("parameters to bake in", QmlirError, [(given, PLACE) for given, _ in FILES]),
]
