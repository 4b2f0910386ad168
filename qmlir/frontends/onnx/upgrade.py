"""Rewrite operators of opsets 9 to 12 to opset 13, the oldest that torch-mlir converts throughout.

Between these versions attributes became inputs; Softmax, which flattened its input, now works along one axis; Upsample
and the first Resize became a Resize with attributes that say how it maps coordinates and rounds them.
Source: ONNX, docs/Changelog.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from ..raising import Tensor
from .model import refuse

OLDEST_OF_TORCH = 13
# Attributes that became inputs: by operator, in the order in which they follow the other inputs.
_INPUTS = {
    "Squeeze": ("axes",),
    "Unsqueeze": ("axes",),
    "ReduceSum": ("axes",),
    "Split": ("split",),
    "Clip": ("min", "max"),
    "Pad": ("pads", "value"),
    "Dropout": ("ratio",),
    "Slice": ("starts", "ends", "axes"),
    "TopK": ("k",),
    "Upsample": ("scales",),
}
_ALONG_ONE_AXIS = ("Softmax", "LogSoftmax", "Hardmax")
_RESIZES = ("Upsample", "Resize")


def upgraded(
    proto: onnx.NodeProto, operands: Sequence[Tensor | None], opset: int, where: str
) -> tuple[onnx.NodeProto, list[Tensor | None]]:
    """Rewrite a node and its operands to opset 13. Raises FrontEndError for an operator that cannot be rewritten."""
    inputs = list(operands)
    if proto.op_type == "Slice" and len(inputs) > 4:
        inputs[1] = _from_the_last(*inputs[:2], *inputs[3:5])
    if opset >= OLDEST_OF_TORCH:
        return proto, inputs
    attributes = {a.name: a for a in proto.attribute}
    new = onnx.NodeProto()
    new.CopyFrom(proto)
    moved = _INPUTS.get(proto.op_type, ())
    found = [attributes.get(name) for name in moved]
    while found and found[-1] is None:
        found.pop()
    if found:
        del new.attribute[:]
        new.attribute.extend(a for a in proto.attribute if a.name not in moved)
        for i, a in enumerate(found):
            if a is None:
                inputs.append(None)
                new.input.append("")
                continue
            value = onnx.helper.get_attribute_value(a)
            array = np.asarray([value] if moved[i] == "k" else value)
            array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
            if array.dtype == np.float32 and not array.shape and inputs[0] is not None and inputs[0].array is None:
                array = array.astype(np.float32 if inputs[0].dtype == "f32" else np.float16)
            inputs.append(Tensor.constant(array))
            new.input.append(f"{proto.op_type}_{proto.name}_{moved[i]}")
    if opset < 11 and proto.op_type in _RESIZES:
        new.op_type = "Resize"
        new.input.insert(1, "")
        inputs.insert(1, None)
        new.attribute.append(onnx.helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
        new.attribute.append(onnx.helper.make_attribute("nearest_mode", _first_rounding(attributes, inputs[2], where)))
    if proto.op_type in _ALONG_ONE_AXIS:
        x = inputs[0]
        assert x is not None
        axis = int(onnx.helper.get_attribute_value(attributes["axis"])) if "axis" in attributes else 1
        if axis % max(len(x.shape), 1) != len(x.shape) - 1:
            raise refuse(f"{proto.op_type} of opset {opset} flattens its input from axis {axis}, which is not the last "
                         "one; onnx.version_converter converts the model", where)  # fmt: skip
        del new.attribute[:]
        new.attribute.append(onnx.helper.make_attribute("axis", -1))
    return new, inputs


def _first_rounding(attributes: Mapping[str, onnx.AttributeProto], scales: Tensor | None, where: str) -> str:
    """The `nearest_mode` of the first Resize: it rounds coordinates down when it enlarges a tensor, and up when it
    shrinks one. Source: onnxruntime, core/providers/cpu/tensor/upsamplebase.h."""
    factors = [] if scales is None or scales.array is None else scales.array.tolist()
    smaller = any(f < 1 for f in factors)
    if smaller and any(f > 1 for f in factors) and ("mode" not in attributes or attributes["mode"].s == b"nearest"):
        raise refuse("a Resize of opset 10 to the nearest elements that shrinks one axis and enlarges another "
                     "is not imported; onnx.version_converter converts the model", where)  # fmt: skip
    return "ceil" if smaller else "floor"


def _from_the_last(x: Tensor | None, starts: Tensor | None, axes: Tensor | None, steps: Tensor | None) -> Tensor | None:
    """The starts of a Slice. A start past the end, with a negative step, means the last element and becomes -1:
    torch-mlir would begin one element past the end."""
    if x is None or starts is None or starts.array is None or steps is None or steps.array is None:
        return starts
    if axes is not None and axes.array is None:
        return starts
    found = starts.array.astype(np.int64)
    which = range(len(found)) if axes is None or axes.array is None else axes.array
    for i, (axis, step) in enumerate(zip(which, steps.array, strict=True)):
        size = x.shape[int(axis) % len(x.shape)]
        if step < 0 and size != 0 and found[i] >= (np.iinfo(np.int32).max if size is None else size):
            found[i] = -1
    return Tensor.constant(found.astype(starts.array.dtype))
