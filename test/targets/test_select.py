"""The pass `qmlir-select`: its choices, decisions and notes, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import qmlir
from qmlir.core.mlir import context, ir
from qmlir.errors import PassError, TargetError
from qmlir.passes.base import State
from qmlir.passes.core.select import SelectPass
from qmlir.passes.registry import parse_pass
from qmlir.targets.strategy import current_choice


def test_options_are_read_from_a_pipeline() -> None:
    parsed = parse_pass("qmlir-select{target=rocm:gfx942}")
    assert parsed == SelectPass("rocm:gfx942")
    assert parsed.text() == "qmlir-select{target=rocm:gfx942}"


@pytest.mark.parametrize(
    ("target", "form", "chosen"),
    [
        ("cpu:x86-64", "matmul", "stock"),
        ("cpu:x86-64-v3", "matmul", "avx2-int8"),
        ("cpu:znver4", "matmul", "avx512-vnni"),
        ("cpu:sapphirerapids", "matmul", "amx-int8"),
        ("cpu:znver4", "row", "stock"),  # the weight is an argument
        ("cpu", "conv", "im2col"),
        ("cpu", "depthwise", "stock"),
        ("rocm:gfx942", "matmul", "mma"),
        ("rocm:gfx942", "row", "cooperative"),
        ("rocm:gfx942", "conv", "stock"),
        ("rocm:gfx942", "dynamic conv", "im2col"),
        ("rocm:gfx1100", "k groups", "mma"),
        ("cuda:sm_80", "matmul", "mma-sync-int8"),
        ("cuda:sm_80", "row", "gemv-int8"),
        ("cuda:sm_80", "conv", "mma-sync-int8-conv"),
        ("cuda:sm_80", "dynamic conv", "multi-version-m"),
        ("cuda:sm_80", "depthwise", "stock"),
        ("cuda:sm_80", "f16", "mma"),
        ("vulkan:rdna3", "matmul", "cooperative-matrix"),
        ("vulkan:rdna3", "conv", "im2col"),
        ("vulkan:ada", "matmul", "tiled"),
        ("vulkan:ada", "f16", "stock"),
        ("vulkan:lavapipe", "e4m3", "tiled"),
        ("cuda:sm_90a", "e4m3", "mma-sync-fp8"),
        ("rocm:gfx942", "e4m3", "widened"),
        ("rocm:gfx950", "e4m3", "mma"),
        ("cpu", "e4m3", "widened"),
        ("vulkan:lavapipe", "bf16", "bf16"),
        ("vulkan:lavapipe", "row", "cooperative"),
        ("vulkan:lavapipe", "dynamic", "multi-version-m"),
    ],
)
def test_choices(forms: Any, select: Any, target: str, form: str, chosen: str) -> None:
    text = {
        "matmul": lambda: forms.matmul(128, 256, 512),
        "row": lambda: forms.matmul(1, 256, 512),
        "dynamic": lambda: forms.matmul(None, 256, 512),
        "f16": lambda: forms.matmul(128, 256, 512, dtype="f16"),
        "e4m3": lambda: forms.matmul(128, 256, 512, dtype="f8E4M3FN"),
        "bf16": lambda: forms.matmul(128, 256, 512, dtype="bf16"),
        "conv": lambda: forms.conv(),
        "dynamic conv": lambda: forms.conv(n=None),
        "depthwise": lambda: forms.depthwise(),
        "k groups": lambda: forms.k_groups(128, 256, 4, 128),
    }[form]()
    selected = select(text, target)
    assert selected.chosen == chosen
    json.dumps(selected.decisions)  # the manifest stores them
    declined = [a for a in selected.decisions[0]["answers"] if not a["accepted"]]
    assert all(answer["reason"] for answer in declined)


def test_a_strategy_has_its_old_name(forms: Any, select: Any) -> None:
    with pytest.warns(DeprecationWarning, match="strategy 'by-rows' is deprecated: use 'multi-version-m'"):
        assert select(forms.matmul(None, 256, 512), "vulkan:lavapipe", prefer="by-rows").chosen == "multi-version-m"
    with pytest.warns(DeprecationWarning, match="strategy 'by-rows' is deprecated: use 'multi-version-m'"):
        assert current_choice({"strategy": "by-rows", "unroll": 2}) == {"strategy": "multi-version-m", "unroll": 2}


def test_magnitude_attributes_are_removed(forms: Any, select: Any) -> None:
    attributes = "qmlir.lhs_magnitude = 127 : i64, qmlir.rhs_magnitude = 8 : i64"
    for target in ("cpu", "cuda:sm_80", "rocm:gfx942"):
        assert "_magnitude" not in select(forms.matmul(8, 16, 32, attributes=attributes), target).text


def test_small_codes_make_long_sums_exact(forms: Any, select: Any) -> None:
    wide = select(forms.matmul(64, 64, 8192), "cuda:sm_80", prefer="exact-f16")
    narrow = select(
        forms.matmul(64, 64, 8192, attributes="qmlir.rhs_magnitude = 8 : i64"), "cuda:sm_80", prefer="exact-f16"
    )
    assert (wide.plan["k_chunks"], narrow.plan["k_chunks"]) == (8, 1)


def test_the_device_is_attached(forms: Any, select: Any) -> None:
    assert "hal.device.targets" in select(forms.matmul(8, 16, 32), "vulkan:ada").text
    assert "hal.device.targets" not in select(forms.matmul(8, 16, 32), "cpu").text


def test_slow_fallbacks_are_said_once(forms: Any, select: Any) -> None:
    slow = select(forms.matmul(None, 256, 512, dtype="f16", transposed=False), "vulkan:ada")
    (note,) = slow.notes
    assert note.severity == "warning"
    assert "dynamic" in note.message
    assert note.location
    assert not select(forms.matmul(128, 256, 512), "vulkan:ada").notes


@pytest.mark.parametrize(
    ("target", "form", "words"),
    [
        ("cuda:sm_80", {"dtype": "f8E4M3B11FNUZ"}, ["exact-f16", "mma", "widened", "stock"]),
        ("rocm:gfx1100", {"extension": "arith.extui"}, ["stock", "as if it were signed", "xor with 128"]),
    ],
)
def test_refusals_list_every_reason(forms: Any, select: Any, target: str, form: Any, words: list[str]) -> None:
    with pytest.raises(PassError) as error:
        select(forms.matmul(16, 16, 64, **form), target)
    text = str(error.value)
    assert all(word in text for word in [*words, target])
    assert text.startswith("-:")  # the place
    assert "linalg.generic" not in text  # no IR in messages


def test_every_refusal_is_reported_with_its_place(forms: Any) -> None:
    one = forms.matmul(16, 16, 64, dtype="f8E4M3B11FNUZ")
    with context():
        module = ir.Module.parse(one + one.replace("@f", "@g"))
        with pytest.raises(PassError) as error:
            SelectPass("rocm:gfx942").run(module, State())
    places = {d.location for d in error.value.diagnostics}
    assert len(error.value.diagnostics) == len(places) == 2


def test_an_unknown_target_is_a_target_error(forms: Any, select: Any) -> None:
    with pytest.raises(TargetError, match="gfx942"):
        select(forms.matmul(8, 16, 32), "rocm:gfx943")


@pytest.mark.sweep(fast=3, slow=60)
@pytest.mark.parametrize("target", ["cpu:znver4", "cpu:sapphirerapids", "cpu:neoverse-n2", "cuda:sm_80", "rocm:gfx942",
                                    "vulkan:rdna3"])  # fmt: skip
@pytest.mark.parametrize("batch", ["1x", "1x1x", "3x1x", "1x3x"])
def test_a_batch_of_one_is_rows(target: str, batch: str, tmp_path: Path) -> None:
    """Regression: a batch dimension of size 1 was taken as one that the lhs does not have. No contraction was found, so
    every model with activations [1, M, K] ran IREE's loops."""
    text = f"""
      func.func @main(%x: tensor<{batch}64x256xi8>, %zero: tensor<i32>) -> tensor<{batch}64x128xi32> {{
        %w = arith.constant dense<3> : tensor<256x128xi8>
        %0 = "qmlir.scaled_matmul"(%x, %w, %zero) {{
          lhs_dtype = "u8", lhs_zero_mode = "int", operand_names = ["lhs", "rhs", "lhs_zero_point"]
        }} : (tensor<{batch}64x256xi8>, tensor<256x128xi8>, tensor<i32>) -> tensor<{batch}64x128xi32>
        return %0 : tensor<{batch}64x128xi32>
      }}"""
    source = tmp_path / "product.mlir"
    source.write_text(text)
    [found] = qmlir.explain(source, target=target).contractions
    assert found["m"] == (192 if "3" in batch else 64)
    assert found["chosen"] != "stock"
