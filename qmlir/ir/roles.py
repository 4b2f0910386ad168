"""The roles of a program's arguments, so that values can be made up that its ops accept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.rows import RoleRow
from ..dialect.ods import OPS, Op, view_of
from ..dialect.ops.common import shape_of
from ..dialect.ops.grouped_matmul import GroupedMatmulOp
from ..dialect.ops.moe import MoeOp
from ..dialect.ops.moe_align_block_size import MoeAlignBlockSizeOp
from .signature import public_functions

if TYPE_CHECKING:
    from ..core.mlir import OpLike, ir


def roles(module: ir.Module) -> dict[str, list[RoleRow]]:
    """The role of each argument of each public function, for `runtime.inputs.make`."""
    return {
        f.attributes["sym_name"].value: [_role(a) for a in f.regions[0].blocks[0].arguments]
        for f in public_functions(module)
    }


_VIEWS = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.cast", "tensor.extract_slice", "func.call")


def _experts(view: Op) -> int | None:
    """The number of experts that the expert ids of an op choose from."""
    if isinstance(view, MoeAlignBlockSizeOp):
        return view.experts
    weights = view.w1 if isinstance(view, MoeOp) else view.rhs if isinstance(view, GroupedMatmulOp) else None
    return None if weights is None else shape_of(weights)[0]


def _role(value: ir.Value, depth: int = 0) -> RoleRow:
    for use in value.uses:
        op = use.owner.operation
        if op.name in OPS:
            view = view_of(op)
            names = [n for n, v in view.operands_by_name().items() if v == value]
            found: RoleRow = {"role": names[0] if names else ""}
            if "expert_ids" in names and (limit := _experts(view)) is not None:
                found["limit"] = limit
            if isinstance(view, GroupedMatmulOp) and "group_sizes" in names:
                found["rows_of"] = next((a.arg_number for a in _arguments(op) if a == view.lhs), None)
                found["rows"] = shape_of(view.lhs)[0]
            return found
        if op.name in _VIEWS and op.name != "func.call" and depth < 4 and len(op.results):
            found = _role(op.results[0], depth + 1)
            if found["role"]:
                return found
        if op.name == "func.call" and depth < 4 and (inside := _parameter(op, use.operand_number)) is not None:
            found = _role(inside, depth + 1)
            if found["role"]:
                return found
    return {"role": ""}


def _arguments(op: OpLike) -> ir.BlockArgumentList:
    block = op.parent.regions[0].blocks[0]
    return block.arguments


def _parameter(call: OpLike, number: int) -> ir.Value | None:
    """The argument of the called function that receives operand `number`."""
    module = call.parent
    while module.parent is not None:
        module = module.parent
    name = call.attributes["callee"].value
    for op in module.regions[0].blocks[0].operations:
        operation = op.operation
        if operation.name == "func.func" and operation.attributes["sym_name"].value == name:
            return operation.regions[0].blocks[0].arguments[number] if len(operation.regions[0].blocks) else None
    return None
