"""Upgrades programs that were saved in an older text form of the dialect to the current form when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.mlir import collect, ir
from .ods import OPERAND_NAMES, OPS, SEGMENTS, attribute_names, names_attribute, view_of
from .renamed import RENAMED

if TYPE_CHECKING:
    from ..core.mlir import OpLike

_EPILOGUE = (
    "lhs_scale", "rhs_scale", "lhs_zero_point", "rhs_zero_point", "bias", "c", "act_scale", "out_scale",
    "out_multiplier", "out_zero_point", "rhs_sum", "codebook", "lhs_global_scale", "rhs_global_scale",
)  # fmt: skip
# The operand that each entry of `operandSegmentSizes` counted. Do not add operands that an op gained later.
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


# Removed fields, first operands and later attributes: the weight sums, which the lowering computes now.
_DROPPED = ("rhs_sum", "weight_sum")


def may_be_old(text: str) -> bool:
    """Whether `upgrade` may change a program: it has operand counts, or an op with renamed operands or attributes."""
    return SEGMENTS in text or any(f'"qmlir.{name}"' in text for name in RENAMED)


def upgrade(module: ir.Module) -> list[str]:
    """Replace operand counts (`operandSegmentSizes`) by operand names, and old names of operands and attributes by the
    current ones. Returns one sentence for each deprecated form in the program. Counts and names that do not fit the op
    stay, for `qmlir-verify` to report."""

    def is_counted(op: OpLike) -> bool:
        return op.name in _COUNTED and SEGMENTS in op.attributes

    counted = collect(module, where=is_counted)
    named = collect(module, where=lambda op: op.name.partition(".")[2] in RENAMED and not is_counted(op))
    found: dict[str, None] = {}
    for op in counted:
        new = _with_names(op)
        if new is not None:
            found[f"'{SEGMENTS}' is deprecated: operands are named by '{OPERAND_NAMES}', as qmlir-opt prints them"] = (
                None
            )
        named.append(op if new is None else new)
    for op in named:
        for name in set(_DROPPED) & set(attribute_names(op)):
            del op.attributes[name]
        found |= dict.fromkeys(f"{op.name}: '{old}' is deprecated: use '{new}'" for old, new in _rename(op))
    return list(found)


def _rename(op: OpLike) -> list[tuple[str, str]]:
    """Replace the old names of an op's operands and attributes; returns the replaced pairs (old, new)."""
    renamed = RENAMED.get(op.name.partition(".")[2], {})
    present = attribute_names(op)
    done = [(old, renamed[old]) for old in present if old in renamed and renamed[old] not in present]
    for old, new in done:
        op.attributes[new] = op.attributes[old]
        del op.attributes[old]
    names = op.attributes[OPERAND_NAMES] if OPERAND_NAMES in present else None
    if isinstance(names, ir.ArrayAttr) and all(isinstance(n, ir.StringAttr) for n in names):
        given = [str(ir.StringAttr(n).value) for n in names]
        pairs = [(n, renamed[n]) for n in given if n in renamed and renamed[n] not in given]
        if pairs:
            op.attributes[OPERAND_NAMES] = names_attribute(dict(pairs).get(n, n) for n in given)
            done += pairs
    return done


def count_operands(module: ir.Module) -> None:
    """Add `operandSegmentSizes` to the ops of the dialect, for tools that load the dialect from `irdl_text`."""
    named = collect(module, where=lambda op: op.name in OPS and OPS[op.name].OPERANDS != OPS[op.name].REQUIRED)
    for op in named:
        given = view_of(op).operands_by_name()
        counts = ir.DenseI32ArrayAttr.get([int(name in given) for name in OPS[op.name].OPERANDS])
        _replace(op, given, {SEGMENTS: counts})


def _with_names(op: OpLike) -> OpLike | None:
    """Replace an op that counts its operands by one that names them; None if its counts are redundant or do not fit."""
    if OPERAND_NAMES in op.attributes:  # it has both: the counts are redundant
        del op.attributes[SEGMENTS]
        return None
    sizes, counted = op.attributes[SEGMENTS], _COUNTED[op.name]
    counts = list(sizes) if isinstance(sizes, ir.DenseI32ArrayAttr) else []
    if len(counts) != len(counted) or not set(counts) <= {0, 1} or sum(counts) != len(op.operands):
        return None
    names = [name for name, count in zip(counted, counts, strict=True) if count]
    given = {name: value for name, value in zip(names, op.operands, strict=True) if name not in _DROPPED}
    return _replace(op, given, {})


def _replace(op: OpLike, operands: Mapping[str, ir.Value], more: Mapping[str, ir.Attribute]) -> OpLike:
    """Replace an op by one with these operands and their names, and with the attributes `more`."""
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
    return new
