"""The registry of passes: name -> "module:Class", imported on first use."""

from __future__ import annotations

import dataclasses
import importlib
import re

from ..core.spelling import did_you_mean
from ..errors import UsageError
from .base import Pass

# Passes that can be deleted once IREE 3.13 is no longer supported.
IREE_3_13 = "workarounds.iree_3_13"

# In the order in which the default pipelines run them. A new pass is one new file and one line here.
PASSES: dict[str, str] = {
    "qmlir-verify": "core.verify:VerifyPass",
    "qmlir-bake-parameters": "core.bake_parameters:BakeParametersPass",
    "qmlir-fold": "core.fold:FoldPass",
    "qmlir-check-indices": "core.check_indices:CheckIndicesPass",
    "qmlir-lower-to-linalg": "core.lower:LowerToLinalgPass",
    "qmlir-resolve-barriers": "core.resolve_barriers:ResolveBarriersPass",
    "qmlir-undo-broadcasts": "core.undo_broadcasts:UndoBroadcastsPass",
    "qmlir-channels-last": "core.channels_last:ChannelsLastPass",
    "qmlir-crop-windows": f"{IREE_3_13}.crop_windows:CropWindowsPass",
    "qmlir-sort-in-stages": "core.sort_in_stages:SortInStagesPass",
    "qmlir-recurrences": "core.recurrences:RecurrencesPass",
    "qmlir-attention": "core.attention:AttentionPass",
    "qmlir-select": "core.select:SelectPass",
    "qmlir-float-convolutions": "core.float_convolutions:FloatConvolutionsPass",
    "qmlir-exact-divisions": "core.exact_divisions:ExactDivisionsPass",
    "qmlir-expand-functions": f"{IREE_3_13}.expand_functions:ExpandFunctionsPass",
    "qmlir-decode-small-floats": f"{IREE_3_13}.decode_small_floats:DecodeSmallFloatsPass",
    "qmlir-expand-bf16": f"{IREE_3_13}.expand_bf16:ExpandBf16Pass",
    "qmlir-index-sums": f"{IREE_3_13}.index_sums:IndexSumsPass",
    "qmlir-keep-nan": f"{IREE_3_13}.keep_nan:KeepNanPass",
    "qmlir-neutral-elements": f"{IREE_3_13}.neutral_elements:NeutralElementsPass",
    "qmlir-store-wide": f"{IREE_3_13}.store_wide:StoreWidePass",
    "qmlir-cut-loops": f"{IREE_3_13}.cut_loops:CutLoopsPass",
    "qmlir-order-loops": f"{IREE_3_13}.order_loops:OrderLoopsPass",
    "qmlir-split-broadcast": f"{IREE_3_13}.split_broadcast:SplitBroadcastPass",
    "qmlir-explicit-sign": f"{IREE_3_13}.explicit_sign:ExplicitSignPass",
    "qmlir-index-slices": f"{IREE_3_13}.index_slices:IndexSlicesPass",
    "qmlir-store-slices": f"{IREE_3_13}.store_slices:StoreSlicesPass",
    "qmlir-store-constants": f"{IREE_3_13}.store_constants:StoreConstantsPass",
    "qmlir-bf16-as-bits": f"{IREE_3_13}.bf16_as_bits:Bf16AsBitsPass",
    "qmlir-guard-divisions": f"{IREE_3_13}.guard_divisions:GuardDivisionsPass",
    "qmlir-guard-empty": f"{IREE_3_13}.guard_empty:GuardEmptyPass",
    "qmlir-row-kernels": "core.row_kernels:RowKernelsPass",
    "qmlir-fuse-rows": "core.fuse_dynamic_quantize:FuseRowsPass",
    "qmlir-code-kernels": "core.code_kernels:CodeKernelsPass",
    "qmlir-widen-masks": f"{IREE_3_13}.widen_masks:WidenMasksPass",
    "qmlir-store-broadcasts": f"{IREE_3_13}.store_broadcasts:StoreBroadcastsPass",
    "qmlir-store-batches": f"{IREE_3_13}.store_batches:StoreBatchesPass",
    "qmlir-choose-data-tiling": f"{IREE_3_13}.choose_data_tiling:ChooseDataTilingPass",
    "qmlir-store-pooled": f"{IREE_3_13}.store_pooled:StorePooledPass",
    "qmlir-bound-operands": f"{IREE_3_13}.bound_operands:BoundOperandsPass",
    "qmlir-store-shared": f"{IREE_3_13}.store_shared:StoreSharedPass",
    "qmlir-own-destinations": f"{IREE_3_13}.own_destinations:OwnDestinationsPass",
    "qmlir-spread-scans": f"{IREE_3_13}.spread_scans:SpreadScansPass",
    "qmlir-drop-attributes": "core.drop_attributes:DropAttributesPass",
    "qmlir-guard": f"{IREE_3_13}.guard:GuardPass",
    "qmlir-order-convolutions": f"{IREE_3_13}.order_convolutions:OrderConvolutionsPass",
    "qmlir-order-results": f"{IREE_3_13}.order_results:OrderResultsPass",
    "qmlir-start-at-zero": f"{IREE_3_13}.start_at_zero:StartAtZeroPass",
    "qmlir-bound-unit-sums": f"{IREE_3_13}.bound_unit_sums:BoundUnitSumsPass",
    "qmlir-record-copies": f"{IREE_3_13}.record_copies:RecordCopiesPass",
    "qmlir-shared-memory": f"{IREE_3_13}.shared_memory:SharedMemoryPass",
    "qmlir-coherent-buffers": "core.coherent_buffers:CoherentBuffersPass",
    "qmlir-sign-matrix-sums": f"{IREE_3_13}.sign_matrix_sums:SignMatrixSumsPass",
}


# Upstream passes that a pipeline from a file may name. Options are refused for them, so none of them accesses a file.
UPSTREAM = frozenset({
    "canonicalize", "cse", "inline", "symbol-dce", "loop-invariant-code-motion", "convert-elementwise-to-linalg",
    "linalg-generalize-named-ops", "linalg-fold-unit-extent-dims", "linalg-fuse-elementwise-ops",
    "linalg-specialize-generic-ops", "lower-affine", "strip-debuginfo",
})  # fmt: skip


def pass_class(name: str) -> type[Pass]:
    """The class registered under `name`. Raises UsageError with similar names if there is none."""
    if name not in PASSES:
        raise UsageError(f"unknown pass {name!r}{did_you_mean(name, PASSES)}")
    module, attribute = PASSES[name].split(":")
    cls: type[Pass] = getattr(importlib.import_module(f".{module}", __package__), attribute)
    return cls


def _convert(value: str, default: object, where: str) -> bool | int | str:
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[value.lower()]
        if isinstance(default, int):
            return int(value)
        return value
    except (KeyError, ValueError):
        raise UsageError(f"{where}: {value!r} is not a {type(default).__name__}") from None


def parse_pass(text: str) -> Pass:
    """`name{option=value ...}` -> the pass. Raises UsageError for an unknown name, option or value."""
    match = re.fullmatch(r"\s*([\w.-]+)\s*(?:\{(.*)\})?\s*", text, re.S)
    if match is None:
        raise UsageError(f"cannot read {text!r} as a pass; expected name{{option=value ...}}")
    name, body = match.group(1), match.group(2) or ""
    cls = pass_class(name)
    fields = {f.name.replace("_", "-"): f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    options: dict[str, bool | int | str] = {}
    for item in body.split():
        key, eq, value = item.partition("=")
        if key not in fields:
            raise UsageError(f"pass {name} has no option {key!r}{did_you_mean(key, fields) if fields else ''}")
        if not eq:
            raise UsageError(f"pass {name}: option {key} needs a value")
        options[fields[key].name] = _convert(value, fields[key].default, f"pass {name}, option {key}")
    return cls(**options)
