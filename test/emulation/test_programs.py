"""Programs on emulated devices, as a user runs them: saved, loaded with `emulate=True` and called."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulation.forms import Form
from emulation.programs import FAMILIES, artifact_of, calls, judged
from ptx.forms import fast_one_byte_floats, sliced, stream_k

import qmlir
from qmlir import TensorSpec, settings
from qmlir.runtime.artifact import Artifact
from qmlir.targets import all_targets

CUDA = [t.spelling for t in all_targets() if t.backend == "cuda"]
AMD = [t.spelling for t in all_targets() if t.backend == "rocm"]
# tinygrad's tables need Python 3.11.
HAS_AMD = importlib.util.find_spec("tinygrad") is not None or settings.require_emulation()
TARGETS = [*CUDA, *(AMD if HAS_AMD else [])]
# Every form runs on these targets, the forms of SOME on the others.
WHOLE = {"cuda:sm_80", "cuda:sm_90a", "rocm:gfx942", "rocm:gfx1201"}
SOME = {
    "w8a8-33x70", "w8a8-256x512", "zero points-u8 both", "epilogue-all", "epilogue-swiglu halves", "w4a8-i4 group 64",
    "w4a8-u4 zeros on both sides, group 32", "w4a8-static rows 1", "weight only-float16 x i4 group 32",
    "weight only-bfloat16 x nf4 group 64", "fp8-e4m3 x e4m3", "conv2d-zero point", "conv2d-depthwise",
    "experts-contiguous", "experts-routed u8", "experts-moe",
}  # fmt: skip
FAST = {
    ("cuda:sm_80", "w8a8-33x70"), ("cuda:sm_80", "weight only-float16 x i4 group 32"),
    ("cuda:sm_86", "w4a8-static rows 1"), ("cuda:sm_89", "fp8-e4m3 x e4m3"),
    ("cuda:sm_90", "conv2d-zero point"), ("cuda:sm_90a", "w8a8-256x512"), ("cuda:sm_120", "w4a8-static rows 1"),
    ("rocm:gfx942", "w8a8-33x70"), ("rocm:gfx950", "w4a8-i4 group 64"), ("rocm:gfx90a", "epilogue-all"),
    ("rocm:gfx1100", "weight only-float16 x i4 group 32"), ("rocm:gfx1201", "fp8-e4m3 x e4m3"),
    ("rocm:gfx1151", "experts-routed u8"),
}  # fmt: skip
CASES = [(t, f) for t in TARGETS for f in FAMILIES if t in WHOLE or f.id in SOME]
CASES += [(t, f) for f in (*fast_one_byte_floats(), *sliced(), *stream_k()) for t in f.targets]


def saved(artifact: Artifact, folder: Path) -> Path:
    path = folder / "program.vmfb"
    artifact.save(path)
    return path


@pytest.mark.parametrize("target", [t for t in ("cuda:sm_80", "rocm:gfx942") if t in TARGETS])
def test_a_call_without_rows(target: str, tmp_path: Path) -> None:
    """Regression: IREE's CUDA driver launched an empty grid, which a device refuses."""
    spec = qmlir.TensorSpec(("M", 64), "i8")
    artifact = qmlir.ops.scaled_matmul.compile(spec, np.ones((64, 16), np.int8), out_dtype="i32", target=target)
    program = qmlir.load(saved(artifact, tmp_path), emulate=True)
    assert program.main(np.ones((0, 64), np.int8)).shape == (0, 16)
    np.testing.assert_array_equal(program.main(np.ones((3, 64), np.int8)), np.full((3, 16), 64))


@pytest.mark.sweep(fast=2, slow=26)
@pytest.mark.parametrize(("target", "m", "k"), [
    t for t in (("rocm:gfx942", 4, 24), ("rocm:gfx90a", 20, 40), ("rocm:gfx1100", 3, 8), ("rocm:gfx1201", "M", 32))
    if t[0] in TARGETS
])  # fmt: skip
def test_floats_by_bytes_with_zero_points(target: str, m: int | str, k: int) -> None:
    """Regression: on AMD's matrix instructions, the bytes of a weight with zero points lost their sign, so that each
    negative byte was 256 too large."""
    rng = np.random.default_rng(0)
    w, zero = rng.integers(-128, 128, (8, k), np.int8), rng.integers(-9, 9, (8, 1)).astype(np.int32)
    spec = qmlir.TensorSpec((m, k), "f16")
    artifact = qmlir.ops.scaled_matmul.compile(
        spec, w, rhs_zero_point=zero, rhs_transposed=True, out_dtype="f32", target=target
    )
    x = rng.integers(-3, 4, (m if isinstance(m, int) else 5, k)).astype(np.float16)
    want = x.astype(np.float32) @ (w.astype(np.float32) - zero).T
    np.testing.assert_array_equal(qmlir.load(artifact, emulate=True).main(x), want)


def test_three_experts() -> None:
    """Regression: for three experts (or seven, ..), the kernel that sorts rows loaded four counters, the last of which
    nobody had written; an emulated device refuses that."""
    rng = np.random.default_rng(0)
    w = rng.integers(-128, 128, (3, 16, 32), np.int8)
    artifact = qmlir.ops.grouped_matmul.compile(
        qmlir.TensorSpec(("M", 32), "i8"), w, group_sizes=qmlir.TensorSpec((3,), "i32"), rhs_transposed=True,
        out_dtype="i32", target="cuda:sm_80",
    )  # fmt: skip
    x, sizes = rng.integers(-128, 128, (5, 32), np.int8), np.array([1, 0, 4], np.int32)
    want = np.einsum("mk,mnk->mn", x.astype(np.int32), w[np.repeat(np.arange(3), sizes)].astype(np.int32))
    np.testing.assert_array_equal(qmlir.load(artifact, emulate=True).main(x, sizes), want)


# Attention scores: `sum over k of lhs[b, m, k] * rhs[b, n, k]`.
SCORES = """
#lhs = affine_map<(b, m, n, k) -> (b, m, k)>
#rhs = affine_map<(b, m, n, k) -> (b, n, k)>
#out = affine_map<(b, m, n, k) -> (b, m, n)>
func.func @main(%lhs: tensor<2xMx16xT>, %rhs: tensor<2xNx16xT>) -> tensor<2xMxNxf32> {
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %lhs, %c1 : tensor<2xMx16xT>
  %n = tensor.dim %rhs, %c1 : tensor<2xNx16xT>
  %empty = tensor.empty(SIZES) : tensor<2xMxNxf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<2xMxNxf32>) -> tensor<2xMxNxf32>
  %r = linalg.batch_matmul indexing_maps = [#lhs, #rhs, #out]
      ins(%lhs, %rhs : tensor<2xMx16xT>, tensor<2xNx16xT>) outs(%init : tensor<2xMxNxf32>) -> tensor<2xMxNxf32>
  return %r : tensor<2xMxNxf32>
}
"""


@pytest.mark.parametrize(
    ("target", "dtype", "rows"),
    [t for t in [("rocm:gfx942", "f32", "?"), ("rocm:gfx90a", "f16", "?"), ("rocm:gfx942", "f16", "5"),
                 ("rocm:gfx950", "bf16", "?"), ("rocm:gfx1100", "f16", "?"), ("cuda:sm_80", "f16", "?")]
     if t[0] in TARGETS],
)  # fmt: skip
def test_no_row_is_read_behind_the_operands_of_a_batch(target: str, dtype: str, rows: str, tmp_path: Path) -> None:
    """Regression: IREE dropped the mask of a padded tile's rows, and read one row after the end of each operand, where
    another batch or the end of an allocation may be."""
    sizes = {"?": "%m, %n", "5": "%n"}[rows]
    text = SCORES.replace("2xM", f"2x{rows}").replace("xNx", "x?x").replace("xT>", f"x{dtype}>").replace("SIZES", sizes)
    (tmp_path / "scores.mlir").write_text(text)
    program = qmlir.load(qmlir.compile(tmp_path / "scores.mlir", target=target), emulate=True)
    rng = np.random.default_rng(0)
    number = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[dtype]
    lhs, rhs = (rng.integers(-3, 4, (2, count, 16)).astype(np.float32) for count in (5, 9))
    np.testing.assert_array_equal(program.main(lhs.astype(number), rhs.astype(number)), lhs @ rhs.transpose(0, 2, 1))
    # Each workgroup reads each element of the operands that it needs once: here there is one workgroup.
    assert program.emulated.counts.bytes_read <= 2 * (lhs.size + rhs.size) * np.dtype(number).itemsize


REDUCED = """
func.func @main(%x: tensor<3x64xT>) -> tensor<3xT> {
  %c = arith.constant START : T
  %e = tensor.empty() : tensor<3xT>
  %start = linalg.fill ins(%c : T) outs(%e : tensor<3xT>) -> tensor<3xT>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<3x64xT>) outs(%start : tensor<3xT>) {
  ^bb0(%in: T, %acc: T):
    %1 = arith.OP %in, %acc : T
    linalg.yield %1 : T
  } -> tensor<3xT>
  return %r : tensor<3xT>
}
"""


@pytest.mark.sweep(fast=3, slow=60)
@pytest.mark.parametrize("target", [t for t in ("cuda:sm_90a", "rocm:gfx942", "rocm:gfx1100") if t in TARGETS])
@pytest.mark.parametrize(("operation", "dtype", "start"), [
    ("minsi", np.int32, 2**31 - 1), ("maxsi", np.int8, -128), ("maxui", np.uint64, 0), ("andi", np.int16, -1),
    ("addi", np.int8, 0), ("minimumf", np.float32, "0x7F800000"),
])  # fmt: skip
def test_a_reduction_across_lanes(operation: str, dtype: Any, start: object, target: str, tmp_path: Path) -> None:
    """Regression: it started with a value that is not neutral. A minimum of positive integers was -1, and so was a
    minimum of floats that are reduced as integers because of NaN. For bytes on AMD, LLVM ended the process."""
    kind = np.dtype(dtype)
    t = f"{'f' if kind.kind == 'f' else 'i'}{kind.itemsize * 8}"
    (tmp_path / "x.mlir").write_text(
        REDUCED.replace("OP", operation).replace("START", str(start)).replace("xT", f"x{t}").replace(": T", f": {t}")
    )
    program = qmlir.load(qmlir.compile(tmp_path / "x.mlir", target=target), emulate=True)
    above = np.random.default_rng(0).integers(1, 50, (3, 64))
    function = {"min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "add": np.add}[operation[:3]]
    for x in (above, -above):
        given = x.astype(np.int64).astype(dtype)
        got = program.main(given.view(f"i{kind.itemsize}") if kind.kind == "u" else given)
        np.testing.assert_array_equal(np.asarray(got).view(dtype), function.reduce(given, axis=1, dtype=dtype))


PARTS = """
func.func @main(%x: tensor<?x4x?xf32>) -> (tensor<?x1x?xf32>, tensor<?x1x?xf32>, tensor<?x1x?xf32>, tensor<?x1x?xf32>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %m = tensor.dim %x, %c0 : tensor<?x4x?xf32>
  %n = tensor.dim %x, %c2 : tensor<?x4x?xf32>
  %0 = tensor.extract_slice %x[0, 0, 0] [%m, 1, %n] [1, 1, 1] : tensor<?x4x?xf32> to tensor<?x1x?xf32>
  %1 = tensor.extract_slice %x[0, 1, 0] [%m, 1, %n] [1, 1, 1] : tensor<?x4x?xf32> to tensor<?x1x?xf32>
  %2 = tensor.extract_slice %x[0, 2, 0] [%m, 1, %n] [1, 1, 1] : tensor<?x4x?xf32> to tensor<?x1x?xf32>
  %3 = tensor.extract_slice %x[0, 3, 0] [%m, 1, %n] [1, 1, 1] : tensor<?x4x?xf32> to tensor<?x1x?xf32>
  return %0, %1, %2, %3 : tensor<?x1x?xf32>, tensor<?x1x?xf32>, tensor<?x1x?xf32>, tensor<?x1x?xf32>
}
"""


def test_parts_of_an_argument(tmp_path: Path) -> None:
    """Regression: calls failed in IREE's check of command buffers: the program has several results, and returned those
    for empty tensors from a block of their own."""
    (tmp_path / "x.mlir").write_text(PARTS)
    program = qmlir.load(qmlir.compile(tmp_path / "x.mlir", target="cuda:sm_90a"), emulate=True)
    x = np.random.default_rng(0).random((3, 4, 5), np.float32)
    for i, part in enumerate(program.main(x)):
        np.testing.assert_array_equal(part, x[:, i : i + 1])
    with pytest.raises(qmlir.QmlirError, match="programs with several results do not accept empty tensors"):
        program.main(x[:0])


@pytest.mark.parametrize(("short", "wide", "extension", "sum_"), [
    ("f16", "f64", "extf", "addf"), ("f32", "f64", "extf", "addf"), ("i8", "i64", "extui", "addi"),
])  # fmt: skip
def test_a_sum_of_64_bits(short: str, wide: str, extension: str, sum_: str, tmp_path: Path) -> None:
    """Regression: IREE could not compile it for CUDA: a variance in torch, a sum of integers in ONNX."""
    converted = f"%0 = arith.{extension} %in : {short} to {wide}\n    %1 = arith.{sum_} %0, %acc : {wide}"
    text = REDUCED.replace("START", "0.0" if wide == "f64" else "0").replace("%1 = arith.OP %in, %acc : T", converted)
    text = text.replace("3x64xT", f"3x64x{short}").replace("%in: T", f"%in: {short}")
    (tmp_path / "x.mlir").write_text(text.replace("xT", f"x{wide}").replace(": T", f": {wide}"))
    program = qmlir.load(qmlir.compile(tmp_path / "x.mlir", target="cuda:sm_90a"), emulate=True)
    x = np.random.default_rng(0).integers(0, 100, (3, 64))
    given = x.astype({"f16": np.float16, "f32": np.float32, "i8": np.int8}[short])
    np.testing.assert_array_equal(program.main(given), x.sum(1))


@pytest.mark.sweep(fast=6, slow=108)
@pytest.mark.parametrize(
    ("target", "form"),
    [pytest.param(t, f, id=f"{t}-{f.id}", marks=[] if (t, f.id) in FAST else [pytest.mark.slow]) for t, f in CASES],
)
def test_family(target: str, form: Form, tmp_path: Path) -> None:
    program: Any = None
    for kw in calls(form):
        if program is None:
            program = qmlir.load(saved(artifact_of(form, target, kw), tmp_path), emulate=qmlir.Emulation(order_seed=1))
        judged(form, kw, program.main(*[kw[name] for name, _ in program.main.signature.inputs]))
        assert program.emulated.counts.total > 0


def test_the_fast_cases_are_cases() -> None:
    assert {f.id for f in FAMILIES} >= SOME
    assert {c for c in FAST if c[0] in TARGETS} <= {(t, f.id) for t, f in CASES}


def test_amd_is_emulated_where_everything_must_be() -> None:
    """On CI (`QMLIR_REQUIRE_EMULATION`) no target is left out silently."""
    if settings.require_emulation():
        assert HAS_AMD
        assert importlib.util.find_spec("tinygrad") is not None


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize("streams", [True, False], ids=["streams", "graphs"])
def test_two_targets_and_an_initialiser_in_one_process(streams: bool, tmp_path: Path) -> None:
    """An initialiser packs weights on the device, for two dispatches; both of IREE's ways to submit work."""
    import subprocess
    import sys

    text = f"""
import sys
import numpy as np
from iree.runtime import _binding
if not {streams}:
    _binding.parse_flags("--cuda_use_streams=false")
import qmlir
from qmlir import TensorSpec as T
rng = np.random.default_rng(0)
w = rng.integers(-128, 128, (40, 64), dtype=np.int8)
x = rng.standard_normal((9, 64)).astype(np.float32)
for target in ("cuda:sm_80", "cuda:sm_90a"):
    made = qmlir.ops.scaled_matmul.compile(
        T((9, 64), "f32"), w, rhs_transposed=True, rhs_scale=np.float32(0.5), target=target)
    program = qmlir.load(made, emulate=True)
    want = qmlir.reference.scaled_matmul(x, w, rhs_transposed=True, rhs_scale=np.float32(0.5))
    assert np.allclose(program.main(x), want, rtol=1e-5, atol=1e-4)
    print(target, len(program.emulated.kernels))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("cuda:") == 2


def test_a_real_device_after_an_emulated_one_is_refused(tmp_path: Path) -> None:
    form = next(f for f in FAMILIES if f.id == "w8a8-33x70")
    path = saved(artifact_of(form, "cuda:sm_80", next(calls(form))), tmp_path)
    qmlir.load(path, emulate=True)
    with pytest.raises(qmlir.QmlirError, match="this process emulates the driver 'cuda'"):
        qmlir.load(path)
    with pytest.raises(qmlir.QmlirError, match="emulate cannot be combined with device"):
        qmlir.load(path, emulate=True, device="cuda://0")


@pytest.mark.parametrize(
    ("target", "message"),
    [("cpu:x86-64", "needs no emulated device"), ("vulkan:ada", "lavapipe is a Vulkan device on any CPU")],
)
def test_targets_that_are_not_emulated(target: str, message: str) -> None:
    made = qmlir.ops.scaled_matmul.compile(
        qmlir.TensorSpec((4, 32), "i8"), np.ones((8, 32), np.int8), rhs_transposed=True, target=target
    )
    with pytest.raises(qmlir.QmlirError, match=message):
        qmlir.load(made, emulate=True)


def test_the_program_of_another_target_is_known() -> None:
    """Rows of the support matrix that need no execution of their own: sm_86 gets sm_80's code, sm_90a its own."""
    from emulation.run import compiled, digest
    from support import forms

    form = forms.Form("scaled_matmul", "small", lambda d: {
        "lhs": TensorSpec((4, 64), "i8"), "rhs": d.codes("i8", 32, 64), "rhs_transposed": True,
        "out_dtype": "i32"})  # fmt: skip
    found = {t: digest(compiled(form, t)) for t in ("cuda:sm_80", "cuda:sm_86", "cuda:sm_90a", "rocm:gfx942")}
    assert found["cuda:sm_80"] == found["cuda:sm_86"]
    assert len(set(found.values())) == 3
    assert digest(compiled(form, "rocm:gfx942")) == found["rocm:gfx942"]


@pytest.mark.sweep(slow=6)
@pytest.mark.parametrize(
    "number", [pytest.param(i, marks=pytest.mark.slow if i >= 3 else []) for i in range(2 * len(TARGETS))]
)
def test_what_was_executed_is_what_is_compiled(number: int, rotation: int) -> None:
    """Different rows of results.json for each commit. If the program is different today, it is executed here;
    `python test/emulation/run.py` writes the new rows."""
    from emulation.run import compiled, digest, execute, read
    from support.forms import FORMS

    form, target = FORMS[(rotation + 17 * number) % len(FORMS)], TARGETS[(rotation + number) % len(TARGETS)]
    row, artifact = read()[form.name][target], compiled(form, target)
    assert row["result"].startswith("executed"), (form.name, target)
    if digest(artifact) != row["program"]:
        assert execute(form, artifact) == "executed", (form.name, target)


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize(("m", "n"), [(1, 2), (3, 4), (7, 256)])
@pytest.mark.parametrize("target", [t for t in ("rocm:gfx90a", "rocm:gfx942", "rocm:gfx1100") if t in TARGETS])
def test_scales_that_a_wave_shares(target: str, m: int, n: int, tmp_path: Path) -> None:
    """Regression: LLVM ended the process. It cannot select its arithmetic fence, which is for vector registers, for a
    value that a whole wave shares, here the product of two scales."""
    rng = np.random.default_rng(m)
    lhs, weight = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, 512), (n, 512)))
    scales = rng.random((m, 1)).astype(np.float16)
    of_columns = rng.random((n, 1)).astype(np.float32) if n < 256 else np.float32(0.02)
    known: dict[str, Any] = {"rhs_transposed": True, "rhs_scale": of_columns, "bias": np.float32(3), "out_dtype": "f32"}
    artifact = qmlir.ops.scaled_matmul.compile(
        TensorSpec((m, 512), "i8"), weight, lhs_scale=TensorSpec((m, 1), "f16"), target=target, **known
    )
    got = qmlir.load(saved(artifact, tmp_path), emulate=True).main(lhs, scales)
    np.testing.assert_array_equal(got, qmlir.reference.scaled_matmul(lhs, weight, lhs_scale=scales, **known))
