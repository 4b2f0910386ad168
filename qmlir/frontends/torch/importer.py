"""Import a raised FX graph into a module with torch-mlir's importer, in the compiler's own context.

A node with a raising pattern (the built-in ones are those of `torch.ops.qmlir.*`) is imported as operations of the
dialect on builtin tensors; the other nodes become ops of the torch dialect, which torch-mlir's passes lower to linalg.
The casts between the two kinds of tensors vanish at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from iree.compiler.extras import fx_importer
from torch.fx import Node

from ...compiler.front_end import ImportReport
from ...compiler.patterns import pattern_for
from ...core.mlir import arith, ir, tensor
from ...dialect.ops.common import tensor_type
from ...dialect.sizes import Size, names_of
from ...errors import Diagnostic, FrontEndError
from ...ir import build
from ...ir.checks import assert_that
from ...ir.resources import keep_array
from ...ir.signature import state_signature
from ...ir.walk import defining_op, functions, remove_unused
from ..raising import NotQuantised, PatternDeclined, Tensor
from . import patterns as _patterns  # noqa: F401  (registers the built-in patterns)
from .decompose import decompose, decompose_known, of_one_size
from .dtypes import FROM_TORCH, TO_TORCH, to_numpy
from .graph import TorchGraph, about, aten, dtype_of, is_tensor, shape_of, source_line, where
from .indices import count_from_the_front, read, read_by_us
from .known import fold_known
from .lowering import Places, TorchUnconverted, lower_torch
from .node import TorchNode, spec_of
from .parameters import ParameterFile
from .raise_ import is_quantised, label
from .size_functions import rewrite_size_functions
from .sizes import LEAST_OF_TORCH, settle_sizes
from .state import hold_state
from .views import RESHAPES, listed_sizes, reshape, size_from

if TYPE_CHECKING:
    import sympy
    from torch._ops import OpOverload
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from ...core.mlir import OpLike

# Small constants of these must not be resources, as torch-mlir's importer makes them (`FAULTS` of `ir/resources.py`).
_NARROW_FLOATS = (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
_FLOAT_BYTES = 4096  # larger constants become resources; IREE's limit is 256
# Tables of positions and the like: bounds of indices follow from their elements, which no pass can read in a resource.
_INTEGERS = (torch.int64, torch.int32)
_INTEGER_BYTES = 1 << 16  # larger tables become resources
# torch-mlir's conversions of these crash the process for an axis counted from the end.
_NEED_POSITIVE_AXIS = frozenset((
    aten.scatter.value, aten.scatter.src, aten.scatter.reduce, aten.scatter.value_reduce, aten.scatter_add.default,
    aten.scatter_reduce.two, aten.gather.default, aten.index_select.default,
))  # fmt: skip
_MAIN = "main"
_MAX_ROUNDS = 64  # of decomposing; a model has fewer kinds of operators that need it


class Importer(fx_importer.GraphNodeImporter):  # type: ignore[misc]
    """torch-mlir's importer of nodes, extended to try a raising pattern first."""

    graph: TorchGraph
    report: ImportReport
    places: Places
    parameters: ParameterFile | None = None
    __slots__ = ("_builtin", "_codes")

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self._builtin: dict[Node, Tensor] = {}
        self._codes: list[torch.Tensor] = []

    def _import_literal(self, py_value: object, info: object = None) -> ir.Value:
        """torch-mlir identifies constants by their addresses, and converts a bool tensor to temporary bytes: the next
        temporary could get the same address and be taken for the first. So these bytes are kept alive."""
        if not isinstance(py_value, torch.Tensor) or py_value.dtype != torch.bool:
            made: ir.Value = super()._import_literal(py_value, info)
            if isinstance(py_value, torch.Tensor) and py_value.dtype in FROM_TORCH:
                keep_array(defining_op(made).attributes["value"], to_numpy(py_value))
            return made
        self._codes.append(py_value.to(torch.uint8))
        made = super()._import_literal(self._codes[-1], info)
        made = self._convert_type(made, torch.Tensor, torch.bool, py_value.size())
        return made

    def _import_torch_op_overload(
        self, loc: ir.Location, node: Node, concrete_target: OpOverload | None = None
    ) -> None:
        self.places.add(loc, node)
        pattern = pattern_for(label(node)) if concrete_target is None else None
        if pattern is not None:
            try:
                with loc:
                    results = TorchNode(self.tensor, node, loc).raised_by(pattern)
                for i, t in enumerate(results):
                    self._bind(node, i, t, len(results) > 1)
                if is_quantised(node):
                    self.report.add_raised(label(node), where(node), "a pattern's operations")
                return
            except NotQuantised:
                pass
            except PatternDeclined as e:
                if label(node).startswith("torch.qmlir."):
                    raise FrontEndError([Diagnostic(str(e), where(node))]) from None
                self.report.add_left(label(node), where(node), str(e))
        if node.target in RESHAPES and self._reshape(loc, node):
            return
        _check_is_converted(node)
        if read_by_us(node):
            listed: Sequence[Node | None] = node.args[1]
            with loc:
                value = read(self.tensor(node.args[0]).value, [p and self.tensor(p).value for p in listed])
                self._bind(node, 0, Tensor(spec_of(node.meta["val"]), value), several=False)
            return
        super()._import_torch_op_overload(loc, node, concrete_target)

    def _reshape(self, loc: ir.Location, node: Node) -> bool:
        """Import a view with dynamic sizes by `views.reshape`; False for a view without."""
        source: torch.fx.Node = node.args[0]
        old, new = shape_of(source), shape_of(node)
        if not old or not new or 0 in (*old, *new) or all(isinstance(s, int) for s in (*old, *new)):
            return False
        listed = listed_sizes(node)

        def size_of(j: int) -> ir.Value | None:
            said = listed.get(j)
            return size_from(self.resolve_node_value(said)) if isinstance(said, Node) else None

        with loc:
            value = reshape(self.tensor(source).value, old, new, size_of)
            self._bind(node, 0, Tensor(spec_of(node.meta["val"]), value), several=False)
        return True

    def _import_get_attr(self, loc: ir.Location, node: Node) -> None:
        if (node, 0) in self._v:
            return
        value = self.graph.attribute(node)
        kept = self.parameters.load(node, value) if self.parameters is not None else None
        most = _FLOAT_BYTES if value.dtype in _NARROW_FLOATS else _INTEGER_BYTES if value.dtype in _INTEGERS else -1
        if kept is None and value.numel() * value.element_size() <= most:
            kept = self.tensor(node)
        if kept is not None:
            with loc:
                self.bind_node_value(node, self._torch(kept))
            return
        super()._import_get_attr(loc, node)

    def _bind(self, node: Node, i: int, t: Tensor, several: bool) -> None:
        if several:
            self._multi_result_nodes.add(node)
        elif i == 0:
            self._builtin[node] = t
        self.bind_node_value(node, self._torch(t), i)

    def _torch(self, t: Tensor) -> ir.Value:
        """A tensor as a value of torch's tensor type."""
        kind = self._cc.create_vtensor_type(TO_TORCH[t.dtype], torch.Size([]))
        sizes = ",".join("?" if s is None else str(s) for s in t.shape)
        kind = ir.Type.parse(str(kind).replace("[]", f"[{sizes}]"))
        return ir.Operation.create("torch_c.from_builtin_tensor", results=[kind], operands=[t.value]).result

    def tensor(self, node: Node) -> Tensor:
        """The value of a node: an array for a constant, otherwise a value of builtin tensor type."""
        if node.op == "get_attr":
            value = self.graph.attribute(node)
            kept = self.parameters.load(node, value) if self.parameters is not None else None
            return kept if kept is not None else Tensor.constant(to_numpy(value), FROM_TORCH[value.dtype])
        known = self.graph.constant(node)
        if known is not None:
            return Tensor.constant(to_numpy(known), FROM_TORCH[known.dtype])
        if node not in self._builtin:
            spec = spec_of(node.meta["val"])
            value = self.resolve_node_value(node)
            made = ir.Operation.create(
                "torch_c.to_builtin_tensor", results=[tensor_type(spec.shape, spec.dtype)], operands=[value]
            ).result
            self._builtin[node] = Tensor(spec, made)
        return self._builtin[node]


_MAXIMA = (aten.max_pool3d.default, aten.max_pool3d_with_indices.default)


def _check_is_converted(node: Node) -> None:
    """Raise FrontEndError for a selection by a mask, on which torch-mlir's passes do not terminate, and for nodes that
    crash the process: `nonzero` of a tensor without axes, max pools of integers over three axes."""
    if node.target in _MAXIMA and not dtype_of(node.args[0]).is_floating_point:
        raise FrontEndError([about(node, "has an integer operand; convert it: x.float()")])
    if node.target is aten.nonzero.default and not shape_of(node.args[0]):
        raise FrontEndError([about(node, "has a 0-d operand; give it one: x.reshape(1)")])
    if node.target is aten.index.Tensor:
        listed: Sequence[Node | None] = node.args[1]
        masked = any(is_tensor(i) and dtype_of(i) in (torch.bool, torch.uint8) for i in listed)
    else:
        masked = node.target is aten.masked_select.default
    if masked:
        raise FrontEndError([about(
            node, "selects elements by a mask, so that the size of its result depends on the data: compiled "
            "programs have no such sizes; keep the size with torch.where(mask, x, other) or x * mask, or index by "
            "integers"
        )])  # fmt: skip


def import_decomposed(
    graph: TorchGraph, context: ir.Context, name: str, report: ImportReport, parameters: ParameterFile | None = None
) -> ir.Module:
    """As `import_graph`, but decompose nodes that torch-mlir does not convert, and repeat while that makes progress."""
    for _ in range(_MAX_ROUNDS):
        before = (len(report.raised), len(report.fused), len(report.left))
        try:
            return import_graph(graph, context, name, report, parameters)
        except TorchUnconverted as e:
            targets = {n.target for n in e.nodes}
            # The other calls of these operators would fail next.
            same = [n for n in graph.nodes if n.op == "call_function" and n.target in targets]
            if not [n for n in same if decompose(graph, n)]:
                if assumed := next(filter(None, map(graph.assumed.get, targets)), None):
                    raise TorchUnconverted([of_one_size(same[0], assumed)], e.nodes) from None
                raise
            decompose_known(graph)  # the replacements may be known to need it too
            for entries, count in zip((report.raised, report.fused, report.left), before, strict=True):
                del entries[count:]
    return import_graph(graph, context, name, report, parameters)


def import_graph(
    graph: TorchGraph, context: ir.Context, name: str, report: ImportReport, parameters: ParameterFile | None = None
) -> ir.Module:
    """The module of a raised graph, with one public function `main`.

    Raises FrontEndError, which names the node, if torch-mlir does not import or convert it: TorchUnconverted if the
    nodes are known."""
    settle_sizes(graph)  # of decomposed operators
    fold_known(graph)
    rewrite_size_functions(graph)
    for node in graph.nodes:
        count_from_the_front(graph, node)
        if node.target in _NEED_POSITIVE_AXIS and is_tensor(node.args[0]) and (rank := len(shape_of(node.args[0]))):
            node.args = (node.args[0], int(str(node.args[1])) % rank, *node.args[2:])
    places = Places()
    for dialect in ("torch", "torch_c"):
        context.get_dialect_descriptor(dialect)
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    outputs = _outputs(graph)
    cls = type("BoundImporter", (Importer,), {"graph": graph, "report": report, "parameters": parameters,
                                              "places": places, "__slots__": ()})  # fmt: skip
    importer = fx_importer.FxImporter(context=context, config_check=False, graph_node_importer_cls=cls)
    graph.gm.graph.owning_module = graph.gm
    try:
        importer.import_graph_module(graph.gm, func_name=_MAIN)
    except FrontEndError:
        raise
    except (NotImplementedError, TypeError, ValueError, AssertionError, LookupError, RuntimeError, AttributeError) as e:
        text = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise FrontEndError([Diagnostic(f"torch-mlir cannot import the program: {text[:300]}", name)]) from e
    module: ir.Module = importer.module
    if parameters is not None:
        parameters.declare(module)
    f = _main(module)
    remove_unused(f)
    # No dynamic size of a traced program is a 1 that broadcasts (`settle_sizes` makes those static). Without this
    # attribute, every elementwise op would broadcast at run time, in shapes that IREE does not compile.
    f.attributes["torch.assume_strict_symbolic_shapes"] = ir.UnitAttr.get()
    vals = [n.meta["val"] for n in inputs]
    dtypes = [_stated_dtype(n, f"argument {n.name!r}") for n in inputs]
    stated = zip((n.name for n in inputs), dtypes, _symbols(vals), strict=True)
    state_signature(f, stated, outputs)
    lower_torch(module, name, places)
    hold_state(module, _main(module), [n.name for n in inputs], graph.buffers)
    held = {b.argument for b in graph.buffers}
    _assert_ranges(_main(module), [n.meta["val"] for n in inputs if n.name not in held], graph)
    return module


def _main(module: ir.Module) -> OpLike:
    return next(f for f in functions(module) if f.attributes["sym_name"].value == _MAIN)


def _assert_ranges(f: OpLike, vals: Sequence[torch.Tensor], graph: TorchGraph) -> None:
    """Make the program check its sizes against the ranges for which it was exported. As in torch, the exporter's lower
    bound of every size is not checked, except that sizes of `graph.not_empty` are not 0."""
    block = f.regions[0].blocks[0]
    with ir.InsertionPoint.at_block_begin(block), f.location:
        for i, value in enumerate(vals):
            for axis, size in enumerate(value.shape):
                known = None if isinstance(size, int) else graph.ranges.get(size.node.expr)
                if known is None:
                    continue
                least = known.lower if known.lower > LEAST_OF_TORCH else int(size.node.expr in graph.not_empty)
                most = known.upper if known.upper.is_Integer else 0  # not torch's infinity
                bounds = (arith.CmpIPredicate.sge, least, "least"), (arith.CmpIPredicate.sle, most, "most")
                for predicate, bound, word in bounds:
                    if bound:
                        dim = tensor.dim(block.arguments[i], build.index(axis))
                        condition = arith.cmpi(predicate, dim, build.index(int(bound)))
                        assert_that(condition, f"the size of axis {axis} of argument {i} must be at {word} {bound}")


def _outputs(graph: TorchGraph) -> list[str]:
    """The dtypes of the results. Raises FrontEndError for one that is not a tensor, or has no name in the dialect."""
    node = next(n for n in graph.nodes if n.op == "output")
    found: tuple[torch.fx.Node, ...] = node.args[0]
    nodes = found if isinstance(found, (tuple, list)) else [found]
    for n in nodes:
        if not is_tensor(n):
            raise FrontEndError(
                [Diagnostic(f"the program returns {n}, which is not a tensor; return tensors", "output")]
            )
    return [_stated_dtype(n, f"result {i}") for i, n in enumerate(nodes)]


def _stated_dtype(node: Node, what: str) -> str:
    """The dialect's name of the dtype of an argument or a result. Raises FrontEndError if it has none."""
    dtype = dtype_of(node)
    if dtype not in FROM_TORCH:
        instead = "use torch.view_as_real(x)" if dtype.is_complex else f"use one of {', '.join(FROM_TORCH.values())}"
        raise FrontEndError([Diagnostic(f"{what} is {dtype}, which compiled programs do not support; {instead}",
                                        source_line(node) or where(node))])  # fmt: skip
    return FROM_TORCH[dtype]


def _symbols(vals: Sequence[torch.Tensor]) -> list[list[str]]:
    """The names of the sizes of tensors, "" for a static one or one that is not linear in one symbol: the names of
    `torch.export.Dim` if known, else the symbols of the traced program."""
    exprs = [[None if isinstance(s, int) else s.node.expr for s in v.shape] for v in vals]
    dynamic = [s.node for v in vals for s in v.shape if not isinstance(s, int)]
    texts = {symbol: _dim_name(n.shape_env, symbol) for n in dynamic for symbol in n.expr.free_symbols}
    names = names_of(list(texts.values()))

    def name(expr: sympy.Expr | None) -> str:
        if expr is None or len(expr.free_symbols) != 1:
            return ""
        [symbol] = expr.free_symbols
        mul, add = expr.coeff(symbol), expr.subs(symbol, 0)
        if expr != mul * symbol + add or not (mul.is_Integer and add.is_Integer) or mul < 1:
            return ""
        return str(Size(names[texts[symbol]], int(mul), int(add)))

    return [[name(expr) for expr in value] for value in exprs]


def _dim_name(env: ShapeEnv, symbol: sympy.Symbol) -> str:
    """The name that a symbol was exported with, or else the symbol's own."""
    said = getattr(env, "source_name_to_debug_name", {})
    for source in getattr(env, "var_to_sources", {}).get(symbol, ()):
        place = source.name() if callable(source.name) else source.name
        if place in said:
            return str(said[place])
    return str(symbol)
