"""Controls of the tests of AMD and Vulkan kernels: the interpreter and validator notice kernels broken on purpose."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels.gpu_products import PRODUCTS, check, interpreted, values
from kernels.gpu_workgroup import KernelError

import qmlir
from qmlir import TensorSpec
from qmlir.core.mlir import arith, ir

Change = Callable[[Any], None]
BARRIERS = ("amdgpu.lds_barrier", "gpu.barrier")


@cache
def _compiled(name: str, m: int | None, target: str) -> Any:
    return qmlir.ops.scaled_matmul.compile(target=target, **PRODUCTS[name].arguments(m))


def _run(name: str, m: int, target: str, change: Change) -> None:
    product = PRODUCTS[name]
    arguments = product.arguments(m)
    given = values(arguments, m)
    want = qmlir.reference.scaled_matmul(**{**arguments, **given})
    check(product, interpreted(_compiled(name, m, target), given, want.shape, want.dtype, m, change), want)


def _ops(module: Any, *names: str) -> list[Any]:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name in names:
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    assert found, names
    return found


def _in_a_loop(op: Any) -> bool:
    while op.parent is not None and op.name != "func.func":
        if op.name == "scf.for":
            return True
        op = op.parent
    return False


def _into_lds(module: Any) -> list[Any]:
    shared = [m.results[0] for m in _ops(module, "memref.alloc")]
    return [s for s in _ops(module, "memref.store") if s.operands[1] in shared]


# ---- ways to break a kernel


def without_a_barrier(module: Any) -> None:
    """Remove the barrier at the end of a step."""
    next(b for b in _ops(module, *BARRIERS) if _in_a_loop(b)).erase()


def with_a_barrier_for_some(module: Any) -> None:
    """Add a barrier that only thread 0 of a workgroup reaches."""
    barrier = _ops(module, *BARRIERS)[0]
    with barrier.context, barrier.location, ir.InsertionPoint(barrier):
        thread = _ops(module, "gpu.thread_id")[0].results[0]
        zero = arith.constant(ir.IndexType.get(), 0)
        first = arith.cmpi(arith.CmpIPredicate.eq, thread, zero)
        taken = ir.Operation.create("scf.if", operands=[first], regions=2)
        block = taken.regions[0].blocks.append()
        with ir.InsertionPoint(block):
            ir.Operation.create(barrier.name)
            ir.Operation.create("scf.yield")


def without_bounds(module: Any) -> None:
    """Load rows, columns and pieces past the end."""
    for clamp in _ops(module, "arith.minui"):
        clamp.results[0].replace_all_uses_with(clamp.operands[0])


def with_stores_past_the_end(module: Any) -> None:
    for test in _ops(module, "scf.if"):
        with test.context, test.location, ir.InsertionPoint(test):
            test.operands[0] = arith.constant(ir.IntegerType.get_signless(1), 1)


def all_to_one_place(module: Any) -> None:
    """Every thread writes the same row of shared memory."""
    for store in _into_lds(module):
        with store.context, store.location, ir.InsertionPoint(store):
            zero = arith.constant(ir.IndexType.get(), 0)
            for i in range(2, len(store.operands)):
                store.operands[i] = zero


def sides_exchanged(module: Any) -> None:
    """Exchange the operands of every matrix instruction."""
    for op in _ops(module, "amdgpu.mfma", "amdgpu.wmma"):
        left, right = op.operands[0], op.operands[1]
        op.operands[0], op.operands[1] = right, left


def lanes_in_another_order(module: Any) -> None:
    """A lane uses its index along K in place of its row of a fragment."""
    at = _ops(module, "arith.remui", "arith.divui")
    across, part = (next(op for op in at if op.name == f"arith.{name}" and _is(op.operands[1], 16)) for name in
                    ("remui", "divui"))  # fmt: skip
    across.results[0].replace_all_uses_with(part.results[0])


def halves_that_differ(module: Any) -> None:
    """Give the halves of a wave different operands; RDNA3 requires the same ones."""
    for op in _ops(module, "arith.remui"):
        if _is(op.operands[1], 16):
            op.results[0].replace_all_uses_with(op.operands[0])


def shuffles_from_outside(module: Any) -> None:
    for op in _ops(module, "gpu.shuffle"):
        with op.context, op.location, ir.InsertionPoint(op):
            op.operands[1] = arith.constant(ir.IntegerType.get_signless(32), 64)


def _is(value: Any, number: int) -> bool:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return False
    return bool(owner.operation.attributes["value"].value == number)


GROUPS = "w4a8, group 64, zero points"
CONTROLS: list[tuple[Change, str, int, str, str]] = [
    (without_a_barrier, GROUPS, 33, "rocm:gfx942", "without a barrier between"),
    (without_a_barrier, "w8a8, ragged", 33, "vulkan:rdna3", "without a barrier between"),
    (without_a_barrier, "w8a8, ragged", 33, "vulkan:xe2", "without a barrier between"),
    (with_a_barrier_for_some, GROUPS, 33, "rocm:gfx942", "some threads do not reach"),
    (without_bounds, GROUPS, 33, "rocm:gfx942", "a load at"),
    (with_stores_past_the_end, GROUPS, 33, "rocm:gfx942", "a store at"),
    (all_to_one_place, GROUPS, 33, "rocm:gfx942", "two threads write|another thread"),
    (all_to_one_place, "w8a8, ragged", 33, "vulkan:rdna3", "two threads write|another thread"),
    (sides_exchanged, GROUPS, 33, "rocm:gfx942", "Mismatched elements"),
    (lanes_in_another_order, GROUPS, 33, "rocm:gfx942", "Mismatched elements|a store|two threads"),
    (halves_that_differ, GROUPS, 33, "rocm:gfx1100", "the halves of a wave|a load at"),
    (shuffles_from_outside, "w8a8, ragged", 5, "rocm:gfx942", "a lane that the subgroup does not have"),
]


@pytest.mark.sweep(fast=3, slow=60)
@pytest.mark.parametrize(("change", "name", "m", "target", "reason"), CONTROLS)
def test_a_broken_kernel_is_noticed(change: Change, name: str, m: int, target: str, reason: str) -> None:
    with pytest.raises((KernelError, AssertionError), match=reason):
        _run(name, m, target, change)


@pytest.mark.parametrize(("name", "m", "target"), [(GROUPS, 33, "rocm:gfx942"), ("w8a8, ragged", 33, "vulkan:rdna3")])
def test_the_same_kernel_as_it_is(name: str, m: int, target: str) -> None:
    _run(name, m, target, lambda module: None)


# ---- SPIR-V

VULKAN = [
    ("w8a8, ragged", 5, "lavapipe"),  # cooperative
    (GROUPS, None, "lavapipe"),  # tiled, groups, zero points, dynamic
    ("w4a16, group 32", 33, "valhall4"),  # decoded weights
    ("w8a8, residual, gelu", 33, "valhall4"),
]


def _modules(folder: Path, name: str, m: int | None, target: str) -> list[Path]:
    dump = f"--iree-hal-dump-executable-binaries-to={folder}"
    qmlir.ops.scaled_matmul.compile(target=f"vulkan:{target}", flags=(dump,), **PRODUCTS[name].arguments(m))
    found = sorted(folder.glob("*.spv"))
    assert found
    return found


def _refusal(module: Path, tool: tuple[str, ...] = ("spirv-val",)) -> str:
    """The error message of spirv-val; "" for a valid module.

    IREE 3.13 states the lowest version that a module's operations need, but writes SPIR-V 1.4: `NoSignedWrap` without
    an extension, and entry points that list their buffers. Drivers for Vulkan 1.3, which support 1.6, accept it; for
    the validator the version is set to 1.4.
    """
    assert shutil.which(tool[-1]), "spirv-val is missing: make vulkan installs it"
    words = np.fromfile(module, np.uint32)
    words[1] = max(words[1], 0x10400)
    command = [*tool, "--target-env", "vulkan1.3", "-"]
    done = subprocess.run(command, input=words.tobytes(), capture_output=True, check=False)
    return "" if done.returncode == 0 else done.stderr.decode()


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize(("name", "m", "target"), VULKAN)
def test_spirv_is_valid(name: str, m: int | None, target: str, tmp_path: Path) -> None:
    for module in _modules(tmp_path, name, m, target):
        assert _refusal(module) == ""


def test_spirv_of_a_padded_convolution_is_valid(tmp_path: Path) -> None:
    dump = f"--iree-hal-dump-executable-binaries-to={tmp_path}"
    weight = np.ones((8, 3, 3, 16), np.int8)
    qmlir.ops.conv2d_q.compile(
        TensorSpec((None, 6, 5, 16), "i8"), weight, padding=(1, 1, 1, 1), input_scale=np.float32(0.5),
        weight_scale=np.ones(8, np.float32), target="vulkan:lavapipe", flags=(dump,),
    )  # fmt: skip
    found = list(tmp_path.glob("*.spv"))
    assert found
    assert [_refusal(module) for module in found] == [""] * len(found)


def test_spirv_of_experts_is_valid(tmp_path: Path) -> None:
    """So are the kernels that sort the rows, which IREE links with the product's."""
    dump = f"--iree-hal-dump-executable-binaries-to={tmp_path}"
    qmlir.ops.grouped_matmul.compile(
        TensorSpec((20, 40), "i8"), np.ones((3, 21, 40), np.int8), rhs_transposed=True,
        rhs_scale=np.ones((3, 21, 1), np.float32), group_sizes=TensorSpec((3,), "i32"), target="vulkan:lavapipe",
        flags=(dump,),
    )  # fmt: skip
    found = list(tmp_path.glob("*.spv"))
    assert found
    assert [_refusal(module) for module in found] == [""] * len(found)


@pytest.mark.sweep(fast=3, slow=60)
@pytest.mark.parametrize(
    ("name", "target"),
    [("w8a8, ragged", "rdna3"), ("w8a8, ragged", "ada"), ("w4a16, group 64, zero points", "ada"),
     ("w8a8, ragged", "xe2"), ("w4a8, group 64, zero points", "xe2"), ("w4a16, group 64, zero points", "xe2")],
)  # fmt: skip
def test_cooperative_matrices_are_valid(name: str, target: str, tmp_path: Path, newer: Path) -> None:
    """Checked with a newer spirv-val: Debian 12's does not know their capability."""
    (module,) = _modules(tmp_path, name, 33, target)
    tool = (str(newer), str(newer.parent / "root/usr/bin/spirv-val"))
    assert _refusal(module, tool) == ""
    _break(module)
    assert "FAdd" in _refusal(module, tool)


def test_spirv_that_is_broken_is_refused(tmp_path: Path) -> None:
    """An integer addition is changed into a float addition, which does not fit its types."""
    module = _modules(tmp_path, *VULKAN[0])[0]
    _break(module)
    assert "FAdd" in _refusal(module)


def _break(module: Path) -> None:
    words = np.fromfile(module, np.uint32)
    at, integer_add, float_add = 5, 128, 129
    while words[at] & 0xFFFF != integer_add:
        at += int(words[at] >> 16)
    words[at] += float_add - integer_add
    words.tofile(module)
