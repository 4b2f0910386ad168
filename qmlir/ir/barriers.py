"""What hides a value from IREE's passes: `fusion_barrier` for tensors, `opaque` for numbers.

Nothing else makes a `util.optimization_barrier`, and each barrier of a tensor says why it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, overload

from ..core.faults import Fault
from ..core.mlir import collect, ir, util
from .build import Extent, dims
from .walk import defining_op

if TYPE_CHECKING:
    from ..core.mlir import OpLike

BARRIER_REASON = "qmlir.barrier_reason"


class Reason(str, Enum):
    """Why a tensor must be computed in a dispatch of its own, with IREE 3.13."""

    # Front ends and lowerings, which know no target, write these. `Target.barriers` names those that a target needs;
    # qmlir-resolve-barriers drops the others.
    COMPARED = "compared"  # in one dispatch with their comparison, SPIR-V allocates indices of a dynamic number there
    INDEXED_READS = "indexed-reads"  # loops read it by index: fused, it becomes an allocation inside a GPU's dispatch
    SMALL_GATHER = "small-gather"  # fused into an epilogue, SPIR-V vectorises it to widths that it cannot legalise
    ONE_ROW = "one-row"  # a broadcast of one row: fused into the product, SPIR-V unrolls it over all of K
    POOLED = "pooled"  # SPIR-V is wrong about a pooling that is fused with what makes its operand

    # For every target.
    LOOP_START = "loop-start"  # of dynamic size, in one allocation with others, its place is lost on the way to a loop
    PHASES = "phases"  # the move of a convolution's results to their places would make its loops scalar
    SORT_STAGE = "sort-stage"  # each stage of a sort reads what the one before has written at other places
    STATE = "state"  # globals that start with one number everywhere would be one buffer, which is written in place

    # Written by the strategies and passes of a target, for that target.
    ALIGNED = "aligned"  # the final cut and the permutations would move into the product, which is ragged again
    BETWEEN_VECTORS = "between-vectors"  # SPIR-V reads a part of an axis from the last vector that begins before it
    BROADCAST_SUM = "broadcast-sum"  # SPIR-V tiles a sum with what broadcasts it, and reads what was never written
    BYTE_MASK = "byte-mask"  # fused, the byte would be a bit again, which data tiling pads wrongly
    CONSTANT_BITS = "constant-bits"  # of bf16 or of a byte's floats, written into a shader, would be another type's
    CONVERTED_ONCE = "converted-once"  # fused into the product, each tile would convert the operand again
    CONVOLUTION_ORDER = "convolution-order"  # a transpose that moves into a convolution puts its axes in two orders
    FILLED = "filled"  # fused into the scan that reads it, dynamic sizes are allocated inside the dispatch
    INDEXED_PART = "indexed-part"  # read by another index than its own, a part of a tensor loses its strides
    IN_MEMORY = "in-memory"  # SPIR-V unrolls what makes an operand over all of K
    MANY_OPERANDS = "many-operands"  # fused, the dispatch would read more tensors than CUDA and HIP bind
    LONG_SUM = "long-sum"  # the pieces of a long sum would be loops of one shader, which llvmpipe counts together
    PADDED_BATCH = "padded-batch"  # data tiling on CPUs pads the rows of each product, but not where they are read
    OPAQUE_SIZES = "opaque-sizes"  # a size that is a known multiple is split, and the lowering configuration is lost
    PATCHES = "patches"  # the patches of a convolution would move back into the product
    POOLED_NUMBER = "pooled-number"  # fused, the pooling reads no operand, and sums the number up once
    STORED_BROADCAST = "stored-broadcast"  # data tiling ends the process where the result has an axis of no operand
    STORED_SHARED = "stored-shared"  # fused into a reader with strides, it would be written for the others in part only
    WIDE_SUM = "wide-sum"  # converted inside, it would be reduced across lanes, which hand each other 32 bits on CUDA
    SORTED = "sorted"  # unread, sorted keys would be allocated inside the dispatch
    SPLAT = "splat"  # a constant of equal elements becomes a scalar of the body, and there is no operand to distribute


PER_TARGET = frozenset({
    Reason.COMPARED, Reason.INDEXED_READS, Reason.ONE_ROW, Reason.POOLED, Reason.SMALL_GATHER,
})  # fmt: skip

# What stays until IREE has placed tensors in memory; the others are about what becomes one dispatch.
_OF_MEMORY = frozenset({Reason.LOOP_START, Reason.STATE})

# What goes wrong without a barrier: of each reason whose fault no pass of `passes/workarounds` states.
FAULT_OF = {
    Reason.COMPARED: Fault(
        "IREE fuses computed indices of a dynamic number with the sum that compares them, and allocates them in shared "
        "memory there: SPIR-V has none of that size (`shared memory allocation size overflows`).",
        canary="compared_indices",
        upstream="https://github.com/iree-org/iree/issues/9802",
    ),
    Reason.INDEXED_READS: Fault(
        "IREE fuses a tensor that loops read by index into their dispatch on GPUs, where it becomes an allocation or "
        "cannot be distributed (`failed to distribute`).",
        canary="indexed_reads",
    ),
    Reason.SMALL_GATHER: Fault(
        "IREE fuses a gather of few numbers into the epilogue of a product, and vectorises it for SPIR-V to widths "
        "that it cannot legalise (`failed to legalize operation 'arith.constant'`).",
        canary="small_gather",
        upstream="https://github.com/iree-org/iree/pull/13670",
    ),
    Reason.ONE_ROW: Fault(
        "IREE fuses the broadcast of a single long row into the product that reads it, and unrolls that over all of K "
        "for SPIR-V: compilation takes minutes.",
        canary="one_row",
    ),
    Reason.POOLED: Fault(
        "IREE fuses a pooling for SPIR-V with what makes its operand, and many of its results are wrong.",
        canary="pooled_codes",
    ),
    Reason.LOOP_START: Fault(
        "IREE puts the first values of several loops, of dynamic size, into one allocation, and loses the place of one "
        "of them on the way into its loop: states of a recurrent layer are wrong.",
        canary="loop_start",
    ),
    Reason.SORT_STAGE: Fault(
        "IREE fuses the stages of a sort, each of which reads the one before at other places, so that each element of "
        "a stage computes those before again: compilation takes minutes.",
        canary="sort_stages",
    ),
    Reason.PHASES: Fault(
        "IREE fuses the move of a convolution's results to their places into the convolution, whose loops are then "
        "scalar: slow, not wrong.",
        canary="phases",
    ),
    Reason.ALIGNED: Fault(
        "IREE fuses the padding and the transposes of a product's operands into the product again, which for SPIR-V is "
        "then ragged again, or one whose tiles do not fit: slow, or not compiled.",
        canary="aligned_product",
    ),
    Reason.PATCHES: Fault(
        "IREE fuses the patches of a convolution back into the product that reads them, which is then no matrix "
        "product that its code generation tiles as one: slow, not wrong.",
        canary="patches",
    ),
    Reason.CONVERTED_ONCE: Fault(
        "IREE fuses the conversion of an operand into the product, where each tile of the result does it again: slow, "
        "not wrong.",
        canary="converted_once",
    ),
    Reason.IN_MEMORY: Fault(
        "IREE fuses what makes an operand of a float product into it and distributes both wrongly for SPIR-V, so that "
        "elements of small results stay zero; larger ones are unrolled over all of K.",
        canary="in_memory",
    ),
}
FAULTS = tuple(FAULT_OF.values())


def fusion_barrier_behind(
    value: ir.Value, reason: Reason, where: Callable[[OpLike], bool] = lambda reader: True
) -> None:
    """Put a fusion barrier between an operation's result and its readers, or those that `where` holds of."""
    made = defining_op(value)
    read = [(use.owner.operation, use.operand_number) for use in value.uses if where(use.owner.operation)]
    if not read:
        return
    with made.location, ir.InsertionPoint.after(made):
        stored = fusion_barrier(value, reason)
    for reader, number in read:
        reader.operands[number] = stored


def fusion_barrier(value: ir.Value, reason: Reason, sizes: Sequence[Extent] | None = None) -> ir.Value:
    """The same tensor, computed in a dispatch of its own: IREE moves no slice, transpose or producer across. It is gone
    once dispatches are formed (`drop_fusion_barriers`). `reason` is said in the IR. `sizes` are the tensor's sizes as
    they are to be known from here on; its own when not given."""
    dynamic = [s for s in (dims(value) if sizes is None else sizes) if not isinstance(s, int)]
    barrier = util.OptimizationBarrierOp([value.type], [value])
    barrier.operation.attributes[BARRIER_REASON] = ir.StringAttr.get(reason.value)
    result = barrier.results[0]
    if not dynamic:
        return result
    # The sizes cannot be asked of what is behind a barrier, so they are tied to it.
    result.context.get_dialect_descriptor("flow")
    return ir.Operation.create("flow.tensor.tie_shape", results=[result.type], operands=[result, *dynamic]).results[0]


def drop_fusion_barriers(module: ir.Module) -> None:
    """Those that are about what becomes one dispatch, once dispatches are formed: behind a barrier that is left, the
    host waits for the device."""
    dropped = {reason.value for reason in Reason if reason not in _OF_MEMORY}
    for op in collect(module, "util.optimization_barrier"):
        if BARRIER_REASON in op.attributes and op.attributes[BARRIER_REASON].value in dropped:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.operation.erase()


@overload
def opaque(number: ir.Value) -> ir.Value: ...
@overload
def opaque(number: ir.Value | int) -> ir.Value | int: ...
def opaque(number: ir.Value | int) -> ir.Value | int:
    """The same number, of which no pass knows anything: not its value, nor what it is a multiple of. Static sizes
    stay."""
    return number if isinstance(number, int) else util.OptimizationBarrierOp([number.type], [number]).results[0]
