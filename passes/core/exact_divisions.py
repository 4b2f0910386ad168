"""qmlir-exact-divisions: round quotients correctly on a device whose division does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...core.mlir import arith, ir
from ...ir.build import Arg, dims, elementwise
from ...ir.division import exact_quotient
from ...ir.walk import collect
from ..base import Pass, State

if TYPE_CHECKING:
    from ...core.mlir import OpLike

_DEVICE_DIALECTS = ("linalg", "tensor", "iree_linalg_ext")  # dialects with ops whose bodies the device computes


@dataclass(frozen=True)
class ExactDivisionsPass(Pass):
    """Codes, scales and zero points are promised to be exact (docs/semantics.md), and divisions compute them. Vulkan's
    OpFDiv may be off by 2.5 units in the last place (Vulkan specification, "Precision and Operation of SPIR-V
    Instructions"), and with NVIDIA's driver it is: codes were wrong by one. This pass corrects the device's quotient by
    the remainder of the division, in integers (`qmlir/ir/division.py`): the result is that of IEEE 754 for all numbers.

    A division by a power of two becomes a multiplication. A division of a function's result, as in a sigmoid, stays,
    because the function is approximated as well. Divisions of scalars on the host stay, because they are exact.
    Built-in kernels for Vulkan correct their divisions by a rewrite rule of their own. Vulkan's square roots may be off
    too, but no result that is promised to be exact contains one.
    """

    name: ClassVar[str] = "qmlir-exact-divisions"
    summary: ClassVar[str] = "divide with correct rounding where the device does not (Vulkan)"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, "arith.divf", where=lambda op: isinstance(op.results[0].type, ir.RankedTensorType)):
            _replace(op, _elementwise_division)
        for op in collect(module, "arith.divf", where=_in_tensors):
            _replace(op, exact_quotient)


def _in_tensors(op: OpLike) -> bool:
    return op.parent.operation.name.partition(".")[0] in _DEVICE_DIALECTS


def _elementwise_division(op: OpLike, a: ir.Value, b: ir.Value) -> ir.Value:
    """The division of two tensors as a linalg op with a scalar division in its body."""
    args = [Arg(x, tuple(range(x.type.rank))) for x in (a, b)]
    return elementwise(args, dims(a), a.type.element_type, arith.divf)


def _replace(op: OpLike, divide: Callable[[OpLike, ir.Value, ir.Value], ir.Value | None]) -> None:
    with ir.InsertionPoint(op), op.location:
        made = divide(op, *op.operands)
    if made is not None:
        op.results[0].replace_all_uses_with(made)
        op.erase()
