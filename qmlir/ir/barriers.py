"""Barriers that hide a value from IREE's passes: `fusion_barrier` for tensors, `opaque` for numbers.

Nothing else makes a `util.optimization_barrier`, and each barrier of a tensor states its reason.
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

    # Written by front ends and lowerings, which do not know the target. `Target.barriers` names those that a target
    # needs; qmlir-resolve-barriers drops the others.
    COMPARED = "compared"  # fused with their comparison, a dynamic number of indices is allocated there for SPIR-V
    INDEXED_READS = "indexed-reads"  # loops read it by index: fused, it becomes an allocation inside a GPU's dispatch
    SMALL_GATHER = "small-gather"  # fused into an epilogue, it is vectorised for SPIR-V to widths without a legal form
    ONE_ROW = "one-row"  # a broadcast of one row: fused into the product, it is unrolled over all of K for SPIR-V
    POOLED = "pooled"  # for SPIR-V, a pooling that is fused with the producer of its operand is wrong

    # For every target.
    LOOP_START = "loop-start"  # of dynamic size, in one allocation with others, its offset is lost on the way to a loop
    PHASES = "phases"  # fused with the move of its results to their places, a convolution has scalar loops
    SORT_STAGE = "sort-stage"  # each stage of a sort reads results of the stage before at other places
    STATE = "state"  # globals that start with the same splat would share a buffer, which is written in place

    # Written by the strategies and passes of a target, for that target.
    ALIGNED = "aligned"  # the final slice and the permutations would move into the product, and make it ragged again
    BETWEEN_VECTORS = "between-vectors"  # SPIR-V code reads a part of an axis from the start of the vector it begins in
    BROADCAST_SUM = "broadcast-sum"  # the op that broadcasts a sum, tiled with it for SPIR-V, reads unwritten memory
    BYTE_MASK = "byte-mask"  # fused, the bytes would be bits again, which data tiling pads wrongly
    CONSTANT_BITS = "constant-bits"  # bf16 or 8-bit float constants in a shader would have the bits of another type
    CONVERTED_ONCE = "converted-once"  # fused into the product, each tile would convert the operand again
    CONVOLUTION_ORDER = "convolution-order"  # a transpose fused into a convolution gives its operands different orders
    FILLED = "filled"  # fused into the scan that reads it, a fill of dynamic size is allocated in the dispatch
    INDEXED_PART = "indexed-part"  # read by index in another shape or order, a slice loses its strides
    IN_MEMORY = "in-memory"  # for SPIR-V, the producer of an operand is unrolled over all of K
    MANY_OPERANDS = "many-operands"  # fused, the dispatch would read more tensors than CUDA and HIP bind
    LONG_SUM = "long-sum"  # the pieces of a long sum would be loops of one shader, whose steps llvmpipe adds up
    PADDED_BATCH = "padded-batch"  # data tiling on CPUs pads the rows of each product in other places than are read
    OPAQUE_SIZES = "opaque-sizes"  # a size that is a known multiple is split, and the lowering configuration is lost
    PATCHES = "patches"  # the patches of a convolution would move back into the product
    POOLED_NUMBER = "pooled-number"  # fused, a pooling of equal elements reads no operand, and adds the number once
    STORED_BROADCAST = "stored-broadcast"  # data tiling ends the process if the result has an axis that no operand has
    STORED_SHARED = "stored-shared"  # fused into a reader with strides, it would be written only in part for the others
    WIDE_SUM = "wide-sum"  # converted inside, it would be reduced across lanes, which exchange 32 bits on CUDA
    SORTED = "sorted"  # sorted keys without a reader would be allocated inside the dispatch
    SPLAT = "splat"  # a splat constant becomes a scalar of the body, which leaves no operand to distribute


PER_TARGET = frozenset({
    Reason.COMPARED, Reason.INDEXED_READS, Reason.ONE_ROW, Reason.POOLED, Reason.SMALL_GATHER,
})  # fmt: skip

# Barriers that stay until IREE has placed tensors in memory; the others only affect which ops form a dispatch.
_OF_MEMORY = frozenset({Reason.LOOP_START, Reason.STATE})

# What goes wrong without a barrier, for each reason whose fault no pass of `passes/workarounds` states.
FAULT_OF = {
    Reason.COMPARED: Fault(
        "IREE fuses a dynamic number of computed indices with the sum that compares them, and allocates them in shared "
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
        "IREE fuses a gather of few elements into the epilogue of a product, and vectorises it for SPIR-V to widths "
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
        "IREE fuses a pooling with the producer of its operand for SPIR-V, and many of its results are wrong.",
        canary="pooled_codes",
    ),
    Reason.LOOP_START: Fault(
        "IREE puts the initial values of several loops, of dynamic size, into one allocation, and loses the offset "
        "of one of them on the way into its loop: states of a recurrent layer are wrong.",
        canary="loop_start",
    ),
    Reason.SORT_STAGE: Fault(
        "IREE fuses the stages of a sort, each of which reads the one before at other places, so that each element of "
        "a stage computes those before again: compilation takes minutes.",
        canary="sort_stages",
    ),
    Reason.PHASES: Fault(
        "IREE fuses the copy of a convolution's results to their positions into the convolution, whose loops are then "
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
        "IREE fuses the producer of an operand of a float product into the product and distributes both wrongly for "
        "SPIR-V, so that elements of small results stay zero; larger ones are unrolled over all of K.",
        canary="in_memory",
    ),
}
FAULTS = tuple(FAULT_OF.values())


def fusion_barrier_behind(
    value: ir.Value, reason: Reason, where: Callable[[OpLike], bool] = lambda reader: True
) -> None:
    """Put a fusion barrier between an operation's result and its readers for which `where` holds."""
    made = defining_op(value)
    read = [(use.owner.operation, use.operand_number) for use in value.uses if where(use.owner.operation)]
    if not read:
        return
    with made.location, ir.InsertionPoint.after(made):
        stored = fusion_barrier(value, reason)
    for reader, number in read:
        reader.operands[number] = stored


def fusion_barrier(value: ir.Value, reason: Reason, sizes: Sequence[Extent] | None = None) -> ir.Value:
    """The same tensor behind a barrier, computed in a dispatch of its own: IREE moves no slice, transpose or producer
    across. The barrier is dropped once dispatches are formed (`drop_fusion_barriers`). It carries `reason` as an
    attribute. `sizes` are the sizes that the result is to have from here on; the tensor's own if not given."""
    dynamic = [s for s in (dims(value) if sizes is None else sizes) if not isinstance(s, int)]
    barrier = util.OptimizationBarrierOp([value.type], [value])
    barrier.operation.attributes[BARRIER_REASON] = ir.StringAttr.get(reason.value)
    result = barrier.results[0]
    if not dynamic:
        return result
    # Sizes cannot be derived through a barrier, so they are tied to its result.
    result.context.get_dialect_descriptor("flow")
    return ir.Operation.create("flow.tensor.tie_shape", results=[result.type], operands=[result, *dynamic]).results[0]


def drop_fusion_barriers(module: ir.Module) -> None:
    """Drop the barriers that only affect which ops form a dispatch, once dispatches are formed: at a barrier that is
    left, the host waits for the device."""
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
    """The same number behind a barrier: no pass knows its value or what it is a multiple of. Static sizes are returned
    unchanged."""
    return number if isinstance(number, int) else util.OptimizationBarrierOp([number.type], [number]).results[0]
