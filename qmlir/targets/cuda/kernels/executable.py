"""A CUDA kernel as an executable: workgroups in one row, warps of 32 threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ....core.mlir import hal, ir
from ....kernels import emit as e
from ....kernels.description import Kernel
from ....kernels.outline import picks
from ...gpu_kernels.executable import KernelBody, KernelFunction, Launch, View

WARP = 32


def in_a_row(threads: int, blocks: Callable[[e.Index], e.Index]) -> Launch:
    """`blocks` workgroups of `threads` threads: a number that depends on the number of rows."""
    return Launch(threads, WARP, lambda rows: (blocks(rows), 1, 1), library=True, pooled=True)


def function_of(
    rows: int | None, tensors: Sequence[ir.Type], launch: Launch, body: KernelBody, *, tokens: bool = False,
    results: int = 1,
) -> KernelFunction:  # fmt: skip
    """A function of an executable whose operands are tensors as they stand, the last of them the results; see
    `gpu_kernels.executable`."""
    return KernelFunction(rows, [_view(t) for t in tensors], launch, body, tokens, results)


def with_scratch(
    kernel: Kernel, inputs: Sequence[ir.Type], result: ir.Type, body: KernelBody, uses: bool
) -> tuple[list[ir.Type], KernelBody, int]:
    """The tensors of a function, what it does and how many of them are results. Where `inputs` end with the types of
    scratch (`outline.Scratch`), counters and workspace are among them, also for a body that does not use them."""
    own = inputs[: 2 + len(picks(kernel)) + len(kernel.operands)]
    if len(own) == len(inputs):
        return [*own, result], body, 1
    counters, space = inputs[len(own) :]
    inner: KernelBody = body if uses else lambda rows, buffers: body(rows, [*buffers[:-3], buffers[-2]])
    return [*own, counters, result, space], inner, 3


def _view(tensor: ir.Type) -> View:
    """One-byte floats as bytes: what they mean is up to the kernel."""
    view = View.of(tensor)
    return replace(view, element=e.integer(8)) if e.bits(view.element) == 8 else view


def workgroup_id() -> ir.Value:
    return hal.InterfaceWorkgroupIDOp(0).result
