"""What a scheme of quantised layers offers, whatever the format of the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..dialect.dtypes import Array
from .value import QuantizedWeight

TensorMap = Mapping[str, Array]


class Scheme(Protocol):
    """How quantised layers are stored among a checkpoint's tensors."""

    def layers(self, tensors: TensorMap) -> Mapping[str, tuple[str, ...]]:
        """The quantised weights by name, each with the names of the tensors that make it up."""
        ...

    def weight(self, name: str, tensors: TensorMap) -> QuantizedWeight:
        """One of them. Raises CheckpointError with the tensor's name."""
        ...
