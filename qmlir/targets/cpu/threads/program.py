"""What a program has so that the runtime can tell it of its team: a number, and a function that sets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.mlir import arith, func, ir, util
from .board import SETTER
from .cost import TASKS

if TYPE_CHECKING:
    from ....core.mlir import OpLike

_NUMBER = "__qmlir_team"


def threads_of(has_helpers: bool) -> dict[str, str]:
    """What a kernel's plan says of who shares its work."""
    return {} if has_helpers else {"threads": TASKS}


def team_of(op: OpLike, has_helpers: bool = True) -> ir.Value:
    """The address of the team, i64, at the insertion point; 0 until the runtime has set it, and on systems that have no
    helpers. Adds to the module of `op` what that takes."""
    if not has_helpers:
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
