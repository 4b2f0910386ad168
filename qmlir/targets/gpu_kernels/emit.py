"""Emission functions of GPU kernels, in addition to those of `qmlir/kernels/emit.py`: threads, and memory as memrefs.

A "word" is an i32 with four codes, the first in its lowest bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.mlir import arith, gpu, ir, memref, vector
from ...kernels.emit import *  # noqa: F403
from ...kernels.emit import Index, attribute, index, integer, load_run, multiply, store_run


def word(value: int) -> ir.Value:
    """A constant of 32 bits."""
    return arith.constant(integer(32), value - (1 << 32) if value >= 1 << 31 else value)


def shifted(bits: ir.Value, left: int) -> ir.Value:
    """Shift a word to the left by `left` bits, or to the right if `left` is negative."""
    if left == 0:
        return bits
    return arith.shli(bits, word(left)) if left > 0 else arith.shrui(bits, word(-left))


def as_index(value: ir.Value) -> ir.Value:
    """An unsigned integer as an index."""
    return arith.index_castui(ir.IndexType.get(), value)


def zero(t: ir.Type) -> ir.Value:
    """Zero of a scalar or vector type."""
    if isinstance(t, ir.VectorType):
        return arith.constant(t, ir.DenseElementsAttr.get_splat(t, attribute(0, t.element_type)))
    return arith.constant(t, attribute(0, t))


def operation(name: str, result: ir.Type, operands: Sequence[ir.Value], **attributes: ir.Attribute) -> ir.Value:
    """The result of an operation that the bindings have no function for."""
    ir.Context.current.get_dialect_descriptor(name.partition(".")[0])
    return ir.Operation.create(name, results=[result], operands=list(operands), attributes=attributes).results[0]


# -------------------------------------------------------------------------------------------- threads, memory


def thread() -> ir.Value:
    """The number of the thread in its workgroup, which has one dimension."""
    return gpu.thread_id(gpu.Dimension.x)


def block(axis: int) -> ir.Value:
    """The number of the workgroup along an axis of the grid."""
    return gpu.block_id((gpu.Dimension.x, gpu.Dimension.y, gpu.Dimension.z)[axis])


def barrier() -> None:
    gpu.barrier()


def shared(shape: Sequence[int], element: ir.Type, alignment: int | None = None) -> ir.Value:
    """Allocate shared memory of the workgroup."""
    space = ir.Attribute.parse("#gpu.address_space<workgroup>")
    kind = ir.MemRefType.get(list(shape), element, memory_space=space)
    return memref.AllocOp(kind, [], [], alignment=alignment).result


def load(memory: ir.Value, where: Sequence[Index]) -> ir.Value:
    return memref.load(memory, [index(i) for i in where])


def store(value: ir.Value, memory: ir.Value, where: Sequence[Index]) -> None:
    memref.store(value, memory, [index(i) for i in where])


def load_vector(memory: ir.Value, number: Index, lanes: int) -> ir.Value:
    """Vector `number` of a memref with one axis, whose elements are vectors or the elements of vectors."""
    if isinstance(ir.MemRefType(memory.type).element_type, ir.VectorType):
        return load(memory, [number])
    return load_run(memory, [multiply(number, lanes)], lanes)


def store_vector(value: ir.Value, memory: ir.Value, number: Index) -> None:
    """See `load_vector`."""
    if isinstance(ir.MemRefType(memory.type).element_type, ir.VectorType):
        store(value, memory, [number])
    else:
        store_run(value, memory, [multiply(number, value.type.shape[0])])


def shuffle(value: ir.Value, offset: ir.Value, width: int, mode: str) -> ir.Value:
    """The value, i32 or f32, of another lane of the subgroup; `mode` is "xor" or "idx"."""
    wanted = {"xor": gpu.ShuffleMode.XOR, "idx": gpu.ShuffleMode.IDX}[mode]
    return gpu.ShuffleOp(value, offset, word(width), wanted).results[0]


# -------------------------------------------------------------------------------------------------- vectors


def elements(value: ir.Value) -> list[ir.Value]:
    """The elements of a vector, or a scalar as the only element."""
    if not isinstance(value.type, ir.VectorType):
        return [value]
    return [vector.extract(value, [], [i]) for i in range(value.type.shape[0])]
