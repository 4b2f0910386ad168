"""The caller's side: an executable of one workgroup whose chunks threads share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ....core.mlir import arith, func, ir, llvm, memref, scf
from ....ir.attributes import pointer_type
from . import atomics as a, board, cost as cost_model

# Emits the work of one chunk, given its number (index) and the words that `share` was given, reloaded.
WorkBody: TypeAlias = "Callable[[ir.Value, list[ir.Value]], None]"

_TOTAL, _WORDS = 0, 8  # offsets in the frame

_I64 = "i64"


def share(
    name: str,
    module: ir.Block,
    team: ir.Value,
    total: ir.Value,
    cost: ir.Value,
    words: Sequence[ir.Value],
    body: WorkBody,
) -> None:
    """Emit, at the insertion point, `body` for every chunk in `range(total)`, on this thread and on helpers.

    Args:
        name: of the kernel; functions of that name with a suffix are added to `module`.
        module: the block of the kernel's module.
        team: i64, the address of the board; at 0 there are no helpers.
        total: i64, how many chunks; the chunks of one call may be done in any order and at the same time.
        cost: i64, about how many nanoseconds all chunks take on one thread.
        words: i64 values that the body needs: addresses and sizes.
    """
    with ir.InsertionPoint(module):
        _chunk_function(f"{name}_chunk", len(words), body)
        _share_function(f"{name}_share", f"{name}_chunk")
        _job_function(f"{name}_job", f"{name}_share")
    frame = _frame(total, words)
    useful = arith.andi(a.differ(team, a.constant(0)), a.less(a.constant(1), total))
    useful = arith.andi(useful, a.less(a.constant(cost_model.FORK_NS - 1), cost))

    def take() -> list[ir.Value]:
        was = a.exchange(a.word(a.as_pointer(team), board.LOCK), a.constant(1))
        return [a.equal(was, a.constant(0))]

    bit = ir.IntegerType.get_signless(1)
    (mine,) = a.either(useful, take, lambda: [a.constant(0, 1)], [bit])

    a.either(mine, lambda: _with_helpers(name, team, frame, total, cost), lambda: _alone(name, frame, total), [])


def by_turns(
    name: str, module: ir.Block, number: ir.Value, step: ir.Value, total: ir.Value, words: Sequence[ir.Value],
    body: WorkBody,
) -> None:  # fmt: skip
    """As `share`, without helpers: this call computes every `step`-th chunk from `number` on, both of index type."""
    with ir.InsertionPoint(module):
        _chunk_function(f"{name}_chunk", len(words), body)
    _chunks_of(name, _frame(total, words), number, total, step)


def _alone(name: str, frame: ir.Value, total: ir.Value) -> None:
    index = ir.IndexType.get()
    _chunks_of(name, frame, arith.constant(index, 0), total, arith.constant(index, 1))


def _chunks_of(name: str, frame: ir.Value, first: ir.Value, total: ir.Value, step: ir.Value) -> None:
    op = scf.ForOp(first, arith.index_cast(ir.IndexType.get(), total), step)
    with ir.InsertionPoint(op.body):
        number = arith.index_cast(_type(), op.induction_variable)
        func.CallOp([], f"{name}_chunk", [frame, number])
        scf.YieldOp([])


def _type() -> ir.Type:
    return ir.Type.parse(_I64)


def _private(name: str, types: Sequence[ir.Type]) -> ir.OpView:
    """A function of the kernel's module that is not an entry point: its arguments are passed as C passes them."""
    made = func.FuncOp(name, ir.FunctionType.get(list(types), []), visibility="private")
    made.attributes["llvm.bareptr"] = ir.BoolAttr.get(True)
    return made


def _chunk_function(name: str, count: int, body: WorkBody) -> None:
    """`(frame, chunk)`: the work of one chunk."""
    made = _private(name, [pointer_type(), _type()])
    # It has two callers; inlined into both, its buffers would not fit the stack of IREE's threads.
    made.attributes["no_inline"] = ir.UnitAttr.get()
    with ir.InsertionPoint(made.add_entry_block()):
        frame, number = made.arguments
        # Volatile: if LLVM inlined this function, it would know again that IREE aligns its buffers, and would use
        # aligned loads. Buffers that a caller lends (qmlir/kernels/zero_copy.py) are not aligned.
        words = [
            llvm.LoadOp(_type(), a.word(frame, _WORDS + 8 * i), alignment=8, volatile_=True).result
            for i in range(count)
        ]
        body(arith.index_cast(ir.IndexType.get(), number), words)
        func.ReturnOp([])


def _share_function(name: str, chunk: str) -> None:
    """`(board, frame, participant)`: run chunks of the participant's range, then of the others', until none is left."""
    made = _private(name, [pointer_type(), pointer_type(), _type()])
    with ir.InsertionPoint(made.add_entry_block()):
        place, frame, who = made.arguments
        total = llvm.LoadOp(_type(), a.word(frame, _TOTAL), alignment=8).result
        people = a.get(a.word(place, board.PEOPLE))
        index = ir.IndexType.get()
        op = scf.ForOp(arith.constant(index, 0), arith.index_cast(index, people), arith.constant(index, 1))
        with ir.InsertionPoint(op.body):
            next_one = arith.addi(who, arith.index_cast(_type(), op.induction_variable))
            over = a.less(next_one, people)
            owner = arith.select(over, next_one, arith.subi(next_one, people))
            first = arith.divui(arith.muli(owner, total), people)
            last = arith.divui(arith.muli(arith.addi(owner, a.constant(1)), total), people)
            offset = arith.addi(arith.muli(owner, a.constant(board.LINE)), a.constant(board.COUNTERS))
            counter = a.word(place, offset)

            def claim(_: list[ir.Value]) -> tuple[ir.Value, list[ir.Value]]:
                number = arith.addi(first, a.add(counter, a.constant(1)))
                return a.less(number, last), [number]

            def work(values: list[ir.Value]) -> list[ir.Value]:
                func.CallOp([], chunk, [frame, values[0]])
                return []

            a.loop(claim, work, [], [_type()])
            scf.YieldOp([])
        func.ReturnOp([])


def _job_function(name: str, share_name: str) -> None:
    """The function that helpers call by its address: `(board, participant)`."""
    made = llvm.LLVMFuncOp(
        name, ir.TypeAttr.get(ir.Type.parse("!llvm.func<void (ptr, i64)>")), sym_visibility="private"
    )
    block = made.body.blocks.append(pointer_type(), _type())
    with ir.InsertionPoint(block):
        place, who = block.arguments
        frame = a.as_pointer(a.get(a.word(place, board.FRAME)))
        func.CallOp([], share_name, [place, frame, who])
        llvm.ReturnOp()


def _frame(total: ir.Value, words: Sequence[ir.Value]) -> ir.Value:
    """The frame that chunks read, on the caller's stack: the caller returns only after its helpers have finished."""
    size = _WORDS + 8 * len(words)
    buffer = memref.AllocaOp(ir.MemRefType.get([size], ir.IntegerType.get_signless(8)), [], [], alignment=64).result
    address = arith.index_cast(_type(), memref.ExtractAlignedPointerAsIndexOp(buffer).result)
    frame = a.as_pointer(address)
    for offset, value in [(_TOTAL, total), *((_WORDS + 8 * i, w) for i, w in enumerate(words))]:
        llvm.StoreOp(value, a.word(frame, offset), alignment=8)
    return frame


def _with_helpers(name: str, team: ir.Value, frame: ir.Value, total: ir.Value, cost: ir.Value) -> None:
    """With the lock held: put the job on the board, work, and wait for the helpers that joined."""
    place = a.as_pointer(team)

    def at(offset: int) -> ir.Value:
        return a.word(place, offset)

    address = llvm.AddressOfOp(pointer_type(), f"{name}_job").result
    people = a.get(at(board.PARTICIPANTS))
    helpers, others = arith.subi(people, a.constant(1)), arith.subi(total, a.constant(1))
    for value, offset in (
        (a.as_word(address), board.JOB),
        (a.as_word(frame), board.FRAME),
        (arith.minui(helpers, others), board.ROOM),
        (people, board.PEOPLE),
        (a.cpu(), board.CALLER_CPU),
        (a.constant(0), board.LEFT),
    ):
        a.put(value, at(offset))
    index = ir.IndexType.get()
    op = scf.ForOp(arith.constant(index, 0), arith.index_cast(index, people), arith.constant(index, 1))
    with ir.InsertionPoint(op.body):
        number = arith.index_cast(_type(), op.induction_variable)
        counter = arith.addi(arith.muli(number, a.constant(board.LINE)), a.constant(board.COUNTERS))
        a.put(a.constant(0), a.word(place, counter))
        scf.YieldOp([])
    epoch = arith.addi(arith.shrui(a.get(at(board.GATE)), a.constant(board.EPOCH_SHIFT)), a.constant(1))
    opened = arith.ori(arith.shli(epoch, a.constant(board.EPOCH_SHIFT)), a.constant(board.OPEN))
    a.exchange(at(board.GATE), opened)
    # Open the gate, then read the sleepers: a helper counts itself as a sleeper, then reads the gate for the last time.
    a.when(a.differ(a.get_in_order(at(board.SLEEPERS)), a.constant(0)), lambda: _wake(place, cost))
    func.CallOp([], f"{name}_share", [place, frame, a.constant(0)])
    closed = a.keep(at(board.GATE), a.constant(~board.OPEN))
    _wait(at(board.LEFT), arith.andi(closed, a.constant(board.ENTERED)))
    a.put(a.constant(0), at(board.LOCK))


def _wake(place: ir.Value, cost: ir.Value) -> None:
    """Wake the sleepers if enough work has run without them."""
    missed = arith.addi(a.get(a.word(place, board.MISSED)), cost)

    def wake() -> list[ir.Value]:
        futex = a.word(place, board.WAKES)
        a.add(futex, a.constant(1, 32))
        a.wake_all(futex)
        return [a.constant(0)]

    (left,) = a.either(a.less(missed, a.constant(cost_model.WAKE_NS)), lambda: [missed], wake, [_type()])
    a.put(left, a.word(place, board.MISSED))


_MAX_PAUSES = 2048  # pauses before the caller yields its CPU, which a helper without one may need


def _wait(counter: ir.Value, value: ir.Value) -> None:
    def waiting(carried: list[ir.Value]) -> tuple[ir.Value, list[ir.Value]]:
        return a.differ(a.get(counter), value), carried

    def pause(values: list[ir.Value]) -> list[ir.Value]:
        a.pause()
        a.when(a.less(a.constant(_MAX_PAUSES), values[0]), a.give_way)
        return [arith.addi(values[0], a.constant(1))]

    a.loop(waiting, pause, [a.constant(0)], [_type()])
