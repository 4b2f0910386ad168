"""CUDA products with few tiles and a long K, which is split among workgroups or warps."""

from __future__ import annotations

import re

import pytest
from kernels.test_cuda_products import S8, TARGETS, WGMMA, codes, one_kernel, product, ptx, scales

import qmlir
from qmlir import TensorSpec as T

pytestmark = pytest.mark.sweep(fast=3, slow=40)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_workgroups_share_a_long_k_of_few_tiles(target: str) -> None:
    """K is split if the estimate says that it pays, and the plan says so: one kernel with counters and a workspace."""
    tensor_core = WGMMA if target == "cuda:sm_90a" else S8
    made = product(target, 96, 256, 16384)
    plan = one_kernel(made, tensor_core)
    assert plan["stream_k"] >= 82
    assert re.fullmatch(
        r"estimated: [\d.]+ us if each block has all of K and [\d.]+ us if K is shared", plan["because"]
    )
    assert "atom.acq_rel.gpu" in ptx(made)
    plan = one_kernel(product(target, 2048, 2048, 256), tensor_core)
    assert "stream_k" not in plan
    assert "if K is shared" in plan["because"]


def test_groups_of_integers_are_added_up_in_their_order() -> None:
    """Split K would add the groups of a part of K first, which is a different order: it is used on request only."""
    more = {"rhs": codes(256, 4096, lo=-8, hi=7), "rhs_dtype": "i4", "rhs_scale": scales(256, 32)}
    plan = one_kernel(product("cuda:sm_80", 16, 256, 4096, **more), S8)
    assert "stream_k" not in plan
    assert plan["because"].endswith("if K is shared; groups are added up in their order")


def test_experts_do_not_share_k() -> None:
    """A batch has enough workgroups already: tiles that split K are not offered for it."""
    artifact = qmlir.ops.scaled_matmul.compile(
        T((3, 16, 4096), "i8"), T((3, 64, 4096), "i8"), rhs_transposed=True, lhs_scale=T((3, 16, 1), "f32"),
        rhs_scale=T((3, 64, 1), "f32"), target="cuda:sm_80",
        choice={"mma-sync-int8-tile": "16x64x128x1x4x1x4-stream-k"})  # fmt: skip
    answers = {a["strategy"]: a for a in artifact.manifest.strategies[0]["answers"]}
    assert "a batch of products: K is shared" in answers["mma-sync-int8"]["reason"]


def test_warps_share_a_long_k_of_few_results() -> None:
    assert one_kernel(product("cuda:sm_90a", 16, 256, 4096), S8)["warps"][2] > 1
    assert one_kernel(product("cuda:sm_80", 1024, 1024, 512), S8)["warps"][2] == 1
