"""Read ONNX models. Every size and offset is checked against the bytes of the file before anything is allocated, and
every refusal names the tensor or the node."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx

from ...dialect.dtypes import DTYPES, Array
from ...dialect.reference.packing import unpack
from ...errors import Diagnostic, FrontEndError
from .types import BITS, ELEMENTS, element_name, stored

# No tensor of a model that runs on one device has more elements: a larger size is damaged.
MOST_ELEMENTS = 2**31
MOST_OF_A_SHAPE = 1024  # constants with more elements are not shapes
OLDEST, NEWEST = 9, 28  # opsets of the default domain; the newest that was reviewed

_TYPED = {
    "float_data": (1, 14), "int32_data": (2, 3, 4, 5, 6, 9, 10, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26),
    "int64_data": (7,), "double_data": (11, 15), "uint64_data": (12, 13),
}  # fmt: skip


def refuse(message: str, where: str) -> FrontEndError:
    """An error at a tensor or a node."""
    return FrontEndError([Diagnostic(message, where)])


@dataclass
class Model:
    """A model, with its name and the folder of its external data."""

    proto: onnx.ModelProto
    name: str
    folder: Path | None  # of the external data; None if the model was not given as a path

    @property
    def graph(self) -> onnx.GraphProto:
        return self.proto.graph

    @cached_property
    def opsets(self) -> dict[str, int]:
        """Version by domain; the default domain is "" however it is spelled."""
        return {("" if o.domain == "ai.onnx" else o.domain): o.version for o in self.proto.opset_import}

    @property
    def torch_opset(self) -> int:
        """The opset of the default domain's nodes after `upgrade` rewrote them. The changes from opset 13 to 15 do not
        affect models, and torch-mlir converts BatchNormalization only from opset 15 on."""
        return max(self.opsets.get("", NEWEST), 15)

    def where(self, name: str) -> str:
        return f"{self.name}:{name}"

    def array(self, tensor: onnx.TensorProto) -> tuple[Array, str]:
        """The elements of a TensorProto and their dtype; external data is mapped, not read.

        Raises:
            FrontEndError: for an unsupported element type, an invalid size, or an invalid location of external data.
        """
        where = self.where(f"tensor {tensor.name!r}")
        if tensor.data_type not in ELEMENTS:
            raise refuse(f"the tensor is {element_name(tensor.data_type)}, which is unsupported", where)
        dims = tuple(tensor.dims)
        check_shape(dims, where)
        dtype, bits = ELEMENTS[tensor.data_type].dtype, BITS[tensor.data_type]
        size = (math.prod(dims) * bits + 7) // 8
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return stored(_elements(self._external(tensor, size, where), tensor.data_type, dims), dtype), dtype
        if tensor.HasField("raw_data"):
            if len(tensor.raw_data) != size:
                raise refuse(f"the tensor has {len(tensor.raw_data)} bytes, but its shape {list(dims)} takes {size}",
                             where)  # fmt: skip
            return stored(_elements(np.frombuffer(tensor.raw_data, np.uint8), tensor.data_type, dims), dtype), dtype
        self._check_typed(tensor, math.prod(dims), bits, where)
        try:
            return stored(onnx.numpy_helper.to_array(tensor), dtype), dtype
        except (ValueError, TypeError, OverflowError) as e:
            raise refuse(f"the tensor cannot be read: {e}", where) from None

    def _check_typed(self, tensor: onnx.TensorProto, count: int, bits: int, where: str) -> None:
        """Check that a tensor with typed data has as many elements as its shape. Raises FrontEndError."""
        field = next(f for f, kinds in _TYPED.items() if tensor.data_type in kinds)
        found = len(getattr(tensor, field))
        expected = (count * bits + 7) // 8 if bits < 8 else count
        if found != expected:
            raise refuse(f"the tensor has {found} values, but its shape {list(tensor.dims)} takes {expected}", where)

    def _external(self, tensor: onnx.TensorProto, size: int, where: str) -> Array:
        """The bytes of a tensor in a file in the model's folder, memory-mapped."""
        said = {e.key: e.value for e in tensor.external_data}
        location = said.get("location", "")
        if self.folder is None:
            raise refuse("the tensor has external data; pass the model as a path", where)
        place = Path(location)
        root = self.folder.resolve()
        path = (root / place).resolve()
        if not location or place.is_absolute() or not path.is_relative_to(root):
            raise refuse(f"the tensor's data is in {location!r}, which is not inside the model's folder", where)
        try:
            offset, length = int(said.get("offset", 0)), int(said.get("length", size))
        except ValueError:
            raise refuse(f"the tensor's data has offset {said.get('offset')!r} and length {said.get('length')!r}, "
                         "which are not numbers", where) from None  # fmt: skip
        if length != size:
            raise refuse(f"the tensor has {length} bytes in {location}, but its shape {list(tensor.dims)} takes {size}",
                         where)  # fmt: skip
        try:
            there = path.stat().st_size if path.is_file() else None
        except OSError:
            there = None
        if there is None:
            raise refuse(f"the tensor's data is in {location}, which is not a file", where)
        if offset < 0 or offset + length > there:
            raise refuse(f"the tensor's data is at bytes {offset} to {offset + length} of {location}, which has "
                         f"{there}", where)  # fmt: skip
        if not size:
            return np.zeros(0, np.uint8)
        return np.memmap(path, np.uint8, "r", offset, (length,))

    def digest(self) -> str:
        """A digest of the model and of all external data."""
        h = hashlib.sha256(self.proto.SerializeToString(deterministic=True))
        for tensor in tensors_of(self.graph):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                array, _ = self.array(tensor)
                h.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
        return h.hexdigest()


def check_shape(dims: tuple[int | None, ...], where: str) -> None:
    """Raise FrontEndError for a shape with a negative size or more than `MOST_ELEMENTS` elements."""
    known = [d for d in dims if d is not None]
    if any(d < 0 for d in known):
        raise refuse(f"the shape {list(dims)} has a negative size", where)
    if math.prod(known) > MOST_ELEMENTS:
        raise refuse(f"the shape {list(dims)} has more than 2^31 elements", where)


def _elements(raw: Array, kind: int, dims: tuple[int, ...]) -> Array:
    """Bytes as elements; sub-byte codes are unpacked (the first one is in the low bits)."""
    bits, dtype = BITS[kind], ELEMENTS[kind].dtype
    if bits >= 8:
        return raw.view(DTYPES[dtype].numpy).reshape(dims)

    return unpack(np.asarray(raw), dtype, "low_first", math.prod(dims)).reshape(dims)


def tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Every constant of a graph: initializers and the values of Constant nodes."""
    yield from graph.initializer
    for node in graph.node:
        for a in node.attribute:
            if a.type == onnx.AttributeProto.TENSOR:
                yield a.t


def load(source: onnx.ModelProto | Path | str, name: str) -> Model:
    """Read and check a model from a path or a ModelProto; local functions are inlined.

    Raises:
        FrontEndError: for a file that is not a model, or an unsupported model.
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        proto = onnx.ModelProto()
        try:
            data = path.read_bytes()
        except OSError as e:
            raise FrontEndError([], f"cannot read {path}: {e.strerror or e}") from None
        try:
            proto.ParseFromString(data)
        except Exception as e:  # protobuf's implementations raise different exception classes
            raise refuse(f"the file is truncated or not an ONNX model: {str(e).splitlines()[0]}", str(path)) from None
        model = Model(proto, name, path.parent)
    else:
        proto = onnx.ModelProto()
        proto.CopyFrom(source)
        model = Model(proto, name, None)
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise refuse("the file is truncated or not an ONNX model: it has no graph", name)
    _check_names(proto, name)
    if proto.functions:
        from onnx import inliner

        model.proto = inliner.inline_local_functions(proto)
    _check(model)
    return model


def _check_names(proto: onnx.ModelProto, name: str) -> None:
    """Raise FrontEndError if a name is not text: protobuf returns such a name as bytes, or raises when it is read."""
    graph = proto.graph
    try:
        names = [graph.name, *(o.domain for o in proto.opset_import), *(t.name for t in graph.initializer)]
        for v in [*graph.input, *graph.output, *graph.value_info]:
            names += [v.name, *(d.dim_param for d in v.type.tensor_type.shape.dim)]
        for n in graph.node:
            names += [n.name, n.op_type, n.domain, *n.input, *n.output, *(a.name for a in n.attribute)]
    except UnicodeDecodeError:
        names = [b""]
    if not all(isinstance(n, str) for n in names):
        raise refuse("the file is damaged: a name in it is not valid UTF-8", name)


def _check(model: Model) -> None:
    """Raise FrontEndError if the model lacks properties that the importer relies on."""
    if not model.opsets:
        raise refuse("the file is truncated or not an ONNX model: it states no opset", model.name)
    if "" in model.opsets and not OLDEST <= model.opsets[""] <= NEWEST:
        raise refuse(f"the model is of opset {model.opsets['']}; {OLDEST} to {NEWEST} are imported "
                     "(onnx.version_converter converts others)", model.name)  # fmt: skip
    graph = model.graph
    if graph.sparse_initializer:
        raise refuse("sparse initializers are not imported; store the tensor densely",
                     model.where(f"tensor {graph.sparse_initializer[0].values.name!r}"))  # fmt: skip
    if not graph.output:
        raise refuse("the graph has no outputs", model.name)
    for v in [*graph.input, *graph.output]:
        if not v.type.HasField("tensor_type") and v.type.WhichOneof("value") is not None:
            raise refuse(f"{v.type.WhichOneof('value').removesuffix('_type')} types are not imported; tensors only",
                         model.where(f"tensor {v.name!r}"))  # fmt: skip
