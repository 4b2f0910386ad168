"""Thin functions over the MLIR bindings, so that the code of a kernel reads like its loops.

Sizes and indices are ints if they are known and `ir.Value`s of index type if not; arithmetic on ints happens in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias, overload

from ..core.mlir import arith, ir, llvm, memref, scf, vector

Index: TypeAlias = "ir.Value | int"  # the value is of index type
Condition: TypeAlias = "ir.Value | bool"  # the value is an i1


# ---------------------------------------------------------------------------------------------------- types


def integer(width: int) -> ir.Type:
    return ir.IntegerType.get_signless(width)


def vector_of(shape: int | Sequence[int], element: ir.Type) -> ir.Type:
    return ir.VectorType.get([shape] if isinstance(shape, int) else list(shape), element)


def attribute(value: float | int, t: ir.Type) -> ir.Attribute:
    return ir.FloatAttr.get(t, value) if isinstance(t, ir.FloatType) else ir.IntegerAttr.get(t, value)


def bits(t: ir.Type) -> int:
    """The width of a scalar type."""
    return int(t.width)


# -------------------------------------------------------------------------------------------------- indices


def index(value: Index) -> ir.Value:
    """An index as an IR value."""
    return arith.constant(ir.IndexType.get(), value) if isinstance(value, int) else value


def constant(value: float | int, t: ir.Type) -> ir.Value:
    return arith.constant(t, attribute(value, t))


def _arith(python: Callable[[int, int], int], op: str) -> Callable[[Index, Index], Index]:
    """An operation on indices: computed in Python if both are ints, else emitted as the `arith` op."""

    def compute(a: Index, b: Index) -> Index:
        return python(a, b) if isinstance(a, int) and isinstance(b, int) else getattr(arith, op)(index(a), index(b))

    return compute


_add = _arith(lambda a, b: a + b, "addi")
_multiply = _arith(lambda a, b: a * b, "muli")
_subtract = _arith(lambda a, b: a - b, "subi")
_divide = _arith(lambda a, b: a // b, "divui")
_remainder = _arith(lambda a, b: a % b, "remui")
minimum = _arith(min, "minui")
exclusive_or = _arith(lambda a, b: a ^ b, "xori")
bit_and = _arith(lambda a, b: a & b, "andi")


@overload
def add(a: int, b: int) -> int: ...
@overload
def add(a: Index, b: Index) -> Index: ...
def add(a: Index, b: Index) -> Index:
    if isinstance(a, int) and a == 0:
        return b
    return a if isinstance(b, int) and b == 0 else _add(a, b)


@overload
def multiply(a: int, b: int) -> int: ...
@overload
def multiply(a: Index, b: Index) -> Index: ...
def multiply(a: Index, b: Index) -> Index:
    if isinstance(a, int) and a == 1:
        return b
    return a if isinstance(b, int) and b == 1 else _multiply(a, b)


@overload
def subtract(a: int, b: int) -> int: ...
@overload
def subtract(a: Index, b: Index) -> Index: ...
def subtract(a: Index, b: Index) -> Index:
    return a if isinstance(b, int) and b == 0 else _subtract(a, b)


@overload
def divide(a: int, b: int) -> int: ...
@overload
def divide(a: Index, b: Index) -> Index: ...
def divide(a: Index, b: Index) -> Index:
    return a if isinstance(b, int) and b == 1 else _divide(a, b)


def remainder(a: Index, b: Index) -> Index:
    return 0 if isinstance(b, int) and b == 1 else _remainder(a, b)


def divide_up(a: Index, b: Index) -> Index:
    return divide(add(a, subtract(b, 1)), b)


def less(a: Index, b: Index) -> Condition:
    """`a < b`, an i1; a Python bool if both are ints."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return arith.cmpi(arith.CmpIPredicate.ult, index(a), index(b))


def equal(a: Index, b: Index) -> Condition:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return arith.cmpi(arith.CmpIPredicate.eq, index(a), index(b))


def both(a: Condition, b: Condition) -> Condition:
    """The conjunction of two conditions, each an i1 or a Python bool."""
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return arith.andi(a, b)


def condition(value: Condition) -> ir.Value:
    """A condition as an IR value."""
    return constant(int(value), integer(1)) if isinstance(value, bool) else value


def choose(test: Condition, a: Index, b: Index) -> Index:
    if isinstance(test, bool):
        return a if test else b
    return arith.select(test, index(a), index(b))


# ---------------------------------------------------------------------------------------------------- loops


class Loop:
    """One iteration of a loop: its index, the values it carries, and after the loop their last values."""

    def __init__(self, op: ir.OpView) -> None:
        self.index = op.induction_variable
        self.values = list(op.inner_iter_args)
        self.results = list(op.results)
        self.next: Sequence[ir.Value] = self.values


@contextmanager
def loop(
    start: Index, stop: Index, step: Index = 1, carried: Sequence[ir.Value] = (), rolled: bool = False
) -> Iterator[Loop]:
    """`for index in range(start, stop, step)`; set `next` to the carried values of the following iteration. LLVM does
    not unroll a loop that is `rolled`."""
    op = scf.ForOp(index(start), index(stop), index(step), list(carried))
    if rolled:
        op.attributes["llvm.loop_annotation"] = ir.Attribute.parse("#llvm.loop_annotation<unroll = <disable = true>>")
    with ir.InsertionPoint(op.body):
        body = Loop(op)
        yield body
        scf.YieldOp(list(body.next))


@contextmanager
def when(test: Condition) -> Iterator[None]:
    """Emit the body under the condition `test`, a bool or an i1; for True without an `scf.if`."""
    if isinstance(test, bool):
        if not test:
            raise AssertionError("code that never runs")
        yield
        return
    op = scf.IfOp(test)
    with ir.InsertionPoint(op.then_block):
        yield
        scf.YieldOp([])


def value_of(
    test: Condition, kind: ir.Type, then: Callable[[], ir.Value], otherwise: Callable[[], ir.Value]
) -> ir.Value:
    """The value that `then` emits if `test` (a bool or an i1) holds, else that of `otherwise`; of type `kind`."""
    if isinstance(test, bool):
        return then() if test else otherwise()
    op = scf.IfOp(test, [kind], has_else=True)
    for block, body in ((op.then_block, then), (op.else_block, otherwise)):
        with ir.InsertionPoint(block):
            scf.YieldOp([body()])
    return op.results[0]


def guarded(test: Condition, body: Callable[[], object]) -> None:
    """Emit `body` under the condition `test` (a bool or an i1); nothing if `test` is False."""
    if test is False:
        return
    with when(test):
        body()


# -------------------------------------------------------------------------------------------------- vectors


def splat(value: float | int, shape: int | Sequence[int], element: ir.Type) -> ir.Value:
    t = vector_of(shape, element)
    return arith.constant(t, ir.DenseElementsAttr.get_splat(t, attribute(value, element)))


def broadcast(scalar: ir.Value, lanes: int) -> ir.Value:
    return vector.broadcast(vector_of(lanes, scalar.type), scalar)


def lane(value: ir.Value, *position: int) -> ir.Value:
    """An element, or a row, of a vector."""
    return vector.ExtractOp(value, [], list(position)).result


def gathered(elements: Sequence[ir.Value]) -> ir.Value:
    """A vector of scalars."""
    return vector.FromElementsOp(vector_of(len(elements), elements[0].type), list(elements)).result


def load_run(memory: ir.Value, where: Sequence[Index], lanes: int) -> ir.Value:
    """Load `lanes` contiguous elements of a memref of scalars; the index of the first is a multiple of `lanes`."""
    element = ir.MemRefType(memory.type).element_type
    size = lanes * bits(element) // 8
    return vector.LoadOp(vector_of(lanes, element), memory, [index(i) for i in where], alignment=size).result


def store_run(value: ir.Value, memory: ir.Value, where: Sequence[Index]) -> None:
    """Store a vector or a scalar, with the alignment of `load_run`."""
    places = [index(i) for i in where]
    if not isinstance(value.type, ir.VectorType):
        memref.store(value, memory, places)
        return
    size = value.type.shape[0] * bits(value.type.element_type) // 8
    vector.StoreOp(value, memory, places, alignment=size)


def as_type(value: ir.Value, t: ir.Type) -> ir.Value:
    """Bitcast a vector to another vector type."""
    return value if value.type == t else vector.bitcast(t, value)


def as_pair(word: ir.Value, t: ir.Type) -> ir.Value:
    """Bitcast a 32-bit word to a vector of its halves or bytes."""
    return vector.bitcast(t, gathered([word]))


def as_word(value: ir.Value) -> ir.Value:
    """Bitcast a vector of 32 bits in total to one word."""
    return lane(vector.bitcast(vector_of(1, integer(32)), value), 0)


@overload
def intrinsic(name: str, arguments: Sequence[ir.Value], result: ir.Type) -> ir.Value: ...
@overload
def intrinsic(name: str, arguments: Sequence[ir.Value]) -> None: ...
def intrinsic(name: str, arguments: Sequence[ir.Value], result: ir.Type | None = None) -> ir.Value | None:
    op = llvm.CallIntrinsicOp(result, name, list(arguments), [], [])
    return op.operation.results[0] if result is not None else None
