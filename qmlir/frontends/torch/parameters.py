"""Store large weights in a parameter file, which is written once and loaded, not copied, at run time."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.fx import Node

from ...core.mlir import ir
from ...dialect.ops.common import tensor_type
from ...errors import UsageError
from ...ir.util_globals import declare, load_global, parameter
from ...spec import TensorSpec
from ..raising import Tensor
from .dtypes import FROM_TORCH, to_numpy

SCOPE = "model"
_MIN_BYTES = 1 << 16  # smaller weights are constants, which can be folded


class ParameterFile:
    """The weights of one program that are written to a file: `import_options={"parameters": "weights.irpa"}`."""

    def __init__(self, path: Path, least: int = _MIN_BYTES) -> None:
        if path.suffix not in (".irpa", ".safetensors"):
            raise UsageError(f"parameters go to a .irpa or .safetensors file, not to {path.name!r}")
        self.path, self.least = path, least
        self._tensors: dict[str, torch.Tensor] = {}
        self._names: dict[int, str] = {}

    def load(self, node: Node, value: torch.Tensor) -> Tensor | None:
        """The weight as the load of a global; None for a weight that stays a constant."""
        if value.numel() * value.element_size() < self.least or value.dtype not in FROM_TORCH:
            return None
        key = self._names.setdefault(id(value), str(node.target).removeprefix("_qmlir_"))
        self._tensors[key] = value
        spec = TensorSpec(tuple(value.shape), FROM_TORCH[value.dtype])
        return Tensor(spec, load_global(_symbol(key), tensor_type(spec.shape, spec.dtype)))

    def declare(self, module: ir.Module) -> None:
        """Declare the globals that the loads name, and write the file."""
        with ir.InsertionPoint.at_block_begin(module.body):
            for key, value in self._tensors.items():
                kind = tensor_type(tuple(value.shape), FROM_TORCH[value.dtype])
                declare(_symbol(key), kind, parameter(SCOPE, key, kind))
        self._write()

    def _write(self) -> None:
        arrays = {k: to_numpy(v) for k, v in self._tensors.items()}
        if self.path.suffix == ".safetensors":
            from safetensors.torch import save_file

            save_file({k: v.detach().contiguous() for k, v in self._tensors.items()}, str(self.path))
            return
        import iree.runtime as rt

        index = rt.ParameterIndex()
        for key, array in arrays.items():
            index.add_buffer(key, array.reshape(-1).view("u1").data)
        index.create_archive_file(str(self.path))


def _symbol(key: str) -> str:
    return f"parameter.{key}"
