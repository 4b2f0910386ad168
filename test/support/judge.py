"""Requirements on the cells of the support matrix: no scheme is silently computed by multiply-adds if the target has an
integer or 16-bit matrix instruction, and a refusal says what would fit."""

from __future__ import annotations

import re
from typing import Any

from support.forms import Form

from qmlir.targets import resolve
from qmlir.targets.gpu import parse_mma

AS_IT_LIES = ("as an argument", "batched", "at run time")
# Products of f16 and codes of at most eight bits: see vulkan/kernels/matrix.py.
INTEGER_CODES = r": f16 x (?:[su]\d|nf4|codebook)|computed in f16|moe: f16"


def best_instruction(form: Form, target: str) -> str:
    """Return a pattern of the instructions that the form must use; "" if the target has none for it."""
    described = resolve(target)
    kinds = {k.lhs for k in map(parse_mma, described.capabilities.mma)}
    if form.product == "int8":
        if described.backend == "vulkan":
            # A weight that is not a constant is not packed for a cooperative matrix: dot products read it unpacked, in
            # one dispatch.
            dots = "|OpSDot" if any(text in form.name for text in AS_IT_LIES) else ""
            return f"OpCooperativeMatrix.* i8{dots}"
        return r"v_\w+_(?:iu8|i8)|(?:mma\.sync|wgmma).*s8\.s8"
    if form.product.startswith("f8") and form.product in kinds and described.backend == "rocm":
        return "fp8|bf8|f8f6f4"
    if form.product == "f32":
        return "mfma_f32.*f32" if "f32" in kinds else ""
    if "e2m1 x e2m1" in form.name:  # 2 times a code is an integer, so integer instructions fit too
        return "bf16|f16|f8f6f4|i8|iu8|OpSDot"
    if described.backend == "vulkan":
        # Others have no such kernel, and IREE 3.13's f16 cooperative matrices run on no device: a note says so.
        return "OpCooperativeMatrix.* f16" if re.search(INTEGER_CODES, form.name) else ""
    return "bf16|f16|fp8_bf8|f8f6f4"  # the two fp8 formats: AMD has instructions for the pair


def problem(form: Form, target: str, cell: dict[str, Any]) -> str:
    """What is wrong with a cell, "" if nothing is."""
    if cell["status"] != "compiled":
        if cell["status"] != "refused" or cell["error"] != "PassError" or "use one of" not in cell["reason"]:
            return "it does not compile, and no refusal says what would fit"
        return "" if form.product else "forms without a product compile everywhere"
    if "dynamic_quantize" in form.name and cell["kernels"] > (2 if form.name.startswith("program") else 1):
        return "dynamic quantisation is more than one pass over memory"
    if not form.product:
        return ""
    pattern = best_instruction(form, target)
    found = pattern and re.search(pattern, cell["instruction"]) and cell["fast"] >= cell["products"] > 0
    said = cell.get("notes") and not pattern
    return "" if found or said else "it is not on the best instruction"
