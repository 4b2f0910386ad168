"""Integer register tiles for 64-bit Arm, executed in an emulator, against the reference; refusals need no emulator."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from support.arm import Emulator
from support.cover import diagonal
from support.kernels import RandomCodes

import qmlir
from benchmarks.arm_loops import CASES, Case, loops, multiplications
from qmlir import TensorSpec as T
from qmlir.targets import EMULATED, resolve
from qmlir.targets.backends import backend_description

# For each register tile, a target that chooses it.
TARGETS = {"sdot": "cpu:neoverse-n1", "smmla": "cpu:neoverse-v1"}
NAMES = sorted(TARGETS)
SIZES = st.one_of(st.integers(1, 9), st.integers(1, 70))
COLUMNS = st.one_of(st.integers(1, 9), st.integers(1, 70))


def check(
    arm: Emulator, name: str, lhs: Any, rhs: Any, *, dynamic: bool = False, bits: int | None = None, **kw: Any
) -> Any:
    """Compile with constant weights, execute, compare bit for bit. With `dynamic`, `lhs` is a list of activations."""
    several = lhs if dynamic else [lhs]
    given_operands = {k: kw.pop(k) for k in ("lhs_scale", "c") if k in kw}
    first = several[0]
    spec = T((*first.shape[:-2], None if dynamic else first.shape[-2], first.shape[-1]),
             "u8" if first.dtype == np.uint8 else "i8")  # fmt: skip
    specs = {k: T(v.shape, "f32") for k, v in given_operands.items()}
    artifact = qmlir.ops.scaled_matmul.compile(spec, rhs, target=TARGETS[name], **specs, **kw)
    decision = artifact.manifest.strategies[0]
    assert decision["chosen"] == name, decision["answers"]
    got = arm.run(artifact, [[a, *given_operands.values()] for a in several])
    for activations, result in zip(several, got, strict=True):
        want = qmlir.reference.scaled_matmul(activations, rhs, **given_operands, **kw)
        np.testing.assert_array_equal(result, np.asarray(want))
    if bits is not None:
        plan = next(a["plan"] for a in decision["answers"] if a["strategy"] == name)
        assert plan["weight_bits"] == bits


def raw(arm: Emulator, name: str, m: int, n: int, k: int, seed: int, transposed: bool) -> None:
    codes = RandomCodes(seed)
    check(
        arm, name, codes(m, k), codes(n, k) if transposed else codes(k, n), rhs_transposed=transposed, out_dtype="i32"
    )


@pytest.mark.parametrize(("m", "n", "k", "name"), diagonal([(1, 45, 200), (13, 8, 17)], NAMES))
def test_raw_products(arm: Emulator, name: str, m: int, n: int, k: int) -> None:
    raw(arm, name, m, n, k, 1, True)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@given(m=SIZES, n=COLUMNS, k=SIZES, seed=st.integers(0, 99), transposed=st.booleans())
@settings(max_examples=20, derandomize=False)
def test_many_raw_products(arm: Emulator, name: str, m: int, n: int, k: int, seed: int, transposed: bool) -> None:
    raw(arm, name, m, n, k, seed, transposed)


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize("name", NAMES)
def test_one_program_for_any_number_of_rows(arm: Emulator, name: str) -> None:
    """Tile heights are chosen at run time; activations are unsigned, and the result saturates."""
    codes = RandomCodes(7)
    several = [RandomCodes(rows)(rows, 130, unsigned=True) for rows in (1, 3, 7, 12, 15, 40, 103)]
    check(
        arm, name, several, codes(45, 130), dynamic=True, rhs_transposed=True,
        rhs_scale=codes.powers(45, 1), lhs_zero_point=np.int32(3), lhs_zero_mode="int",
        rhs_zero_point=codes.rng.integers(-9, 9, (45, 1)).astype(np.int32), rhs_zero_mode="int",
        bias=codes.rng.standard_normal(45).astype(np.float32), activation="relu", out_dtype="i8",
        out_scale=np.float32(0.75), out_zero_point=np.int8(-4),
    )  # fmt: skip


@pytest.mark.sweep(fast=3, slow=3)
@pytest.mark.parametrize(
    ("dtype", "lo", "hi", "m", "name"), diagonal([("i4", -8, 7, 1), ("u4", 0, 15, 14), ("i2", -2, 1, 5)], NAMES)
)
def test_short_weights_in_groups(arm: Emulator, name: str, dtype: str, lo: int, hi: int, m: int) -> None:
    """Groups of 32, with zero points if codes are unsigned; K of several blocks if there are many rows."""
    codes = RandomCodes(m)
    n, groups = 37, 130 if m > 8 else 5
    zero: dict[str, Any] = {}
    if dtype[0] == "u":
        zero = {"rhs_zero_mode": "int", "rhs_zero_point": codes.rng.integers(0, 16, (n, groups)).astype(np.int32)}
    bits = 2 if (dtype, name) == ("i2", "sdot") else 4
    check(
        arm, name, codes(m, groups * 32), codes(n, groups * 32, lo=lo, hi=hi), bits=bits, rhs_transposed=True,
        rhs_dtype=dtype, lhs_scale=codes.powers(m, 1), rhs_scale=codes.powers(n, groups), **zero,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@given(m=SIZES, n=COLUMNS, groups=st.integers(1, 5), steps=st.sampled_from([1, 2, 3, 8]), seed=st.integers(0, 99))
@settings(max_examples=12, derandomize=False)
def test_many_short_weights(arm: Emulator, name: str, m: int, n: int, groups: int, steps: int, seed: int) -> None:
    codes = RandomCodes(seed)
    k = groups * steps * 16
    check(arm, name, codes(m, k), codes(n, k, lo=-8, hi=7), bits=4, rhs_transposed=True, rhs_dtype="i4",
          lhs_scale=codes.powers(m, 1), rhs_scale=codes.powers(n, groups))  # fmt: skip


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize("name", NAMES)
def test_codes_of_a_table(arm: Emulator, name: str) -> None:
    """A table of few, not consecutive codes, declared to be short, is looked up in a register."""
    codes = RandomCodes(2)
    table = np.array([-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12], np.int8)
    lhs, rhs = codes(6, 48), table[codes.rng.integers(0, 15, (48, 21))]
    artifact = qmlir.compile(_TABLE.format(bytes=rhs.tobytes().hex()), target=TARGETS[name])
    (decision,) = artifact.manifest.strategies
    assert decision["chosen"] == name
    assert answer(artifact, name)["plan"]["weight_bits"] == 4
    (got,) = arm.run(artifact, [[lhs]])
    np.testing.assert_array_equal(got, lhs.astype(np.int32) @ rhs)


_TABLE = """
func.func @main(%lhs: tensor<6x48xi8>) -> tensor<6x21xi32> {{
  %rhs = arith.constant dense<"0x{bytes}"> : tensor<48x21xi8>
  %zero = arith.constant 0 : i32
  %none = tensor.empty() : tensor<6x21xi32>
  %start = linalg.fill ins(%zero : i32) outs(%none : tensor<6x21xi32>) -> tensor<6x21xi32>
  %sums = linalg.matmul {{qmlir.rhs_magnitude = 12 : i64}}
      ins(%lhs, %rhs : tensor<6x48xi8>, tensor<48x21xi8>) outs(%start : tensor<6x21xi32>) -> tensor<6x21xi32>
  return %sums : tensor<6x21xi32>
}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_long_rows(arm: Emulator, name: str) -> None:
    """Several blocks of K, a ragged one last; more rows than a chunk has; codes of -128 on both sides."""
    lhs, rhs = np.full((110, 6001), -128, np.int8), np.full((50, 6001), -128, np.int8)
    rhs[::2, 1::2] = 127
    check(arm, name, lhs, rhs, rhs_transposed=True, out_dtype="i32")


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.parametrize(("out", "name"), diagonal(["f32", "f16", "bf16", "u8"], NAMES))
def test_results(arm: Emulator, name: str, out: str) -> None:
    codes = RandomCodes(5)
    requantised = {"out_scale": np.float32(0.5)} if out == "u8" else {}
    check(arm, name, codes(5, 40), codes(21, 40), rhs_transposed=True, out_dtype=out, lhs_scale=codes.powers(5, 1),
          rhs_scale=codes.powers(21, 1), **requantised)  # fmt: skip


@pytest.mark.parametrize("name", [NAMES[0], pytest.param(NAMES[1], marks=pytest.mark.slow)])
def test_sums_round_as_written(arm: Emulator, name: str) -> None:
    """`acc * scale + bias + beta * c` with scales whose products are not exact: no product is fused with a sum."""
    codes = RandomCodes(3)
    rng = codes.rng
    check(arm, name, codes(9, 64), codes(33, 64), rhs_transposed=True, lhs_scale=rng.random((9, 1)).astype(np.float32),
          rhs_scale=rng.random((33, 1)).astype(np.float32), bias=rng.random(33).astype(np.float32), beta=0.3,
          c=rng.random((9, 33)).astype(np.float32))  # fmt: skip


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.parametrize(("out", "scale", "name"), diagonal(["i8", "u8"], [2.0**-6, 2.0**40, np.inf, np.nan], NAMES))
def test_requantisation_of_any_constant_scale(arm: Emulator, name: str, scale: float, out: str) -> None:
    """Scales include infinities and NaNs; ties round to even; the result has a zero point."""
    codes = RandomCodes(11)
    scales = np.where(np.arange(24) % 3 == 0, scale, 0.5).astype(np.float32).reshape(24, 1)
    check(
        arm, name, codes(13, 32), codes(24, 32), rhs_transposed=True, rhs_scale=scales, out_dtype=out,
        out_scale=np.float32(32), out_zero_point=np.int8(5) if out == "i8" else np.uint8(5),
    )  # fmt: skip


# Channels, filter, strides, padding: pixels of whole vectors, whose rows are gathered in the kernel, and others.
WINDOWS = [(32, (3, 3), (1, 1), (1, 1, 1, 1)), (5, (3, 2), (2, 1), (1, 0, 1, 1))]


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize(("channels", "kernel", "strides", "padding", "name"), diagonal(WINDOWS, NAMES))
@pytest.mark.parametrize("short", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_convolution_with_its_epilogue(
    arm: Emulator, name: str, channels: int, kernel: Any, strides: Any, padding: Any, short: bool
) -> None:
    codes = RandomCodes(8)
    image = codes(2, 9, 8, channels, unsigned=True)
    weight = codes(21, *kernel, channels, lo=-8, hi=7) if short else codes(21, *kernel, channels)
    kw: dict[str, Any] = {
        "input_zero_point": np.uint8(9), "input_zero_mode": "int", "input_scale": np.float32(0.5),
        "weight_scale": codes.powers(21, 1, 1, 1), "bias": codes.rng.standard_normal(21).astype(np.float32),
        "activation": "relu6", "out_dtype": "u8", "out_scale": np.float32(0.25), "strides": strides,
        "padding": padding, "input_layout": "NHWC", "weight_layout": "FHWC",
        **({"weight_dtype": "i4"} if short else {}),
    }  # fmt: skip
    artifact = qmlir.ops.conv2d_q.compile(T(image.shape, "u8"), weight, target=TARGETS[name], **kw)
    assert artifact.manifest.strategies[0]["chosen"] == f"{name}-conv"
    (got,) = arm.run(artifact, [[image]])
    np.testing.assert_array_equal(got, qmlir.reference.conv2d_q(image, weight, **kw))


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize(("rows", "name"), diagonal([1, 14], NAMES))
def test_gated_pairs(arm: Emulator, name: str, rows: int) -> None:
    codes = RandomCodes(9)
    lhs, rhs = codes(rows, 64), codes(74, 64)
    kw: dict[str, Any] = {
        "rhs_transposed": True, "lhs_scale": np.float32(2.0**-7), "activation": "swiglu", "gate_layout": "halves",
        "rhs_scale": codes.powers(74, 1) * np.float32(2.0**-6), "bias": codes.powers(74),
    }  # fmt: skip
    artifact = qmlir.ops.scaled_matmul.compile(T((rows, 64), "i8"), rhs, target=TARGETS[name], **kw)
    assert artifact.manifest.strategies[0]["chosen"] == name
    (got,) = arm.run(artifact, [[lhs]])
    np.testing.assert_allclose(got, qmlir.reference.scaled_matmul(lhs, rhs, **kw), rtol=2.0**-18, atol=2.0**-20)


def answer(artifact: Any, name: str) -> Any:
    return next(a for a in artifact.manifest.strategies[0]["answers"] if a["strategy"] == name)


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize(
    ("change", "name", "reason", "remedy"),
    [
        ({"target": "cpu:aarch64"}, "sdot", "cpu:aarch64 lacks dotprod", "name a CPU that has it"),
        ({"target": "cpu:neoverse-n1"}, "smmla", "cpu:neoverse-n1 lacks i8mm", "name a CPU that has it"),
        ({"group": 8}, "smmla", "groups of 8 along K are not a multiple of 16", "a group size of 16"),
        ({"argument": True}, "smmla", "packing it in every call does not pay for M = 4", "a constant or a"),
    ],
)
def test_refusals(change: dict[str, Any], name: str, reason: str, remedy: str) -> None:
    codes = RandomCodes(0)
    rhs: Any = T((32, 64), "i8") if "argument" in change else codes(32, 64)
    scale = {"rhs_scale": codes.powers(32, 64 // change["group"])} if "group" in change else {}
    target = change.get("target", "cpu:neoverse-v2")
    artifact = qmlir.ops.scaled_matmul.compile(T((4, 64), "i8"), rhs, rhs_transposed=True, target=target, **scale)
    refused = answer(artifact, name)
    assert not refused["accepted"]
    assert reason in refused["reason"]
    assert remedy in refused["remedy"]


@pytest.mark.sweep(fast=6, slow=60)
@pytest.mark.parametrize(
    ("case", "target"), diagonal([case for case in CASES if case.lhs == "i8"], ["cpu:neoverse-v2", "cpu:neoverse-n1"])
)
def test_inner_loops_stay_in_registers(case: Case, target: str) -> None:
    """24 accumulators and their operands barely fit LLVM's 32 registers: the inner loop must not spill. It does read
    rows of activations from the stack, but by another register than `sp`."""
    busiest = max(loops(case.assembly(target)), key=multiplications)
    assert multiplications(busiest) >= 8
    assert not [line for line in busiest if "[sp" in line]


ARM = [target.spelling for target in backend_description("cpu").TARGETS if "neon" in target.capabilities.cpu_features]


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.parametrize("target", ARM)
def test_every_named_target_is_executed(arm: Emulator, target: str) -> None:
    """Each target is as the table of targets says. The product is large enough to be divided among several
    workgroups."""
    codes = RandomCodes(1)
    lhs, rhs = codes(40, 256), codes(300, 256)
    kw: dict[str, Any] = {"rhs_transposed": True, "rhs_scale": codes.powers(300, 1), "out_dtype": "f32"}
    artifact = qmlir.ops.scaled_matmul.compile(T(lhs.shape, "i8"), rhs, target=target, **kw)
    best = {"cpu:aarch64": "stock", "cpu:neoverse-n1": "sdot", "cpu:apple-m1": "sdot"}
    assert artifact.manifest.strategies[0]["chosen"] == best.get(target, "smmla")
    assert artifact.manifest.task_work == 40 * 300 * 256
    np.testing.assert_array_equal(arm.run(artifact, [[lhs]])[0], qmlir.reference.scaled_matmul(lhs, rhs, **kw))
    assert resolve(target).status == EMULATED


def test_instructions_are_in_the_code() -> None:
    """A single row is multiplied with `smmla`'s weights by `sdot`; no tile is spilled."""
    codes = RandomCodes(6)
    for rows, target, instruction, others in (
        (64, "cpu:neoverse-v2", "smmla", "sdot"), (1, "cpu:neoverse-v2", "sdot", "smmla"),
        (64, "cpu:neoverse-n1", "sdot", "smmla"),
    ):  # fmt: skip
        artifact = qmlir.ops.scaled_matmul.compile(
            T((rows, 512), "i8"), codes(256, 512), rhs_transposed=True, out_dtype="i32", target=target
        )
        code = artifact.source("asm")
        assert f"\t{instruction}\t" in code
        assert f"\t{others}\t" not in code
