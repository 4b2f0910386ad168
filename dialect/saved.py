"""Programs that were saved in an older text of the dialect, brought up to today's when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.mlir import ir
from .ods import OPERAND_NAMES, OPS, SEGMENTS, attribute_names, names_attribute, view_of

_EPILOGUE = (
    "lhs_scale", "rhs_scale", "lhs_zero_point", "rhs_zero_point", "bias", "c", "act_scale", "out_scale",
    "out_multiplier", "out_zero_point", "rhs_sum", "codebook", "lhs_global_scale", "rhs_global_scale",
)  # fmt: skip
# The operands that each entry of `operandSegmentSizes` counted. Operands that an op gains later do not belong here.
_COUNTED = {
    "qmlir.conv2d_q": ("input", "weight", *_EPILOGUE),
    "qmlir.dequant": ("input", "scale", "zero_point", "codebook"),
    "qmlir.grouped_matmul": ("lhs", "rhs", "group_sizes", "expert_ids", "routing_weights", *_EPILOGUE),
    "qmlir.moe": (
        "input", "w1", "w2", "expert_ids", "routing_weights", "input_scale", "input_zero_point", "w1_scale",
        "w1_zero_point", "w1_bias", "w2_scale", "w2_zero_point", "w2_bias", "intermediate_scale",
        "intermediate_zero_point", "codebook",
    ),
    "qmlir.quantize": ("input", "scale", "zero_point"),
    "qmlir.scaled_matmul": ("lhs", "rhs", *_EPILOGUE),
    "qmlir.sparse_matmul": ("lhs", "values", "indices", "indptr", *_EPILOGUE),
}  # fmt: skip


# Operands that are none any more. `rhs_sum` was written by `qmlir-fold`, which finds it again.
_DROPPED = ("rhs_sum",)


def upgrade(module: Any) -> bool:
    """Name the operands of ops that count them in `operandSegmentSizes`; whether there were any. Counts that do not fit
    the op stay, and are what `qmlir-verify` reports."""
    old: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name in _COUNTED and SEGMENTS in op.attributes:
            old.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return sum(_upgrade_op(op) for op in old) > 0


def count_operands(module: Any) -> None:
    """Add `operandSegmentSizes` to the ops of the dialect, for tools that know it by `irdl_text`."""
    named: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name in OPS and OPS[op.name].OPERANDS != OPS[op.name].REQUIRED:
            named.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in named:
        given = view_of(op).operands_by_name()
        counts = ir.DenseI32ArrayAttr.get([int(name in given) for name in OPS[op.name].OPERANDS])
        _replace(op, given, {SEGMENTS: counts})


def _upgrade_op(op: Any) -> bool:
    if OPERAND_NAMES in op.attributes:  # it has both: the names say more
        del op.attributes[SEGMENTS]
        return False
    sizes, counted = op.attributes[SEGMENTS], _COUNTED[op.name]
    counts = list(sizes) if isinstance(sizes, ir.DenseI32ArrayAttr) else []
    if len(counts) != len(counted) or not set(counts) <= {0, 1} or sum(counts) != len(op.operands):
        return False
    names = [name for name, count in zip(counted, counts, strict=True) if count]
    given = {name: value for name, value in zip(names, op.operands, strict=True) if name not in _DROPPED}
    _replace(op, given, {})
    return True


def _replace(op: Any, operands: Mapping[str, Any], more: Mapping[str, Any]) -> None:
    """The op with these operands, named, and with more attributes."""
    attributes = {name: op.attributes[name] for name in attribute_names(op) if name != SEGMENTS}
    new = ir.Operation.create(
        op.name,
        results=[r.type for r in op.results],
        operands=list(operands.values()),
        attributes={**attributes, OPERAND_NAMES: names_attribute(operands), **more},
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    for result, fresh in zip(op.results, new.results, strict=True):
        result.replace_all_uses_with(fresh)
    op.erase()
