"""The registry of passes: name -> "module:Class", loaded when used."""

from __future__ import annotations

import dataclasses
import importlib
import re
from typing import Any

from .._spelling import did_you_mean
from ..errors import UsageError
from .base import Pass

# In the order in which the default pipelines run them. A new pass is one new file and one line here.
PASSES: dict[str, str] = {
    "qmlir-verify": "verify:VerifyPass",
    "qmlir-bake-parameters": "bake:BakeParametersPass",
    "qmlir-fold": "fold:FoldPass",
    "qmlir-lower-to-linalg": "lower:LowerToLinalgPass",
    "qmlir-attention": "attention:AttentionPass",
    "qmlir-select": "select:SelectPass",
    "qmlir-decode-small-floats": "small_floats:DecodeSmallFloatsPass",
    "qmlir-expand-bf16": "expand_bf16:ExpandBf16Pass",
    "qmlir-index-sums": "index_sums:IndexSumsPass",
    "qmlir-keep-nan": "keep_nan:KeepNanPass",
    "qmlir-cut-loops": "loops:CutLoopsPass",
    "qmlir-split-broadcast": "broadcast:SplitBroadcastPass",
    "qmlir-explicit-sign": "sign:ExplicitSignPass",
    "qmlir-bf16-as-bits": "bf16:Bf16AsBitsPass",
    "qmlir-guard-empty": "empty:GuardEmptyPass",
    "qmlir-row-kernels": "row_kernels:RowKernelsPass",
    "qmlir-fuse-rows": "rows:FuseRowsPass",
    "qmlir-choose-data-tiling": "data_tiling:ChooseDataTilingPass",
    "qmlir-guard": "guard:GuardPass",
    "qmlir-shared-memory": "shared_memory:SharedMemoryPass",
    "qmlir-sign-matrix-sums": "matrix_sums:SignMatrixSumsPass",
    "qmlir-check-scaled-products": "scaled_products:CheckScaledProductsPass",
}


# Upstream passes that a pipeline from a file may name. They have no options there, so none of them touches a file.
UPSTREAM = frozenset({
    "canonicalize", "cse", "inline", "symbol-dce", "loop-invariant-code-motion", "convert-elementwise-to-linalg",
    "linalg-generalize-named-ops", "linalg-fold-unit-extent-dims", "linalg-fuse-elementwise-ops",
    "linalg-specialize-generic-ops", "lower-affine", "strip-debuginfo",
})  # fmt: skip


def pass_class(name: str) -> type[Pass]:
    """The class registered under `name`. Raises UsageError with near names when there is none."""
    if name not in PASSES:
        raise UsageError(f"unknown pass {name!r}{did_you_mean(name, PASSES)}")
    module, attribute = PASSES[name].split(":")
    cls: type[Pass] = getattr(importlib.import_module(f".{module}", __package__), attribute)
    return cls


def _convert(value: str, default: Any, where: str) -> Any:
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
    options: dict[str, Any] = {}
    for item in body.split():
        key, eq, value = item.partition("=")
        if key not in fields:
            raise UsageError(f"pass {name} has no option {key!r}{did_you_mean(key, fields) if fields else ''}")
        if not eq:
            raise UsageError(f"pass {name}: option {key} needs a value")
        options[fields[key].name] = _convert(value, fields[key].default, f"pass {name}, option {key}")
    return cls(**options)
