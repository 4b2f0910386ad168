"""Globals of a program (`util.global`), made at the insertion point: its parameters, its state, and values that are
computed when it is loaded."""

from __future__ import annotations

import json

import numpy as np

from ..core.faults import Fault
from ..core.mlir import arith, ir
from . import build
from .barriers import Reason, fusion_barrier
from .walk import operations_of

FAULTS = (
    Fault(
        "Globals with equal initial elements share one buffer, so that an update of one in place changes the others.",
        canary="shared_state",
    ),
)


def parameter(scope: str, key: str, t: ir.Type) -> ir.Attribute:
    """The initial value of a global that is stored in a file of weights."""
    return ir.Attribute.parse(f'#flow.parameter.named<"{scope}"::{json.dumps(key)}> : {t}')


def declare(symbol: str, t: ir.Type, initial: ir.Attribute | None = None, mutable: bool = False) -> None:
    """Declare a private global. Without an initial value, it must be stored to before it is loaded."""
    attributes = {
        "sym_name": ir.StringAttr.get(symbol),
        "type": ir.TypeAttr.get(t),
        "sym_visibility": ir.StringAttr.get("private"),
    }
    if initial is not None:
        attributes["initial_value"] = initial
    if mutable:
        attributes["is_mutable"] = ir.UnitAttr.get()
    ir.Operation.create("util.global", attributes=attributes)


def initializer() -> ir.Operation:
    """An initializer, which runs when a program is loaded; it has no block yet."""
    nothing = ir.TypeAttr.get(ir.FunctionType.get([], []))
    return ir.Operation.create("util.initializer", regions=1, attributes={"function_type": nothing})


def declare_state(symbol: str, t: ir.Type, initial: ir.DenseElementsAttr, number: int) -> None:
    """Declare a private global that calls change, in a buffer of its own. Its initial value is copied or, if all
    elements are equal, computed from an operand that differs for each `number`."""
    declare(symbol, t, initial, mutable=True)
    with ir.InsertionPoint(initializer().regions[0].blocks.append()):
        if initial.is_splat:
            start = _everywhere(t, initial.get_splat_value(), number)
        else:
            constant = arith.constant(t, initial)
            start = ir.Operation.create("flow.tensor.clone", results=[t], operands=[constant]).result
        store_global(symbol, start)
        ir.Operation.create("util.return")


def _everywhere(t: ir.Type, value: ir.Attribute, number: int) -> ir.Value:
    """A tensor filled with `value`, by a computation that is different for each `number`."""
    mark = fusion_barrier(build.dense(np.full((), number, np.int32)), Reason.STATE)

    def chosen(found: ir.Value) -> ir.Value:
        same = arith.cmpi(arith.CmpIPredicate.eq, found, build.scalar(number, found.type))
        start = arith.constant(t.element_type, value)
        return arith.select(same, start, build.scalar(not value.value, t.element_type))

    return build.elementwise([build.Arg(mark, ())], list(t.shape), t.element_type, chosen)


def load_global(symbol: str, t: ir.Type) -> ir.Value:
    """Load the value of a global."""
    attributes = {"global": ir.FlatSymbolRefAttr.get(symbol)}
    return ir.Operation.create("util.global.load", results=[t], attributes=attributes).results[0]


def store_global(symbol: str, value: ir.Value) -> None:
    """Store `value` to a global."""
    attributes = {"global": ir.FlatSymbolRefAttr.get(symbol)}
    ir.Operation.create("util.global.store", operands=[value], attributes=attributes)


def has_state(module: ir.Module) -> bool:
    """Whether the program has mutable globals, which later calls read; the kernels' own globals do not count."""
    return any(
        op.name == "util.global"
        and "is_mutable" in op.attributes
        and not op.attributes["sym_name"].value.startswith("__qmlir")
        for op in operations_of(module.body)
    )
