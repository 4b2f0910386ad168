"""An imported program: its text, and the arrays of its parameters."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.mlir import ir
from ..dialect.dtypes import DTYPES, Array, from_numpy
from ..errors import UsageError
from ..ir.util_globals import declare, load_global, parameter
from ..spec import TensorSpec

SCOPE = "model"
_SAFETENSORS = {"i8": "I8", "u8": "U8", "i16": "I16", "i32": "I32", "i64": "I64", "f16": "F16", "bf16": "BF16",
                "f32": "F32", "f64": "F64", "e4m3": "F8_E4M3", "e5m2": "F8_E5M2", "e8m0": "F8_E8M0"}  # fmt: skip


@dataclass(frozen=True)
class Imported:
    """A program and its weights.

    Attributes:
        text: MLIR. Weights are `#flow.parameter.named<"model"::key>`.
        parameters: arrays by key.
    """

    text: str
    parameters: Mapping[str, Array]

    def save(self, program: str | os.PathLike[str], parameters: str | os.PathLike[str]) -> None:
        """Write the program, and its parameters as a `.safetensors` file."""
        path = Path(parameters)
        if path.suffix != ".safetensors":
            raise UsageError(f"parameters go to a .safetensors file, not to {path.name!r}")
        write_safetensors(path, self.parameters)
        Path(program).write_text(self.text)


def write_safetensors(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write a file atomically, with one tensor in memory at a time. Tensors of wide elements come first and the header
    fills whole cache lines, so that every tensor is aligned to its element size."""
    order = sorted(tensors, key=lambda n: (-tensors[n].dtype.itemsize, n))
    header: dict[str, object] = {}
    at = 0
    for name in order:
        array = tensors[name]
        dtype = _SAFETENSORS[from_numpy(array.dtype)]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with partial.open("wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            for name in order:
                f.write(np.ascontiguousarray(tensors[name]).tobytes())
        partial.replace(path)
    except OSError as e:
        partial.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {e.strerror or e}") from None


class ParameterGlobals:
    """Declares globals in the module of the current insertion point, one per parameter, and loads them."""

    def __init__(self, module: ir.Module) -> None:
        self._module = module
        self._symbols: dict[str, str] = {}
        self.arrays: dict[str, Array] = {}

    def load(self, key: str, array: Array) -> tuple[ir.Value, TensorSpec]:
        """The parameter's value at the current insertion point, and its spec."""
        spec = TensorSpec(array.shape, from_numpy(array.dtype))
        t = ir.RankedTensorType.get(array.shape, ir.Type.parse(DTYPES[spec.dtype].mlir))
        if key not in self._symbols:
            symbol = re.sub(r"\W", "_", key)
            while symbol in self._symbols.values():  # "a.b" and "a_b" give the same symbol
                symbol += "_"
            self._symbols[key] = symbol
            self.arrays[key] = array
            with ir.InsertionPoint.at_block_begin(self._module.body):
                declare(symbol, t, parameter(SCOPE, key, t))
        return load_global(self._symbols[key], t), spec
