"""Workgroups of AMD GPUs that share K (`gpu_kernels/stream_k.py`), executed in other orders than that of their numbers.
If any part of their synchronisation is removed, the emulator notices."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulation.forms import Build, Draw, Form, w4, w8, w8_finished, w8_zeros
from emulation.programs import artifact_of, calls, judged

import qmlir
from qmlir import TensorSpec, settings
from qmlir.core.mlir import llvm
from qmlir.targets.rocm.kernels.machine import Amd
from qmlir.targets.strategy import parse_choice

HAS_AMD = importlib.util.find_spec("tinygrad") is not None or settings.require_emulation()
pytestmark = pytest.mark.skipif(not HAS_AMD, reason="AMD's emulated device needs Python 3.11 and tinygrad")

TARGETS = ("rocm:gfx942", "rocm:gfx90a", "rocm:gfx1100", "rocm:gfx1201", "rocm:gfx950")
SMALL, WIDE, TALL = "1x1x4", "2x2x2", "4x1x1"


# With groups along K, a lane holds the sums of one group and those of all groups: 64 registers in the two larger tiles.
# gfx1201 allows 32 if workgroups share K (`shared_sum_registers`: with more, LLVM spills), and declines these tiles.
DECLINED = {("rocm:gfx1201", f"i4 groups {tile}") for tile in (WIDE, TALL)}


def forms() -> Iterator[Form]:
    def form(name: str, make: Build, tile: str, rows: tuple[int, ...] = (16, 33), **more: Any) -> Form:
        choice = f"strategy:matrix|matrix-tile:{tile}-stream-k"
        targets = tuple(t for t in TARGETS if (t, f"{name} {tile}") not in DECLINED)
        return Form("stream-K", f"{name} {tile}", make, rows=rows, choice=choice, targets=targets, **more)

    def floats(d: Draw, m: int) -> dict[str, Any]:
        return {"lhs": d.floats(m, 1024).astype(np.float16), **d.weight("i4", 72, 1024), "rhs_transposed": True,
                "rhs_scale": d.scales(72, 8), "out_dtype": "f16"}  # fmt: skip

    def one_byte(d: Draw, m: int) -> dict[str, Any]:
        return {"lhs": d.codes("e4m3", m, 1024), "rhs": d.codes("e4m3", 72, 1024), "rhs_transposed": True,
                "lhs_scale": d.scales(m, 1), "rhs_scale": d.scales(72, 1)}  # fmt: skip

    for tile in (SMALL, WIDE, TALL):
        yield form("w8a8", lambda d, m: w8(d, m, 72, 1100), tile)
        yield form("zero points", w8_zeros, tile)
        yield form("finished", w8_finished, tile)
        # Sums within a group are exact; the sum over groups is split into partial sums.
        yield form("i4 groups", w4("i4", 128, n=72, k=1024), tile, judge="near")
        yield form("f16 x i4", floats, tile, judge="near")
    yield form("fp8", one_byte, SMALL, judge="near")
    yield form("u4, zeros on both sides", w4("u4", 128, k=1024, zeros=True, lhs_zeros=True), SMALL, judge="near")
    yield form("ragged", lambda d, m: w8(d, m, 33, 97), SMALL, rows=(1, 5, 130))
    # More tiles than workgroups: one workgroup computes some tiles alone, and some shares cover three tiles.
    yield form("many tiles", lambda d, m: w8(d, m, 2600, 130), "1x1x1", rows=(400,))
    yield form("static rows", lambda d, m: w8(d, m, 72, 1100), WIDE, rows=(70,), dynamic=False)


FORMS = list(forms())
FAST = {
    ("rocm:gfx942", "zero points 1x1x4"), ("rocm:gfx1201", "finished 2x2x2"), ("rocm:gfx1100", "i4 groups 4x1x1"),
    ("rocm:gfx90a", "f16 x i4 1x1x4"), ("rocm:gfx950", "w8a8 2x2x2"),
}  # fmt: skip


def marks_of(target: str, form: Form) -> list[pytest.MarkDecorator]:
    """The forms "many tiles" take up to nine minutes."""
    if (target, form.name) in FAST:
        return []
    return [pytest.mark.slow, *([pytest.mark.long] if form.name.startswith("many tiles") else [])]


@pytest.mark.sweep(fast=5, slow=66)
@pytest.mark.parametrize(
    ("target", "form"),
    [pytest.param(t, f, id=f"{t}-{f.name}", marks=marks_of(t, f)) for f in FORMS for t in f.targets],
)
def test_workgroups_that_share_k(target: str, form: Form, tmp_path: Path) -> None:
    program: Any = None
    for kw in calls(form):
        if program is None:
            made = artifact_of(form, target, kw)
            assert "stream_k" in str(made.manifest.strategies)
            made.save(tmp_path / "program.vmfb")
            program = qmlir.load(tmp_path / "program.vmfb", emulate=qmlir.Emulation(order_seed=3))
        for _ in range(2):  # counters of a second call start at zero
            judged(form, kw, program.main(*[kw[name] for name, _ in program.main.signature.inputs]))


@pytest.mark.parametrize(("target", "name"), sorted(DECLINED))
def test_tiles_whose_sums_would_spill_are_declined(target: str, name: str) -> None:
    form = next(f for f in FORMS if f.name == name)
    kw = next(iter(calls(form)))
    given = {
        key: TensorSpec(value.shape, str(value.dtype)) if key in form.arguments else value for key, value in kw.items()
    }
    made = qmlir.ops.scaled_matmul.compile(target=target, choice=parse_choice(form.choice), **given)
    answer = next(a for a in made.manifest.strategies[0]["answers"] if a["strategy"] == "matrix")
    assert (answer["accepted"], answer["reason"]) == (False, "none of the tiles fits the registers")


def called(target: str) -> None:
    """Check a product of three tiles with nine steps along K, by one workgroup per step."""
    rng = np.random.default_rng(3)
    lhs, rhs = rng.integers(-128, 128, (33, 576), dtype=np.int8), rng.integers(-128, 128, (16, 576), dtype=np.int8)
    choice = {"strategy": "matrix", "matrix-tile": "1x1x1-stream-k"}
    made = qmlir.ops.scaled_matmul.compile(
        qmlir.TensorSpec((33, 576), "i8"), rhs, rhs_transposed=True, out_dtype="i32", target=target, choice=choice
    )
    program = qmlir.load(made, emulate=qmlir.Emulation(order_seed=1))
    np.testing.assert_array_equal(program.main(lhs), lhs.astype(np.int32) @ rhs.astype(np.int32).T)


CHANGES = {
    "relaxed": (llvm.AtomicOrdering.monotonic, "agent"),
    "of a workgroup": (llvm.AtomicOrdering.acq_rel, "workgroup"),
    "no acquire": (llvm.AtomicOrdering.release, "agent"),
    "no release": (llvm.AtomicOrdering.acquire, "agent"),
}


@pytest.mark.parametrize("target", ["rocm:gfx942", "rocm:gfx1201"])
def test_a_product_in_parts(target: str) -> None:
    called(target)


@pytest.mark.parametrize("change", CHANGES)
def test_parts_that_may_not_be_seen_are_noticed(change: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(tmp_path))  # broken kernels are not cached
    order, scope = CHANGES[change]
    original = llvm.AtomicRMWOp

    def changed(kind: Any, pointer: Any, value: Any, _: Any, syncscope: str) -> Any:
        return original(kind, pointer, value, order, syncscope=scope)

    monkeypatch.setattr(llvm, "AtomicRMWOp", changed)
    if change == "no release":  # nor before the barrier
        monkeypatch.setattr(Amd, "release", lambda self: None)
    with pytest.raises(qmlir.QmlirError, match="with no release and acquire that make the store visible"):
        called("rocm:gfx942")
