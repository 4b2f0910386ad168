"""The onnx package's own tests of quantised operators: a sample in the fast tier, all of them in the slow one."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from support import onnx_all_nodes, onnx_nodes

# One of each kind; the rest of a kind differs in types only.
QUICK = ("test_quantizelinear_axis", "test_quantizelinear_e4m3fn", "test_dequantizelinear_blocked",
         "test_dequantizelinear_int4", "test_dynamicquantizelinear_min_adjusted",
         "test_qlinearmatmul_3D_int8_float16", "test_qlinearconv", "test_convinteger_with_padding",
         "test_cast_FLOAT_to_FLOAT4E2M1")  # fmt: skip
QUICK_VULKAN = ("test_quantizelinear_uint4", "test_qlinearconv")
# The slow tier's tests are parametrised by parts: names are only known after the package has made all of its models,
# which takes seconds.
PARTS = 24


@pytest.mark.slow
@pytest.mark.sweep(slow=60)
@pytest.mark.parametrize("name", QUICK)
def test_node_on_the_cpu(name: str) -> None:
    onnx_nodes.check(onnx_nodes.cases()[name], "cpu")


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize("name", QUICK_VULKAN)
def test_node_on_vulkan(name: str, lavapipe: str) -> None:
    onnx_nodes.check(onnx_nodes.cases()[name], lavapipe)


def test_nodes_of_this_commit(rotation: int) -> None:
    names = sorted(onnx_nodes.cases())
    for number in range(3):
        onnx_nodes.check(onnx_nodes.cases()[names[(rotation + 61 * number) % len(names)]], "cpu")


@pytest.mark.slow
@pytest.mark.sweep(slow=60)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_node(part: int, target: str) -> None:
    """docs/onnx.md says that all of them pass."""
    failed = {}
    for name in sorted(onnx_nodes.cases())[part::PARTS]:
        try:
            onnx_nodes.check(onnx_nodes.cases()[name], target)
        except Exception as e:
            failed[name] = repr(e)
    assert not failed


# Tests that once gave wrong results, crashed or never ended. A third of them is run for each commit, all of them in the
# slow tier, which also has the tests of every operator.
QUICK_OTHERS = (
    "test_depthtospace_crd_mode_example", "test_spacetodepth_crd_mode_example", "test_lstm_with_peepholes",
    "test_bitshift_right_int8_shift_ge_width", "test_reshape_allowzero_reordered", "test_maxpool_2d_same_upper",
    "test_wrap_pad", "test_convtranspose_group_2", "test_l2normalization_axis_0", "test_attention_4d_attn_mask_bool",
    "test_gelu_tanh_2", "test_det_2d", "test_gridsample_nearest", "test_reversesequence_time",
    "test_resize_downsample_scales_linear_align_corners", "test_resize_upsample_scales_cubic_align_corners",
    "test_reduce_max_keepdims_random", "test_col2im", "test_sce_mean",
)  # fmt: skip
RECORDED = json.loads(onnx_all_nodes.RESULTS.read_text())


def test_sample_of_all_operators(rotation: int) -> None:
    """The commit chooses some of the tests above and some of all recorded tests."""
    _as_recorded(QUICK_OTHERS[rotation % 3 :: 3], rotation)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_all_that_were_wrong_once(part: int, rotation: int) -> None:
    _as_recorded(QUICK_OTHERS[part::3], rotation + 1 + part)


def _as_recorded(once_wrong: Sequence[str], rotation: int) -> None:
    have = onnx_all_nodes.cases()
    others = [n for n in RECORDED["tests"] if n in have]
    rotating = [others[(rotation + 199 * number) % len(others)] for number in range(8)]
    found = dict(onnx_all_nodes.outcomes([*once_wrong, *rotating]))
    assert all(map(onnx_all_nodes.is_acceptable, found.values()))
    assert {n: found[n] for n in once_wrong} == {n: RECORDED["tests"][n] for n in once_wrong}
    # For these, only "right" or "refused" is compared; for those above, the text of a refusal too.
    assert {n: found[n].split(":")[0] for n in rotating} == {n: RECORDED["tests"][n].split(":")[0] for n in rotating}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.sweep(slow=60)
@pytest.mark.parametrize("part", range(8))
def test_all_operators(part: int) -> None:
    """Every test of the onnx package is right or refused by name; those that were right still are."""
    names = sorted(onnx_all_nodes.cases())
    if RECORDED["onnx"] == __import__("onnx").__version__:
        assert set(names) >= set(RECORDED["tests"])
    found = dict(onnx_all_nodes.outcomes(names[part::8]))
    assert all(map(onnx_all_nodes.is_acceptable, found.values()))
    was_right = {n for n, o in RECORDED["tests"].items() if o == "right"}
    assert not {n: found[n] for n in was_right & set(found) if found[n] != "right"}
