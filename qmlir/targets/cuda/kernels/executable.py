"""A CUDA kernel as an executable: workgroups in one row, warps of 32 threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ....core.mlir import hal, ir
from ....kernels import emit as e
from ...gpu_kernels.executable import KernelBody, KernelFunction, Launch, View

WARP = 32


def in_a_row(threads: int, blocks: Callable[[e.Index], e.Index]) -> Launch:
    """`blocks` workgroups of `threads` threads: a number that depends on the number of rows."""
    return Launch(threads, WARP, lambda rows: (blocks(rows), 1, 1), library=True, pooled=True)


def function_of(
    rows: int | None, tensors: Sequence[ir.Type], launch: Launch, body: KernelBody, tokens: bool = False
) -> KernelFunction:
    """A function of an executable whose operands are tensors as they stand, the last of them the result; see
    `gpu_kernels.executable`."""
    return KernelFunction(rows, [_view(t) for t in tensors], launch, body, tokens)


def _view(tensor: ir.Type) -> View:
    """One-byte floats as bytes: what they mean is up to the kernel."""
    view = View.of(tensor)
    return replace(view, element=e.integer(8)) if e.bits(view.element) == 8 else view


def workgroup_id() -> ir.Value:
    return hal.InterfaceWorkgroupIDOp(0).result
