"""Emits synchronisation of threads: ordered loads and stores, read-modify-write, pauses, system calls. All words are
i64 except futexes, which are i32."""

from __future__ import annotations

from collections.abc import Callable
from typing import overload

from ....core.faults import Fault
from ....core.mlir import arith, ir, llvm, scf
from ....ir.attributes import pointer_type

_ACQUIRE, _RELEASE, _SEQ_CST = 4, 5, 7
_EXCHANGE, _ADD, _AND = 0, 1, 3
_FUTEX, _SCHED_YIELD, _SCHED_SETAFFINITY = 202, 24, 203  # Linux on x86-64
_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129


def _integer(width: int) -> ir.Type:
    return ir.IntegerType.get_signless(width)


def constant(value: int, width: int = 64) -> ir.Value:
    return arith.constant(_integer(width), value)


def word(base: ir.Value, offset: int | ir.Value) -> ir.Value:
    """The address `offset` bytes (an int or an i64) behind `base`."""
    i8 = _integer(8)
    if isinstance(offset, int):
        return llvm.GEPOp(pointer_type(), base, [], [offset], i8, None).result
    return llvm.GEPOp(pointer_type(), base, [offset], [-(2**31)], i8, None).result


def as_pointer(value: ir.Value) -> ir.Value:
    return llvm.IntToPtrOp(pointer_type(), value).result


def as_word(pointer: ir.Value) -> ir.Value:
    return llvm.PtrToIntOp(_integer(64), pointer).result


def get(address: ir.Value, width: int = 64) -> ir.Value:
    """A load after which everything that was written before the value it reads is visible (acquire)."""
    return llvm.LoadOp(_integer(width), address, alignment=width // 8, ordering=_ACQUIRE).result


def get_in_order(address: ir.Value, width: int = 64) -> ir.Value:
    """A load that is not moved before an earlier exchange or addition of this thread (sequentially consistent)."""
    return llvm.LoadOp(_integer(width), address, alignment=width // 8, ordering=_SEQ_CST).result


def put(value: ir.Value, address: ir.Value) -> None:
    """A store that becomes visible after all earlier ones (release)."""
    llvm.StoreOp(value, address, alignment=8, ordering=_RELEASE)


def _modify(operation: int, address: ir.Value, value: ir.Value) -> ir.Value:
    i64 = ir.IntegerAttr.get(_integer(64), operation)
    order = ir.IntegerAttr.get(_integer(64), _SEQ_CST)
    return llvm.AtomicRMWOp(i64, address, value, order).operation.results[0]


def exchange(address: ir.Value, value: ir.Value) -> ir.Value:
    """Write `value`; return the old value."""
    return _modify(_EXCHANGE, address, value)


def add(address: ir.Value, value: ir.Value) -> ir.Value:
    """Add `value`; return the old value."""
    return _modify(_ADD, address, value)


def keep(address: ir.Value, mask: ir.Value) -> ir.Value:
    """Clear the bits that are not in `mask`; return the old value."""
    return _modify(_AND, address, mask)


def replace(address: ir.Value, expected: ir.Value, new: ir.Value) -> ir.Value:
    """Write `new` if the old value is `expected`; return whether it was, an i1."""
    order = ir.IntegerAttr.get(_integer(64), _SEQ_CST)
    pair = llvm.AtomicCmpXchgOp(address, expected, new, order, order).operation.results[0]
    return llvm.ExtractValueOp(_integer(1), pair, [1]).result


def equal(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.eq, a, b)


def differ(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.ne, a, b)


def less(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.ult, a, b)


def either(
    condition: ir.Value, then: Callable[[], object], otherwise: Callable[[], object], results: list[ir.Type]
) -> list[ir.Value]:
    """`then()` or `otherwise()`, each of which returns values of the types `results`."""
    op = scf.IfOp(condition, results, has_else=True)
    for block, body in ((op.then_block, then), (op.else_block, otherwise)):
        with ir.InsertionPoint(block):
            scf.YieldOp(body() or [])
    return list(op.results)


def when(condition: ir.Value, then: Callable[[], object]) -> None:
    op = scf.IfOp(condition)
    with ir.InsertionPoint(op.then_block):
        then()
        scf.YieldOp([])


def loop(
    before: Callable[[list[ir.Value]], tuple[ir.Value, list[ir.Value]]],
    body: Callable[[list[ir.Value]], list[ir.Value]],
    starts: list[ir.Value],
    passed: list[ir.Type],
) -> None:
    """Emit a while loop. `before(carried)` returns whether to continue, and values of the types `passed`, which `body`
    gets; the values that `body` returns are carried to the next iteration."""
    op = scf.WhileOp(passed, starts)
    first = op.before.blocks.append(*[s.type for s in starts])
    with ir.InsertionPoint(first):
        go_on, values = before(list(first.arguments))
        scf.ConditionOp(go_on, values)
    second = op.after.blocks.append(*passed)
    with ir.InsertionPoint(second):
        scf.YieldOp(body(list(second.arguments)))


@overload
def _assembly(text: str, constraints: str, operands: list[ir.Value], result: ir.Type) -> ir.Value: ...
@overload
def _assembly(text: str, constraints: str, operands: list[ir.Value]) -> None: ...
def _assembly(text: str, constraints: str, operands: list[ir.Value], result: ir.Type | None = None) -> ir.Value | None:
    op = llvm.InlineAsmOp(result, operands, text, constraints, has_side_effects=True)
    return op.operation.results[0] if result is not None else None


def pause() -> None:
    """Tell the core that this is a spin loop."""
    _assembly("pause", "~{memory}", [])


def cycles() -> ir.Value:
    """The time stamp counter, i64."""
    t = "rdtsc; shlq $$32, %rdx; orq %rdx, %rax"
    return _assembly(t, "={rax},~{rdx},~{flags}", [], _integer(64))


def cpu() -> ir.Value:
    """The number of the CPU that this thread runs on, i64. Linux keeps it in the low bits of the counter's auxiliary
    register, below the number of the node."""
    both = _assembly("rdtscp; movl %ecx, %ecx", "={rcx},~{rax},~{rdx}", [], _integer(64))
    return arith.andi(both, constant(4095))


def _system_call(number: int, *arguments: ir.Value) -> None:
    registers = ["{rdi}", "{rsi}", "{rdx}", "{r10}"][: len(arguments)]
    constraints = ",".join(["={rax}", "{rax}", *registers, "~{rcx}", "~{r11}", "~{memory}"])
    _assembly("syscall", constraints, [constant(number), *arguments], _integer(64))


def sleep_while(address: ir.Value, value: ir.Value) -> None:
    """Sleep until the futex is woken, unless it no longer holds `value` (i32)."""
    wide = arith.extui(_integer(64), value)
    _system_call(_FUTEX, as_word(address), constant(_FUTEX_WAIT_PRIVATE), wide, constant(0))


def wake_all(address: ir.Value) -> None:
    _system_call(_FUTEX, as_word(address), constant(_FUTEX_WAKE_PRIVATE), constant(2**31 - 1))


def give_way() -> None:
    """Yield this CPU to another thread."""
    _system_call(_SCHED_YIELD)


def set_cpus(mask: ir.Value, size: int) -> None:
    """Keep this thread on the CPUs of a mask."""
    _system_call(_SCHED_SETAFFINITY, constant(0), constant(size), as_word(mask))


FAULTS = (
    Fault(
        "IREE's pass `iree-codegen-resolve-workgroup-count-hints` fails on a call through a pointer.",
        canary="pointer_call",
    ),
)


def call(function: ir.Value, first: ir.Value, second: ir.Value) -> None:
    """Call a function by its address (i64) with two words.

    The call is inline assembly because IREE 3.13 fails on a call through a pointer
    (`iree-codegen-resolve-workgroup-count-hints`). The registers that the System V convention lets a function change
    are listed as clobbers (those of AVX-512 too: targets without it ignore their names); the 128 bytes below the stack
    pointer, which it lets the caller use, are skipped.
    """
    changed = ["rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "rbx"]
    changed += [f"xmm{i}" for i in range(32)] + [f"k{i}" for i in range(8)] + ["memory", "dirflag", "fpsr", "flags"]
    text = (
        "movq %rsp, %rbx; subq $$256, %rsp; andq $$-64, %rsp; movq %r13, %rdi; movq %r14, %rsi; callq *%r12; "
        "movq %rbx, %rsp"
    )
    constraints = ",".join(["{r12}", "{r13}", "{r14}", *(f"~{{{r}}}" for r in changed)])
    _assembly(text, constraints, [function, first, second])
