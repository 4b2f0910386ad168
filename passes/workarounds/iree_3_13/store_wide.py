"""qmlir-store-wide: convert the operands of 64-bit reductions to 64 bits in a separate dispatch, on CUDA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir
from ....ir.barriers import Reason, fusion_barrier, fusion_barrier_behind
from ....ir.build import mapped
from ....ir.reductions import COMBINATIONS, reduced, with_operands, within_lanes
from ....ir.walk import VIEWS, collect, defining_op, producer
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "For an NVIDIA GPU, IREE chooses to reduce 64-bit numbers that are converted from shorter ones across the "
        "lanes, and then fails, because lanes exchange 32 bits at a time (`failed to distribute`).",
        canary="wide_sum",
        upstream="https://github.com/iree-org/iree/pull/24432",
    ),
)

_WIDE = 64


@dataclass(frozen=True)
class StoreWidePass(Pass):
    """Put a fusion barrier behind an operand that is reduced in 64 bits if it is computed from shorter elements, so
    that they are converted in a separate dispatch.

    IREE 3.13 chooses how to reduce by the elements that it reads. It reduces shorter elements across lanes, which it
    refuses later for 64 bits. If it reads elements of 64 bits, each thread computes a result alone.

    If sizes are dynamic, the results are stored too: an op that reads them together with the operand, such as the
    square of a deviation from the mean, would be fused with the sum and allocate a tensor of unknown size.
    """

    name: ClassVar[str] = "qmlir-store-wide"
    summary: ClassVar[str] = "convert to 64 bits in a separate dispatch what is reduced in 64 bits (CUDA)"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, where=_is_wide):
            if not all(ir.RankedTensorType(value.type).has_static_shape for value in op.operands):
                for result in op.results:
                    fusion_barrier_behind(result, Reason.WIDE_SUM, lambda reader: reader.name.startswith("linalg."))
            inputs = list(op.operands)[: -len(op.results)]
            arguments = op.regions[0].blocks[0].arguments
            stored = {i: v for i, v in enumerate(inputs) if list(arguments[i].uses) and _is_short(v)}
            if stored and not within_lanes(op):
                with op.location, ir.InsertionPoint(op):
                    _store(op, stored)


_EXTENSIONS = ("arith.extf", "arith.extsi", "arith.extui")


def _width(t: ir.Type) -> int:
    return t.width if isinstance(t, (ir.IntegerType, ir.FloatType)) else _WIDE


def _is_wide(op: OpLike) -> bool:
    return any(_width(one.element.type) == _WIDE for one in reduced(op, COMBINATIONS))


def _is_short(value: ir.Value) -> bool:
    """Whether IREE may compute the tensor from shorter elements in the dispatch that reads it."""
    if _width(value.type.element_type) < _WIDE:
        return True
    op = producer(value)
    if op is None or not (op.name in VIEWS or op.name.startswith("linalg.")):
        return False
    return any(isinstance(v.type, ir.RankedTensorType) and _is_short(v) for v in op.operands)


def _store(op: OpLike, values: dict[int, ir.Value]) -> None:
    """Make the op read the operands `values` from memory, in 64 bits."""
    operands = list(op.operands)
    for i, value in values.items():
        if _width(value.type.element_type) < _WIDE:
            value = _widened(op.regions[0].blocks[0], i, value)
        operands[i] = fusion_barrier(value, Reason.WIDE_SUM)
    new = with_operands(op, operands)
    for old, result in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(result)
    op.erase()


def _widened(block: ir.Block, position: int, value: ir.Value) -> ir.Value:
    """An operand converted to 64 bits; the body of its reader is changed to take it in place of the shorter one."""
    argument, short = block.arguments[position], value.type.element_type
    extensions = [use.owner.operation for use in argument.uses if use.owner.operation.name in _EXTENSIONS]
    wide: ir.Type
    if isinstance(short, ir.IntegerType):
        wide = ir.IntegerType.get_signless(_WIDE)
        extend = arith.extui if {e.name for e in extensions} == {"arith.extui"} else arith.extsi
        shorten = arith.trunci
    else:
        wide, extend, shorten = ir.F64Type.get(), arith.extf, arith.truncf
    argument.set_type(wide)
    with ir.InsertionPoint.at_block_begin(block):
        back = shorten(short, argument)
    argument.replace_all_uses_except(back, defining_op(back))
    for e in extensions:
        if e.results[0].type == wide and e.name == f"arith.{extend.__name__}":
            e.results[0].replace_all_uses_with(argument)
            e.erase()
    return mapped(value, wide, lambda x: extend(wide, x))
