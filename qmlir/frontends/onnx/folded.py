"""Fold nodes whose results follow from constants and from sizes that the graph states: exporters compute shapes, ends
of slices and image scales with nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from ...dialect.dtypes import Array
from ..raising import Tensor
from .model import MOST_OF_A_SHAPE
from .shapes import Shapes

# Operators that only move elements: a known element stays known, even if other elements are unknown.
_MOVES = {"Cast", "Concat", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"}
_ARITHMETIC = {
    "Abs", "Add", "And", "Ceil", "ConstantOfShape", "Div", "Equal", "Expand", "Floor", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Range", "ReduceProd", "Sub", "Where",
}  # fmt: skip
_TYPES = ("bool", "i32", "i64", "f32", "f64")
_INTEGERS = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
# Two stand-in values for an unknown size. An element that is the same with both is known.
_UNKNOWN = (-(2**62) - 1, -(2**62) - 3)


class Folding:
    """The known elements of small tensors, by the tensors' names."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._partly: dict[str, tuple[Array, Array]] = {}  # partly known: with either stand-in
        self._stand_ins: dict[str, tuple[int, int]] = {"": _UNKNOWN}  # by the name of a size

    def result(self, node: onnx.NodeProto, operands: Sequence[Tensor | None], opset: int) -> Array | None:
        """The result of a node; None if it is not wholly known."""
        if node.domain not in ("", "ai.onnx") or len(node.output) != 1:
            return None
        if node.op_type in ("Shape", "Size"):
            return None if operands[0] is None else self._sizes(node, operands[0].shape)
        if node.op_type not in _MOVES | _ARITHMETIC:
            return None
        given = [self._given(name, t) for name, t in zip(node.input, operands, strict=True)]
        if any(values is None for values in given):
            return None
        partial = [i for i, values in enumerate(given) if values and values[0] is not values[1]]
        if partial and not _only_moves(node, partial):
            return None
        made = []
        for number in range(2 if partial else 1):
            inputs = {n: values[number] for n, values in zip(node.input, given, strict=True) if values}
            found = _evaluated(node, inputs, opset)
            if found is None:
                return None
            made.append(found)
        return self._known(node.output[0], made[0], made[-1])

    def _sizes(self, node: onnx.NodeProto, shape: Sequence[int | None]) -> Array | None:
        ends = {a.name: a.i for a in node.attribute}
        if node.op_type == "Size":
            return None if None in shape else np.array(np.prod(np.array(shape, np.int64)), np.int64)
        named = self._shapes.named(node.input[0], shape)[ends.get("start", 0) : ends.get("end")]
        both = [(s, s) if isinstance(s, int) else self._stand_in(s) for s in named]
        one, other = np.array(both, np.int64).reshape(-1, 2).T
        return self._known(node.output[0], one, other)

    def _stand_in(self, name: str) -> tuple[int, int]:
        count = len(self._stand_ins)
        return self._stand_ins.setdefault(name, (_UNKNOWN[0] - 4 * count, _UNKNOWN[1] - 4 * count))

    def sizes(self, name: str, t: Tensor) -> tuple[int | str, ...] | None:
        """The list of sizes that a tensor holds; a dynamic size is its name, or "" if it has none. None if the length
        of the list is unknown."""
        if len(t.shape) != 1 or (count := t.shape[0]) is None or t.dtype not in ("i32", "i64"):
            return None
        given = self._given(name, t)
        if not given:
            return ("",) * count if count <= MOST_OF_A_SHAPE else None
        names = {pair: known for known, pair in self._stand_ins.items()}
        pairs = zip(given[0].tolist(), given[1].tolist(), strict=True)
        return tuple(a if a == b else names.get((a, b), "") for a, b in pairs)

    def _given(self, name: str, t: Tensor | None) -> tuple[Array, Array] | tuple[()] | None:
        """An operand's elements with either stand-in value; () for an absent operand, None for an unknown one."""
        if t is None:
            return ()
        if t.array is not None:
            return (t.array, t.array) if t.dtype in _TYPES and t.array.size <= MOST_OF_A_SHAPE else None
        return self._partly.get(name)

    def _known(self, name: str, one: Array, other: Array) -> Array | None:
        """The result if both stand-in values give the same; otherwise record it as partly known and return None."""
        if one is other or np.array_equal(one, other):
            return one
        self._partly[name] = one, other
        return None


def _only_moves(node: onnx.NodeProto, partial: Sequence[int]) -> bool:
    """Whether a node moves the elements of these operands without using their values. Indices, ends of slices and
    elements that are cast to a float or a bool are used by value."""
    if node.op_type == "Concat":
        return True
    if node.op_type == "Cast" and not any(a.name == "to" and a.i in _INTEGERS for a in node.attribute):
        return False
    return node.op_type in _MOVES and list(partial) == [0]


def _evaluated(node: onnx.NodeProto, inputs: Mapping[str, Array], opset: int) -> Array | None:
    """The result by the onnx package's reference evaluator. None if it does not implement the node, and for an integer
    Div or Mod with operands that are not positive, which implementations round differently."""
    if node.op_type in ("Div", "Mod") and any(a.dtype.kind == "i" and (a <= 0).any() for a in inputs.values()):
        return None
    types = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
    ]
    result = onnx.helper.make_empty_tensor_value_info(node.output[0])
    graph = onnx.helper.make_graph([node], "folded", types, [result])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)
    try:
        results: Any = ReferenceEvaluator(model).run(None, dict(inputs))
        found = np.asarray(results[0])
    except Exception:  # the import of the node reports what is wrong with it
        return None
    small = found.size <= MOST_OF_A_SHAPE and found.dtype.name in ("bool", "int32", "int64", "float32", "float64")
    return found if small else None
