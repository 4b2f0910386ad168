"""The interface of a scheme of quantised layers, independent of the file format."""

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
        """One of these weights. Raises CheckpointError, which names the tensor."""
        ...
