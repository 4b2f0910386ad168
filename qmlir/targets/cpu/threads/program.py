"""Adds the address of the team's board to a program: a global, and a function with which the runtime sets it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ....core.mlir import arith, func, ir, util
from .board import SETTER
from .cost import TASKS

if TYPE_CHECKING:
    from ....core.mlir import OpLike

_NUMBER = "__qmlir_team"
_ARM = frozenset({"neon", "dotprod", "i8mm"})


def has_helpers(features: Iterable[frozenset[str]]) -> bool:
    """Whether a team of threads may help with kernels for CPUs that have one of these sets of features. Helpers need
    the system calls and the calling convention of x86-64 (`atomics.py`); on other CPUs IREE's task system distributes
    the work."""
    return all(_ARM.isdisjoint(needed) for needed in features)


def threads_of(features: Iterable[frozenset[str]]) -> dict[str, str]:
    """The facts of a kernel's plan about the threads that share its work."""
    return {} if has_helpers(features) else {"threads": TASKS}


def team_of(op: OpLike, features: Iterable[frozenset[str]] = ()) -> ir.Value:
    """The address of the team's board, i64, at the insertion point; 0 until the runtime has set it, and 0 if kernels
    with these features have no helpers. Adds the global and its setter to the module of `op`."""
    if not has_helpers(features):
        return arith.constant(ir.IntegerType.get_signless(64), 0)
    module = op
    while module.parent is not None:
        module = module.parent
    block = module.regions[0].blocks[0]
    i64 = ir.IntegerType.get_signless(64)
    names = {o.attributes["sym_name"].value for o in block.operations if "sym_name" in o.attributes}
    if _NUMBER not in names:
        with ir.Location.unknown(module.context), ir.InsertionPoint.at_block_begin(block):
            util.GlobalOp(
                _NUMBER, ir.TypeAttr.get(i64), sym_visibility="private", is_mutable=True,
                initial_value=ir.IntegerAttr.get(i64, 0),
            )  # fmt: skip
        with ir.Location.unknown(module.context), ir.InsertionPoint(block):
            setter = func.FuncOp(SETTER, ir.FunctionType.get([i64], []))
            with ir.InsertionPoint(setter.add_entry_block()):
                util.GlobalStoreOp(setter.arguments[0], _NUMBER)
                func.ReturnOp([])
    return util.GlobalLoadOp(i64, _NUMBER).result
