"""Every register tile of the CPU kernels that the host runs, forced, against the reference."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from support import amx
from support.cover import diagonal
from support.kernels import RandomCodes, forced

import qmlir
from qmlir import TensorSpec as T
from qmlir.targets.cpu.host import host_features
from qmlir.targets.cpu.kernels import tiles

pytestmark = [pytest.mark.usefixtures("emulated_amx"), pytest.mark.sweep(fast=6, slow=40)]
NAMES = amx.INTEGER
# In the fast tier, products run with every register tile, and the cases around them only with the first.
SOME = [*NAMES[:1], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])]


SIZES = st.one_of(st.integers(1, 9), st.integers(1, 70))
COLUMNS = st.one_of(st.integers(4, 9), st.integers(4, 70))  # fewer are declined, see test_refusals


def check(name: str, lhs: Any, rhs: Any, *, dynamic: bool = False, bits: int | None = None, **kw: Any) -> Any:
    """Compile with constant weights, run, compare bit for bit. Returns the plan."""
    given_operands = {"lhs_scale": kw.pop("lhs_scale", None), "c": kw.pop("c", None)}
    given_operands = {k: v for k, v in given_operands.items() if v is not None}
    rows = None if dynamic else lhs.shape[-2]

    def spec(a: Any, first: int | None) -> Any:
        return T((*a.shape[:-2], first, *a.shape[-1:]), "u8" if a.dtype == np.uint8 else "i8")

    specs = {k: T((rows if v.shape[0] != 1 else 1, v.shape[1]), "f32") for k, v in given_operands.items()}
    artifact = qmlir.ops.scaled_matmul.compile(spec(lhs, rows), rhs, target="cpu", pipeline=forced(name), **specs, **kw)
    decision = artifact.manifest.strategies[0]
    assert decision["chosen"] == name, decision["answers"]
    order = [k for k in ("lhs_scale", "c") if k in given_operands]
    got = qmlir.load(artifact).main(lhs, *(given_operands[k] for k in order))
    want = qmlir.reference.scaled_matmul(lhs, rhs, **given_operands, **kw)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    plan = next(a["plan"] for a in decision["answers"] if a["strategy"] == name)
    if bits is not None:
        assert plan["weight_bits"] == bits
    return plan


@pytest.mark.parametrize("name", NAMES)
@given(m=SIZES, n=COLUMNS, k=SIZES, seed=st.integers(0, 99), dynamic=st.booleans(), transposed=st.booleans())
@settings(max_examples=3)
def test_raw_products(name: str, m: int, n: int, k: int, seed: int, dynamic: bool, transposed: bool) -> None:
    codes = RandomCodes(seed)
    rhs = codes(n, k) if transposed else codes(k, n)
    check(name, codes(m, k), rhs, dynamic=dynamic, rhs_transposed=transposed, out_dtype="i32")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@given(m=SIZES, n=COLUMNS, k=SIZES, seed=st.integers(0, 99), dynamic=st.booleans(), transposed=st.booleans())
@settings(max_examples=20, derandomize=False)
def test_many_raw_products(name: str, m: int, n: int, k: int, seed: int, dynamic: bool, transposed: bool) -> None:
    test_raw_products.hypothesis.inner_test(name, m, n, k, seed, dynamic, transposed)


@pytest.mark.parametrize("name", NAMES)
@given(m=SIZES, n=COLUMNS, k=SIZES, seed=st.integers(0, 99), unsigned=st.booleans())
@settings(max_examples=2)
def test_requantised(name: str, m: int, n: int, k: int, seed: int, unsigned: bool) -> None:
    """Zero points on both sides, bias, relu, int8 out: the whole epilogue in one pass."""
    codes = RandomCodes(seed)
    check(
        name, codes(m, k, unsigned=unsigned), codes(n, k), rhs_transposed=True, lhs_scale=codes.powers(m, 1),
        rhs_scale=codes.powers(n, 1), lhs_zero_point=np.int32(3), lhs_zero_mode="int",
        rhs_zero_point=codes.rng.integers(-9, 9, (n, 1)).astype(np.int32), rhs_zero_mode="int",
        bias=codes.rng.standard_normal(n).astype(np.float32), activation="relu", out_dtype="i8",
        out_scale=np.float32(0.75), out_zero_point=np.int8(-4),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@given(m=SIZES, n=COLUMNS, k=SIZES, seed=st.integers(0, 99), unsigned=st.booleans())
@settings(max_examples=20, derandomize=False)
def test_many_requantised(name: str, m: int, n: int, k: int, seed: int, unsigned: bool) -> None:
    test_requantised.hypothesis.inner_test(name, m, n, k, seed, unsigned)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "bits", "lo", "hi", "name"), diagonal([("i4", 4, -8, 7), ("u4", 4, 0, 15), ("i2", 2, -2, 1)], NAMES)
)
@given(m=SIZES, n=COLUMNS, groups=st.integers(1, 5), steps=st.sampled_from([1, 2, 3, 8]), seed=st.integers(0, 99),
       dynamic=st.booleans())  # fmt: skip
@settings(max_examples=2)
def test_short_weights_in_groups(
    name: str, dtype: str, bits: int, lo: int, hi: int, m: int, n: int, groups: int, steps: int, seed: int,
    dynamic: bool,
) -> None:  # fmt: skip
    codes = RandomCodes(seed)
    size = steps * (64 if name.startswith("amx") else 16)
    bits = max(bits, 4) if name.startswith("amx") else bits
    check(
        name, codes(m, groups * size), codes(n, groups * size, lo=lo, hi=hi), dynamic=dynamic, bits=bits,
        rhs_transposed=True, rhs_dtype=dtype, lhs_scale=codes.powers(m, 1), rhs_scale=codes.powers(n, groups),
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_asymmetric_groups(name: str) -> None:
    """Zero points per group, K of three blocks (the tile's activations do not fit the first-level cache)."""
    codes = RandomCodes(1)
    m, n, groups, size = 14, 37, 66, 128
    check(
        name, codes(m, groups * size), codes(n, groups * size, lo=0, hi=15), bits=4, rhs_transposed=True,
        rhs_dtype="u4", rhs_zero_mode="int", rhs_zero_point=codes.rng.integers(0, 16, (n, groups)).astype(np.int32),
        lhs_scale=codes.powers(m, 1), rhs_scale=codes.powers(n, groups),
    )  # fmt: skip


@pytest.mark.parametrize("name", SOME)
def test_long_rows(name: str) -> None:
    """Several blocks of K, a ragged one last; more rows than a chunk has; codes of -128 on both sides."""
    lhs, rhs = np.full((110, 6001), -128, np.int8), np.full((50, 6001), -128, np.int8)
    rhs[::2, 1::2] = 127
    check(name, lhs, rhs, rhs_transposed=True, out_dtype="i32")


@pytest.mark.parametrize("name", SOME)
def test_one_program_for_any_number_of_rows(name: str) -> None:
    """Tile heights are chosen at run time; the program is compiled once."""
    codes = RandomCodes(7)
    rhs = codes(45, 130)
    scale = np.full((45, 1), 0.5, np.float32)
    for rows in (1, 3, 7, 12, 15, 40, 200):
        check(name, RandomCodes(rows)(rows, 130), rhs, dynamic=True, rhs_transposed=True, rhs_scale=scale)


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("out", ["f32", "f16", "bf16", "i8", "u8"])
def test_results(name: str, out: str) -> None:
    codes = RandomCodes(5)
    requantised = {"out_scale": np.float32(0.5)} if out in ("i8", "u8") else {}
    check(name, codes(5, 40), codes(21, 40), rhs_transposed=True, out_dtype=out, lhs_scale=codes.powers(5, 1),
          rhs_scale=codes.powers(21, 1), **requantised)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_sums_round_as_written(name: str) -> None:
    """`acc * scale + bias + beta * c` with scales whose products are not exact: no product is fused with a sum."""
    codes = RandomCodes(3)
    rng = codes.rng
    check(name, codes(9, 64), codes(33, 64), rhs_transposed=True, lhs_scale=rng.random((9, 1)).astype(np.float32),
          rhs_scale=rng.random((33, 1)).astype(np.float32), bias=rng.random(33).astype(np.float32), beta=0.3,
          c=rng.random((9, 33)).astype(np.float32))  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_batch_with_common_weights(name: str) -> None:
    codes = RandomCodes(2)
    check(name, codes(3, 5, 40), codes(21, 40), rhs_transposed=True, rhs_scale=codes.powers(21, 1))


def answer(artifact: Any, name: str) -> Any:
    return next(a for a in artifact.manifest.strategies[0]["answers"] if a["strategy"] == name)


@pytest.mark.slow
def test_a_weight_argument_is_packed_where_that_pays() -> None:
    codes = RandomCodes(4)
    lhs, rhs = codes(40, 70), codes(33, 70)
    for transposed in (True, False):
        w = rhs if transposed else np.ascontiguousarray(rhs.T)
        artifact = qmlir.ops.scaled_matmul.compile(
            T(lhs.shape, "i8"), T(w.shape, "i8"), rhs_transposed=transposed, out_dtype="i32"
        )
        assert artifact.manifest.strategies[0]["chosen"] in NAMES
        want = qmlir.reference.scaled_matmul(lhs, rhs, rhs_transposed=True, out_dtype="i32")
        np.testing.assert_array_equal(qmlir.load(artifact).main(lhs, w), want)


@pytest.mark.parametrize(
    ("change", "reason", "remedy"),
    [
        ({"rows": 2, "argument": True}, "packing it in every call does not pay for M = 2", "a constant or a"),
        ({"group": 8}, "groups of 8 along K are not a multiple of 16", "a group size of 16"),
        ({"target": "cpu:x86-64-v3"}, "cpu:x86-64-v3 lacks", "name a CPU that has it"),
        ({"columns": 1}, "fewer columns than", "the stock route"),
    ],
)
def test_refusals(change: dict[str, Any], reason: str, remedy: str) -> None:
    rows, columns, k = change.get("rows", 4), change.get("columns", 32), 64
    codes = RandomCodes(0)
    rhs: Any = T((columns, k), "i8") if "argument" in change else codes(columns, k)
    scale = {"rhs_scale": codes.powers(columns, k // change["group"])} if "group" in change else {}
    artifact = qmlir.ops.scaled_matmul.compile(
        T((rows, k), "i8"), rhs, rhs_transposed=True, target=change.get("target", "cpu:znver4"), **scale
    )
    refused = answer(artifact, "avx512-vnni")
    assert not refused["accepted"]
    assert reason in refused["reason"]
    assert remedy in refused["remedy"]


def test_size_of_a_program() -> None:
    """Weights are packed once: the program contains them and little else."""
    codes = RandomCodes(0)
    rhs = codes(1024, 1024)
    artifact = qmlir.ops.scaled_matmul.compile(T((None, 1024), "i8"), rhs, rhs_transposed=True, out_dtype="i32")
    assert artifact.manifest.strategies[0]["chosen"] in NAMES
    assert len(artifact.vmfb) < 1.05 * rhs.size


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu", "tanh"])
def test_functions_that_are_approximated(activation: str, name: str) -> None:
    """With many rows, chunks are a separate function, in which IREE does not expand erf and tanh."""
    codes = RandomCodes(9)
    lhs, rhs = codes(33, 64), codes(48, 64)
    kw: dict[str, Any] = {
        "rhs_transposed": True, "lhs_scale": np.float32(2.0**-7), "activation": activation,
        "rhs_scale": codes.powers(48, 1) * np.float32(2.0**-6),
    }  # fmt: skip
    artifact = qmlir.ops.scaled_matmul.compile(T((None, 64), "i8"), rhs, pipeline=forced(name), **kw)
    assert artifact.manifest.strategies[0]["chosen"] == name
    expected = qmlir.reference.scaled_matmul(lhs, rhs, **kw)
    np.testing.assert_allclose(qmlir.load(artifact).main(lhs), expected, rtol=2.0**-18, atol=2.0**-20)


@pytest.mark.parametrize("name", SOME)
def test_convolution_with_its_epilogue(name: str) -> None:
    codes = RandomCodes(8)
    image, weight = codes(2, 9, 8, 5, unsigned=True), codes(21, 3, 2, 5)
    kw: dict[str, Any] = {
        "input_zero_point": np.uint8(9), "input_zero_mode": "int", "input_scale": np.float32(0.5),
        "weight_scale": codes.powers(21, 1, 1, 1), "bias": codes.rng.standard_normal(21).astype(np.float32),
        "activation": "relu6", "out_dtype": "u8", "out_scale": np.float32(0.25), "strides": (2, 1),
        "padding": (1, 0, 1, 1), "input_layout": "NHWC", "weight_layout": "FHWC",
    }  # fmt: skip
    artifact = qmlir.ops.conv2d_q.compile(T(image.shape, "u8"), weight, pipeline=forced(f"{name}-conv"), **kw)
    assert artifact.manifest.strategies[0]["chosen"] == f"{name}-conv"
    np.testing.assert_array_equal(qmlir.load(artifact).main(image), qmlir.reference.conv2d_q(image, weight, **kw))


# Channels, filter, strides, dilations, padding (top, left, bottom, right): contiguous runs of less than a vector, of
# one, and of more; filters wider than the image; runs of one pixel; an image whose windows all overlap the padding.
PADDED = [
    (5, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (64, (3, 3), (2, 1), (1, 1), (1, 0, 1, 2)),
    (70, (1, 9), (1, 2), (1, 1), (0, 4, 0, 4)),
    (32, (3, 3), (1, 1), (2, 3), (3, 3, 2, 4)),
    (3, (7, 7), (2, 2), (1, 1), (3, 3, 3, 3)),
]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize(("channels", "kernel", "strides", "dilations", "padding"), PADDED)
def test_padding_in_front_of_a_convolution(
    name: str, channels: int, kernel: Any, strides: Any, dilations: Any, padding: Any
) -> None:
    """Without a zero point, and with one, for which the padding is a code other than 0."""
    codes = RandomCodes(10)
    for unsigned in (False, True):
        image, weight = codes(2, 8, 7, channels, unsigned=unsigned), codes(24, *kernel, channels)
        kw: dict[str, Any] = {
            "strides": strides, "dilations": dilations, "padding": padding, "input_layout": "NHWC",
            "weight_layout": "FHWC", "out_dtype": "i32",
        }  # fmt: skip
        if unsigned:
            kw |= {"input_zero_point": np.uint8(9), "input_zero_mode": "int"}
        spec = T(image.shape, "u8" if unsigned else "i8")
        artifact = qmlir.ops.conv2d_q.compile(spec, weight, pipeline=forced(f"{name}-conv"), **kw)
        assert artifact.manifest.strategies[0]["chosen"] == f"{name}-conv"
        np.testing.assert_array_equal(qmlir.load(artifact).main(image), qmlir.reference.conv2d_q(image, weight, **kw))
        if name == "avx512-vnni":
            assert artifact.manifest.zero_copy == {"main": [0]}  # nothing else reads the image


@pytest.mark.skipif(amx.NAME not in NAMES, reason="this host has no AVX-512 to stand in for AMX")
@pytest.mark.parametrize("fault", ["operands", "heights", "rows"])
def test_faults_in_the_use_of_tiles_are_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulated AMX instructions refuse what real ones refuse, and move what they move: faults give wrong results."""
    if fault == "operands":
        dot = tiles._dot
        monkeypatch.setattr(tiles, "_dot", lambda name, acc, lhs, rhs: dot(name, acc, rhs, lhs))
    elif fault == "heights":
        begin = tiles.begin
        monkeypatch.setattr(tiles, "begin", lambda rows: begin(24))  # the last tiles have 8 rows
    else:
        move = tiles._move
        monkeypatch.setattr(tiles, "_move", lambda name, t, address, stride: move(name, t, address, stride - 64))
    codes = RandomCodes(len(fault))  # unique weights, or the cache would give the sound program
    lhs, rhs = codes(32, 128), codes(64, 128)
    specs = T(lhs.shape, "i8"), rhs
    artifact = qmlir.ops.scaled_matmul.compile(
        *specs, rhs_transposed=True, out_dtype="i32", pipeline=forced(amx.NAME), target="cpu"
    )
    want = qmlir.reference.scaled_matmul(lhs, rhs, rhs_transposed=True, out_dtype="i32")
    assert not np.array_equal(qmlir.load(artifact).main(lhs), want)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("amx")])
@pytest.mark.parametrize(("m", "unsigned"), [(64, False), (97, True)])
def test_rows_that_are_brought_into_lines(name: str, m: int, unsigned: bool) -> None:
    """Rows are copied first: arguments start anywhere, unsigned codes have another top bit, K may end within a line."""
    codes = RandomCodes(m)
    lhs, rhs = codes(m, 200, unsigned=unsigned), codes(45, 200)
    padded = np.empty(lhs.nbytes + 64, np.uint8)
    start = -padded.ctypes.data % 64 + 16
    moved = padded[start : start + lhs.nbytes].view(lhs.dtype).reshape(lhs.shape)
    moved[...] = lhs
    zero = {"lhs_zero_point": np.int32(7), "lhs_zero_mode": "int"} if unsigned else {}
    check(name, moved, rhs, rhs_transposed=True, lhs_scale=np.full((m, 1), 0.5, np.float32), **zero)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("amx")])
def test_results_past_the_caches(name: str) -> None:
    """4 MiB of results, and rows of several chunks, the last one ragged."""
    codes = RandomCodes(12)
    check(name, codes(1050, 64), codes(1024, 64), rhs_transposed=True, out_dtype="i32")


@pytest.mark.slow
def test_tiles_of_amx_are_in_the_code() -> None:
    """Few test hosts have AMX, so the instructions are looked for in the assembly, not run."""
    codes = RandomCodes(6)
    artifact = qmlir.ops.scaled_matmul.compile(
        T((64, 512), "i8"),
        codes(256, 512, lo=-8, hi=7),
        rhs_transposed=True,
        rhs_dtype="i4",
        target="cpu:sapphirerapids",
    )
    assert artifact.manifest.strategies[0]["chosen"] == "amx-int8"
    code = artifact.source("asm")
    for instruction in ("ldtilecfg", "syscall", "tileloadd", "tdpbssd", "tilestored", "tilerelease"):
        assert instruction in code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "cpu", "product"), [("bf16", "sapphirerapids", "tdpbf16ps"), ("f16", "graniterapids", "tdpfp16ps")]
)
def test_tiles_of_amx_for_floats_are_in_the_code(dtype: str, cpu: str, product: str) -> None:
    codes = RandomCodes(6)
    artifact = qmlir.ops.scaled_matmul.compile(
        T((40, 128), dtype), codes(70, 128, lo=-8, hi=7), rhs_transposed=True, rhs_dtype="i4", compute_dtype="f32",
        rhs_scale=codes.powers(70, 1), target=f"cpu:{cpu}",
    )  # fmt: skip
    code = artifact.source("asm")
    for instruction in ("ldtilecfg", "syscall", "tileloadd", product, "tilestored", "tilerelease"):
        assert instruction in code


def test_a_program_for_another_cpu_is_refused_at_load() -> None:
    codes = RandomCodes(6)
    artifact = qmlir.ops.scaled_matmul.compile(
        T((40, 64), "i8"), codes(40, 64), rhs_transposed=True, out_dtype="i32", target="cpu:sapphirerapids"
    )
    assert "amx-int8" in artifact.manifest.cpu_features
    if "amx-int8" not in host_features():
        with pytest.raises(qmlir.QmlirError, match="amx-int8"):
            qmlir.load(artifact)


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize(("rows", "inner"), [(1, 16), (14, 37), (None, 24)])
def test_gated_pairs(name: str, rows: int | None, inner: int) -> None:
    """Both halves of the columns, an activation of one half, and their product are computed in one pass."""
    codes = RandomCodes(9)
    lhs, rhs = codes(rows or 30, 64), codes(2 * inner, 64)
    kw: dict[str, Any] = {
        "rhs_transposed": True, "lhs_scale": np.float32(2.0**-7), "activation": "swiglu", "gate_layout": "halves",
        "rhs_scale": codes.powers(2 * inner, 1) * np.float32(2.0**-6), "bias": codes.powers(2 * inner),
    }  # fmt: skip
    artifact = qmlir.ops.scaled_matmul.compile(T((rows, 64), "i8"), rhs, pipeline=forced(name), **kw)
    decision = artifact.manifest.strategies[0]
    assert decision["chosen"] == name
    assert next(a["plan"]["fused"] for a in decision["answers"] if a["strategy"] == name) == 4
    expected = qmlir.reference.scaled_matmul(lhs, rhs, **kw)
    np.testing.assert_allclose(qmlir.load(artifact).main(lhs), expected, rtol=2.0**-18, atol=2.0**-20)


@pytest.mark.parametrize(
    ("out", "scale", "name"), diagonal(["i8", "u8"], [2.0**-6, 2.0**9, 2.0**16, 2.0**40, np.inf, np.nan], NAMES)
)
def test_requantisation_of_any_constant_scale(name: str, scale: float, out: str) -> None:
    """Values that are known to fit i32 are clamped as integers, others before the conversion. Both give the same codes,
    with ties to even, and for infinities and NaNs. Rows are in pairs, and one is left over."""
    codes = RandomCodes(11)
    lhs, rhs = codes(13, 32), codes(64, 32)
    scales = np.where(np.arange(64) % 3 == 0, scale, 0.5).astype(np.float32).reshape(64, 1)
    for zero in (0, 5):
        check(
            name, lhs, rhs, rhs_transposed=True, rhs_scale=scales, out_dtype=out, out_scale=np.float32(32),
            out_zero_point=np.int8(zero) if out == "i8" else np.uint8(zero),
        )  # fmt: skip


@pytest.mark.parametrize("what", ["activation", "scale"])
def test_diagonals(what: str) -> None:
    """Regression: if the rows of an activation were the diagonals of matrices, or a scale was a matrix's diagonal, a
    kernel read contiguous elements instead."""
    codes = RandomCodes(12)
    lhs, weight = codes(*((6, 32, 32) if what == "activation" else (6, 32))), codes(32, 32)
    scale = codes.powers(*((32, 32) if what == "scale" else (32,)))
    x, s = (f"tensor<{'x'.join(map(str, value.shape))}x{kind}>" for value, kind in ((lhs, "i8"), (scale, "f32")))
    text = f"""
#x = affine_map<(i, j, k) -> ({"i, k, k" if what == "activation" else "i, k"})>
#w = affine_map<(i, j, k) -> (j, k)>
#p = affine_map<(i, j, k) -> (i, j)>
#s = affine_map<(i, j) -> ({"j, j" if what == "scale" else "j"})>
#r = affine_map<(i, j) -> (i, j)>
func.func @main(%x: {x}, %s: {s}) -> tensor<6x32xf32> {{
  %zero = arith.constant 0 : i32
  %w = arith.constant dense<{weight.tolist()}> : tensor<32x32xi8>
  %e = tensor.empty() : tensor<6x32xi32>
  %o = tensor.empty() : tensor<6x32xf32>
  %f = linalg.fill ins(%zero : i32) outs(%e : tensor<6x32xi32>) -> tensor<6x32xi32>
  %p = linalg.generic {{indexing_maps = [#x, #w, #p], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%x, %w : {x}, tensor<32x32xi8>) outs(%f : tensor<6x32xi32>) {{
  ^bb0(%a: i8, %b: i8, %c: i32):
    %1 = arith.extsi %a : i8 to i32
    %2 = arith.extsi %b : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %c, %3 : i32
    linalg.yield %4 : i32
  }} -> tensor<6x32xi32>
  %r = linalg.generic {{indexing_maps = [#r, #s, #r], iterator_types = ["parallel", "parallel"]}}
      ins(%p, %s : tensor<6x32xi32>, {s}) outs(%o : tensor<6x32xf32>) {{
  ^bb0(%a: i32, %b: f32, %c: f32):
    %1 = arith.sitofp %a : i32 to f32
    %2 = arith.mulf %1, %b : f32
    linalg.yield %2 : f32
  }} -> tensor<6x32xf32>
  return %r : tensor<6x32xf32>
}}"""
    rows = np.einsum("ikk->ik", lhs) if what == "activation" else lhs
    scales = np.diag(scale) if what == "scale" else scale
    expected = (rows.astype(np.int32) @ weight.T.astype(np.int32)).astype(np.float32) * scales
    artifact = qmlir.compile(text, target="cpu:x86-64-v3")
    np.testing.assert_array_equal(qmlir.load(artifact).main(lhs, scale), expected)


def test_what_is_no_number_is_a_zero_point_out_of_range() -> None:
    """Regression: with a zero point outside the range of codes, NaN gave its low byte, not the code nearest to it."""
    codes = RandomCodes(13)
    lhs, rhs = codes(5, 32), codes(32, 32)
    scales = np.where(np.arange(32) % 3 == 0, np.nan, 0.5).astype(np.float32).reshape(32, 1)
    check(NAMES[0], lhs, rhs, rhs_transposed=True, rhs_scale=scales, out_dtype="i8", out_scale=np.float32(32),
          out_zero_point=np.int32(300))  # fmt: skip
