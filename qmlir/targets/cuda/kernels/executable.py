"""A CUDA kernel as an executable: workgroups in one row, of tensors as they stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ....core.mlir import hal, ir
from ....kernels import emit as e
from ...gpu_kernels.executable import KernelBody, KernelFunction, Launch, View
from ...gpu_kernels.tiled import TiledKernel

WARP = 32


def function_of(
    made: TiledKernel, rows: int | None, tensors: Sequence[ir.Type], blocks: Callable[[e.Index], e.Index],
    body: KernelBody, tokens: bool = False, attributes: Mapping[str, int] | None = None,
) -> KernelFunction:  # fmt: skip
    """A function of an executable whose operands are tensors as they stand, the last of them the result; see
    `gpu_kernels.executable`. `blocks`: how many workgroups there are for a number of rows."""
    launch = Launch(made.threads, made.machine, lambda size: (blocks(size), 1, 1), attributes or {})
    return KernelFunction(rows, [_view(t) for t in tensors], launch, body, tokens)


def _view(tensor: ir.Type) -> View:
    """One-byte floats as bytes: what they mean is up to the kernel."""
    view = View.of(tensor)
    return replace(view, element=e.integer(8)) if e.bits(view.element) == 8 else view


def workgroup_id() -> ir.Value:
    return hal.InterfaceWorkgroupIDOp(0).result
