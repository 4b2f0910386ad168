"""Removes the bodies of kernels from a program while IREE's passes over host code run.

Those passes walk every operation of the module, nine of ten of which are in the functions of kernels, which cost a
third of the compile time. The bodies are not needed before their executables are compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from ..core.mlir import ir
from ..ir.walk import operations_of

if TYPE_CHECKING:
    from ..core.mlir import OpLike

_EXECUTABLES = ("stream.executable", "hal.executable", "hal.executable.variant")

Hidden: TypeAlias = "dict[tuple[str, str], OpLike]"  # by executable and function


def hide(module: ir.Module) -> Hidden:
    """Replace the `no_inline` functions of executables by declarations, and return the functions."""
    hidden: Hidden = {}
    for executable, op in list(_functions(module)):
        name = op.attributes["sym_name"].value
        if "no_inline" not in op.attributes or not len(op.regions[0].blocks):
            continue  # IREE's passes inline the other functions
        with op.location, ir.InsertionPoint(op):
            attributes = dict(op.attributes.items())
            ir.Operation.create("func.func", attributes=attributes, regions=1)
        hidden[executable, name] = op.detach_from_parent()
    return hidden


def put_back(module: ir.Module, hidden: Hidden) -> None:
    """Put the functions back into the same program before its executables are compiled."""
    for executable, op in list(_functions(module)):
        body = hidden.pop((executable, op.attributes["sym_name"].value), None)
        if body is not None:
            ir.InsertionPoint(op).insert(body)
            op.erase()


def _functions(module: ir.Module) -> Iterator[tuple[str, OpLike]]:
    """The functions of executables, each with the name of its executable."""
    for op in _operations(module):
        if op.name in _EXECUTABLES[:2]:
            name = op.attributes["sym_name"].value
            inner = [op, *(o for o in _operations(op) if o.name == _EXECUTABLES[2])]
            for holder in inner:
                for code in _operations(holder):
                    if code.name == "builtin.module":
                        yield from ((name, f) for f in _operations(code) if f.name == "func.func")


def _operations(op: OpLike | ir.Module) -> list[ir.Operation]:
    return operations_of(op.operation.regions[0].blocks[0])
