"""Globals of a program (`util.global`), at the insertion point: its parameters, its state, and what is computed when it
is loaded."""

from __future__ import annotations

import json

from ..core.mlir import ir
from .walk import operations_of


def parameter(scope: str, key: str, t: ir.Type) -> ir.Attribute:
    """The initial value of a global that a file of weights holds."""
    return ir.Attribute.parse(f'#flow.parameter.named<"{scope}"::{json.dumps(key)}> : {t}')


def declare(symbol: str, t: ir.Type, initial: ir.Attribute | None = None, mutable: bool = False) -> None:
    """A private global; without an initial value, one that is stored before it is loaded."""
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


def load_global(symbol: str, t: ir.Type) -> ir.Value:
    """What a global holds."""
    attributes = {"global": ir.FlatSymbolRefAttr.get(symbol)}
    return ir.Operation.create("util.global.load", results=[t], attributes=attributes).results[0]


def store_global(symbol: str, value: ir.Value) -> None:
    """Have a global hold `value`."""
    attributes = {"global": ir.FlatSymbolRefAttr.get(symbol)}
    ir.Operation.create("util.global.store", operands=[value], attributes=attributes)


def has_state(module: ir.Module) -> bool:
    """Whether a function of the program writes what a later call reads; the kernels' own globals do not count."""
    return any(
        op.name == "util.global"
        and "is_mutable" in op.attributes
        and not op.attributes["sym_name"].value.startswith("__qmlir")
        for op in operations_of(module.body)
    )
