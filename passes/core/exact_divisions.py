"""qmlir-exact-divisions: quotients that are rounded correctly, from those of a device that are not."""

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

_OF_TENSORS = ("linalg", "tensor", "iree_linalg_ext")  # dialects whose bodies a device computes


@dataclass(frozen=True)
class ExactDivisionsPass(Pass):
    """Codes, scales and zero points are exact (docs/semantics.md), and divisions make them. Vulkan's OpFDiv may be off
    by 2.5 units in the last place (Vulkan specification, "Precision and Operation of SPIR-V Instructions"), and on
    NVIDIA's driver it is: codes were wrong by one. Here the quotient is corrected by what is left of the dividend, in
    integers (`qmlir/ir/division.py`): the result is that of IEEE 754 for all numbers.

    A division by a power of two becomes a product. One of what a function gives, as in a sigmoid, stays, because the
    function is approximated as well; so do divisions of scalars on the host, which are exact. Built-in kernels for
    Vulkan divide in the same way, by a rule of theirs. Square roots, which Vulkan lets be off too, are in no result
    that is promised exactly.
    """

    name: ClassVar[str] = "qmlir-exact-divisions"
    summary: ClassVar[str] = "divide with correct rounding where the device does not (Vulkan)"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, "arith.divf", where=lambda op: isinstance(op.results[0].type, ir.RankedTensorType)):
            _replace(op, _of_elements)
        for op in collect(module, "arith.divf", where=_in_tensors):
            _replace(op, exact_quotient)


def _in_tensors(op: OpLike) -> bool:
    return op.parent.operation.name.partition(".")[0] in _OF_TENSORS


def _of_elements(op: OpLike, a: ir.Value, b: ir.Value) -> ir.Value:
    """The division of two tensors with a body."""
    args = [Arg(x, tuple(range(x.type.rank))) for x in (a, b)]
    return elementwise(args, dims(a), a.type.element_type, arith.divf)


def _replace(op: OpLike, divide: Callable[[OpLike, ir.Value, ir.Value], ir.Value | None]) -> None:
    with ir.InsertionPoint(op), op.location:
        made = divide(op, *op.operands)
    if made is not None:
        op.results[0].replace_all_uses_with(made)
        op.erase()
