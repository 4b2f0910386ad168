"""Shapes and element types of values, from the file, from onnx's inference and from raised operations.

Inference over the whole model stops at an operator of another domain. Each node that is not raised is therefore
inferred on its own, from the specs of its inputs at that point of the import.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import onnx
from onnx import shape_inference

from ...errors import FrontEndError
from ...spec import TensorSpec
from ..raising import Tensor
from .model import MOST_ELEMENTS, MOST_OF_A_SHAPE, Model, refuse
from .types import ELEMENTS, ONNX, element_name


class Shapes:
    """The specs of values, and the names of their dynamic sizes, by the name of the value."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._known: dict[str, TensorSpec] = {}
        self._names: dict[str, tuple[str, ...]] = {}  # of dynamic sizes
        graph = model.graph
        for value in [*graph.value_info, *graph.input, *graph.output, *self._inferred()]:
            spec = _spec(value.type)
            if spec is not None:
                self._known[value.name] = _merged(self._known.get(value.name), spec)
                names = tuple(d.dim_param for d in value.type.tensor_type.shape.dim)
                known = self._names.get(value.name, ())
                if len(known) == len(names):  # the model's own names have precedence over inferred ones
                    names = tuple(a or b for a, b in zip(known, names, strict=True))
                self._names[value.name] = names if not known or len(known) == len(names) else known

    def _inferred(self) -> Sequence[onnx.ValueInfoProto]:
        """The values that onnx infers from the whole model, without the data of large constants."""
        slim = onnx.ModelProto()
        slim.ir_version = self._model.proto.ir_version
        slim.opset_import.extend(self._model.proto.opset_import)
        graph, out = self._model.graph, slim.graph
        out.name = graph.name
        out.node.extend(graph.node)
        out.output.extend(graph.output)
        given = {v.name for v in graph.input}
        out.input.extend(graph.input)
        out.value_info.extend(graph.value_info)  # has names of sizes that inference does not find
        for t in graph.initializer:
            if len(t.raw_data) <= 8 * MOST_OF_A_SHAPE and t.data_location != onnx.TensorProto.EXTERNAL:
                out.initializer.append(t)
            elif t.name not in given:
                out.input.append(onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)))
        try:
            return list(shape_inference.infer_shapes(slim, data_prop=True).graph.value_info)
        except Exception:  # the import of the node reports what is wrong with it
            return []

    def spec(self, name: str) -> TensorSpec | None:
        return self._known.get(name)

    def named(self, name: str, shape: Sequence[int | None]) -> tuple[int | str, ...]:
        """The sizes of a value of that shape; a dynamic size is its name in the model, or "" if it has none."""
        names = self._names.get(name, ())
        if len(names) != len(shape):
            names = ("",) * len(shape)
        return tuple(n if size is None else size for size, n in zip(shape, names, strict=True))

    def learn(self, name: str, spec: TensorSpec, names: Sequence[int | str] = ()) -> None:
        """Record the spec of a value and, if given, the `names` of its dynamic sizes."""
        self._known[name] = spec
        if names:
            self._names[name] = tuple(n if isinstance(n, str) else "" for n in names)

    def learn_sizes(self, name: str, dtype: str, sizes: Sequence[int | str]) -> None:
        """Add `sizes` to what is known of a value; a dynamic size is its name, or "" if it has none."""
        spec = TensorSpec(tuple(s if isinstance(s, int) else None for s in sizes), dtype)
        known = self._known.get(name)
        if known is not None and len(known.shape) == len(sizes) and known.dtype == dtype:
            names = self.named(name, known.shape)
            self._known[name] = _merged(spec, known)
            self._names[name] = tuple(
                "" if isinstance(a, int) or isinstance(b, int) else a or b for a, b in zip(names, sizes, strict=True)
            )
        elif known is None:
            self.learn(name, spec, sizes)

    def learn_names(self, node: onnx.NodeProto, operands: Sequence[Tensor | None]) -> None:
        """Infer the names of the dynamic sizes of a node's results, if inference over the whole model did not reach
        it."""
        specs = ((name, self._known.get(name)) for name in node.output)
        if any(spec is not None and "" in self.named(name, spec.shape) for name, spec in specs):
            with suppress(FrontEndError):
                self._infer_one(node, operands, "")

    def infer(self, node: onnx.NodeProto, operands: Sequence[Tensor | None], where: str) -> list[TensorSpec | None]:
        """The specs of a node's results. Raises FrontEndError when a rank or an element type stays unknown."""
        found = self._infer_one(node, operands, where)
        specs: list[TensorSpec | None] = []
        for name in node.output:
            if not name:
                specs.append(None)
                continue
            own, whole = found.get(name), self._known.get(name)
            if own is not None and whole is not None and own.dtype != whole.dtype:
                raise refuse(f"{node.op_type} gives {name!r} as {own.dtype}, but the model states {whole.dtype}", where)
            spec = own if whole is None else _merged(own, whole) if own is not None else whole
            if spec is None:
                raise refuse(f"the shape of {name!r}, a result of {node.op_type}, cannot be inferred; add it to the "
                             "model's value_info", where)  # fmt: skip
            specs.append(spec)
        return specs

    def _infer_one(self, node: onnx.NodeProto, operands: Sequence[Tensor | None], where: str) -> dict[str, TensorSpec]:
        opset = self._model.torch_opset
        try:
            schema = onnx.defs.get_schema(node.op_type, opset, "")
        except onnx.defs.SchemaError:
            raise refuse(f"there is no operator {node.op_type} in opset {opset}", where) from None
        types: dict[str, onnx.TypeProto] = {}
        data: dict[str, onnx.TensorProto] = {}
        for name, t in zip(node.input, operands, strict=True):
            if t is None:
                continue
            named = [None if size == "" else size for size in self.named(name, t.shape)]
            types[name] = onnx.helper.make_tensor_type_proto(ONNX[t.dtype], named)
            if t.array is not None and t.array.size <= MOST_OF_A_SHAPE and t.dtype in ("i32", "i64", "f32", "f64"):
                data[name] = onnx.numpy_helper.from_array(t.array, name)
        opsets = [onnx.helper.make_opsetid("", opset)]
        try:
            found = shape_inference.infer_node_outputs(schema, node, types, data, None, opsets)
        except Exception as e:
            text = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
            raise refuse(f"{node.op_type} does not fit its inputs: {text}", where) from None
        specs: dict[str, TensorSpec] = {}
        for name, value in found.items():
            if value.tensor_type.elem_type and value.tensor_type.elem_type not in ELEMENTS:
                kind = element_name(value.tensor_type.elem_type)
                raise refuse(f"{node.op_type} gives {kind}, which is unsupported", where)
            spec = _spec(value)
            if spec is not None:
                specs[name] = spec
                if "" in self.named(name, spec.shape):
                    self._names[name] = tuple(d.dim_param for d in value.tensor_type.shape.dim)
        return specs


def _spec(value: onnx.TypeProto) -> TensorSpec | None:
    """A TypeProto as a spec; None when its rank or element type is unknown."""
    t = value.tensor_type
    if not value.HasField("tensor_type") or t.elem_type not in ELEMENTS or not t.HasField("shape"):
        return None
    shape = tuple(d.dim_value if d.HasField("dim_value") else None for d in t.shape.dim)
    if any(s is not None and (s < 0 or s > MOST_ELEMENTS) for s in shape):
        return _Impossible(shape, ELEMENTS[t.elem_type].dtype)
    return TensorSpec(shape, ELEMENTS[t.elem_type].dtype)


class _Impossible(TensorSpec):
    """A spec in the file that no program can have; a use of it is refused (`check_shape`)."""

    def _check(self) -> None:
        pass


def _merged(a: TensorSpec | None, b: TensorSpec) -> TensorSpec:
    """`b`, with static sizes of `a` in place of its dynamic ones if both have the same rank and dtype."""
    if a is None or len(a.shape) != len(b.shape) or a.dtype != b.dtype:
        return b
    return type(b)(tuple(y if y is not None else x for x, y in zip(a.shape, b.shape, strict=True)), b.dtype)


def factors(sizes: Sequence[int | str]) -> Counter[int | str] | None:
    """The prime factors and the names of a product of sizes; None if a size is unknown or zero."""
    found: Counter[int | str] = Counter()
    for size in sizes:
        if isinstance(size, str):
            names = size.split("*")
            if not all(map(str.isidentifier, names)):
                return None
            found.update(names)
            continue
        factor = 2
        while size > 1:
            while size % factor == 0:
                found[factor] += 1
                size //= factor
            factor = factor + 1 if factor * factor <= size else size
        if size == 0:
            return None
    return found
