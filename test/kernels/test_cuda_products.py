"""Kernels for NVIDIA GPUs: what they take, what they compile to, and what they refuse. No device is needed here; what
the PTX computes is tested in test/ptx."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernels.gpu_products import functions

import qmlir
from qmlir import TensorSpec as T
from qmlir.compiler.stages import default_pipeline
from qmlir.errors import UsageError
from qmlir.targets import resolve
from qmlir.targets.cuda.kernels import configurations

TARGETS = [
    "cuda:sm_80",
    "cuda:sm_90a",
    *(pytest.param(t, marks=pytest.mark.slow) for t in ("cuda:sm_86", "cuda:sm_89", "cuda:sm_120")),
]
SLOW_128 = pytest.param(128, marks=pytest.mark.slow)


def codes(*shape: int, lo: int = -128, hi: int = 127) -> Any:
    return np.random.default_rng(0).integers(lo, hi + 1, shape).astype(np.int8)


def scales(*shape: int) -> Any:
    return np.full(shape, 0.01, np.float32)


def product(target: str, m: int | None, n: int, k: int, **kw: Any) -> Any:
    """A program of one product by a constant weight `[N, K]`."""
    lhs = T((m, k), kw.pop("lhs_dtype", "i8"))
    rhs = kw.pop("rhs", None)
    kw = {"rhs_scale": scales(n, 1), **kw}
    return qmlir.ops.scaled_matmul.compile(
        lhs, codes(n, k) if rhs is None else rhs, rhs_transposed=True, target=target, **kw
    )


def one_kernel(artifact: Any, pattern: str) -> dict[str, Any]:
    """The plan of the program's one kernel, whose code has the instruction: where the number of rows decides, of that
    for the most rows."""
    code = artifact.source("ptx")
    *_, plan = found = functions(artifact.manifest.strategies[0])
    entries = code.split(".entry ")[1:]
    assert len(entries) == len(found)
    assert re.search(pattern, entries[-1])
    assert plan["route"] == "kernel"
    return plan


WGMMA = r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k32\.s32\.s8\.s8"
S8 = r"mma\.sync\.aligned\.m16n8k32\.row\.col\.s32\.s8\.s8\.s32"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m", [pytest.param(16, marks=pytest.mark.slow), 33, SLOW_128, None])
def test_int8_is_one_kernel_on_integer_tensor_cores(target: str, m: int | None) -> None:
    kw = {"bias": np.zeros(250, np.float32), "activation": "gelu", "out_dtype": "f16"}
    one_kernel(product(target, m, 250, 500, lhs_scale=T((m, 1), "f32"), **kw), f"{S8}|{WGMMA}")


@pytest.mark.parametrize("k", [512, 40, 36, 35])
def test_rows_of_any_length(k: int) -> None:
    """Copies of 16, 8 and 4 bytes, and byte by byte where K is odd."""
    artifact = product("cuda:sm_80", 40, 64, k)
    one_kernel(artifact, S8)
    assert "cp.async" in artifact.source("ptx")  # the weight's rows are padded


@pytest.mark.parametrize(
    ("dtype", "lo", "hi", "bits"), [("i4", -8, 7, 4), ("u4", 0, 15, 4), ("i2", -2, 1, 2), ("u2", 0, 3, 2)]
)
@pytest.mark.parametrize("group", [0, 32, SLOW_128])
def test_short_codes_are_packed(dtype: str, lo: int, hi: int, bits: int, group: int) -> None:
    rhs = codes(64, 256, lo=lo, hi=hi)
    rhs.flat[:2] = lo, hi
    scale = scales(64, 256 // group if group else 1)
    plan = one_kernel(product("cuda:sm_90a", None, 64, 256, rhs=rhs, rhs_dtype=dtype, rhs_scale=scale), S8)
    assert plan["weight_bits"] == bits


@pytest.mark.parametrize("m", [1, 4, 8])
@pytest.mark.parametrize("group", [0, 128])
def test_few_rows_share_k_among_lanes(m: int, group: int) -> None:
    rhs, scale = codes(64, 1024, lo=-8, hi=7), scales(64, 1024 // group if group else 1)
    artifact = product("cuda:sm_80", m, 64, 1024, rhs=rhs, rhs_dtype="i4", rhs_scale=scale)
    plan = one_kernel(artifact, r"dp4a\.s32\.s32")
    assert plan["weight_bits"] == 4
    assert "ld.global.nc.v4.b32" in artifact.source("ptx")


@pytest.mark.parametrize("m", [64, 4096, None])
def test_hopper_multiplies_from_shared_memory(m: int | None) -> None:
    artifact = product("cuda:sm_90a", m, 1000, 500, lhs_scale=T((m, 1), "f32"), activation="gelu", out_dtype="f16")
    plan = one_kernel(artifact, WGMMA)
    assert plan["mma"].startswith("wgmma")
    assert m is None or not re.search(r"mma\.sync", artifact.source("ptx"))


@pytest.mark.parametrize(
    ("operands", "reason"),
    [
        ({"m": 16}, "16 rows leave most of 64 unused"),
        ({"rhs": codes(64, 256, lo=-8, hi=7), "rhs_dtype": "i4"}, "short codes are taken apart in registers"),
        ({"lhs_dtype": "u8"}, "codes to flip"),
        ({"rhs_scale": scales(64, 2)}, "groups along K need registers"),
    ],
)
def test_what_wgmma_leaves_to_mma_sync(operands: dict[str, Any], reason: str) -> None:
    given = {"m": 128, **operands}
    artifact = product("cuda:sm_90a", given.pop("m"), 64, 256, **given)
    one_kernel(artifact, S8)
    answers = {a["strategy"]: a for a in artifact.manifest.strategies[0]["answers"]}
    assert reason in answers["wgmma-int8"]["reason"]


def test_batches_with_weights_of_their_own() -> None:
    lhs, rhs = T((3, 20, 64), "i8"), T((3, 40, 64), "i8")
    one_kernel(qmlir.ops.scaled_matmul.compile(lhs, rhs, rhs_transposed=True, rhs_scale=np.float32(0.5),
                                               target="cuda:sm_80"), S8)  # fmt: skip
    constant = codes(3, 40, 64, lo=-8, hi=7)
    kw = {"rhs_transposed": True, "rhs_dtype": "i4", "rhs_scale": scales(3, 40, 1), "target": "cuda:sm_90a"}
    plan = one_kernel(qmlir.ops.scaled_matmul.compile(lhs, constant, **kw), S8)
    assert plan["weight_bits"] == 4


@pytest.mark.parametrize("lhs", ["i8", "f16"])
@pytest.mark.parametrize("tokens", [9, None])
@pytest.mark.parametrize("routed", [True, False])
def test_experts_are_a_table_and_a_product(tokens: int | None, routed: bool, lhs: str) -> None:
    """One dispatch sorts rows, one multiplies them where they are; what remains counts arguments that are wrong."""
    rhs, scale = codes(8, 40, 64), np.random.default_rng(1).random((8, 40, 1), np.float32)
    which = {"expert_ids": T((tokens, 2), "i32")} if routed else {"group_sizes": T((8,), "i32")}
    which |= {"lhs_scale": T((tokens, 1), "f32")} if lhs == "i8" else {}
    artifact = qmlir.ops.grouped_matmul.compile(
        T((tokens, 64), lhs), rhs, rhs_transposed=True, rhs_scale=scale, target="cuda:sm_80", **which
    )
    code = artifact.source("ptx")
    entries = re.findall(r"\.entry (\w+)", code)
    assert sorted(e.split("_")[1] for e in entries) == ["dispatch"] * (1 if routed else 2) + ["product", "route"]
    assert all("reduction" in e for e in entries if "dispatch" in e)
    assert re.search(S8 if lhs == "i8" else "mma.sync.aligned.m16n8k16.row.col.f32.f16", code)
    plans = [a["plan"] for a in artifact.manifest.strategies[0]["answers"] if "plan" in a]
    assert [p["routing"] for p in plans if p["route"] == "kernel"] == ["one dispatch"]


def test_a_layer_of_experts_is_sorted_once() -> None:
    w1, w2 = codes(8, 96, 64), codes(8, 64, 96)
    artifact = qmlir.ops.moe.compile(
        T((None, 64), "i8"), w1, w2, T((None, 2), "i32"), T((None, 2), "f32"), input_scale=T((None, 1), "f32"),
        w1_scale=scales(8, 96, 1), w2_scale=scales(8, 64, 1), weights_transposed=True, activation="relu",
        intermediate_dtype="i8", target="cuda:sm_80",
    )  # fmt: skip
    entries = re.findall(r"\.entry main_(\w+?)_\d", artifact.source("ptx"))
    assert entries.count("route") == 1
    assert entries.count("product") == 2
    assert len(entries) <= 6


@pytest.mark.parametrize(("channels", "strides"), [(64, (1, 1)), (20, (2, 2)), (3, (1, 1))])
def test_convolutions_read_the_image(channels: int, strides: tuple[int, int]) -> None:
    artifact = qmlir.ops.conv2d_q.compile(
        T((2, 9, 9, channels), "i8"), codes(32, 3, 3, channels), input_scale=np.float32(0.5), weight_scale=scales(32),
        strides=strides, activation="relu", out_dtype="i8", out_scale=np.float32(2), target="cuda:sm_80",
    )  # fmt: skip
    one_kernel(artifact, S8)


@pytest.mark.parametrize("images", [2, None])
@pytest.mark.parametrize(
    ("channels", "more"),
    [
        (64, {"padding": (1, 1, 1, 1)}),
        (64, {"padding": (0, 1, 2, 1), "input_zero_point": np.int8(3), "strides": (2, 2)}),
        (64, {"padding": (1, 1, 1, 1), "groups": 2}),
        (4, {"padding": (2, 2, 2, 2), "dilations": (2, 2)}),
    ],
)
def test_padding_and_groups_are_parts_of_a_convolution(images: int | None, channels: int, more: dict[str, Any]) -> None:
    weight = codes(32, 3, 3, channels // more.get("groups", 1))
    artifact = qmlir.ops.conv2d_q.compile(
        T((images, 9, 9, channels), "i8"), weight, filter_layout="FHWC", input_scale=np.float32(0.5),
        weight_scale=scales(32), target="cuda:sm_80", **more,
    )  # fmt: skip
    one_kernel(artifact, S8)


def test_filters_of_codes_meet_floats() -> None:
    artifact = qmlir.ops.conv2d_q.compile(
        T((None, 9, 9, 64), "f16"), codes(32, 3, 3, 64), filter_layout="FHWC", weight_scale=scales(32),
        padding=(1, 1, 1, 1), bias=np.zeros(32, np.float32), activation="relu", out_dtype="f16", target="cuda:sm_80",
    )  # fmt: skip
    one_kernel(artifact, r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.f16\.f16\.f32")


def test_groups_of_few_filters_are_exact_in_f16() -> None:
    artifact = qmlir.ops.conv2d_q.compile(
        T((2, 9, 9, 64), "i8"), codes(32, 3, 3, 8), filter_layout="FHWC", input_scale=np.float32(0.5),
        weight_scale=scales(32), groups=8, target="cuda:sm_80",
    )  # fmt: skip
    decision = artifact.manifest.strategies[0]
    answers = {a["strategy"]: a for a in decision["answers"]}
    assert decision["chosen"] == "exact-f16"
    assert "groups of 4 filters are no whole tiles" in answers["mma-sync-int8-conv"]["reason"]


def test_a_filter_may_be_an_argument() -> None:
    artifact = qmlir.ops.conv2d_q.compile(
        T((2, 9, 9, 64), "i8"), T((32, 3, 3, 64), "i8"), filter_layout="FHWC", input_scale=np.float32(0.5),
        weight_scale=scales(32), activation="relu", out_dtype="i8", out_scale=np.float32(2), target="cuda:sm_80",
    )  # fmt: skip
    one_kernel(artifact, S8)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("m", [1, SLOW_128, None])
@pytest.mark.parametrize("group", [0, 128])
def test_weight_only_decodes_in_registers(dtype: str, m: int | None, group: int) -> None:
    rhs, scale = codes(64, 1024, lo=-8, hi=7), scales(64, 1024 // group if group else 1)
    kw = {"rhs": rhs, "rhs_dtype": "i4", "rhs_scale": scale, "out_dtype": dtype}
    artifact = product("cuda:sm_90a", m, 64, 1024, lhs_dtype=dtype, **kw)
    plan = one_kernel(artifact, rf"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.{dtype}\.{dtype}\.f32")
    assert plan["weight_bits"] == 4


def test_a_tile_can_be_asked_for() -> None:
    text = default_pipeline(resolve("cuda:sm_80"))
    choice = "mma-sync-int8-tile:64x128x128x2x2x1x3"
    select = "qmlir-select{target=cuda:sm_80"
    assert select in text
    asked = text.replace(select, f"{select} prefer=mma-sync-int8 choice={choice}")
    assert one_kernel(product("cuda:sm_80", 16, 64, 256, pipeline=asked), S8)["tile"] == [64, 128, 128]
    with pytest.raises(UsageError, match="there is no choice mma-sync-int8-tile = 'large'"):
        product("cuda:sm_80", 16, 64, 256, pipeline=asked.replace("64x128x128x2x2x1x3", "large"))


def test_configurations_are_listed() -> None:
    found = list(configurations(resolve("cuda:sm_80")))
    assert len(found) == len(set(found)) > 20
    assert ("gemv-int8", "") in found


def test_zero_points_of_weights_need_no_other_kernel() -> None:
    """The sums of the activation's rows that they multiply are taken in the product."""
    zeros = np.arange(64, dtype=np.int32)[:, None] % 7
    kw = {"lhs_zero_point": T((40, 1), "i32"), "lhs_zero_mode": "int", "rhs_zero_point": zeros, "rhs_zero_mode": "int"}
    one_kernel(product("cuda:sm_80", 40, 64, 130, lhs_dtype="u8", lhs_scale=T((40, 1), "f32"), **kw), S8)
    one_kernel(product("cuda:sm_80", 40, 64, 256, rhs=codes(64, 256, lo=0, hi=15), rhs_dtype="u4",
                       rhs_scale=scales(64, 2), rhs_zero_point=np.tile(zeros, 2), rhs_zero_mode="int"), S8)  # fmt: skip


def test_scales_of_groups_on_both_sides() -> None:
    artifact = product("cuda:sm_80", 40, 64, 512, rhs_scale=scales(64, 4), lhs_scale=T((40, 4), "f32"))
    one_kernel(artifact, S8)


@pytest.mark.parametrize("n", [7, 6])
def test_refusals(n: int) -> None:
    artifact = product("cuda:sm_80", 16, n, 64)
    answers = {a["strategy"]: a for a in artifact.manifest.strategies[0]["answers"]}
    assert f"N is {n}: fewer columns than one instruction has" in answers["mma-sync-int8"]["reason"]


def test_groups_that_fit_no_step_are_refused() -> None:
    artifact = product("cuda:sm_80", 16, 64, 80, rhs_scale=scales(64, 10))
    answers = {a["strategy"]: a for a in artifact.manifest.strategies[0]["answers"]}
    assert "groups of 8 along K fit no step" in answers["mma-sync-int8"]["reason"]
    assert "a group size of 16 or a multiple" in answers["mma-sync-int8"]["remedy"]


def one_byte(m: int | None, **kw: Any) -> Any:
    rhs = np.random.default_rng(0).standard_normal((72, 512)).astype(ml_dtypes.float8_e4m3fn)
    return qmlir.ops.scaled_matmul.compile(
        T((m, 512), "e4m3"), rhs, rhs_transposed=True, lhs_scale=T((m, 1), "f32"), rhs_scale=scales(72, 1), **kw
    )


HALVES = r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.f16\.f16\.f32"
CODES = r"mma\.sync\.aligned\.m16n8k32\.row\.col\.f32\.e4m3\.e4m3\.f32"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m", [1, 33, None])
def test_one_byte_floats_are_one_kernel(target: str, m: int | None) -> None:
    one_kernel(one_byte(m, target=target, bias=np.zeros(72, np.float32), out_dtype="bf16"), HALVES)


def test_the_instruction_of_fp8_is_asked_for() -> None:
    """It keeps fewer bits of a sum than the semantics ask for."""
    artifact = one_byte(None, target="cuda:sm_90a")
    answers = {a["strategy"]: a for a in artifact.manifest.strategies[0]["answers"]}
    assert answers["mma-sync-fp8"]["accepted"]
    asked = one_byte(None, target="cuda:sm_120", choice={"strategy": "mma-sync-fp8-fast"})
    plan = one_kernel(asked, CODES)
    assert plan["codes"] == f"e4m3 x e4m3, sums of {plan['tile'][2]} apart"
    assert plan["tile"][2] <= 128
    text = default_pipeline(resolve("cuda:sm_89"))
    select = "qmlir-select{target=cuda:sm_89"
    asked = one_byte(33, target="cuda:sm_89", pipeline=text.replace(select, f"{select} prefer=mma-sync-fp8-fast"))
    one_kernel(asked, CODES)


def test_the_instruction_of_fp8_is_refused() -> None:
    from qmlir.targets.strategy import Contraction, Decline

    c = Contraction("matmul", (), 16, 64, 64, "f8E4M3FN", "f8E5M2", "f32")
    for target, reason, remedy in (
        ("cuda:sm_89", "the instruction keeps fewer bits of a sum than f32 has", "prefer=mma-sync-fp8-fast"),
        ("cuda:sm_90a", "sm_90 multiplies fp8 in wgmma only", "wgmma-fp8-fast"),
        ("cuda:sm_80", "cuda:sm_80 has no instruction for fp8", "cuda:sm_89 or newer"),
    ):
        (fast,) = (s for s in resolve(target).strategies() if s.name == "mma-sync-fp8-fast")
        answer = fast.consider(Contraction(**{**c.__dict__, "op": object()}))
        assert isinstance(answer, Decline)
        assert reason in answer.reason
        assert remedy in answer.remedy


WGMMA_CODES = r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k32\.f32\.e4m3\.e4m3"


def test_hopper_multiplies_one_byte_floats_where_they_are() -> None:
    """Sums of 128 codes, or of a group, are apart from the totals, also where the scales are of blocks."""
    fast = {"strategy": "wgmma-fp8-fast"}
    plan = one_kernel(one_byte(None, target="cuda:sm_90a", choice=fast), WGMMA_CODES)
    assert plan["codes"] == "e4m3 x e4m3, sums of 128 apart"
    rhs = np.random.default_rng(0).standard_normal((256, 512)).astype(ml_dtypes.float8_e4m3fn)
    blocks = qmlir.ops.scaled_matmul.compile(
        T((None, 512), "e4m3"), rhs, rhs_transposed=True, lhs_scale=T((None, 4), "f32"), rhs_scale=scales(2, 4),
        bias=np.zeros(256, np.float32), out_dtype="bf16", target="cuda:sm_90a", choice=fast)  # fmt: skip
    one_kernel(blocks, WGMMA_CODES)


@pytest.mark.parametrize(
    ("m", "k", "group", "reason", "remedy"),
    [
        (16, 512, 512, "16 rows leave most of 64 unused", "mma.sync has 16"),
        (64, 512, 256, "groups of 256 along a K of 512 are not whole", "groups of 32, 64 or 128"),
        (64, 192, 64, "groups of 64 along a K of 192 are not whole", "K a multiple of 128"),
    ],
)
def test_what_wgmma_does_not_take_of_one_byte_floats(m: int, k: int, group: int, reason: str, remedy: str) -> None:
    rhs = np.random.default_rng(0).standard_normal((72, k)).astype(ml_dtypes.float8_e4m3fn)
    artifact = qmlir.ops.scaled_matmul.compile(
        T((m, k), "e4m3"), rhs, rhs_transposed=True, lhs_scale=T((m, k // group), "f32"),
        rhs_scale=scales(72, k // group), target="cuda:sm_90a", choice={"strategy": "wgmma-fp8-fast"})  # fmt: skip
    answers = {a["strategy"]: a for a in artifact.manifest.strategies[0]["answers"]}
    assert reason in answers["wgmma-fp8-fast"]["reason"]
    assert remedy in answers["wgmma-fp8-fast"]["remedy"]
    assert answers["mma-sync-fp8"]["accepted"]


@pytest.mark.parametrize("target", TARGETS)
def test_workgroups_share_a_long_k_of_few_tiles(target: str) -> None:
    """Where the estimate says that it pays, and the plan says so; one kernel with its counters and a workspace."""
    tensor_core = WGMMA if target == "cuda:sm_90a" else S8
    made = product(target, 96, 256, 16384)
    plan = one_kernel(made, tensor_core)
    assert plan["stream_k"] >= 82
    assert re.fullmatch(r"estimated: [\d.]+ us with tiles apart and [\d.]+ us if K is shared", plan["because"])
    assert "atom.acq_rel.gpu" in made.source("ptx")
    plan = one_kernel(product(target, 2048, 2048, 256), tensor_core)
    assert "stream_k" not in plan
    assert "if K is shared" in plan["because"]


def test_groups_of_integers_are_added_up_in_their_order() -> None:
    """Parts of K would be added up first: that is asked for."""
    more = {"rhs": codes(256, 4096, lo=-8, hi=7), "rhs_dtype": "i4", "rhs_scale": scales(256, 32)}
    plan = one_kernel(product("cuda:sm_80", 16, 256, 4096, **more), S8)
    assert "stream_k" not in plan
    assert plan["because"].endswith("if K is shared; groups are added up in their order")


def test_experts_do_not_share_k() -> None:
    """A batch has workgroups enough, and is no part of it: its tiles are not offered."""
    artifact = qmlir.ops.scaled_matmul.compile(
        T((3, 16, 4096), "i8"), T((3, 64, 4096), "i8"), rhs_transposed=True, lhs_scale=T((3, 16, 1), "f32"),
        rhs_scale=T((3, 64, 1), "f32"), target="cuda:sm_80",
        choice={"mma-sync-int8-tile": "16x64x128x1x4x1x4-stream-k"})  # fmt: skip
    answers = {a["strategy"]: a for a in artifact.manifest.strategies[0]["answers"]}
    assert "a batch of products: K is shared" in answers["mma-sync-int8"]["reason"]


def test_warps_share_a_long_k_of_few_results() -> None:
    assert one_kernel(product("cuda:sm_90a", 16, 256, 4096), S8)["warps"][2] > 1
    assert one_kernel(product("cuda:sm_80", 1024, 1024, 512), S8)["warps"][2] == 1
