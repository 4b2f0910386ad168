"""Lower nodes without a raising pattern: build ops of torch's dialect, which torch-mlir's passes lower to linalg on
tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from ...core.mlir import ir
from ...core.spelling import location_text
from ...dialect.dtypes import Array
from ...dialect.ops.common import tensor_type
from ...errors import Diagnostic, FrontEndError
from ...ir.build import truths
from ...ir.walk import collect
from ...spec import TensorSpec
from ..raising import Tensor
from ..torch_mlir import to_linalg, without_ir
from .model import refuse
from .node import Node
from .types import TORCH, vtensor

_HEAD = (
    "func.func(convert-torch-onnx-to-torch)",
    "func.func(torch-reduce-op-variants,canonicalize,torch-scalarize-shapes)",
)

_CONSTANTS = ("torch.constant", "torch.vtensor", "torch.prim")


class OnnxUnconverted(FrontEndError):
    """torch-mlir does not convert a node; `op_type` is its operator, "" if it is not known."""

    def __init__(self, diagnostics: list[Diagnostic], op_type: str) -> None:
        self.op_type = op_type
        super().__init__(diagnostics)


def lower_torch(module: ir.Module, name: str, operators: Mapping[str, str]) -> None:
    """Lower every torch op of `module`. `operators`: each node's operator by its location. Raises OnnxUnconverted,
    which names the node, if one is not converted."""
    found = ""

    def blame(diagnostics: list[Diagnostic]) -> Diagnostic | None:
        nonlocal found
        if not diagnostics:
            return None
        d = diagnostics[0]
        place = d.location if d.location in operators else next((w for w in operators if w in d.location), "")
        named = re.search(r'"onnx\.(\w+)"', d.message)
        if not named and not place:  # about a constant that several nodes read: it has no location
            place = _left_over(module, operators)
        found = named[1] if named else operators.get(place, "")
        if not found:
            return Diagnostic(without_ir(d.message), d.location)
        why = "" if named or "'torch.constant" in d.message else f": {without_ir(d.message)}"
        return Diagnostic(f"the operator {found}, as it is used here, is not converted by torch-mlir{why}",
                          place or d.location)  # fmt: skip

    try:
        to_linalg(module, _HEAD, name, blame)
    except FrontEndError as e:
        raise OnnxUnconverted(e.diagnostics, found) from None


def _left_over(module: ir.Module, operators: Mapping[str, str]) -> str:
    """The location of the first node that still has torch ops, "" if there is none: nodes that torch-mlir converted
    before it failed have none left."""
    left = collect(module, where=lambda op: op.name.startswith("torch.") and not op.name.startswith(_CONSTANTS))
    places = (location_text(op.location) for op in left)
    return next((w for p in places for w in operators if w == p or w in p), "")


class FromTorch:
    """Builds torch ops on `Tensor`s. The cast of a tensor to torch's type is built once and cached."""

    def __init__(self, block: ir.Block) -> None:
        self._block = block
        self._none: ir.Value | None = None
        self._cast: dict[int, tuple[Tensor, ir.Value]] = {}
        for dialect in ("torch", "torch_c"):
            block.owner.context.get_dialect_descriptor(dialect)

    def operator(
        self, node: Node, operands: Sequence[Tensor | None], specs: Sequence[TensorSpec | None]
    ) -> list[Tensor]:
        """Build `torch.operator "onnx.X"` for a node and return its results as tensors."""
        values = [self._absent() if t is None else self.torch_value(t) for t in operands]
        attributes = {f"torch.onnx.{a.name}": _attribute(node, a) for a in node.proto.attribute}
        for a in _defaults(node):  # torch-mlir's own defaults are rounded (Selu)
            attributes.setdefault(f"torch.onnx.{a.name}", _attribute(node, a))
        attributes["name"] = ir.StringAttr.get(f"onnx.{node.proto.op_type}")
        kinds = [ir.Type.parse("!torch.none") if s is None else ir.Type.parse(vtensor(s.shape, s.dtype)) for s in specs]
        op = ir.Operation.create("torch.operator", results=kinds, operands=values, attributes=attributes)
        return [_tensor(v, s) if s is not None else Tensor(TensorSpec((), "f32"), v)
                for v, s in zip(op.results, specs, strict=True)]  # fmt: skip

    def torch_value(self, t: Tensor) -> ir.Value:
        """The tensor as a value of torch's tensor type."""
        if id(t) in self._cast:
            return self._cast[id(t)][1]
        kind = ir.Type.parse(vtensor(t.shape, t.dtype))
        if t.array is not None:
            made = ir.Operation.create("torch.vtensor.literal", results=[kind], attributes={"value": literal(t)}).result
        else:
            value = t.value
            made = ir.Operation.create("torch_c.from_builtin_tensor", results=[kind], operands=[value]).result
        self._cast[id(t)] = (t, made)
        return made

    def _absent(self) -> ir.Value:
        if self._none is None:
            with ir.InsertionPoint.at_block_begin(self._block):
                none = ir.Type.parse("!torch.none")
                self._none = ir.Operation.create("torch.constant.none", results=[none]).result
        return self._none


def _tensor(value: ir.Value, spec: TensorSpec) -> Tensor:
    builtin = ir.Operation.create(
        "torch_c.to_builtin_tensor", results=[tensor_type(spec.shape, spec.dtype)], operands=[value]
    ).result
    return Tensor(spec, builtin)


def literal(t: Tensor) -> ir.Attribute:
    """A constant as the attribute that torch's ops take: its integer types carry signedness."""
    assert t.array is not None
    return _elements(t.array, ir.Type.parse(TORCH[t.dtype]))


def _elements(array: Array, element: ir.Type) -> ir.Attribute:
    kind = ir.RankedTensorType.get(array.shape, element)
    if array.size == 0:
        return ir.Attribute.parse(f"dense<> : {kind}")
    array = np.asarray(array, order="C")  # ascontiguousarray turns a scalar into a vector
    if array.dtype == np.bool_:
        made: ir.Attribute = truths(array)
        return made
    plain = array if array.dtype.name in ("float16", "float32", "float64") else array.view(f"i{array.dtype.itemsize}")
    if str(element).startswith("ui") or str(element).startswith(("bf", "f8")):
        plain = plain.view(f"u{plain.dtype.itemsize}")
    if array.ndim == 0:  # the bindings' buffer protocol takes no scalars
        plain = plain.reshape(1)
        one = ir.DenseElementsAttr.get(plain, type=ir.RankedTensorType.get([1], element))
        return ir.DenseElementsAttr.get_splat(kind, one.get_splat_value())
    return ir.DenseElementsAttr.get(plain, type=kind)


def _defaults(node: Node) -> list[onnx.AttributeProto]:
    """ONNX's default values of the float attributes of a node."""
    try:
        schema = onnx.defs.get_schema(node.proto.op_type, node.opset, node.proto.domain)
    except onnx.defs.SchemaError:
        return []
    return [a.default_value for a in schema.attributes.values() if a.default_value.type == onnx.AttributeProto.FLOAT]


def _attribute(node: Node, a: onnx.AttributeProto) -> ir.Attribute:
    """An attribute of a node as torch-mlir's conversion reads it."""
    f32, si64 = ir.F32Type.get(), ir.IntegerType.get_signed(64)
    kind = onnx.AttributeProto
    if a.type == kind.FLOAT:
        return ir.FloatAttr.get(f32, a.f)
    if a.type == kind.INT:
        return ir.IntegerAttr.get(si64, a.i)
    if a.type == kind.STRING:
        return ir.StringAttr.get(a.s.decode(errors="replace"))
    if a.type == kind.FLOATS:
        return ir.ArrayAttr.get([ir.FloatAttr.get(f32, x) for x in a.floats])
    if a.type == kind.INTS:
        return ir.ArrayAttr.get([ir.IntegerAttr.get(si64, x) for x in a.ints])
    if a.type == kind.STRINGS:
        return ir.ArrayAttr.get([ir.StringAttr.get(x.decode(errors="replace")) for x in a.strings])
    if a.type == kind.TENSOR:
        array, dtype = node.graph.model.array(a.t)
        return literal(Tensor.constant(array, dtype))

    raise refuse(f"attribute {a.name!r} of {node.op_type} has a type that is not imported", node.where)
