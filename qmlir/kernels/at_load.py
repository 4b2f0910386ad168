"""Values that only parameters and constants decide: computed once, when a program is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from ..core.mlir import func, ir
from ..ir.moved import moved_constant
from ..ir.util_globals import declare, initializer, load_global, parameter, store_global
from ..ir.walk import collect, operations_of, producer
from .outline import function_of
from .weights import stored_constant

if TYPE_CHECKING:
    from ..core.mlir import OpLike

_PURE = ("tensor.", "linalg.", "arith.", "math.")
_PREFIX = "packed_"
_CONSTANTS = ("flow.tensor.constant", "util.optimization_barrier")


def of_parameters(value: ir.Value) -> bool:
    """Whether a value depends on parameters, and otherwise on constants alone: on no function argument and no state."""
    slice_ = _slice(value)
    return slice_ is not None and any(op.name == "util.global.load" for op in slice_)


def decided_at_load(value: ir.Value) -> bool:
    """Whether a value depends on constants and parameters alone."""
    return _slice(value) is not None


def at_load(value: ir.Value, make: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """Return `make(value)` for a value that is `decided_at_load`, at the insertion point. The result is a constant if
    `make` only moves the elements of a constant; otherwise it is loaded from a global that an initialiser of the
    program computes. Equal computations on equal parameters share one global."""
    slice_ = _slice(value)
    assert slice_ is not None
    function = function_of(ir.InsertionPoint.current.ref_operation.operation)
    module = function.parent
    with ir.InsertionPoint(function):
        packing = initializer()
    with ir.InsertionPoint(packing.regions[0].blocks.append()):
        made = make(_copied(slice_, value))
        array, kind = moved_constant(made), ir.RankedTensorType(made.type)
    if array is not None:
        packing.erase()
        return stored_constant(array, kind)
    with ir.InsertionPoint(packing.regions[0].blocks[0]):
        text = packing.get_asm(use_local_scope=True)  # otherwise maps are named by their order in the module
        name = f"{_PREFIX}{sha256(text.encode()).hexdigest()[:16]}"
        store_global(name, made)
        ir.Operation.create("util.return")
    if _global(module, name) is None:
        with ir.InsertionPoint(packing):
            declare(name, kind)
    else:
        packing.erase()
    return load_global(name, kind)


def taken_out(module: ir.Module, scope: str) -> ir.Module | None:
    """Move the initialisers made by `at_load` into a separate program: one function per global, with the global's name,
    that returns its value. The globals of `module` become parameters of `scope`. None if there are no such globals."""
    operations = operations_of(module.body)
    globals_ = {o.attributes["sym_name"].value: o for o in operations if o.name == "util.global"}
    packer = ir.Module.create()
    for packing in (o for o in operations if o.name == "util.initializer"):
        inner = operations_of(packing.regions[0].blocks[0])
        *body, store, _ = inner
        name = store.attributes["global"].value if store.name == "util.global.store" else ""
        if not name.startswith(_PREFIX):
            continue
        kind = globals_[name].attributes["type"].value
        with ir.InsertionPoint(packer.body):
            for key in {o.attributes["global"].value: None for o in body if o.name == "util.global.load"}:
                if _global(packer.operation, key) is None:
                    globals_[key].clone(ir.InsertionPoint.at_block_begin(packer.body))
            function = func.FuncOp(name, ([], [kind]))
        with ir.InsertionPoint(function.add_entry_block()):
            func.ReturnOp([_copied(body, store.operands[0])])
        packing.erase()
        globals_[name].attributes["initial_value"] = parameter(scope, name, kind)
    return packer if any(op.name == "func.func" for op in operations_of(packer.body)) else None


def _slice(value: ir.Value) -> list[OpLike] | None:
    """The ops that compute a value, in topological order; None if any is not a constant, a load of an immutable global
    or a pure op."""
    found: dict[OpLike, None] = {}
    seen: set[OpLike] = set()
    stack = [(value, False)]
    while stack:
        value, ready = stack.pop()
        op = producer(value)
        if op is None:
            return None
        if ready:
            found[op] = None
        if op in seen:
            continue
        if not _is_fixed(op):
            return None
        seen.add(op)
        stack.append((value, True))
        stack.extend((needed, False) for needed in _needs(op))
    return list(found)


def _is_fixed(op: OpLike) -> bool:
    if op.name == "util.global.load":
        definition = _global(function_of(op).parent, op.attributes["global"].value)
        return definition is not None and "is_mutable" not in definition.attributes
    return op.name in _CONSTANTS or op.name.startswith(_PURE)


def _global(module: OpLike, name: str) -> OpLike | None:
    for op in module.regions[0].blocks[0].operations:
        if op.operation.name == "util.global" and op.operation.attributes["sym_name"].value == name:
            return op.operation
    return None


def _needs(op: OpLike) -> list[ir.Value]:
    """The values defined outside an op that the op and its regions read."""
    *inner, _ = parts = collect(op)
    own = {result for o in inner for result in o.results}
    own |= {value for o in parts for region in o.regions for block in region.blocks for value in block.arguments}
    return [value for o in (op, *inner) for value in o.operands if value not in own]


def _copied(slice_: Sequence[OpLike], value: ir.Value) -> ir.Value:
    """Clone the ops at the insertion point; return the clone of `value`."""
    copies: dict[ir.Value, ir.Value] = {}
    for op in slice_:
        copy = op.clone(ir.InsertionPoint.current)
        for o in collect(copy):
            for i, operand in enumerate(o.operands):
                if operand in copies:
                    o.operands[i] = copies[operand]
        copies.update(zip(op.results, copy.results, strict=True))
    return copies[value]
