"""Thin functions over the bindings, so that a kernel reads like its loops.

Sizes and indices are ints where they are known and `ir.Value`s of index type where not; arithmetic on ints happens in
Python. A "word" is an i32 with four codes, the first in its lowest bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..._mlir import arith, gpu, ir, memref, scf, vector

Index = Any  # int | ir.Value of index type


def integer(width: int) -> Any:
    return ir.IntegerType.get_signless(width)


def vector_of(lanes: int, element: Any) -> Any:
    return ir.VectorType.get([lanes], element)


def index(value: Index) -> Any:
    """An index as an IR value."""
    return arith.constant(ir.IndexType.get(), value) if isinstance(value, int) else value


def word(value: int) -> Any:
    """A constant of 32 bits."""
    return arith.constant(integer(32), value - (1 << 32) if value >= 1 << 31 else value)


def zero(t: Any) -> Any:
    """Zero of a scalar or vector type."""
    if isinstance(t, ir.VectorType):
        return arith.constant(t, ir.DenseElementsAttr.get_splat(t, attribute(0, t.element_type)))
    return arith.constant(t, attribute(0, t))


def attribute(value: float, t: Any) -> Any:
    if isinstance(t, ir.FloatType):
        return ir.FloatAttr.get(t, float(value))
    return ir.IntegerAttr.get(t, int(value))


# -------------------------------------------------------------------------------------------------- indices


def add(a: Index, b: Index) -> Index:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if isinstance(a, int) and a == 0:
        return b
    if isinstance(b, int) and b == 0:
        return a
    return arith.addi(index(a), index(b))


def subtract(a: Index, b: Index) -> Index:
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    return a if isinstance(b, int) and b == 0 else arith.subi(index(a), index(b))


def multiply(a: Index, b: Index) -> Index:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if isinstance(a, int):
        a, b = b, a
    return a if isinstance(b, int) and b == 1 else arith.muli(index(a), index(b))


def divide(a: Index, b: int) -> Index:
    if isinstance(a, int):
        return a // b
    return a if b == 1 else arith.divui(a, index(b))


def remainder(a: Index, b: int) -> Index:
    if isinstance(a, int):
        return a % b
    return 0 if b == 1 else arith.remui(a, index(b))


def minimum(a: Index, b: Index) -> Index:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return arith.minui(index(a), index(b))


def divide_up(a: Index, b: int) -> Index:
    return divide(add(a, b - 1), b)


def below(a: Index, b: Index) -> Any:
    """`a < b`: a bool where both are known, else an i1."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return arith.cmpi(arith.CmpIPredicate.ult, index(a), index(b))


def both(a: Any, b: Any) -> Any:
    """The conjunction of two conditions, each a bool or an i1."""
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return arith.andi(a, b)


# ---------------------------------------------------------------------------------------------------- loops


class Loop:
    """One iteration of a loop: its index, the values it carries, and after the loop their last values."""

    def __init__(self, op: Any) -> None:
        self.index = op.induction_variable
        self.values = list(op.inner_iter_args)
        self.results = list(op.results)
        self.next: Sequence[Any] = self.values


@contextmanager
def loop(start: Index, stop: Index, step: Index = 1, carried: Sequence[Any] = ()) -> Iterator[Loop]:
    """`for index in range(start, stop, step)`; set `next` to what the following iteration gets."""
    op = scf.ForOp(index(start), index(stop), index(step), list(carried))
    with ir.InsertionPoint(op.body):
        body = Loop(op)
        yield body
        scf.YieldOp(list(body.next))


@contextmanager
def when(condition: Any) -> Iterator[None]:
    """Only where `condition`, a bool or an i1; nothing is emitted where it is known to be true."""
    if isinstance(condition, bool):
        if not condition:
            raise AssertionError("code that never runs")
        yield
        return
    op = scf.IfOp(condition)
    with ir.InsertionPoint(op.then_block):
        yield
        scf.YieldOp([])


# -------------------------------------------------------------------------------------------- threads, memory


def thread() -> Any:
    """The number of the thread in its workgroup, which has one dimension."""
    return gpu.thread_id(gpu.Dimension.x)


def block(axis: int) -> Any:
    """The number of the workgroup along an axis of the grid."""
    return gpu.block_id((gpu.Dimension.x, gpu.Dimension.y, gpu.Dimension.z)[axis])


def barrier() -> None:
    gpu.barrier()


def shared(shape: Sequence[int], element: Any) -> Any:
    """Memory that a workgroup shares."""
    space = ir.Attribute.parse("#gpu.address_space<workgroup>")
    return memref.AllocOp(ir.MemRefType.get(list(shape), element, memory_space=space), [], []).result


def load(memory: Any, where: Sequence[Index]) -> Any:
    return memref.load(memory, [index(i) for i in where])


def store(value: Any, memory: Any, where: Sequence[Index]) -> None:
    memref.store(value, memory, [index(i) for i in where])


def shuffle(value: Any, offset: Any, width: int, mode: str) -> Any:
    """The value of another lane of the subgroup: `mode` "xor" or "idx"; i32 or f32."""
    wanted = {"xor": gpu.ShuffleMode.XOR, "idx": gpu.ShuffleMode.IDX}[mode]
    return gpu.ShuffleOp(value, offset, word(width), wanted).results[0]


# -------------------------------------------------------------------------------------------------- vectors


def elements(value: Any) -> list[Any]:
    """The elements of a vector; a scalar is one."""
    if not isinstance(value.type, ir.VectorType):
        return [value]
    return [vector.extract(value, [], [i]) for i in range(value.type.shape[0])]


def gathered(values: Sequence[Any]) -> Any:
    """Scalars as a vector."""
    return vector.from_elements(vector_of(len(values), values[0].type), list(values))


def broadcast(scalar: Any, lanes: int) -> Any:
    return vector.broadcast(vector_of(lanes, scalar.type), scalar)
