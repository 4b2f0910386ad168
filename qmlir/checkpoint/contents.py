"""Checkpoint: the tensors of a model by name, decoded when they are accessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..core.spelling import did_you_mean
from ..dialect.dtypes import Array
from ..errors import CheckpointError
from .value import QuantizedWeight

Value = Array | QuantizedWeight


@dataclass(frozen=True)
class Entry:
    """A tensor that has not been read: `kind` names how it is stored."""

    kind: str
    load: Callable[[], Value]
    shape: tuple[int, ...] | None = None  # None: known only once the tensor is loaded


class Checkpoint(Mapping[str, Value]):
    """Weights by name: a `QuantizedWeight`, or an array if it is not quantised (norms, biases, often embeddings).

    Attributes:
        path: the file or folder.
        container: `safetensors` or `gguf`.
        config: `config.json`, or the metadata of a GGUF file.
    """

    def __init__(self, path: Path, container: str, config: Mapping[str, object], entries: Mapping[str, Entry]) -> None:
        self.path, self.container, self.config = path, container, dict(config)
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Value:
        if name not in self._entries:
            raise CheckpointError(f"{self.path} has no tensor {name!r}{did_you_mean(name, self._entries)}")
        return self._entries[name].load()

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<qmlir checkpoint {self.path}: {self.container}, {len(self)} tensors>"

    def kind(self, name: str) -> str:
        """How a tensor is stored, such as `Q4_K` or `gptq`, without reading it."""
        return self._entries[name].kind

    def shape(self, name: str) -> tuple[int, ...]:
        """The logical shape of a tensor."""
        known = self._entries[name].shape
        return known if known is not None else self[name].shape

    def quantized(self, name: str) -> QuantizedWeight:
        """A quantised tensor. Raises CheckpointError if the tensor is not quantised."""
        value = self[name]
        if not isinstance(value, QuantizedWeight):
            raise CheckpointError(f"{self.path}: tensor {name!r} is not quantised, but {value.dtype}")
        return value
