"""GGUF files: metadata, and tensors in ggml's block formats.

The header is read here and not by `gguf.GGUFReader`, which trusts lengths in the file (it walks an array that claims
to have 2^60 elements one by one). The gguf package gives the names of the types and their block sizes.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import importlib
import math
import struct
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypeAlias

import numpy as np

from ..dialect.dtypes import Array
from ..errors import CheckpointError, UsageError
from .contents import Checkpoint, Entry, Value
from .gguf_types import BLOCKS, PLAIN
from .mapped import mapped, view
from .value import QuantizedWeight

# Metadata value types, by number; 8 is a string and 9 an array.
_SCALARS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8",
            12: "<f8"}  # fmt: skip
_STRING, _ARRAY = 8, 9
_VERSIONS = (2, 3)
_MAX_DIMS = 4  # GGML_MAX_DIMS
_MAX_NAME = 1024
_MAX_DEPTH = 4  # of nested arrays


class _Tensor(NamedTuple):
    shape: tuple[int, ...]  # [.., N, K]: ggml lists the innermost axis first
    kind: str
    start: int
    nbytes: int


def open(path: Path) -> Checkpoint:
    """Open a file."""
    data = mapped(path)
    header = _Header(path, data)
    entries = {name: Entry(t.kind, partial(_load, path, data, name, t), t.shape) for name, t in header.tensors.items()}
    return Checkpoint(path, "gguf", header.metadata, entries)


def _load(path: Path, data: Array, name: str, t: _Tensor) -> Value:
    if t.kind in PLAIN:
        return view(data, t.start, t.nbytes, PLAIN[t.kind], t.shape)
    if t.kind not in BLOCKS:
        raise CheckpointError(f"{path}: tensor {name!r} is {t.kind}; known: {', '.join((*BLOCKS, *PLAIN))}")
    block, size = _sizes()[t.kind]
    raw = data[t.start : t.start + t.nbytes].reshape(*t.shape[:-1], t.shape[-1] // block, size)
    made = BLOCKS[t.kind](raw)
    return QuantizedWeight(name, t.shape, made.codes, made.scale, made.dtype, made.zero_point, made.zero_mode,
                           made.packing)  # fmt: skip


def _sizes() -> dict[str, tuple[int, int]]:
    """The number of weights and of bytes in a block, by type name."""
    gguf = _package()
    return {kind.name: gguf.GGML_QUANT_SIZES[kind] for kind in gguf.GGMLQuantizationType}


def _package() -> ModuleType:
    try:
        return importlib.import_module("gguf")
    except ImportError:
        raise UsageError("GGUF files need the package gguf: pip install 'qmlir[checkpoint]'") from None


# A metadata value; an array of numbers is a numpy array.
_Metadata: TypeAlias = "int | float | str | Array | list[_Metadata]"


class _Header:
    """The part of a file before the tensors' data. Each length is checked against the rest of the file before it is
    used, so that reading costs no more than the file's own size."""

    def __init__(self, path: Path, data: Array) -> None:
        self._path, self._data, self._at = path, data, 0
        self._names = {int(kind): kind.name for kind in _package().GGMLQuantizationType}
        if data[:4].tobytes() != b"GGUF":
            raise CheckpointError(f"{path} is not a GGUF file: it does not start with 'GGUF'")
        self._at = 4
        version = self._number("<u4", "the version")
        if version not in _VERSIONS:
            swapped = " (a big-endian file?)" if version % 65536 == 0 else ""
            raise CheckpointError(f"{path} is GGUF version {version}{swapped}; known: {', '.join(map(str, _VERSIONS))}")
        tensors = self._count("<u8", 24, "tensors")
        pairs = self._count("<u8", 13, "metadata")
        self.metadata: dict[str, _Metadata] = {}
        for _ in range(pairs):
            key = self._text("a metadata key")
            self.metadata[key] = self._value(self._number("<u4", repr(key)), f"metadata {key!r}")
        self.tensors = self._tensors(tensors)

    def _tensors(self, count: int) -> dict[str, _Tensor]:
        said = [self._info() for _ in range(count)]
        align = self.metadata.get("general.alignment", 32)
        if type(align) is not int or align <= 0 or align % 8 or align > 1 << 20:
            raise CheckpointError(f"{self._path}: general.alignment is {align!r}, which must be a multiple of 8")
        begin = -(-self._at // align) * align
        sizes, found = _sizes(), dict[str, _Tensor]()
        for name, shape, kind, offset in said:
            what = f"{self._path}: tensor {name!r}"
            if name in found:
                raise CheckpointError(f"{what} occurs twice")
            block, size = sizes[kind]
            if shape[-1] % block:
                raise CheckpointError(
                    f"{what} is {kind} with rows of {shape[-1]}, which are not whole blocks of {block}"
                )
            nbytes, room = math.prod(shape) // block * size, len(self._data) - begin
            if offset % align or offset + nbytes > room:
                raise CheckpointError(
                    f"{what} is {kind} {list(shape)}: {nbytes} bytes at {offset}, but the file holds {max(room, 0)} "
                    f"and tensors start at multiples of {align}"
                )
            found[name] = _Tensor(shape, kind, begin + offset, nbytes)
        return found

    def _info(self) -> tuple[str, tuple[int, ...], str, int]:
        name = self._text("a tensor's name", _MAX_NAME)
        rank = self._number("<u4", f"tensor {name!r}")
        if not 1 <= rank <= _MAX_DIMS:
            raise CheckpointError(f"{self._path}: tensor {name!r} has {rank} axes; there are 1 to {_MAX_DIMS}")
        shape = tuple(self._number("<u8", f"tensor {name!r}") for _ in range(rank))[::-1]
        kind = self._number("<u4", f"tensor {name!r}")
        if kind not in self._names:
            raise CheckpointError(f"{self._path}: tensor {name!r} has the type {kind}, which ggml does not have")
        return name, shape, self._names[kind], self._number("<u8", f"tensor {name!r}")

    # ---- primitives

    def _take(self, size: int, what: str) -> bytes:
        if size > len(self._data) - self._at:
            raise CheckpointError(f"{self._path} is truncated or damaged: {what} does not fit the file")
        self._at += size
        return self._data[self._at - size : self._at].tobytes()

    def _scalar(self, dtype: str, what: str) -> int | float:
        kind = np.dtype(dtype)
        value: int | float = np.frombuffer(self._take(kind.itemsize, what), kind)[0].item()
        return value

    def _number(self, dtype: str, what: str) -> int:
        return int(self._scalar(dtype, what))

    def _count(self, dtype: str, least: int, what: str) -> int:
        """Read a count of items that take at least `least` bytes each."""
        count = self._number(dtype, f"the number of {what}")
        if count * least > len(self._data) - self._at:
            raise CheckpointError(
                f"{self._path} is truncated or damaged: it says {count} {what}, more than it can hold"
            )
        return count

    def _text(self, what: str, most: int | None = None) -> str:
        (size,) = struct.unpack("<Q", self._take(8, what))
        if most is not None and size > most:
            raise CheckpointError(f"{self._path} is damaged: {what} has {size} bytes")
        return self._take(size, what).decode(errors="replace")

    def _value(self, kind: int, what: str, depth: int = 0) -> _Metadata:
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind], what)
        if kind == _STRING:
            return self._text(what)
        if kind != _ARRAY or depth == _MAX_DEPTH:
            raise CheckpointError(f"{self._path}: {what} has the type {kind}, which is not known")
        inner = self._number("<u4", what)
        if inner in _SCALARS:
            dtype = np.dtype(_SCALARS[inner])
            count = self._count("<u8", dtype.itemsize, f"elements of {what}")
            return np.frombuffer(self._take(count * dtype.itemsize, what), dtype)
        count = self._count("<u8", 8 if inner == _STRING else 12, f"elements of {what}")
        return [self._value(inner, what, depth + 1) for _ in range(count)]
