"""The code of the chosen plans: it has the matrix instructions of each target, and no spills.

No device is needed; each case is one compilation of about half a second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.cover import diagonal, others_slow

pytestmark = pytest.mark.sweep(fast=6, slow=40)

MATRIX = {
    "rocm:gfx90a": r"v_mfma_i32_\w+i8",
    "rocm:gfx942": r"v_mfma_i32_\w+_i8",
    "rocm:gfx950": r"v_mfma_i32_\w+_i8",
    "rocm:gfx1100": r"v_wmma_i32_\w+",
    "rocm:gfx1151": r"v_wmma_i32_\w+",
    "rocm:gfx1201": r"v_wmma_i32_\w+",
    "cuda:sm_80": r"mma\.sync\.aligned\.m16n8k(32\S*s8|16\S*f16)|dp4a|wgmma\S*s8",
    "cuda:sm_86": r"mma\.sync\.aligned\.m16n8k(32\S*s8|16\S*f16)|dp4a|wgmma\S*s8",
    "cuda:sm_89": r"mma\.sync\.aligned\.m16n8k(32\S*s8|16\S*f16)|dp4a|wgmma\S*s8",
    "cuda:sm_90": r"mma\.sync\.aligned\.m16n8k(32\S*s8|16\S*f16)|dp4a|wgmma\S*s8",
    "cuda:sm_90a": r"mma\.sync\.aligned\.m16n8k(32\S*s8|16\S*f16)|dp4a|wgmma\S*s8",
    "cuda:sm_120": r"mma\.sync\.aligned\.m16n8k(32\S*s8|16\S*f16)|dp4a|wgmma\S*s8",
    "cuda:sm_120a": r"mma\.sync\.aligned\.m16n8k(32\S*s8|16\S*f16)|dp4a|wgmma\S*s8",
    "vulkan:rdna3": "OpCooperativeMatrixMulAddKHR",
    "vulkan:rdna4": "OpCooperativeMatrixMulAddKHR",
    "vulkan:turing": "OpSDotAccSat",
    "vulkan:ampere": "OpSDotAccSat",
    "vulkan:ada": "OpSDotAccSat",
    "vulkan:hopper": "OpSDotAccSat",
    "vulkan:valhall4": "OpSDotAccSat",
    "vulkan:xe2": "OpSDotAccSat",
    "vulkan:lavapipe": "OpSDotAccSat",
    "cpu:cascadelake": "vpdp(busd|wssd)",
    "cpu:icelake-server": "vpdp(busd|wssd)",
    "cpu:sapphirerapids": r"tdpb\w+|vpdp(busd|wssd)",
    "cpu:znver4": "vpdp(busd|wssd)",
    "cpu:znver5": "vpdp(busd|wssd)",
    "cpu:skylake-avx512": "vpmaddwd",
    "cpu:x86-64-v3": "vpmaddwd",
    "cpu:x86-64-v4": "vpmaddwd",
    "cpu:haswell": "vpmaddwd",
    "cpu:neoverse-v1": "smmla",
    "cpu:neoverse-v2": "smmla",
    "cpu:neoverse-n1": "sdot",
    "cpu:x86-64": "pmul",
    "cpu:aarch64": "smlal|smull",
}
# One target of each family compiles every form; the others show that their description and instruction are right.
EVERY_FORM = ["rocm:gfx942", "cuda:sm_80", "vulkan:lavapipe", "rocm:gfx1100", "vulkan:rdna3", "cpu:znver4"]
THOROUGH = others_slow(EVERY_FORM, "rocm:gfx942", "cuda:sm_80", "vulkan:lavapipe")
FEW = {"rocm": r"v_dot4\w*", "vulkan": "OpSDotAccSat"}


def check(selected: Any, folder: Path, pattern: str) -> Any:
    code = selected.instructions(folder)
    assert code.count(pattern) > 0, f"{selected.target.spelling} {selected.chosen}: no {pattern}"
    assert code.spills() == 0
    return code


# One target for each instruction: the others differ only in their descriptions, and are slow.
ONE_EACH = set({pattern: target for target, pattern in reversed(MATRIX.items())}.values())


@pytest.mark.sweep(fast=12, slow=40)
@pytest.mark.parametrize("target", others_slow(sorted(MATRIX), *ONE_EACH, "rocm:gfx1201", "vulkan:lavapipe"))
def test_int8_matmul(target: str, forms: Any, select: Any, tmp_path: Path) -> None:
    code = check(select(forms.matmul(128, 256, 512), target), tmp_path, MATRIX[target])
    if target in ("vulkan:rdna3", "vulkan:rdna4"):
        assert code.count("cooperative matrix of i8") == 2


@pytest.mark.sweep(fast=18, slow=40)
@pytest.mark.parametrize("target", THOROUGH)
@pytest.mark.parametrize(
    "form",
    ["ragged", "ragged kn", "few rows", "narrow", "k groups", "conv", "conv c1", "conv ragged", "grouped conv"],
)
def test_forms(target: str, form: str, forms: Any, select: Any, tmp_path: Path) -> None:
    text = {
        "ragged": lambda: forms.matmul(33, 70, 51),
        "ragged kn": lambda: forms.matmul(33, 70, 51, transposed=False),
        "few rows": lambda: forms.matmul(4, 256, 512),
        "narrow": lambda: forms.matmul(200, 10, 64),
        "k groups": lambda: forms.k_groups(33, 50, 3, 32),
        "conv": lambda: forms.conv(),
        "conv c1": lambda: forms.conv(h=28, c=1, f=8),
        "conv ragged": lambda: forms.conv(n=2, h=33, c=20, f=10, stride=2),
        "grouped conv": lambda: forms.conv(h=9, c=13, f=7, groups=5),
    }[form]()
    # For few rows, threads share K: reading the weight takes all the time. A weight that is an argument, and would have
    # to be padded or transposed for a cooperative matrix, is read in its stored layout, by dot products.
    few = form == "few rows" and target.startswith(("rocm", "vulkan"))
    stored_layout = target == "vulkan:rdna3" and form in ("ragged", "ragged kn", "narrow")
    selected = select(text, target)
    assert not stored_layout or selected.chosen == "tiled"
    check(selected, tmp_path, FEW[target.partition(":")[0]] if few or stored_layout else MATRIX[target])


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize(
    "target",
    others_slow(
        [t for t in MATRIX if t.startswith(("rocm", "cuda", "cpu:znver4"))],
        "rocm:gfx942", "rocm:gfx1100", "cuda:sm_80", "cuda:sm_90a", "cpu:znver4",
    ),
)  # fmt: skip
def test_dynamic_rows(target: str, forms: Any, select: Any, tmp_path: Path) -> None:
    """On the stock route a dynamic M would become one workgroup per output element."""
    check(select(forms.matmul(None, 4096, 4096), target), tmp_path, MATRIX[target])


@pytest.mark.sweep(fast=9, slow=40)
@pytest.mark.parametrize(
    "target", ["rocm:gfx942", pytest.param("rocm:gfx1100", marks=pytest.mark.slow), "cuda:sm_80"]
)  # fmt: skip
@pytest.mark.parametrize("form", ["ragged", "k groups", "conv", "odd multiple"])
def test_dynamic_forms(target: str, form: str, forms: Any, select: Any, tmp_path: Path) -> None:
    odd = forms.matmul(None, 256, 512).replace("%x: tensor<?x512xi8>", "%x0: tensor<?x7x512xi8>", 1)
    collapse = "%x = tensor.collapse_shape %x0 [[0, 1], [2]] : tensor<?x7x512xi8> into tensor<?x512xi8>\n"
    text = {
        "ragged": lambda: forms.matmul(None, 70, 51),
        "k groups": lambda: forms.k_groups(None, 50, 3, 32),
        "conv": lambda: forms.conv(n=None, h=16, c=20, f=10),
        # IREE splits a dynamic size that is a known multiple, and used to drop the tiles in doing so.
        "odd multiple": lambda: odd.replace("%zero =", collapse + "%zero =", 1),
    }[form]()
    check(select(text, target), tmp_path, MATRIX[target])


@pytest.mark.slow
@pytest.mark.parametrize("target", ["rocm:gfx942", "rocm:gfx1100", "rocm:gfx1201"])
@pytest.mark.parametrize("dtype", ["i8", "f16"])
@pytest.mark.parametrize("m", [16, 1024, None])
def test_large_tiles_do_not_spill(
    target: str, dtype: str, m: int | None, forms: Any, select: Any, tmp_path: Path
) -> None:
    """IREE's own tile for f16 on gfx1100 spills."""
    selected = select(forms.matmul(m, 4096, 4096, dtype=dtype, transposed=m != 16), target)
    check(selected, tmp_path, r"v_(mfma|wmma)_\w+")


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize(("form", "target"), diagonal(["row", "column", "one of each", "depthwise"], EVERY_FORM))
def test_forms_without_a_matrix_product_compile(
    target: str, form: str, forms: Any, select: Any, tmp_path: Path
) -> None:
    text = {
        "row": lambda: forms.matmul(1, 256, 512),
        "column": lambda: forms.matmul(20, 1, 64),
        "one of each": lambda: forms.matmul(2, 3, 1),
        "depthwise": lambda: forms.depthwise(c=3),
    }[form]()
    select(text, target).instructions(tmp_path)


def test_accumulating_onto_an_argument(forms: Any, select: Any, tmp_path: Path) -> None:
    """Regression: padding a product with such an init sent the compiler into minutes of unrolling."""
    text = forms.matmul(33, 51, 70, scale=False)
    text = text.replace("%s: tensor<51xf32>", "%c0: tensor<33x51xi32>").replace("outs(%f : tensor", "outs(%c0 : tensor")
    check(select(text, "rocm:gfx942"), tmp_path, MATRIX["rocm:gfx942"])


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize(
    ("target", "dtype", "pattern"),
    [
        ("rocm:gfx942", "f8E4M3FNUZ", "v_mfma_f32_16x16x32_fp8_fp8"),
        ("rocm:gfx950", "f8E4M3FN", "v_mfma_f32_16x16x128_f8f6f4"),
        ("rocm:gfx1201", "f8E5M2", "v_wmma_f32_16x16x16_bf8_bf8"),
        # Not the fp8 instruction: its sums keep too few bits. Formats of other devices are widened.
        ("cuda:sm_89", "f8E4M3FN", r"mma\.sync\.aligned\.m16n8k16\S*\.f16\.f16"),
        ("cuda:sm_90a", "f8E5M2FNUZ", r"mma\.sync\.aligned\.m16n8k16\S*bf16"),
        ("rocm:gfx942", "f8E4M3FN", "v_mfma_f32_16x16x16_bf16"),
        ("rocm:gfx1100", "f8E5M2", "v_wmma_f32_16x16x16_bf16"),
        ("cuda:sm_80", "bf16", "mma.sync.aligned.m16n8k16"),
    ],
)
def test_floats(target: str, dtype: str, pattern: str, forms: Any, select: Any, tmp_path: Path) -> None:
    check(select(forms.matmul(64, 64, 128, dtype=dtype), target), tmp_path, pattern)


@pytest.mark.parametrize("target", ["vulkan:rdna3", "vulkan:ada"])
def test_floats_on_vulkan_are_vector_code(target: str, forms: Any, select: Any, tmp_path: Path) -> None:
    """IREE would convert the operands to f32 first, and no device has f32 cooperative matrices; a warning says so."""
    selected = select(forms.matmul(64, 64, 128, dtype="f16"), target)
    assert selected.instructions(tmp_path).count("OpCooperativeMatrixMulAddKHR") == 0
    assert "cooperative matrix" in str(selected.notes[0])
