"""Emit helpers of CPU kernels, in addition to `qmlir/kernels/emit.py`: LLVM's addresses, and vectors in memory.

Addresses are `!llvm.ptr` and offsets count bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from ....core.mlir import arith, ir, llvm, memref, scf, vector
from ....ir.attributes import pointer_type
from ....kernels.emit import (
    Index as Index,
    Loop as Loop,
    add as add,
    attribute as attribute,
    broadcast as broadcast,
    divide as divide,
    divide_up as divide_up,
    equal as equal,
    index as index,
    integer as integer,
    intrinsic as intrinsic,
    loop as loop,
    minimum as minimum,
    multiply as multiply,
    remainder as remainder,
    splat as splat,
    subtract as subtract,
    vector_of as vector_of,
    when as when,
)

# -------------------------------------------------------------------------------------------------- indices


def constant(value: int, width: int) -> ir.Value:
    """An integer constant for LLVM's ops, including immediate operands of intrinsics."""
    return llvm.ConstantOp(integer(width), attribute(value, integer(width))).result


def between(low: int, value: Index, high: int) -> ir.Value:
    """`low <= value <= high`, an i1."""
    above = arith.cmpi(arith.CmpIPredicate.uge, index(value), index(low))
    return arith.andi(above, arith.cmpi(arith.CmpIPredicate.ule, index(value), index(high)))


def at_most(low: Index, value: Index) -> ir.Value:
    """`low <= value`, an i1."""
    return arith.cmpi(arith.CmpIPredicate.ule, index(low), index(value))


def any_of(conditions: Sequence[ir.Value]) -> ir.Value:
    return reduce(arith.ori, conditions)


def all_of(conditions: Sequence[ir.Value]) -> ir.Value:
    return reduce(arith.andi, conditions)


def none_of(conditions: Sequence[ir.Value]) -> ir.Value:
    return arith.xori(any_of(conditions), arith.constant(integer(1), 1))


# ---------------------------------------------------------------------------------------------------- loops


def either(condition: ir.Value, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
    op = scf.IfOp(condition, has_else=True)
    for block, body in ((op.then_block, then), (op.else_block, otherwise)):
        with ir.InsertionPoint(block):
            body()
            scf.YieldOp([])


# -------------------------------------------------------------------------------------------------- vectors


def bytes_constant(values: Sequence[int]) -> ir.Value:
    """A vector of bytes."""
    array = np.array(values, np.uint8).view(np.int8)
    t = vector_of(len(array), integer(8))
    return arith.constant(t, ir.DenseElementsAttr.get(array, type=t))


def as_bytes(value: ir.Value) -> ir.Value:
    """A vector of i32 as bytes."""
    return vector.bitcast(vector_of(4 * value.type.shape[0], integer(8)), value)


def as_words(value: ir.Value) -> ir.Value:
    """A vector of bytes as i32."""
    return vector.bitcast(vector_of(value.type.shape[0] // 4, integer(32)), value)


# ------------------------------------------------------------------------------------------------- addresses

LINE = 64  # bytes of a cache line


def scratch(shape: Sequence[int], element: ir.Type) -> ir.Value:
    """A buffer on the stack, as a memref."""
    return memref.AllocaOp(ir.MemRefType.get(list(shape), element), [], [], alignment=64).result


@dataclass(frozen=True)
class Buffer:
    """A contiguous row-major tensor in memory: the address of its first element, and its sizes."""

    address: ir.Value
    element: ir.Type
    shape: tuple[Index, ...]

    def offset(self, where: Sequence[Index]) -> Index:
        """The offset in bytes of an element."""
        flat: Index = 0
        for size, i in zip(self.shape, where, strict=True):
            flat = add(multiply(flat, size), i)
        return multiply(flat, self.element.width // 8)


def address_of(memory: ir.Value) -> ir.Value:
    """The address of a memref's first element, i64."""
    return arith.index_cast(integer(64), memref.ExtractAlignedPointerAsIndexOp(memory).result)


def address(word: ir.Value) -> ir.Value:
    """An i64 as an address."""
    return llvm.IntToPtrOp(pointer_type(), word).result


def pointer(buffer: Buffer | ir.Value) -> ir.Value:
    """The address of the first element of a buffer or of a memref."""
    return buffer.address if isinstance(buffer, Buffer) else address(address_of(buffer))


_DYNAMIC = -(2**31)  # in the constant indices of getelementptr: "the next operand"


def at(base: ir.Value, offset: Index) -> ir.Value:
    """The address `offset` bytes behind `base`."""
    if isinstance(offset, int) and offset == 0:
        return base
    dynamic = [] if isinstance(offset, int) else [arith.index_cast(integer(64), offset)]
    constants = [offset if isinstance(offset, int) else _DYNAMIC]
    return llvm.GEPOp(base.type, base, dynamic, constants, integer(8), None).result


def load(t: ir.Type, address: ir.Value) -> ir.Value:
    """An unaligned load."""
    return llvm.LoadOp(t, address, alignment=1).result


def reload(t: ir.Type, address: ir.Value) -> ir.Value:
    """A load that LLVM does not replace with the value of an earlier load, for cases where no register is free to keep
    that value."""
    return llvm.LoadOp(t, address, alignment=1, volatile_=True).result


def store(value: ir.Value, address: ir.Value) -> None:
    llvm.StoreOp(value, address, alignment=1)


def stream(value: ir.Value, address: ir.Value) -> None:
    """A non-temporal store of whole cache lines; a fence has to precede reads by other threads."""
    llvm.StoreOp(value, address, alignment=LINE, nontemporal=True)


def starts_line(address: ir.Value) -> ir.Value:
    """Whether an address is aligned to a cache line, an i1."""
    word = llvm.PtrToIntOp(integer(64), address).result
    inside = arith.andi(word, arith.constant(integer(64), LINE - 1))
    return arith.cmpi(arith.CmpIPredicate.eq, inside, arith.constant(integer(64), 0))


def prefetch(address: ir.Value, locality: int) -> None:
    """Prefetch a cache line: with locality 3 to every level, with 2 to the second."""
    intrinsic("llvm.prefetch", [address, constant(0, 32), constant(locality, 32), constant(1, 32)])


def load_lanes(t: ir.Type, address: ir.Value, mask: ir.Value | None) -> ir.Value:
    """Load a vector; lanes whose mask is false are zero, and are not read."""
    if mask is None:
        return load(t, address)
    zero = splat(0, t.shape[0], t.element_type)
    return llvm.MaskedLoadOp(t, address, mask, pass_thru=zero, alignment=1).result


def store_lanes(value: ir.Value, address: ir.Value, mask: ir.Value | None) -> None:
    """Store the lanes of a vector whose mask is true."""
    if mask is None:
        store(value, address)
    else:
        llvm.MaskedStoreOp(value, address, mask, alignment=1)


def load_vector(buffer: Buffer, where: Sequence[Index], lanes: int, mask: ir.Value | None = None) -> ir.Value:
    """Load neighbouring elements of a row of a buffer; lanes whose mask is false are zero."""
    return load_lanes(vector_of(lanes, buffer.element), at(buffer.address, buffer.offset(where)), mask)


def store_vector(value: ir.Value, buffer: Buffer, where: Sequence[Index], mask: ir.Value | None = None) -> None:
    store_lanes(value, at(buffer.address, buffer.offset(where)), mask)


def load_element(buffer: Buffer, where: Sequence[Index]) -> ir.Value:
    return load(buffer.element, at(buffer.address, buffer.offset(where)))


def lanes_between(low: Index, high: Index, lanes: int) -> ir.Value:
    """A mask with the lanes from `low` up to, not including, `high` set; both may be larger than `lanes`, which is at
    most 64. Takes two shifts in a general register; comparing lane numbers would take a vector for every 16 lanes."""
    word = integer(64)

    def below(count: Index) -> ir.Value:
        """The lowest `count` bits."""
        number = arith.index_cast(word, index(count))
        full = arith.constant(word, -1)
        some = arith.xori(arith.shli(full, number), full)
        return arith.select(arith.cmpi(arith.CmpIPredicate.ult, number, arith.constant(word, 64)), some, full)

    bits = arith.andi(below(high), arith.xori(below(low), arith.constant(word, -1)))
    narrow = bits if lanes == 64 else arith.trunci(integer(lanes), bits)
    return llvm.BitcastOp(vector_of(lanes, integer(1)), narrow).result


def first_lanes(count: Index, lanes: int) -> ir.Value:
    """A mask with the first `count` lanes set."""
    return vector.create_mask(vector_of(lanes, integer(1)), [index(count)])
