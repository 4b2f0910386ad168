"""Reads safetensors files, single or sharded, with the configuration in their folder.

The header is checked here, so that an error names its tensor, and then by the safetensors package, which is the
format's authority. The package's numpy interface supports neither bf16 nor one-byte floats, so tensors are views of
the mapped file. Format: https://github.com/huggingface/safetensors, section Format.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.spelling import did_you_mean
from ..dialect.dtypes import DTYPES, Array, NumpyType
from ..errors import CheckpointError
from .config import quantization_of, read_json
from .contents import Checkpoint, Entry, Value
from .mapped import mapped, view
from .registry import scheme_of
from .scheme import Scheme

# The format's limit on the header, in bytes.
_LARGEST_HEADER = 100_000_000
_DTYPES: dict[str, NumpyType] = {
    "BOOL": np.dtype(bool), "I8": np.dtype("i1"), "U8": np.dtype("u1"), "I16": np.dtype("i2"), "U16": np.dtype("u2"),
    "I32": np.dtype("i4"), "U32": np.dtype("u4"), "I64": np.dtype("i8"), "U64": np.dtype("u8"),
    "F16": np.dtype("f2"), "F32": np.dtype("f4"), "F64": np.dtype("f8"), "BF16": DTYPES["bf16"].numpy,
    "F8_E4M3": DTYPES["e4m3"].numpy, "F8_E5M2": DTYPES["e5m2"].numpy, "F8_E8M0": DTYPES["e8m0"].numpy,
}  # fmt: skip
# The names that schemes give to codes; a file with such a tensor and no configuration is refused.
_MARKS = (".qweight", ".weight_packed", ".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4")


class _Place(NamedTuple):
    data: Array
    start: int
    nbytes: int
    dtype: NumpyType
    shape: tuple[int, ...]


class ShardTensors(Mapping[str, Array]):
    """The tensors of all shards as views of the files."""

    def __init__(self, where: Path, places: Mapping[str, _Place]) -> None:
        self._where, self._places = where, dict(places)

    def __getitem__(self, name: str) -> Array:
        if name not in self._places:
            raise CheckpointError(f"{self._where} has no tensor {name!r}{did_you_mean(name, self._places)}")
        return view(*self._places[name])

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._places[name].shape


def open(path: Path) -> Checkpoint:
    """Open a file, or an index of shards."""
    files = _shards(path) if path.name.endswith(".json") else [path]
    places: dict[str, _Place] = {}
    for file in files:
        for name, place in _header(file).items():
            if name in places:
                raise CheckpointError(f"{file}: tensor {name!r} is in another shard too")
            places[name] = place
    tensors = ShardTensors(path, places)
    config, quantization, where = quantization_of(path.parent)
    if quantization is None:
        for name in tensors:
            if name.endswith(_MARKS):
                raise CheckpointError(
                    f"{path}: tensor {name!r} is quantised, but nothing beside the file says how: config.json with a "
                    "'quantization_config', quantize_config.json or quant_config.json"
                )
        return Checkpoint(path, "safetensors", config, _plain(tensors, set()))
    scheme = scheme_of(quantization, where)
    try:
        layers = scheme.layers(tensors)
    except CheckpointError as e:
        raise CheckpointError(f"{path}: {e}") from None
    used = {part for parts in layers.values() for part in parts}
    entries = _plain(tensors, used)
    method = str(quantization["quant_method"])
    entries |= {name: Entry(method, partial(_weight, scheme, name, tensors, path)) for name in layers}
    return Checkpoint(path, "safetensors", config, dict(sorted(entries.items())))


def read(path: Path) -> ShardTensors:
    """The tensors of one file; a configuration next to it is ignored."""
    return ShardTensors(path, _header(path))


def _plain(tensors: ShardTensors, used: set[str]) -> dict[str, Entry]:
    """Entries of the tensors that no quantised weight uses."""

    def load(name: str) -> Value:
        return tensors[name]

    return {n: Entry(str(tensors._places[n].dtype), partial(load, n), tensors.shape(n))
            for n in tensors if n not in used}  # fmt: skip


def _weight(scheme: Scheme, name: str, tensors: ShardTensors, path: Path) -> Value:
    try:
        return scheme.weight(name, tensors)
    except CheckpointError as e:
        raise CheckpointError(f"{path}: {e}") from None


def _shards(path: Path) -> list[Path]:
    """The files that an index names; they are in its folder."""
    index = read_json(path)
    weights = index.get("weight_map")
    if not isinstance(weights, dict) or not all(isinstance(v, str) for v in weights.values()):
        raise CheckpointError(f"{path} has no 'weight_map' from tensors to files")
    names = sorted(set(weights.values()))
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{path} names the shard {name!r}; shards are .safetensors files beside their index")
        if not (path.parent / name).is_file():
            raise CheckpointError(f"{path} names the shard {name!r}, which is missing")
    return [path.parent / name for name in names]


def _header(path: Path) -> dict[str, _Place]:
    """Name, type and range of each tensor, checked against the file."""
    data = mapped(path)
    size = int.from_bytes(data[:8].tobytes(), "little") if len(data) >= 8 else -1
    if not 2 <= size <= min(_LARGEST_HEADER, len(data) - 8):
        raise CheckpointError(f"{path} is truncated or not a safetensors file: its header does not fit the file")
    try:
        header = json.loads(data[8 : 8 + size].tobytes().decode())
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path} is damaged or not a safetensors file: its header is not JSON") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} is damaged or not a safetensors file: its header is not a JSON object")
    places = {name: _place(path, data, 8 + size, name, said) for name, said in header.items() if name != "__metadata__"}
    _check_by_package(path)
    return places


def _place(path: Path, data: Array, begin: int, name: str, said: object) -> _Place:
    what = f"{path}: tensor {name!r}"
    if not isinstance(said, dict) or not {"dtype", "shape", "data_offsets"} <= set(said):
        raise CheckpointError(f"{what} lacks one of dtype, shape and data_offsets")
    if said["dtype"] not in _DTYPES:
        raise CheckpointError(f"{what} has dtype {said['dtype']!r}; known: {', '.join(_DTYPES)}")
    shape, offsets = said["shape"], said["data_offsets"]
    if not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2:
        raise CheckpointError(f"{what} has shape {shape!r} at {offsets!r}; sizes and offsets are non-negative integers")
    room = len(data) - begin
    if not offsets[0] <= offsets[1] <= room:
        raise CheckpointError(f"{what} lies at bytes {offsets[0]} to {offsets[1]}, but the file holds {room}")
    dtype = _DTYPES[said["dtype"]]
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes != offsets[1] - offsets[0]:
        raise CheckpointError(
            f"{what} is {said['dtype']} {shape}, which takes {nbytes} bytes, but the file gives it "
            f"{offsets[1] - offsets[0]}"
        )
    return _Place(data, begin + offsets[0], nbytes, dtype, tuple(shape))


def _sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(s) is int and 0 <= s < 2**62 for s in value) and len(value) <= 32


def _check_by_package(path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):
            pass
    except (OSError, SafetensorError) as e:
        raise CheckpointError(f"{path} is damaged: {e}") from None
