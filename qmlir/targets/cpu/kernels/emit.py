"""Thin functions over the bindings, so that a kernel reads like its loops.

Sizes and indices are ints where they are known and `ir.Value`s of index type where not; arithmetic on ints happens in
Python. Addresses are `!llvm.ptr` and offsets count bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ...._mlir import arith, ir, llvm, memref, scf, vector

Index = Any  # int | ir.Value of index type


# ---------------------------------------------------------------------------------------------------- types


def integer(width: int) -> Any:
    return ir.IntegerType.get_signless(width)


def vector_of(lanes: int, element: Any) -> Any:
    return ir.VectorType.get([lanes], element)


def attribute(value: float | int, t: Any) -> Any:
    return ir.FloatAttr.get(t, value) if isinstance(t, ir.FloatType) else ir.IntegerAttr.get(t, value)


# -------------------------------------------------------------------------------------------------- indices


def index(value: Index) -> Any:
    """An index as an IR value."""
    return arith.constant(ir.IndexType.get(), value) if isinstance(value, int) else value


def constant(value: int, width: int) -> Any:
    """An integer for LLVM's ops, immediate operands of intrinsics among them."""
    return llvm.ConstantOp(integer(width), attribute(value, integer(width))).result


def _arith(python: Any, op: Any) -> Any:
    def compute(a: Index, b: Index) -> Index:
        return python(a, b) if isinstance(a, int) and isinstance(b, int) else op(index(a), index(b))

    return compute


add = _arith(lambda a, b: a + b, arith.addi)
subtract = _arith(lambda a, b: a - b, arith.subi)
multiply = _arith(lambda a, b: a * b, arith.muli)
divide = _arith(lambda a, b: a // b, arith.divui)
remainder = _arith(lambda a, b: a % b, arith.remui)
minimum = _arith(min, arith.minui)


def divide_up(a: Index, b: int) -> Index:
    return divide(add(a, b - 1), b)


def between(low: int, value: Index, high: int) -> Any:
    """`low <= value <= high`, an i1."""
    above = arith.cmpi(arith.CmpIPredicate.uge, index(value), index(low))
    return arith.andi(above, arith.cmpi(arith.CmpIPredicate.ule, index(value), index(high)))


def any_of(conditions: Sequence[Any]) -> Any:
    return reduce(arith.ori, conditions)


def none_of(conditions: Sequence[Any]) -> Any:
    return arith.xori(any_of(conditions), arith.constant(integer(1), 1))


# ---------------------------------------------------------------------------------------------------- loops


class Loop:
    """One iteration of a loop: its index, the values it carries, and after the loop their last values."""

    def __init__(self, op: Any) -> None:
        self.index = op.induction_variable
        self.values = list(op.inner_iter_args)
        self.results = list(op.results)
        self.next: Sequence[Any] = self.values


@contextmanager
def loop(start: Index, stop: Index, step: int = 1, carried: Sequence[Any] = ()) -> Iterator[Loop]:
    """`for index in range(start, stop, step)`; set `next` to what the following iteration gets."""
    op = scf.ForOp(index(start), index(stop), index(step), list(carried))
    with ir.InsertionPoint(op.body):
        body = Loop(op)
        yield body
        scf.YieldOp(list(body.next))


@contextmanager
def when(condition: Any) -> Iterator[None]:
    op = scf.IfOp(condition)
    with ir.InsertionPoint(op.then_block):
        yield
        scf.YieldOp([])


def either(condition: Any, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
    op = scf.IfOp(condition, has_else=True)
    for block, body in ((op.then_block, then), (op.else_block, otherwise)):
        with ir.InsertionPoint(block):
            body()
            scf.YieldOp([])


# -------------------------------------------------------------------------------------------------- vectors


def splat(value: float | int, lanes: int, element: Any) -> Any:
    t = vector_of(lanes, element)
    return arith.constant(t, ir.DenseElementsAttr.get_splat(t, attribute(value, element)))


def bytes_constant(values: Sequence[int]) -> Any:
    """A vector of bytes."""
    array = np.array(values, np.uint8).view(np.int8)
    t = vector_of(len(array), integer(8))
    return arith.constant(t, ir.DenseElementsAttr.get(array, type=t))


def broadcast(scalar: Any, lanes: int) -> Any:
    return vector.broadcast(vector_of(lanes, scalar.type), scalar)


def as_bytes(value: Any) -> Any:
    """A vector of i32 as bytes."""
    return vector.bitcast(vector_of(4 * value.type.shape[0], integer(8)), value)


def as_words(value: Any) -> Any:
    """A vector of bytes as i32."""
    return vector.bitcast(vector_of(value.type.shape[0] // 4, integer(32)), value)


def intrinsic(name: str, arguments: Sequence[Any], result: Any = None) -> Any:
    op = llvm.CallIntrinsicOp(result, name, list(arguments), [], [])
    return op.operation.results[0] if result is not None else None


# ------------------------------------------------------------------------------------------------- addresses


def scratch(shape: Sequence[int], element: Any) -> Any:
    """A buffer on the stack, as a memref."""
    return memref.AllocaOp(ir.MemRefType.get(list(shape), element), [], [], alignment=64).result


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory, rows one behind the other: the address of its first element, and its sizes."""

    address: Any
    element: Any
    shape: tuple[Index, ...]

    def offset(self, where: Sequence[Index]) -> Index:
        """Bytes from the first element to another."""
        flat: Index = 0
        for size, i in zip(self.shape, where, strict=True):
            flat = add(multiply(flat, size), i)
        return multiply(flat, self.element.width // 8)


def address_of(memory: Any) -> Any:
    """The address of a memref's first element, i64."""
    return arith.index_cast(integer(64), memref.ExtractAlignedPointerAsIndexOp(memory).result)


def address(word: Any) -> Any:
    """An i64 as an address."""
    return llvm.IntToPtrOp(ir.Type.parse("!llvm.ptr"), word).result


def pointer(buffer: Any) -> Any:
    """The address of the first element of a buffer or of a memref."""
    return buffer.address if isinstance(buffer, Buffer) else address(address_of(buffer))


_DYNAMIC = -(2**31)  # in the constant indices of getelementptr: "the next operand"


def at(base: Any, offset: Index) -> Any:
    """The address `offset` bytes behind `base`."""
    if isinstance(offset, int) and offset == 0:
        return base
    dynamic = [] if isinstance(offset, int) else [arith.index_cast(integer(64), offset)]
    constants = [offset if isinstance(offset, int) else _DYNAMIC]
    return llvm.GEPOp(base.type, base, dynamic, constants, integer(8), None).result


def load(t: Any, address: Any) -> Any:
    """A load that asks for no alignment."""
    return llvm.LoadOp(t, address, alignment=1).result


def store(value: Any, address: Any) -> None:
    llvm.StoreOp(value, address, alignment=1)


def prefetch(address: Any, locality: int) -> None:
    """Locality 3 brings a line to every level, 2 to the second."""
    intrinsic("llvm.prefetch", [address, constant(0, 32), constant(locality, 32), constant(1, 32)])


def load_vector(buffer: Buffer, where: Sequence[Index], lanes: int, mask: Any = None) -> Any:
    """Elements of a row of a buffer, zeros where the mask is false."""
    t, address = vector_of(lanes, buffer.element), at(buffer.address, buffer.offset(where))
    if mask is None:
        return load(t, address)
    return llvm.MaskedLoadOp(t, address, mask, pass_thru=splat(0, lanes, buffer.element), alignment=1).result


def store_vector(value: Any, buffer: Buffer, where: Sequence[Index], mask: Any = None) -> None:
    address = at(buffer.address, buffer.offset(where))
    if mask is None:
        store(value, address)
    else:
        llvm.MaskedStoreOp(value, address, mask, alignment=1)


def load_element(buffer: Buffer, where: Sequence[Index]) -> Any:
    return load(buffer.element, at(buffer.address, buffer.offset(where)))


def store_element(value: Any, buffer: Buffer, where: Sequence[Index]) -> None:
    store(value, at(buffer.address, buffer.offset(where)))


def first_lanes(count: Index, lanes: int) -> Any:
    """A mask with the first `count` lanes set."""
    return vector.create_mask(vector_of(lanes, integer(1)), [index(count)])
