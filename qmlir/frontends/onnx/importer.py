"""Import an ONNX graph as a module: each node, in order, is raised by its pattern or left to torch-mlir's conversion.

A node with a pattern becomes operations of the dialect on builtin tensors; every other node becomes
`torch.operator "onnx.X"`, which torch-mlir lowers to linalg (`lowering`). Values pass between the two kinds through
casts, in one context. Patterns look backwards through the graph: a QuantizeLinear absorbs the product before it.
Operations without uses are removed at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx

from ...compiler.front_end import ImportOptions
from ...compiler.patterns import foreign_patterns, pattern_for
from ...core.mlir import func, ir
from ...dialect.dtypes import DTYPES
from ...dialect.ops.common import tensor_type
from ...dialect.sizes import names_of
from ...errors import QmlirError
from ...ir.barriers import Reason, fusion_barrier
from ...ir.signature import state_signature
from ...ir.walk import operations_of, remove_unused
from ...spec import TensorSpec
from ..attention import AttentionCall
from ..raising import NotQuantised, PatternDeclined, Tensor
from ..tensors import cast_integer, cast_real, real
from . import patterns as _patterns  # noqa: F401  (registers the built-in patterns)
from .branches import branch
from .folded import Folding
from .functions import ALWAYS, inlined
from .lowering import FromTorch, OnnxUnconverted, lower_torch
from .model import Model, check_shape, load, refuse
from .node import Node, OnnxProduct
from .patterns.expanded import BROADCASTING, spread
from .quantised import is_quantised, no_pattern
from .shapes import Shapes
from .stated import learn_stated
from .types import ELEMENTS, element_name
from .upgrade import upgraded

if TYPE_CHECKING:
    from pathlib import Path

# Types of the attributes of com.microsoft's operators, for which the onnx package has no schemas.
_KINDS = {
    **dict.fromkeys(("K", "N", "accuracy_level", "axis", "bits", "block_size", "ceil_mode", "channels_last"), 2),
    **dict.fromkeys(("count_include_pad", "group", "keepdims", "opset", "output_dtype", "saturate"), 2),
    **dict.fromkeys(("transA", "transB", "gather_axis", "quantize_axis"), 2),
    **dict.fromkeys(("axes", "dilations", "kernel_shape", "pads", "strides"), 7),
    **dict.fromkeys(("do_rotary", "interleaved", "is_packed_batching", "kv_num_heads", "local_window_size"), 2),
    **dict.fromkeys(("mask_index_type", "num_heads", "qk_output", "rotary_embedding_dim", "rotary_interleaved"), 2),
    **dict.fromkeys(("smooth_softmax", "transBatchA", "transBatchB", "unidirectional"), 2),
    **dict.fromkeys(("alpha", "epsilon", "mask_filter_value", "scale", "softcap"), 1),
    **dict.fromkeys(("activation", "auto_pad"), 3),
    "qkv_hidden_sizes": 7,
}  # onnx.AttributeProto: 1 FLOAT, 2 INT, 3 STRING, 7 INTS
_SYNTHETIC = "(of qmlir)"  # in the names of tensors that are not in the graph
_SHORT = ("f16", "bf16")
# Operators that onnxruntime's optimisers add to the default domain, some before ONNX defined one of that name.
_ONNXRUNTIME_OPERATORS = ("LayerNormalization", "SimplifiedLayerNormalization")
# Computed in f32 even if their tensors are f16 or bf16: torch-mlir would round after every step.
_COMPUTED_IN_F32 = frozenset((
    "AveragePool", "BatchNormalization", "CumSum", "GlobalAveragePool", "GlobalLpPool", "GroupNormalization",
    "InstanceNormalization", "LRN", "LayerNormalization", "LogSoftmax", "LpNormalization", "LpPool",
    "MeanVarianceNormalization", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
))  # fmt: skip
# Operators whose result depends on signedness: torch has no u16 and u32, and torch-mlir reads u8 as i8 in some of them.
_SIGN_DEPENDENT = frozenset((
    "Abs", "ArgMax", "ArgMin", "Clip", "Div", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod",
    "Pow", "PRelu", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "Sign", "TopK",
))  # fmt: skip
_SIGNED = {"u8": "i32", "u16": "i32", "u32": "i64"}


def import_model(source: onnx.ModelProto | Path | str, context: ir.Context, options: ImportOptions) -> ir.Module:
    """Import a path or a ModelProto as a module: one public function `main` with the graph's inputs and outputs."""
    original = load(source, options.name)
    model = inlined(original, [t for t in ALWAYS if f"onnx.{t}" not in foreign_patterns()])
    while True:
        try:
            return GraphImporter(model, options).run()
        except OnnxUnconverted as e:
            simpler = inlined(model, [e.op_type])
            if simpler is model:
                raise refuse(f"{e.diagnostics[0].message}{_from_definition(e.op_type, original, model)}",
                             e.diagnostics[0].location) from None  # fmt: skip
            model = simpler
            for entries in (options.report.raised, options.report.fused, options.report.left):
                entries.clear()


def _from_definition(op_type: str, original: Model, model: Model) -> str:
    """A note for an operator that is not in the user's graph: the operators whose definitions it came from."""
    had, have = ({n.op_type for n in m.graph.node} for m in (original, model))
    replaced = sorted(had - have)
    return f"; it is part of ONNX's definition of {' or '.join(replaced)}" if op_type not in had and replaced else ""


class GraphImporter:
    """The import of one graph."""

    def __init__(self, model: Model, options: ImportOptions) -> None:
        self.model, self.options = model, options
        self.shapes = Shapes(model)
        self.nodes = [Node(self, proto, i) for i, proto in enumerate(model.graph.node)]
        self.producers: dict[str, Node] = {}
        self.uses: dict[str, int] = {}
        self._tensors: dict[str, Tensor] = {}
        self._folding = Folding(self.shapes)
        self._constants = {t.name: t for t in model.graph.initializer}
        self._outcome: dict[int, tuple[str, str]] = {}  # node -> ("raised" | "left" | "torch", why)
        self._readers: dict[str, set[int]] = {}  # tensor -> nodes that read it
        self.absorbed: dict[int, set[int]] = {}  # node -> nodes whose work its operation does
        self.products: dict[int, OnnxProduct] = {}  # node -> the product it was raised to, for nodes after it
        self.attentions: dict[int, AttentionCall] = {}
        for node in self.nodes:
            for name in node.proto.output:
                if name in self.producers:
                    raise refuse(f"tensor {name!r} is the output of two nodes", node.where)
            self._enter(node)
        for out in model.graph.output:
            self.uses[out.name] = self.uses.get(out.name, 0) + 1

    def _enter(self, node: Node) -> None:
        for name in filter(None, node.proto.output):
            self.producers[name] = node
        for name in node.proto.input:
            self.uses[name] = self.uses.get(name, 0) + 1
            self._readers.setdefault(name, set()).add(node.index)

    def run(self) -> ir.Module:
        """Build the module."""
        module = ir.Module.create(ir.Location.name(self.model.name))
        inputs = [v for v in self.model.graph.input if v.name not in self._constants]
        specs = [self._input_spec(v) for v in inputs]
        with ir.InsertionPoint(module.body), ir.Location.name(self.model.name):
            f = func.FuncOp("main", ([tensor_type(s.shape, s.dtype) for s in specs], []))
            self._meta(f)
            block = f.add_entry_block([ir.Location.name(self.model.where(v.name)) for v in inputs])
            for v, spec, argument in zip(inputs, specs, block.arguments, strict=True):
                self._tensors[v.name] = Tensor(spec, argument)
            self.from_torch = FromTorch(block)
            with ir.InsertionPoint(block):
                for node in list(self.nodes):  # `taken_apart` appends more
                    self._import(node)
                results = [self.tensor(o.name, None) for o in self.model.graph.output]
                func.ReturnOp([t.value for t in results])
            t = ir.FunctionType.get(
                [tensor_type(s.shape, s.dtype) for s in specs],
                [tensor_type(r.spec.shape, r.spec.dtype) for r in results],
            )
            f.attributes["function_type"] = ir.TypeAttr.get(t)
            stated = zip((v.name for v in inputs), (s.dtype for s in specs), _symbols(inputs), strict=True)
            state_signature(f.operation, stated, [r.dtype for r in results])
        self._report(f)
        remove_unused(f.operation)
        try:
            lower_torch(module, self.model.name, {node.where: node.op_type for node in self.nodes})
        except OnnxUnconverted as e:
            e.diagnostics[0] = replace(e.diagnostics[0], message=e.diagnostics[0].message + self._what_to_do(e))
            raise
        return module

    def _what_to_do(self, e: OnnxUnconverted) -> str:
        """A hint that names the inputs of the failed node that may have to be constants: torch-mlir converts many
        operators only if sizes, axes and the like are constant."""
        node = next((n for n in self.nodes if n.where == e.diagnostics[0].location and n.op_type == e.op_type), None)
        if node is None:
            return ""
        unknown = [n for n in node.proto.input[1:] if n and (t := self._tensors.get(n)) is not None
                   and t.array is None and DTYPES[t.dtype].kind == "int" and len(t.shape) <= 1]  # fmt: skip
        names = " and ".join(repr(n) for n in unknown)
        return (
            f"; {names} {'is not a constant' if len(unknown) == 1 else 'are not constants'}, which may be why"
            if names
            else ""
        )

    def tensor(self, name: str, user: Node | None) -> Tensor:
        """The tensor of that name. Raises FrontEndError when nothing before `user` makes it."""
        found = self._tensors.get(name)
        if found is None and name in self._constants:
            array, dtype = self.model.array(self._constants[name])
            found = self._tensors[name] = Tensor.constant(array, dtype)
        if found is None:
            where = user.where if user is not None else self.model.name
            what = (
                "is produced by a later node; the graph is not topologically sorted"
                if name in self.producers
                else "is not in the graph"
            )
            raise refuse(f"tensor {name!r} {what}", where)
        return found

    # ---- nodes

    def _import(self, node: Node) -> None:
        if node.op_type == "If" and (condition := node.optional(0)) is not None and condition.array is not None:
            nodes, constants = branch(node.proto, node.label, bool(condition.array.any()))
            self._constants |= {t.name: t for t in constants}
            self.taken_apart(node, nodes)
            return
        self._check(node)
        if node.op_type == "Constant" and "value" in node.attributes:
            t = next(a.t for a in node.proto.attribute if a.name == "value")
            array, dtype = self.model.array(t)
            self._tensors[node.proto.output[0]] = Tensor.constant(array, dtype)
            return
        known = self._folding.result(node.proto, node.operands, node.opset)
        if known is not None:
            self._tensors[node.proto.output[0]] = made = Tensor.constant(known)
            self.shapes.learn(node.proto.output[0], made.spec)
            return
        learn_stated(node, self.shapes, self._folding)
        pattern = pattern_for(node.name)
        reason = None
        if pattern is not None:
            try:
                with node.location:
                    tensors = node.raised_by(pattern)
            except NotQuantised:
                self.absorbed.pop(node.index, None)
            except PatternDeclined as e:
                reason = str(e)
                self.absorbed.pop(node.index, None)
            except QmlirError:
                raise
            except Exception as e:
                text = f"the raising pattern of {node.name} failed ({type(e).__name__}: {e})"
                raise refuse(text, node.where) from e
            else:
                self._bind(node, tensors)
                if node.proto.domain in ("", "ai.onnx"):
                    self.shapes.learn_names(node.proto, node.operands)
                if node.why_left or not node.plain:
                    self._outcome[node.index] = ("left", node.why_left) if node.why_left else ("raised", "")
                return
        if is_quantised(node.op_type):
            # torch-mlir converts some of these, and a few of them wrongly (per-channel QLinearConv).
            why = reason or no_pattern(node.op_type)
            raise refuse(
                f"the quantised operator {node.op_type}, as it is used here, is not imported: {why}", node.where
            )
        if reason is not None:
            self._outcome[node.index] = ("left", reason)
        self._as_torch(node, reason)

    def _check(self, node: Node) -> None:
        """Check that the node is an operator of its domain with valid inputs and attributes. Raises FrontEndError."""
        for a in node.proto.attribute:
            if a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
                raise refuse(f"{node.op_type} contains a subgraph; control flow is not imported, except an If whose "
                             "condition follows from constants and static sizes", node.where)  # fmt: skip
        has_schema = node.op_type not in _ONNXRUNTIME_OPERATORS or onnx.defs.has(node.op_type, node.opset, "")
        if node.proto.domain in ("", "ai.onnx") and has_schema:
            context = onnx.checker.DEFAULT_CONTEXT
            context.ir_version = max(self.model.proto.ir_version, 3)
            context.opset_imports = {"": node.opset}
            try:
                onnx.checker.check_node(node.proto, context)
            except Exception as e:  # a name that is not text raises other classes of errors
                raise refuse(f"{str(e).strip().splitlines()[0]}", node.where) from None
            return
        for a in node.proto.attribute:
            if _KINDS.get(a.name, a.type) != a.type or a.type == onnx.AttributeProto.UNDEFINED:
                raise refuse(f"attribute {a.name!r} of {node.op_type} has the wrong type", node.where)

    def _bind(self, node: Node, tensors: Sequence[Tensor]) -> None:
        names = list(node.proto.output)
        if len(tensors) < len([n for n in names if n]):
            raise refuse(f"the raising pattern of {node.name} gave {len(tensors)} results for {len(names)}", node.where)
        for name, t in zip(names, tensors, strict=False):
            if name:
                check_shape(t.shape, node.where)
                self._tensors[name] = t
                self.shapes.learn(name, t.spec)

    def _as_torch(self, node: Node, reason: str | None) -> None:
        """Build the node as a torch op for torch-mlir's conversion."""
        if node.proto.domain not in ("", "ai.onnx"):
            why = f": {reason}" if reason else ""
            raise refuse(f"the operator {node.op_type} is not imported{why}", node.where)
        proto, operands = upgraded(node.proto, node.operands, node.opset, node.where)
        if proto.op_type == "MaxPool" and operands[0] is not None and operands[0].array is None:
            operands[0] = Tensor(operands[0].spec, fusion_barrier(operands[0].value, Reason.POOLED))
        specs = wide = self.shapes.infer(proto, operands, node.where)
        if proto.op_type in BROADCASTING and any(t is not None and None in t.shape for t in operands):
            given = [t for t in operands if t is not None]
            names = [self.shapes.named(n, t.shape) for n, t in zip(filter(None, proto.input), given, strict=True)]
            result = () if specs[0] is None else self.shapes.named(proto.output[0], specs[0].shape)
            with node.location:
                operands = [*spread(given, names, result, node.where)]
        for spec in specs:
            if spec is not None:
                check_shape(spec.shape, node.where)
        with node.location:
            if proto.op_type in _COMPUTED_IN_F32:
                operands = [t if t is None or t.dtype not in _SHORT else real(t) for t in operands]
                wide = [s and TensorSpec(s.shape, "f32" if s.dtype in _SHORT else s.dtype) for s in specs]
            if proto.op_type in _SIGN_DEPENDENT:
                operands = [t and cast_integer(t, _SIGNED.get(t.dtype, t.dtype)) for t in operands]
                wide = [s and TensorSpec(s.shape, _SIGNED.get(s.dtype, s.dtype)) for s in wide]
            found = self.from_torch.operator(Node(self, proto, node.index), operands, wide)
            results = [t if s is None or s.dtype == t.dtype else cast_integer(t, s.dtype) if s.dtype in _SIGNED
                       else cast_real(t, s.dtype) for t, s in zip(found, specs, strict=True)]  # fmt: skip
        self._bind(node, results)

    def taken_apart(self, node: Node, parts: Sequence[onnx.NodeProto]) -> list[Tensor]:
        """Import the nodes `parts` in place of `node` and return its results."""
        for name in node.proto.input:
            self.uses[name] -= 1
            self._readers[name].discard(node.index)
        node.plain = True
        made = [Node(self, proto, len(self.nodes) + i) for i, proto in enumerate(parts)]
        self.nodes += made
        for part in made:
            self._enter(part)
        for part in made:
            self._import(part)
        return [self.tensor(name, node) for name in node.proto.output]

    def torch_op(
        self, op_type: str, operands: Sequence[Tensor | None], attributes: Sequence[onnx.AttributeProto], user: Node
    ) -> Tensor:
        """Build an operator of the default domain that is not in the graph, with the name and location of `user`, and
        return its first result. For patterns."""
        proto = onnx.NodeProto(op_type=op_type, name=user.label, output=[f"{_SYNTHETIC} result"])
        proto.input.extend(f"{_SYNTHETIC} operand {i}" if t is not None else "" for i, t in enumerate(operands))
        proto.attribute.extend(attributes)
        specs = self.shapes.infer(proto, operands, user.where)
        spec = specs[0]
        assert spec is not None
        check_shape(spec.shape, user.where)
        return self.from_torch.operator(Node(self, proto, user.index), operands, specs)[0]

    # ---- the function's signature and attributes, and the report

    def _input_spec(self, value: onnx.ValueInfoProto) -> TensorSpec:
        where = self.model.where(f"tensor {value.name!r}")
        spec = self.shapes.spec(value.name)
        if spec is None:
            kind = value.type.tensor_type.elem_type
            if kind and kind not in ELEMENTS:
                raise refuse(f"the input is {element_name(kind)}, which is unsupported", where)
            raise refuse("the input has no rank and element type; give it a shape (sizes may be dynamic)", where)
        check_shape(spec.shape, where)
        return spec

    def _meta(self, f: ir.OpView) -> None:
        """Set the attributes that torch-mlir's conversion reads: the opset and IR versions of the model."""
        si64 = ir.IntegerType.get_signed(64)
        f.attributes["torch.onnx_meta.opset_version"] = ir.IntegerAttr.get(si64, self.model.torch_opset)
        f.attributes["torch.onnx_meta.ir_version"] = ir.IntegerAttr.get(si64, self.model.proto.ir_version)

    def _report(self, f: ir.OpView) -> None:
        """Report each quantised node as fused, raised or left."""
        report = self.options.report
        taken = {i: by for by, many in self.absorbed.items() for i in many}
        became = {  # the last qmlir operation at the location of each node
            str(op.location): op.name
            for op in operations_of(f.operation.regions[0].blocks[0])
            if op.name.startswith("qmlir.")
        }
        for node in self.nodes:
            kind, detail = self._outcome.get(node.index, ("torch", ""))
            if node.index in taken and not self._still_used(node):
                report.add_fused(node.op_type, node.where, self.nodes[taken[node.index]].where)
            elif kind == "raised":
                report.add_raised(node.op_type, node.where, became.get(str(node.location), "linalg"))
            elif kind == "left":
                report.add_left(node.op_type, node.where, detail)

    def _still_used(self, node: Node) -> bool:
        """Whether a result of the node has a use other than by the nodes that absorbed it."""
        by = {b for b, many in self.absorbed.items() if node.index in many}
        names = {n for n in node.proto.output if n}
        if names & {o.name for o in self.model.graph.output}:
            return True
        readers = set().union(*(self._readers.get(name, set()) for name in names))
        return not all(r in by or any(r in self.absorbed.get(b, ()) for b in by) for r in readers)


def _symbols(inputs: Sequence[onnx.ValueInfoProto]) -> list[list[str]]:
    """The names of the sizes of each input, "" for a size that the model does not name."""
    stated = [[d.dim_param for d in v.type.tensor_type.shape.dim] for v in inputs]
    names = names_of([text for value in stated for text in value if text])
    return [[names.get(text, "") for text in value] for value in stated]


__all__ = ["GraphImporter", "import_model"]
