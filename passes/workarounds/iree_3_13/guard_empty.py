"""qmlir-guard-empty: return from a call with an empty dynamic axis without a dispatch."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, func, ir, passmanager, scf, tensor
from ....ir.build import index
from ....ir.checks import assert_that, equal
from ....ir.relations import slice_sizes
from ....ir.signature import NAME
from ....ir.walk import functions, made_by, operations_of, producer_name, read_by, sources, terminator_of
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE's Vulkan driver refuses a dispatch that binds an empty buffer.",
        canary="empty_axis",
    ),
    Fault(
        "IREE's CUDA driver launches grids without workgroups, which devices refuse.",
        canary="empty_grid",
        upstream="https://github.com/iree-org/iree/issues/18834",
    ),
    Fault(
        "Where two branches of a program join, IREE takes the offset of a result to be 0 and reads another result.",
        canary="joined_results",
    ),
)


@dataclass(frozen=True)
class GuardEmptyPass(Pass):
    """Return from a call with an empty axis without a dispatch.

    IREE 3.13's Vulkan driver refuses a dispatch that binds an empty buffer ("resolved to an empty buffer range"). Its
    CUDA driver launches empty grids, which devices refuse.

    Results with an empty static type are created without a computation. Each public function with dynamic axes gets a
    branch: if an axis of an argument is 0, it returns empty results of the right shape. The shapes come from a copy of
    the function, which MLIR's shape resolution reduces to index arithmetic. If a result would not be empty, the call is
    an error, which names the argument. A call in which the program counts elements (`nonzero`) and finds none is an
    error too.

    Programs with several results get no branch, and a call with an empty axis is an error. If the two branches joined,
    IREE would merge the allocations of the results, and treat an offset that is 0 in one branch and a `util.align` in
    the other as 0 (its integer range analysis does not know the op): one result was read in place of another. If each
    branch returned from a block of its own, IREE's check of its command buffers would refuse programs that copy tensors
    (`indirect buffer reference slot 0 is out range`): slices of an argument, the statistics of a layer norm.

    IREE computes tensors that depend on nothing but constants once, when a program is loaded, but does not hoist them
    out of a branch. This pass computes them before the branch.
    """

    name: ClassVar[str] = "qmlir-guard-empty"
    summary: ClassVar[str] = "return from calls with an empty axis without a dispatch"

    def run(self, module: ir.Module, state: State) -> None:
        for operation in functions(module):
            op = operation.opview
            private = "sym_visibility" in operation.attributes
            _fold_static(op)
            _refuse_found_nothing(op)
            results = _type(operation).results
            # A result without a dynamic axis would not be empty: only the program can compute its elements.
            if not private and any(map(_axes, op.arguments)) and all(_type_axes(t) for t in results):
                if len(results) > 1:
                    _refuse_empty(op)
                else:
                    _guard(module, op)


def _refuse_empty(f: ir.OpView) -> None:
    """Make a call with an empty axis an error."""
    with f.operation.location, ir.InsertionPoint.at_block_begin(f.regions[0].blocks[0]):
        _refuse(f, None, "programs with several results do not accept empty tensors (skip the call, or compile each "
                "result separately)")  # fmt: skip


def _refuse_found_nothing(f: ir.OpView) -> None:
    """Make it an error if a slice is empty whose size the program counts, because the ops that read it are
    dispatched."""
    for block in f.regions[0].blocks:
        for op in operations_of(block):
            if op.name != "tensor.extract_slice":
                continue
            for size in filter(_is_counted, slice_sizes(op, 1)):
                with op.location, ir.InsertionPoint(op):
                    found = arith.cmpi(arith.CmpIPredicate.ne, size, index(0))
                    assert_that(found, "the program has counted 0 elements: this target does not support empty tensors")


def _is_counted(size: ir.Value) -> bool:
    """Whether a size is computed from an element of a tensor."""
    return any(made_by(value, "tensor.extract") for value in sources([size], _scalar_operands))


def _scalar_operands(op: OpLike) -> list[ir.Value]:
    return [value for value in op.operands if isinstance(value.type, (ir.IndexType, ir.IntegerType))]


def _refuse(f: ir.OpView, but: ir.Value | None, why: str) -> None:
    """At the insertion point, make an empty axis an error unless `but` holds; the message names argument and axis."""
    given = f.operation.attributes.get("arg_attrs", None)
    for i, value in enumerate(f.arguments):
        known = {a.name: a.attr for a in ir.DictAttr(given[i])} if given is not None else {}
        name = ir.StringAttr(known[NAME]).value if NAME in known else f"arg{i}"
        for axis in _axes(value):
            not_empty = arith.cmpi(arith.CmpIPredicate.ne, tensor.dim(value, index(axis)), index(0))
            not_empty = not_empty if but is None else arith.ori(not_empty, but)
            assert_that(not_empty, f"axis {axis} of {name} is empty: on this target, {why}")


def _fold_static(f: ir.OpView) -> None:
    """Replace results whose static type is empty by `tensor.empty`, which needs no computation."""
    last = terminator_of(f.regions[0].blocks[0])
    for i, value in enumerate(last.operation.operands):
        t = value.type
        if isinstance(t, ir.RankedTensorType) and not _type_axes(t) and 0 in t.shape:
            with ir.InsertionPoint(last), last.location:
                last.operation.operands[i] = tensor.empty(list(t.shape), t.element_type)
    passmanager.PassManager.parse("func.func(canonicalize)").run(f.operation)


def _type(f: OpLike) -> ir.FunctionType:
    return ir.FunctionType(ir.TypeAttr(f.attributes["function_type"]).value)


def _axes(value: ir.Value) -> list[int]:
    """The dynamic axes of a value."""
    return _type_axes(value.type)


def _type_axes(t: ir.Type) -> list[int]:
    return [i for i in range(t.rank) if t.is_dynamic_dim(i)] if isinstance(t, ir.RankedTensorType) else []


def _guard(module: ir.Module, body: ir.OpView) -> None:
    name = body.operation.attributes["sym_name"].value
    t = _type(body.operation)
    with body.operation.location:
        shapes = _shape_function(body, name)
        constants = _constants_function(body, name)
        body.operation.attributes["sym_name"] = ir.StringAttr.get(f"{name}__body")
        body.operation.attributes["sym_visibility"] = ir.StringAttr.get("private")
        with ir.InsertionPoint.at_block_begin(module.body):
            outer = func.FuncOp(name, t)
            for which in ("arg_attrs", "res_attrs"):
                if which in body.operation.attributes:
                    outer.operation.attributes[which] = body.operation.attributes[which]
                    del body.operation.attributes[which]
            _choose(outer, list(t.results), shapes, constants, name)


def _choose(outer: ir.OpView, types: list[ir.Type], shapes: int, constants: list[ir.Type], name: str) -> None:
    """Build the body of a guarded function."""
    with ir.InsertionPoint(outer.add_entry_block()):
        sizes = list(func.CallOp([ir.IndexType.get()] * shapes, f"{name}__shapes", outer.arguments).results)
        given = list(outer.arguments)
        if constants:
            given += func.CallOp(constants, f"{name}__constants", outer.arguments).results
        is_empty = _any_empty(list(outer.arguments))
        _refuse(
            outer, _all_empty(_shaped(sizes, types)), "a program whose results are not empty takes no empty tensors"
        )
        choice = scf.IfOp(is_empty, types, has_else=True)
        func.ReturnOp(list(choice.results))
    with ir.InsertionPoint(choice.then_block):
        scf.YieldOp([tensor.empty(s, t.element_type) for s, t in _shaped(sizes, types)])
    with ir.InsertionPoint(choice.else_block):
        scf.YieldOp(list(func.CallOp(types, f"{name}__body", given).results))


def _shaped(sizes: list[ir.Value], types: list[ir.Type]) -> list[tuple[list[ir.Value | int], ir.Type]]:
    """Each type with its sizes; `sizes` gives those of the dynamic axes, in order."""
    left = iter(sizes)
    return [([next(left) if t.is_dynamic_dim(i) else t.get_dim_size(i) for i in range(t.rank)], t) for t in types]


def _all_empty(results: list[tuple[list[ir.Value | int], ir.Type]]) -> ir.Value:
    """Whether every result has an axis of size 0."""
    every = arith.constant(ir.IntegerType.get_signless(1), 1)
    for sizes, _ in results:
        each = [equal(size, 0) for size in sizes]
        one = each[0]
        for more in each[1:]:
            one = arith.ori(one, more)
        every = arith.andi(every, one)
    return every


def _any_empty(arguments: list[ir.Value]) -> ir.Value:
    """Whether some dynamic axis is 0."""
    found = None
    for value in arguments:
        for axis in _axes(value):
            empty = equal(tensor.dim(value, index(axis)), 0)
            found = empty if found is None else arith.ori(found, empty)
    assert found is not None
    return found


def _constants_function(body: ir.OpView, name: str) -> list[ir.Type]:
    """Add a private copy of the function that returns the tensors that the body computes from constants only. The body
    gets them as additional arguments. Returns their types."""
    block = body.regions[0].blocks[0]
    made = _constant_results(block)
    if not made:
        return []
    copy = _private_copy(body, f"{name}__constants")
    types = [v.type for v in made]
    _return(copy, _constant_results(copy.regions[0].blocks[0]))
    for value in made:
        value.replace_all_uses_with(block.add_argument(value.type, body.operation.location))
    passmanager.PassManager.parse("func.func(canonicalize)").run(copy)
    t = _type(body.operation)
    body.operation.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([*t.inputs, *types], t.results))
    return types


def _constant_results(block: ir.Block) -> list[ir.Value]:
    """The tensors that are computed from constants only and read by an op that is not. A tensor larger than the largest
    constant it is computed from is left out: IREE recomputes it where it is read."""
    largest: dict[ir.Value, int] = {}  # by value: elements of the largest constant that it is computed from
    read: set[ir.Value] = set()
    for op in operations_of(block):
        operands = set(read_by(op))
        if op.name.partition(".")[0] in ("arith", "linalg", "math", "tensor") and operands <= largest.keys():
            size = max((largest[v] for v in operands), default=_elements(op))
            largest.update(dict.fromkeys(op.results, size))
        else:
            read |= operands
    tensors = [v for v in largest if v in read and isinstance(v.type, ir.RankedTensorType) and v.type.has_static_shape]
    return [v for v in tensors if producer_name(v) != "arith.constant" and prod(v.type.shape) <= largest[v]]


def _elements(op: OpLike) -> int:
    """The number of elements of a constant tensor, 1 for a splat; 0 for other ops."""
    if op.name != "arith.constant" or not isinstance(t := op.results[0].type, ir.RankedTensorType):
        return 0
    value = op.attributes["value"]
    return 1 if isinstance(value, ir.DenseElementsAttr) and value.is_splat else prod(t.shape)


def _private_copy(body: ir.OpView, name: str) -> OpLike:
    """A private copy of the function without ops that keep unread computations alive: assertions are erased, barriers
    and shape ties are replaced by their operands."""
    copy = body.operation.clone(ip=ir.InsertionPoint(body.operation))
    copy.attributes["sym_name"] = ir.StringAttr.get(name)
    copy.attributes["sym_visibility"] = ir.StringAttr.get("private")
    for which in ("arg_attrs", "res_attrs"):
        if which in copy.attributes:
            del copy.attributes[which]
    for op in operations_of(copy.regions[0].blocks[0]):
        if op.name in ("util.optimization_barrier", "flow.tensor.tie_shape"):
            for result, operand in zip(op.results, op.operands, strict=False):
                result.replace_all_uses_with(operand)
        if op.name in ("cf.assert", "util.optimization_barrier", "flow.tensor.tie_shape"):
            op.erase()
    return copy


def _return(f: OpLike, values: list[ir.Value]) -> None:
    """Make a function return `values`."""
    last = terminator_of(f.regions[0].blocks[0])
    with ir.InsertionPoint(last):
        func.ReturnOp(values)
    last.erase()
    inputs = _type(f).inputs
    f.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(list(inputs), [v.type for v in values]))


def _shape_function(body: ir.OpView, name: str) -> int:
    """Add a private copy of the function that returns the sizes of its results' dynamic axes. Returns how many."""
    copy = _private_copy(body, f"{name}__shapes")
    last = terminator_of(copy.regions[0].blocks[0])
    with ir.InsertionPoint(last):
        sizes = [tensor.dim(v, index(i)) for v in last.operation.operands for i in _axes(v)]
    _return(copy, sizes)
    # MLIR resolves the shapes of arithmetic on tensors only in its linalg form.
    passmanager.PassManager.parse(
        "func.func(convert-elementwise-to-linalg,resolve-ranked-shaped-type-result-dims,canonicalize,cse,canonicalize)"
    ).run(copy)
    return len(sizes)
