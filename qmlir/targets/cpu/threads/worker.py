"""The helper's side: a program that a helper thread calls once and that returns when the team ends."""

from __future__ import annotations

from ....core.mlir import arith, flow, func, ir, llvm, memref, stream
from ....ir.attributes import entry_points
from . import atomics as a, board


def module() -> ir.Module:
    """The program, `@main(tensor<2xi64>) -> tensor<1xi64>`, of the board's address and this helper's number, from 1."""
    i64, index = ir.IntegerType.get_signless(64), ir.IndexType.get()
    made = ir.Module.create()
    given, done = ir.RankedTensorType.get([2], i64), ir.RankedTensorType.get([1], i64)
    with ir.InsertionPoint(made.body):
        executable = stream.ExecutableOp("helper", sym_visibility="private")
        with ir.InsertionPoint(executable.regions[0].blocks.append()):
            export = stream.ExecutableExportOp("helper", "helper", sym_visibility="public")
            with ir.InsertionPoint(export.regions[0].blocks.append()):
                one = arith.constant(index, 1)
                stream.ReturnOp([one, one, one])
            inner = ir.Operation.create("builtin.module", regions=1)
            with ir.InsertionPoint(inner.regions[0].blocks.append()):
                _helper()
            stream.ExecutableEndOp()
        main = func.FuncOp("main", ir.FunctionType.get([given], [done]))
        with ir.InsertionPoint(main.add_entry_block()):
            entry = entry_points("@helper::@helper")
            func.ReturnOp([flow.DispatchOp([done], [], entry, [main.arguments[0]], [], []).results[0]])
    return made


def _helper() -> None:
    i64, binding = ir.IntegerType.get_signless(64), ir.Type.parse("!stream.binding")
    made = func.FuncOp("helper", ir.FunctionType.get([binding, binding], []))
    with ir.InsertionPoint(made.add_entry_block()):
        zero = arith.constant(ir.IndexType.get(), 0)
        one = arith.constant(ir.IndexType.get(), 1)
        given = stream.BindingSubspanOp(ir.MemRefType.get([2], i64), made.arguments[0], zero, []).result
        done = stream.BindingSubspanOp(ir.MemRefType.get([1], i64), made.arguments[1], zero, []).result
        place = a.as_pointer(memref.load(given, [zero]))
        who = memref.load(given, [one])
        memref.store(who, done, [zero])
        _serve(place, who)
        func.ReturnOp([])


def _serve(place: ir.Value, who: ir.Value) -> None:
    """Join every job that has room for another helper; while there is none, spin, then sleep."""
    i64 = ir.IntegerType.get_signless(64)
    mask = _mask_buffer()

    def at(offset: int) -> ir.Value:
        return a.word(place, offset)

    def epoch_of(gate: ir.Value) -> ir.Value:
        return arith.shrui(gate, a.constant(board.EPOCH_SHIFT))

    def is_new(gate: ir.Value, last: ir.Value) -> ir.Value:
        open_ = a.differ(arith.andi(gate, a.constant(board.OPEN)), a.constant(0))
        return arith.andi(open_, a.differ(epoch_of(gate), last))

    def running(carried: list[ir.Value]) -> tuple[ir.Value, list[ir.Value]]:
        return a.equal(a.get(at(board.STOP)), a.constant(0)), carried

    def turn(carried: list[ir.Value]) -> list[ir.Value]:
        last, since = carried
        gate = a.get(at(board.GATE))
        return a.either(is_new(gate, last), lambda: joined(gate, last), lambda: idle(last, since), [i64, i64])

    def joined(gate: ir.Value, last: ir.Value) -> list[ir.Value]:
        epoch = epoch_of(gate)
        a.when(a.equal(a.cpu(), a.get(at(board.CALLER_CPU))), lambda: _leave_cpu(place, mask))
        now = a.get(at(board.GATE))
        same = arith.andi(is_new(now, last), a.equal(epoch_of(now), epoch))
        room = a.less(arith.andi(now, a.constant(board.ENTERED)), a.get(at(board.ROOM)))
        bit = ir.IntegerType.get_signless(1)

        def enter() -> list[ir.Value]:
            return [a.replace(at(board.GATE), now, arith.addi(now, a.constant(1)))]

        (entered,) = a.either(arith.andi(same, room), enter, lambda: [a.constant(0, 1)], [bit])

        def work() -> None:
            a.call(a.get(at(board.JOB)), a.as_word(place), who)
            a.add(at(board.JOINED), a.constant(1))
            a.add(at(board.LEFT), a.constant(1))

        a.when(entered, work)
        # Try again if another helper entered at the same moment, but not if the gate is full or closed.
        finished = arith.ori(entered, arith.xori(arith.andi(same, room), a.constant(1, 1)))
        return [arith.select(finished, epoch, last), a.cycles()]

    def idle(last: ir.Value, since: ir.Value) -> list[ir.Value]:
        for _ in range(4):
            a.pause()
        late = a.less(a.get(at(board.PATIENCE)), arith.subi(a.cycles(), since))
        (start,) = a.either(late, lambda: sleep(last), lambda: [since], [i64])
        return [last, start]

    def sleep(last: ir.Value) -> list[ir.Value]:
        wakes = a.get(at(board.WAKES), 32)
        a.add(at(board.SLEEPERS), a.constant(1))
        nothing = arith.xori(is_new(a.get_in_order(at(board.GATE)), last), a.constant(1, 1))
        stays = arith.andi(nothing, a.equal(a.get_in_order(at(board.STOP)), a.constant(0)))

        def asleep() -> None:
            a.add(at(board.SLEPT), a.constant(1))
            a.sleep_while(at(board.WAKES), wakes)

        a.when(stays, asleep)
        a.add(at(board.SLEEPERS), a.constant(-1))
        return [a.cycles()]

    a.loop(running, turn, [a.constant(0), a.cycles()], [i64, i64])


def _mask_buffer() -> ir.Value:
    i8 = ir.IntegerType.get_signless(8)
    buffer = memref.AllocaOp(ir.MemRefType.get([board.CPU_MASK_BYTES], i8), [], [], alignment=64).result
    address = memref.ExtractAlignedPointerAsIndexOp(buffer).result
    return a.as_pointer(arith.index_cast(ir.IntegerType.get_signless(64), address))


def _leave_cpu(place: ir.Value, mask: ir.Value) -> None:
    """Move this thread to any CPU of the process except the caller's: two threads that wait for each other on one CPU
    are separated by Linux's load balancer only after milliseconds. If the process has one CPU, the thread stays."""
    i64 = ir.IntegerType.get_signless(64)
    cpu = a.get(a.word(place, board.CALLER_CPU))
    taken, rest = arith.shrui(cpu, a.constant(6)), arith.andi(cpu, a.constant(63))
    any_left = a.constant(0)
    for i in range(board.CPU_MASK_BYTES // 8):
        allowed = llvm.LoadOp(i64, a.word(place, board.CPU_MASK + 8 * i), alignment=8).result
        bit = arith.shli(a.constant(1), rest)
        here = arith.select(a.equal(taken, a.constant(i)), bit, a.constant(0))
        left = arith.andi(allowed, arith.xori(here, a.constant(-1)))
        llvm.StoreOp(left, a.word(mask, 8 * i), alignment=8)
        any_left = arith.ori(any_left, left)
    a.when(a.differ(any_left, a.constant(0)), lambda: a.set_cpus(mask, board.CPU_MASK_BYTES))
