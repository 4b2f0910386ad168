"""Reads the elements of `dense_resource` attributes from the text of their module: MLIR's bindings cannot."""

from __future__ import annotations

import re

import numpy as np

from ..core.mlir import ir
from ..dialect.dtypes import Array, NumpyType
from ..ir.resources import resource_name

_HEX = re.compile(r'([^\s"{]+|"[^"]+"): "0x([0-9A-Fa-f]+)"')
_ALIGNMENT = 4  # bytes in front of the elements, which state their alignment


class ModuleResources:
    """The resources of one module, which is printed when the first of them is requested."""

    def __init__(self, module: ir.Module) -> None:
        self._module = module
        self._by_name: dict[str, bytes] | None = None

    def array(self, attribute: ir.Attribute, dtype: NumpyType) -> Array | None:
        """The elements of a resource attribute; None for another attribute, or if their size does not fit the type."""
        name = resource_name(attribute)
        if name is None:
            return None
        if self._by_name is None:
            self._by_name = _read(self._module)
        shape = ir.RankedTensorType(attribute.type).shape
        raw = self._by_name.get(name, b"")[_ALIGNMENT:]
        if len(raw) != dtype.itemsize * int(np.prod(shape, dtype=np.int64)):
            return None
        return np.frombuffer(raw, dtype).reshape(shape)


def _read(module: ir.Module) -> dict[str, bytes]:
    text = module.operation.get_asm()
    start = text.rfind("dialect_resources:")
    return {} if start < 0 else {name: bytes.fromhex(code) for name, code in _HEX.findall(text[start:])}
