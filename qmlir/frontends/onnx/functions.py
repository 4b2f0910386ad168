"""Replace operators that ONNX defines by others (Attention, SoftmaxCrossEntropyLoss, ...) by their definitions if
torch-mlir does not convert them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import inliner

from .model import Model

# torch-mlir's conversion of these is wrong (weighted means) or missing: they are replaced without trying it first.
ALWAYS = ("Attention", "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss", "RMSNormalization", "RotaryEmbedding",
          "CausalConvWithState", "SwiGLU", "Swish")  # fmt: skip
_MAX_CONSTANT_BYTES = 1024  # of the constants that the inliner is given, because definitions may depend on them


def inlined(model: Model, op_types: Sequence[str]) -> Model:
    """`model` with operators of the default domain replaced by their definitions; `model` itself if it has none of
    these operators, or they have no definition."""
    wanted = {t for t in op_types if _defined(t, model.opsets.get("", 1))}
    if not wanted & {n.op_type for n in model.graph.node if n.domain in ("", "ai.onnx")}:
        return model
    graph = model.graph
    slim = onnx.ModelProto(ir_version=model.proto.ir_version, opset_import=model.proto.opset_import)
    slim.graph.name = graph.name
    slim.graph.node.extend(_complete(n, model.opsets.get("", 1)) if n.op_type in wanted else n for n in graph.node)
    slim.graph.input.extend(graph.input)
    slim.graph.output.extend(graph.output)
    slim.graph.value_info.extend(graph.value_info)
    given = {v.name for v in graph.input}
    for t in graph.initializer:
        described = onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims))
        if len(t.raw_data) <= _MAX_CONSTANT_BYTES and t.data_location != onnx.TensorProto.EXTERNAL:
            slim.graph.initializer.append(t)
            slim.graph.value_info.append(described)
        elif t.name not in given:
            slim.graph.input.append(described)
    try:
        slim = onnx.shape_inference.infer_shapes(slim)  # some definitions depend on types
        done = inliner.inline_selected_functions(slim, [("", t) for t in sorted(wanted)], inline_schema_functions=True)
    except Exception:  # the import refuses what the inliner does not understand
        return model
    if {n.op_type for n in done.graph.node} & wanted:
        return model
    made = onnx.ModelProto(ir_version=model.proto.ir_version, opset_import=model.proto.opset_import)
    made.graph.name = graph.name
    made.graph.node.extend(done.graph.node)
    made.graph.input.extend(graph.input)
    made.graph.output.extend(graph.output)
    made.graph.value_info.extend(graph.value_info)
    made.graph.initializer.extend(graph.initializer)
    return Model(made, model.name, model.folder)


def _complete(node: onnx.NodeProto, opset: int) -> onnx.NodeProto:
    """A copy of a node with its default attributes written out: the inliner does not know the defaults."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    given = {a.name for a in node.attribute}
    attributes = onnx.defs.get_schema(node.op_type, opset, "").attributes
    made.attribute.extend(a.default_value for n, a in attributes.items() if n not in given and a.default_value.name)
    return made


def _defined(op_type: str, opset: int) -> bool:
    try:
        schema: Any = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
