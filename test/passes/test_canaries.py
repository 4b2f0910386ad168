"""Canaries of the workarounds: the smallest program that shows a fault (Inputs/canaries), compiled without the pass
that avoids the fault. It is expected to fail, strictly: if one passes, IREE or the driver was fixed and the pass can be
removed. Each workaround names its canaries (`qmlir.core.faults.Fault`); docs/workarounds.md lists them all.

Six canaries are in other files, next to the code that they need: `ELSEWHERE`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from support import onnx_models, recurrent
from support.executables import cuda_shared_bytes

import qmlir
from qmlir import TensorSpec
from qmlir.compiler import default_pipeline
from qmlir.compiler.compilation import compile_built
from qmlir.compiler.options import Options
from qmlir.compiler.sources import program_of
from qmlir.core.isolation import ProcessLimits
from qmlir.core.mlir import context, ir, passmanager
from qmlir.ir.barriers import FAULT_OF, Reason, fusion_barrier
from qmlir.passes.pipeline import Pipeline
from qmlir.passes.workarounds import workarounds
from qmlir.passes.workarounds.iree_3_13.shared_memory import SharedMemoryPass
from qmlir.targets import Target, resolve
from qmlir.targets.rocm.kernels.machine import Amd

Array = np.ndarray[Any, Any]
TEST = Path(__file__).resolve().parents[1]
PROGRAMS = TEST / "passes" / "Inputs" / "canaries"
rng = np.random.default_rng(0)
FLOATS = rng.standard_normal(64).astype(np.float32)
WITH_NAN = np.where(np.arange(64) % 7, FLOATS, np.float32(np.nan))


def small(*shape: int, dtype: Any = np.float32) -> Array:
    return rng.integers(-9, 9, shape).astype(dtype)


def convolved(x: Array, w: Array) -> Array:
    """`[channel, row, column]` by `[filter, channel, 3, 3]`, in f64: `[filter, row, column]`."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(1, 2))
    return np.einsum("chwrs,fcrs->fhw", windows, w)


@dataclass(frozen=True)
class Canary:
    """A program that a target gets wrong without a pass.

    Attributes:
        left_out: the name of the pass.
        target: a target that needs the pass; GPUs that are not present are emulated.
        arguments: the arguments of `main`.
        expected: computes the correct result from them.
        hidden_by: another pass, which is left out in all cases: with it, IREE does not form the dispatch that shows the
            fault.
        verified: whether IREE verifies the program after each of its passes, which is the only way to see the fault.
    """

    left_out: str
    target: str
    arguments: Sequence[Array]
    expected: Callable[..., Array]
    hidden_by: str = ""
    verified: bool = False


CANARIES = {
    "pooled_broadcast": Canary(
        "qmlir-store-pooled", "cuda:sm_80", [small(2, 8, 8)], lambda x: np.full((2, 4, 4), 4, np.float32),
    ),
    "shared_with_strides": Canary(
        "qmlir-store-shared", "cpu", [FLOATS], lambda x: np.maximum(np.concatenate([x[::2], x]), 0),
    ),
    "bias_of_groups": Canary(
        "qmlir-start-at-zero", "rocm:gfx942", [small(2, 2, 4, 8, 8), small(2, 8, 4, 3, 3), small(16)],
        lambda x, w, b: b.reshape(2, 8, 1, 1) + np.stack([[convolved(*g) for g in zip(n, w, strict=True)] for n in x]),
    ),
    "branch_on_a_tile": Canary(
        "qmlir-expand-functions", "rocm:gfx942", [np.zeros(shape, np.float32) for shape in ((3, 2), (2, 4), (3, 4))],
        lambda x, w, y: np.tanh(x @ w + y),
    ),
    "broadcast_sum": Canary(
        "qmlir-split-broadcast", "vulkan:lavapipe", [np.ones((3, 40, 24), np.int32), np.zeros((3, 4, 24), np.int32)],
        lambda w, x: x - w.sum(1, dtype=np.int32)[:, None],
    ),
    "broadcast_operand": Canary(
        "qmlir-store-broadcasts", "cpu", [small(53, dtype=np.int8), small(3, 53, 1, dtype=np.int8)],
        lambda x, w: np.repeat((x @ w.astype(np.int32))[:, None], 8, axis=1), hidden_by="qmlir-store-batches",
    ),
    "byte_sum": Canary(
        "qmlir-explicit-sign", "vulkan:lavapipe",
        [np.arange(-8, 8, dtype=np.int8).reshape(2, 8), np.zeros((2, 8), np.int32)],
        lambda w, x: x - w.sum(0, dtype=np.int32), hidden_by="qmlir-split-broadcast",
    ),
    "bf16_constant": Canary(
        "qmlir-store-constants", "vulkan:lavapipe", [small(4, 8, dtype=ml_dtypes.bfloat16)],
        lambda x: x + np.array([1, -2, 3, 4, 5, 6, 7, 8], ml_dtypes.bfloat16),
    ),
    "part_between_vectors": Canary(
        "qmlir-store-slices", "vulkan:lavapipe", [small(8, 8)], lambda x: 2 * x[:, 3:7],
    ),
    "code_to_bf16": Canary(
        "qmlir-bf16-as-bits", "vulkan:lavapipe", [small(64, dtype=np.int8)], lambda x: x.astype(ml_dtypes.bfloat16),
    ),
    "columns_first": Canary(
        "qmlir-order-results", "cuda:sm_80", [small(2, 6, 6, dtype=np.float16), small(4, 2, 3, 3, dtype=np.float16)],
        convolved,
    ),
    "convolution_of_two_orders": Canary(
        "qmlir-order-convolutions", "rocm:gfx942", [small(2, 6, 6, dtype=np.int8), small(4, 3, 3, 2, dtype=np.int8)],
        lambda x, w: convolved(x, w.transpose(0, 3, 1, 2)).transpose(1, 2, 0),
    ),
    "groups_between": Canary(
        "qmlir-order-convolutions", "rocm:gfx942", [small(1, 4, 3, 2, 3), small(2, 5, 3, 3, 3)],
        lambda x, w: np.stack(
            [convolved(*g)[..., 0].T for g in zip(x[0].transpose(2, 3, 0, 1), w.transpose(0, 1, 4, 2, 3), strict=True)],
            axis=1,
        )[None, :, None],
    ),
    "dynamic_sum": Canary(
        "qmlir-choose-data-tiling", "cpu", [small(5, 7), small(7, 8)], lambda x, w: 2 * x @ w, verified=True,
    ),
    "empty_axis": Canary("qmlir-guard-empty", "vulkan:lavapipe", [np.zeros((0, 8), np.float32)], lambda x: x),
    "empty_grid": Canary("qmlir-guard-empty", "cuda:sm_80", [np.zeros(0, np.float32)], lambda x: x),
    "extended_product": Canary(
        "qmlir-expand-functions", "cpu", [np.arange(64, dtype=np.uint32).view(np.int32) * 123456789],
        lambda x: np.repeat((x.view(np.uint32).astype(np.uint64) ** 2 >> 32).astype(np.uint32).view(np.int32), 2),
    ),
    "filled_scan": Canary(
        "qmlir-own-destinations", "cpu", [small(3, 7)], lambda x: np.broadcast_to(np.arange(1, 8), x.shape),
    ),
    "float8_rounding": Canary(
        "qmlir-decode-small-floats", "cpu", [np.linspace(0.0137, 0.0158, 64, dtype=np.float32)],
        lambda x: x.astype(ml_dtypes.float8_e4m3fn),
    ),
    "float8_constant": Canary(
        "qmlir-store-constants", "vulkan:lavapipe", [small(4, 8, dtype=np.int8)],
        lambda x: x + np.array([1, -2, 3, 4, 5, 6, 7, 8], ml_dtypes.float8_e4m3fn).view(np.int8),
    ),
    "float8": Canary(
        "qmlir-decode-small-floats", "cuda:sm_80", [FLOATS.astype(ml_dtypes.float8_e4m3fn)], lambda x: x,
    ),
    "indexed_part": Canary(
        "qmlir-index-slices", "cuda:sm_80", [small(2, 5, 4, dtype=np.int32), np.array([2, 0, 1], np.int32)],
        lambda x, at: x[:, 1:4][:, at],
    ),
    "index_sum": Canary(
        "qmlir-index-sums", "vulkan:lavapipe", [small(4, 256, dtype=np.int32)], lambda x: (x * np.arange(256)).sum(1),
    ),
    "integer_to_bf16": Canary(
        "qmlir-expand-bf16", "cpu:x86-64-v3", [np.arange(64, dtype=np.int32)], lambda x: x,
    ),
    "log10": Canary("qmlir-expand-functions", "cpu", [np.ones(64, np.float32)], np.log10),
    "long_sum": Canary(
        "qmlir-cut-loops", "vulkan:lavapipe", [np.ones(70001, np.int32)], lambda x: x.sum(dtype=np.int32),
    ),
    "counted_places": Canary(
        "qmlir-split-broadcast", "vulkan:lavapipe", [FLOATS[:25] * 4],
        lambda x: np.bincount((x[x >= 0] * 10).astype(np.int64), minlength=100)[:100],
    ),
    "many_operands": Canary(
        "qmlir-bound-operands", "cuda:sm_80", [FLOATS] * 18, lambda *given: functools.reduce(np.add, given),
    ),
    "masked_product": Canary(
        "qmlir-widen-masks", "cpu", [small(16, 32), small(32, 16), rng.random((16, 16)) < 0.5],
        lambda x, w, keep: np.where(keep, x @ w, 0),
    ),
    "maximum_of_nan": Canary(
        "qmlir-keep-nan", "rocm:gfx942", [WITH_NAN], lambda x: np.maximum(x, np.float32(0)),
    ),
    "padded_batch": Canary(
        "qmlir-store-batches", "cpu", [small(2, 3, 8), small(2, 3), small(2, 8, 4)],
        lambda x, s, w: (x * s[..., None]) @ w,
    ),
    "padded_epilogue": Canary(
        "qmlir-store-batches", "cpu", [small(2, 20, 4, dtype=np.int8), small(6, 4, dtype=np.int8)],
        lambda x, w: np.einsum("gmk,gnk->mgn", x.astype(np.int32), w.reshape(2, 3, 4)).reshape(20, 6) - w.sum(1),
    ),
    "padded_split": Canary(
        "qmlir-store-batches", "cpu", [small(2, 16, 20), small(5, 4, 10)],
        lambda x, w: x @ w.transpose(2, 0, 1).reshape(2, 5, 20).transpose(0, 2, 1),
    ),
    "padded_sums": Canary(
        "qmlir-store-batches", "cpu",
        [small(2, 5, 7, dtype=np.int8), small(2, 7, 9, dtype=np.int8), small(2, 1, 9, dtype=np.int8)],
        lambda x, w, z: x.astype(np.float32) @ (w.astype(np.float32) - z),
    ),
    "padded_transposed": Canary(
        "qmlir-store-batches", "cpu", [small(2, 3, 4), small(2, 8, 4)],
        lambda x, w: w @ (x * x.sum(-1, keepdims=True)).transpose(0, 2, 1),
    ),
    "rounding_to_bf16": Canary("qmlir-expand-bf16", "cpu", [FLOATS], lambda x: x.astype(ml_dtypes.bfloat16)),
    "single_window": Canary(
        "qmlir-crop-windows", "cpu", [small(1, 4, 4, 2, dtype=np.int8), small(3, 3, 3, 2, dtype=np.int8)],
        lambda x, w: np.einsum("nhwc,fhwc->nf", x[:, :3, :3].astype(np.int32), w)[:, None, None],
    ),
    "scan_of_lines": Canary(
        "qmlir-spread-scans", "cuda:sm_80", [small(5, 5, 5, dtype=np.int64)], lambda x: x.cumsum(1),
    ),
    "smallest_integer": Canary(
        "qmlir-neutral-elements", "cuda:sm_80", [np.arange(9, 73, dtype=np.int32)], lambda x: x.min(),
    ),
    "all_of_many": Canary(
        "qmlir-neutral-elements", "cuda:sm_80", [np.arange(-64, 0, dtype=np.int32)], lambda x: np.bitwise_and.reduce(x),
    ),
    "sum_of_bytes": Canary(
        "qmlir-neutral-elements", "rocm:gfx942", [small(64, dtype=np.int8)], lambda x: x.sum(dtype=np.int8),
    ),
    "transposed_sum": Canary(
        "qmlir-order-loops", "vulkan:lavapipe", [small(8, 8, 2, 3)], lambda x: x.sum(3).transpose(2, 0, 1),
    ),
    "truncation": Canary("qmlir-expand-functions", "cpu:x86-64", [FLOATS * 100], np.trunc),
    "two_sorts": Canary(
        "qmlir-own-destinations", "cpu", [FLOATS.reshape(16, 4), -FLOATS.reshape(16, 4)],
        lambda x, y: x.argsort(1) + y.argsort(1),
    ),
    "unread_keys": Canary(
        "qmlir-own-destinations", "cuda:sm_80", [-FLOATS, np.arange(64, dtype=np.int32)],
        lambda keys, places: keys.argsort(),
    ),
    "wide_sum": Canary("qmlir-store-wide", "cuda:sm_80", [small(16, 64)], lambda x: x.sum(1)),
}  # fmt: skip
# Test functions, by path in test/.
ELSEWHERE = {
    "kept_contexts": "unit/test_contexts.py::test_the_bindings_own_the_context_of_a_session",
    "released_memory": "emulation/test_cuda_runtime.py::test_without_a_threshold",
    "freed_twice": "emulation/test_cuda_runtime.py::test_with_a_caching_allocator",
    "division_by_zero": "passes/test_guard_divisions.py::test_without_it",
    "short_constant": "kernels/test_arm_forms.py::test_without_natural_alignments",
    "signed_sums": "kernels/test_cooperative.py::test_without_signed_sums",
}


def run(canary: Canary, target: Target, path: Path, left_out: str = "") -> None:
    steps = [step.text() for step in Pipeline.parse(default_pipeline(target)).steps]
    pipeline = ",".join(step for step in steps if step.split("{")[0] not in (left_out, canary.hidden_by))
    target = dataclasses.replace(target, source_passes=tuple(x for x in target.source_passes if x != left_out))
    limits = ProcessLimits() if left_out else None  # some faults end the compiler's process
    made = compile_built(program_of(path, {}), target, Options(cache=False, pipeline=pipeline, limits=limits), None)
    emulated = not canary.target.startswith(("cpu", "vulkan"))
    if canary.target.startswith("rocm"):
        pytest.importorskip("tinygrad")  # not available for Python 3.10
    got = qmlir.load(made, emulate=emulated).main(*canary.arguments)
    np.testing.assert_array_equal(np.asarray(got, np.float64), canary.expected(*canary.arguments).astype(np.float64))


@pytest.mark.sweep(fast=48, slow=60)
@pytest.mark.parametrize("name", CANARIES)
def test_with_the_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = CANARIES[name]
    monkeypatch.setenv("QMLIR_VERIFY_IREE", str(int(canary.verified)))
    run(canary, resolve(canary.target), PROGRAMS / f"{name}.mlir")


@pytest.mark.sweep(fast=48, slow=60)
@pytest.mark.xfail(strict=True, raises=(qmlir.errors.QmlirError, AssertionError))
@pytest.mark.parametrize("name", CANARIES)
def test_without_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = CANARIES[name]
    monkeypatch.setenv("QMLIR_VERIFY_IREE", str(int(canary.verified)))
    run(canary, resolve(canary.target), PROGRAMS / f"{name}.mlir", left_out=canary.left_out)


@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_shared_state() -> None:
    """Why `ir/util_globals.declare_state` exists."""
    main = qmlir.load(compiled("shared_state", "cpu")).main
    k, v = main(np.full((1, 2), 3, np.float32), np.full((1, 2), 5, np.float32), np.int32([[1]]))
    assert np.asarray(k).tolist() == [[0, 0], [6, 6], [0, 0], [0, 0]]
    assert np.asarray(v).tolist() == [[0, 0], [25, 25], [0, 0], [0, 0]]


@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_copied_again(lavapipe: str) -> None:
    """Why `qmlir-record-copies` exists. Memory is allocated between the calls, so that arguments move."""
    main = qmlir.load(compiled("copied_again", dataclasses.replace(resolve(lavapipe), source_passes=()))).main
    taken, results = [], []
    for first in range(8):
        taken.append(main._allocator.allocate_buffer(main._memory, main._usage, 20))
        results.append(main(np.arange(first, first + 5, dtype=np.int32)).tolist())
    assert results == [[first, first + 4] for first in range(8)]


@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_mask_of_rows() -> None:
    """Why `targets/row_masks.py` and `qmlir-bound-unit-sums` exist."""
    with context(), ir.Location.unknown():
        module = ir.Module.parse((PROGRAMS / "mask_of_rows.mlir").read_text())
        passmanager.PassManager.parse("builtin.module(func.func(canonicalize))").run(module.operation)
        assert list(module.body.operations[0].regions[0].blocks[0].arguments[0].uses)


def compiled(name: str, target: str | Target, limits: ProcessLimits | None = None) -> qmlir.Artifact:
    options = Options(cache=False, limits=limits)
    target = resolve(target) if isinstance(target, str) else target
    return compile_built(program_of(PROGRAMS / f"{name}.mlir", {}), target, options, None)


# -------------------------------------------------------------------------------------------------- fusion barriers


@dataclass(frozen=True)
class BarrierCanary:
    """A program for which a target needs the barriers with one reason.

    Attributes:
        reason: the reason of the barriers.
        module: the module that makes them.
        target: a target that needs them.
        shows: checks the program, and fails without the barriers.
    """

    reason: Reason
    module: str
    target: str
    shows: Callable[[str, str], object]


def compiles(name: str, target: str) -> None:
    """Check that the program compiles within 30 s, many times the time that it needs."""
    compiled(name, target, ProcessLimits(seconds=30))


def computes(expected: Callable[..., Array], *arguments: Array) -> Callable[[str, str], None]:
    def check(name: str, target: str) -> None:
        np.testing.assert_array_equal(qmlir.load(compiled(name, target)).main(*arguments), expected(*arguments))

    return check


def dispatches(count: int) -> Callable[[str, str], None]:
    """Check for at least `count` dispatches: each tensor behind a barrier is computed once, in its own dispatch."""

    def check(name: str, target: str) -> None:
        assert compiled(name, target).source("dispatch").count("hal.executable.variant ") >= count

    return check


def recurs(_: str, target: str) -> None:
    """Check a bidirectional recurrent layer with dynamic numbers of steps and rows."""
    model, inputs = recurrent.layer("RNN", 4, dynamic=True, rest="H", direction="bidirectional")
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    got = qmlir.load(qmlir.compile(model, target=target, cache=False)).main(*inputs.values())
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def pools(_: str, target: str) -> None:
    """Check a MaxPool of codes, which are converted for it."""
    node = onnx.helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[1, 2], strides=[1, 2])
    x = rng.integers(0, 100, (2, 3, 21, 23), np.uint8)
    made = qmlir.compile(onnx_models.model([node], {"x": x}, ["y"], {}), target=target, cache=False)
    np.testing.assert_array_equal(qmlir.load(made).main(x), np.maximum(x[..., :-1:2], x[..., 1::2]))


def spreads(_: str, target: str) -> None:
    """Check that a ConvTranspose with stride 2 becomes at least four dispatches, one per convolution."""
    node = onnx.helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], kernel_shape=[4, 4])
    model = onnx_models.model([node], {"x": small(1, 16, 8, 8)}, ["y"], {"w": small(16, 8, 4, 4)})
    artifact = qmlir.compile(model, target=target, cache=False)
    assert artifact.source("dispatch").count("hal.executable.variant ") >= 4


BARRIERS = {
    "compared_indices": BarrierCanary(Reason.COMPARED, "passes.core.check_indices", "vulkan:lavapipe", compiles),
    "indexed_reads": BarrierCanary(Reason.INDEXED_READS, "passes.core.lower.blocks", "cuda:sm_80", compiles),
    "small_gather": BarrierCanary(Reason.SMALL_GATHER, "passes.core.lower.grouped", "vulkan:lavapipe", compiles),
    "one_row": BarrierCanary(Reason.ONE_ROW, "passes.core.lower.blocks", "vulkan:lavapipe", compiles),
    "pooled_codes": BarrierCanary(Reason.POOLED, "frontends.onnx.patterns.pooled", "vulkan:lavapipe", pools),
    "loop_start": BarrierCanary(Reason.LOOP_START, "frontends.recurrence", "cpu:x86-64", recurs),
    "sort_stages": BarrierCanary(Reason.SORT_STAGE, "passes.core.sort_in_stages", "cpu", compiles),
    "phases": BarrierCanary(Reason.PHASES, "frontends.onnx.patterns.phases", "cpu:x86-64", spreads),
    "aligned_product": BarrierCanary(Reason.ALIGNED, "targets.aligned", "vulkan:lavapipe", dispatches(4)),
    "patches": BarrierCanary(Reason.PATCHES, "targets.im2col", "vulkan:lavapipe", dispatches(3)),
    "converted_once": BarrierCanary(Reason.CONVERTED_ONCE, "targets.widened", "vulkan:lavapipe", dispatches(3)),
    "in_memory": BarrierCanary(
        Reason.IN_MEMORY, "targets.vulkan.strategies", "vulkan:lavapipe",
        computes(lambda x, w: x.astype(np.float32) @ w.astype(np.float32).T,
                 small(36, 72, dtype=np.float16), small(4, 72, dtype=np.int8)),
    ),
}  # fmt: skip


@pytest.mark.sweep(fast=12, slow=26)
@pytest.mark.parametrize("name", BARRIERS)
def test_with_the_barriers(name: str) -> None:
    BARRIERS[name].shows(name, BARRIERS[name].target)


@pytest.mark.sweep(fast=12, slow=26)
@pytest.mark.xfail(strict=True, raises=(qmlir.errors.QmlirError, AssertionError))
@pytest.mark.parametrize("name", BARRIERS)
def test_without_the_barriers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that `ir/barriers.FAULT_OF` states for the reason."""
    canary = BARRIERS[name]

    def none(value: Any, reason: Reason, sizes: Any = None) -> Any:
        return value if reason is canary.reason else fusion_barrier(value, reason, sizes)

    monkeypatch.setattr(f"qmlir.{canary.module}.fusion_barrier", none)
    canary.shows(name, canary.target)


def test_barriers_canaries_are_of_their_faults() -> None:
    assert {name: canary.reason for name, canary in BARRIERS.items()} == {
        fault.canary: reason for reason, fault in FAULT_OF.items()
    }
    assert len(FAULT_OF) == len(BARRIERS)


# --------------------------------------------------------------------------------------- workarounds in other files


def _uses_mfma() -> None:
    assert "v_mfma_i32" in compiled("known_multiple", "rocm:gfx942").source("isa")


def test_with_opaque_sizes() -> None:
    _uses_mfma()


@pytest.mark.slow
@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_known_multiple(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why `targets/detach.py` exists."""
    monkeypatch.setattr("qmlir.targets.tile_and_fuse.detached", lambda op: op)
    _uses_mfma()


def _codes_of_f16(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tinygrad")  # not available for Python 3.10
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(cache))
    x, w = small(4, 24, dtype=np.float16), small(8, 24, dtype=np.int8)
    main = qmlir.load(
        qmlir.ops.scaled_matmul.compile(
            TensorSpec((4, 24), "f16"), w, rhs_zero_point=np.int32(3), rhs_transposed=True, out_dtype="f32",
            target="rocm:gfx942",
        ),
        emulate=True,
    ).main  # fmt: skip
    np.testing.assert_array_equal(main(x), x.astype(np.float32) @ (w.astype(np.float32) - 3).T)


def test_with_bytes_that_keep_their_sign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _codes_of_f16(tmp_path / "cache", monkeypatch)


@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_extended_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Why `targets/rocm/kernels/machine.py` extends bytes itself."""
    monkeypatch.setattr(Amd, "rules", {name: rule for name, rule in Amd.rules.items() if name != "arith.extsi"})
    _codes_of_f16(tmp_path / "cache", monkeypatch)


@pytest.mark.slow
def test_with_an_operand_that_is_kept() -> None:
    assert "v_wmma" in compiled("splat_operand", "rocm:gfx1201").source("isa")


@pytest.mark.xfail(strict=True, raises=qmlir.errors.CompileError)
def test_splat_operand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why `targets/tile_and_fuse.py` keeps constants in memory."""
    monkeypatch.setattr("qmlir.targets.tile_and_fuse.fusion_barrier", lambda value, reason: value)
    compiled("splat_operand", "rocm:gfx1201")


@pytest.mark.slow
def test_with_the_transpose_inside() -> None:
    assert "v_wmma" in compiled("transposed_product", "rocm:gfx1100").source("isa")


@pytest.mark.xfail(strict=True, raises=qmlir.errors.CompileError)
def test_transposed_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why `targets/transposed.py` exists."""
    monkeypatch.setattr("qmlir.targets.tile_and_fuse.transposed", lambda op: (op, list(range(4))))
    compiled("transposed_product", "rocm:gfx1100")


@pytest.mark.xfail(strict=True, raises=qmlir.errors.CompileError)
def test_remainder_of_f64() -> None:
    """Why the ONNX front end refuses Mod of float64."""
    compiled("remainder_of_f64", "cpu")


@pytest.mark.xfail(strict=True, raises=qmlir.errors.CompileError)
def test_rounded_padding() -> None:
    """Why the ONNX front end pads a MaxPool with uneven pads itself."""
    compiled("rounded_padding", "cpu")


@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_int8_product() -> None:
    """Why `targets/cuda/exact_f16.py` computes int8 products in f16 if no built-in kernel accepts them."""
    program = (PROGRAMS / "int8_product.mlir").read_text()
    assert "mma.sync" in qmlir.compile(program, target="cuda:sm_80", choice={"strategy": "stock"}).source("ptx")


@pytest.mark.xfail(strict=True, raises=qmlir.errors.CompileError)
def test_bitcast_of_one() -> None:
    """Why `ir/build.bitcast` uses IREE's own op."""
    compiled("bitcast_of_one", "cpu")


@pytest.mark.xfail(strict=True, raises=qmlir.errors.CompileError)
def test_resource_of_bf16() -> None:
    """Why the torch front end does not store small bf16 constants as resources."""
    compiled("resource_of_bf16", "cpu")


@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_part_of_a_list() -> None:
    """Why `frontends/torch_mlir.py` reads sizes from the whole list, not from a part of it."""
    assert qmlir.load(compiled("part_of_a_list", "cpu")).main(np.zeros((3, 7), np.float32)).shape == (7, 7)


@pytest.mark.xfail(strict=True, raises=qmlir.errors.QmlirError)
def test_named_product() -> None:
    """Why `ir/products.py` states the indexing maps of a product. Without them IREE ends the process."""
    compiled("named_product", "cpu", ProcessLimits())


@pytest.mark.xfail(strict=True, raises=qmlir.errors.CompileError)
def test_rows_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why a sparse weight that is known only at run time is made dense unless it is too large."""
    monkeypatch.setattr("qmlir.passes.core.lower.sparse_form.DENSE_ELEMENTS", 0)
    compiled("rows_at_run_time", "vulkan:lavapipe")


FORK = """
import os, signal, sys
register = os.register_at_fork
def others(**hooks):  # all hooks but those of one module
    if getattr(hooks.get("after_in_child"), "__module__", "") != sys.argv[1]:
        register(**hooks)
os.register_at_fork = others
import numpy as np, qmlir
one = "func.func @f{{}}(%x: tensor<4xf32>) -> tensor<4xf32> {{{{ return %x : tensor<4xf32> }}}}"
program = "\\n".join(one.format(i) for i in ("", *range(15))).replace("@f(", "@main(")  # for the threads of a session
artifact = qmlir.compile(program, target="cpu", cache=False)
main = qmlir.load(artifact, device="local-task").main
if not (child := os.fork()):
    signal.alarm(10)
    {child}
    sys.exit(0)
print(os.waitpid(child, 0)[1], flush=True)
os._exit(0)
"""
COMPILES = 'qmlir.compile(program, target="cpu", cache=False); os._exit(0)'


def _forked(child: str, without: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK.format(child=child), without]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "0\n"


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="Windows has no fork")
@pytest.mark.parametrize("child", [COMPILES, "pass"])
def test_with_hooks_at_a_fork(child: str) -> None:
    _forked(child, "")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="Windows has no fork")
@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_fork_of_a_session() -> None:
    """Why `core/mlir.py` has a hook for the child of a fork."""
    _forked(COMPILES, "qmlir.core.mlir")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="Windows has no fork")
@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_fork_of_a_device() -> None:
    """Why `core/hal.py` has a hook for the child of a fork."""
    _forked("pass", "qmlir.core.hal")


def _bounded_scores(left_out: str = "") -> None:
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 4, 8), (1, 6, 8), (1, 6, 8)))
    weights = np.exp(np.tanh(q @ k.transpose(0, 2, 1)))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    target = resolve("cpu")
    steps = [step.text() for step in Pipeline.parse(default_pipeline(target)).steps]
    options = Options(cache=False, pipeline=",".join(s for s in steps if s.split("{")[0] != left_out))
    made = compile_built(program_of(PROGRAMS / "attention_body.mlir", {}), target, options, None)
    np.testing.assert_allclose(qmlir.load(made).main(q, k, v), expected, rtol=1e-4, atol=1e-5)


def test_with_products_and_a_softmax() -> None:
    _bounded_scores()


@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_attention_body() -> None:
    """Why `qmlir-attention` lowers attention with a body itself."""
    _bounded_scores(left_out="qmlir-attention")


@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_exponential_of_f64() -> None:
    """Why `qmlir-expand-functions` refuses functions of f64 on Vulkan."""
    target = resolve("vulkan:lavapipe")
    pipeline = default_pipeline(target).replace(" double=false", "")
    made = compile_built(program_of(PROGRAMS / "exponential_of_f64.mlir", {}), target,
                         Options(cache=False, pipeline=pipeline), None)  # fmt: skip
    x = FLOATS.astype(np.float64)
    np.testing.assert_allclose(qmlir.load(made).main(x), np.exp(x), rtol=1e-6)


@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_joined_results() -> None:
    """Why `qmlir-guard-empty` adds no branch to programs with several results."""
    x = small(3, 40)
    for got, expected in zip(qmlir.load(compiled("joined_results", "cpu")).main(x), (x + x, x * x), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.xfail(strict=True, raises=qmlir.errors.CompileError)
def test_pointer_call() -> None:
    """Why `targets/cpu/threads/atomics.py` calls through inline assembly."""
    compiled("pointer_call", "cpu")


@pytest.mark.xfail(strict=True, raises=qmlir.errors.CompileError)
def test_vectors_at_offsets() -> None:
    """Why `targets/gpu_kernels/executable.py` states where each tensor is bound."""
    compiled("vectors_at_offsets", "vulkan:lavapipe")


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.xfail(strict=True, raises=AssertionError)
@pytest.mark.parametrize("name", ["unknown_op", "empty_sum"])
def test_guarded(name: str) -> None:
    """Programs that `qmlir-guard` refuses because IREE crashes, compiled in a separate process."""
    code = (
        "import sys, pathlib\n"
        "from qmlir.compiler.compilation import compile_built\n"
        "from qmlir.compiler.options import Options\n"
        "from qmlir.compiler.sources import program_of\n"
        "from qmlir.errors import QmlirError\n"
        "from qmlir.passes.workarounds.iree_3_13.guard import GuardPass\n"
        "from qmlir.targets import resolve\n"
        "GuardPass.run = lambda *_: None\n"
        "try:\n"
        "    compile_built(program_of(pathlib.Path(sys.argv[1]), {}), resolve('cpu'), Options(cache=False), None)\n"
        "except QmlirError:\n"
        "    pass\n"
    )
    command = [sys.executable, "-c", code, str(PROGRAMS / f"{name}.mlir")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if "Error" in done.stderr:  # in the code above, which is not the expected failure
        raise RuntimeError(done.stderr)
    assert done.returncode >= 0


@pytest.mark.slow
@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_shared_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernels of a product with a dynamic number of rows need different amounts of shared memory
    (test/targets/test_shared_memory.py compares each amount with the kernel's plan)."""
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(SharedMemoryPass, "run", lambda *_: None)
    artifact = qmlir.ops.scaled_matmul.compile(
        TensorSpec((None, 4096), "i8"), np.ones((4096, 4096), np.int8), rhs_transposed=True, target="cuda:sm_80",
        lhs_scale=TensorSpec((None, 1), "f32"), rhs_scale=np.ones((4096, 1), np.float32),
    )  # fmt: skip
    artifact.save(tmp_path / "x.vmfb")
    assert len(set(cuda_shared_bytes((tmp_path / "x.vmfb").read_bytes()).values())) > 1


# ------------------------------------------------------------------------------------------------------ completeness


HERE = {
    "attention_body",
    "bitcast_of_one",
    "copied_again",
    "empty_sum",
    "extended_bytes",
    "fork_of_a_device",
    "fork_of_a_session",
    "int8_product",
    "exponential_of_f64",
    "joined_results",
    "known_multiple",
    "mask_of_rows",
    "named_product",
    "part_of_a_list",
    "pointer_call",
    "remainder_of_f64",
    "resource_of_bf16",
    "rounded_padding",
    "rows_at_run_time",
    "shared_memory",
    "shared_state",
    "splat_operand",
    "transposed_product",
    "unknown_op",
    "vectors_at_offsets",
}

MADE = {
    "extended_bytes",
    "fork_of_a_device",
    "fork_of_a_session",
    "loop_start",
    "phases",
    "pooled_codes",
    "shared_memory",
}  # programs that the tests make, without a file


def test_each_canary_is_of_a_workaround() -> None:
    named = [fault.canary for _, faults in workarounds() for fault in faults]
    assert set(named) == {*CANARIES, *BARRIERS, *ELSEWHERE, *HERE}
    assert {path.stem for path in PROGRAMS.glob("*.mlir")} == {*CANARIES, *BARRIERS, *HERE} - MADE


@pytest.mark.parametrize("canary", ELSEWHERE)
def test_the_canaries_of_other_files_are_there(canary: str) -> None:
    file, _, function = ELSEWHERE[canary].partition("::")
    assert re.search(
        rf"@pytest\.mark\.xfail\(strict=True[^\n]*\n(@[^\n]*\n)*def {function}\(", (TEST / file).read_text()
    )


@pytest.mark.parametrize(("name", "faults"), workarounds(), ids=[name.rpartition(".")[2] for name, _ in workarounds()])
def test_each_workaround_says_what_it_is_for(name: str, faults: Any) -> None:
    assert faults
    for fault in faults:
        assert re.fullmatch(r"[A-Z`].*\.", fault.what)
        assert re.fullmatch(
            r"(https://github\.com/(iree-org/iree|llvm/llvm-project)/(issues|pull)/\d+)?", fault.upstream
        )


def test_no_workaround_is_left_out() -> None:
    """All files that state faults are listed, and no others."""
    root = TEST.parent
    stating = [
        path.relative_to(root).with_suffix("")
        for folder in ("qmlir", "dialect", "passes")
        for path in (root / folder).rglob("*.py")
        if re.search(r"^FAULTS\b", path.read_text(), re.M)
    ]
    modules = {".".join(path.parts if path.parts[0] == "qmlir" else ("qmlir", *path.parts)) for path in stating}
    assert {name for name, _ in workarounds()} == modules
    assert inspect.getdoc(workarounds)


def test_core_passes_work_around_nothing() -> None:
    core = TEST.parent / "passes" / "core"
    assert not [path for path in core.rglob("*.py") if re.search(r"^FAULTS\b|import Fault\b", path.read_text(), re.M)]
