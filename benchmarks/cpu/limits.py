"""The limits of this machine, measured in the run that uses them: the read bandwidth of a working set, and the rates of
the multiply instructions.

Both are measured by small kernels, written in MLIR and compiled by IREE for this host, which run on one local device
per thread. The read kernel repeatedly sums the 512-bit words of its thread's buffer; a buffer that fits into a cache
gives the bandwidth of that cache. The rate kernels keep independent accumulators in registers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from iree import runtime as rt
from iree.compiler import tools

from qmlir.core.cache import Cache, key_of
from qmlir.targets.cpu.host import host_features, tiles_refused

Array = Any

_FLAGS = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu",
          "--iree-llvmcpu-target-cpu=host"]  # fmt: skip

_MODULE = """
stream.executable private @limit {{
  stream.executable.export public @body workgroups() -> (index, index, index) {{
    %c1 = arith.constant 1 : index
    stream.return %c1, %c1, %c1 : index, index, index
  }}
  builtin.module {{
    func.func @body(%b0: !stream.binding, %b1: !stream.binding, %b2: !stream.binding) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %sizes = stream.binding.subspan %b0[%c0] : !stream.binding -> memref<2xi64>
      %data = stream.binding.subspan %b1[%c0] : !stream.binding -> memref<{words}xi64>
      %out = stream.binding.subspan %b2[%c0] : !stream.binding -> memref<16xi32>
      %n64 = memref.load %sizes[%c0] : memref<2xi64>
      %r64 = memref.load %sizes[%c1] : memref<2xi64>
      %n = arith.index_cast %n64 : i64 to index
      %rounds = arith.index_cast %r64 : i64 to index
{body}
      return
    }}
  }}
}}
func.func @main(%sizes: tensor<2xi64>, %data: tensor<{words}xi64>) -> tensor<16xi32> {{
  %r = flow.dispatch @limit::@body(%sizes, %data) : (tensor<2xi64>, tensor<{words}xi64>) -> tensor<16xi32>
  return %r : tensor<16xi32>
}}
"""

_WORDS = 1 << 23  # 64 MiB, the largest working set


def _read_body() -> str:
    """The body of the read kernel: eight 64-byte words per step; n is the number of i64 values."""
    v, acc = "vector<8xi64>", [f"%a{i}" for i in range(8)]
    lines = [
        f"%z = arith.constant dense<0> : {v}",
        "%c64 = arith.constant 64 : index",
        "%sum = scf.for %r = %c0 to %rounds step %c1 iter_args(%s = %z) -> (vector<8xi64>) {",
        f"%part:8 = scf.for %i = %c0 to %n step %c64 iter_args({', '.join(f'{a} = %z' for a in acc)}) -> "
        f"({', '.join([v] * 8)}) {{",
    ]
    for i in range(8):
        lines += [
            f"%o{i} = arith.constant {8 * i} : index",
            f"%p{i} = arith.addi %i, %o{i} : index",
            f"%v{i} = vector.load %data[%p{i}] : memref<{_WORDS}xi64>, {v}",
            f"%n{i} = arith.addi {acc[i]}, %v{i} : {v}",
        ]
    lines += [f"scf.yield {', '.join(f'%n{i}' for i in range(8))} : {', '.join([v] * 8)}", "}"]
    last = "%s"
    for i in range(8):
        lines.append(f"%t{i} = arith.xori {last}, %part#{i} : {v}")
        last = f"%t{i}"
    lines += [
        f"scf.yield {last} : {v}",
        "}",
        f"%bits = vector.bitcast %sum : {v} to vector<16xi32>",
        "vector.store %bits, %out[%c0] : memref<16xi32>, vector<16xi32>",
    ]
    return "\n".join(lines)


@dataclass(frozen=True)
class Instruction:
    """One multiply instruction: its intrinsic on vectors of `bits` bits, and the operations of one call (two per
    multiply-add). AMX tiles have 16 rows of 64 bytes; the instruction refers to them by number."""

    feature: str
    name: str
    intrinsic: str
    bits: int
    operations: int
    sum_type: str  # element of the accumulator
    operand_type: str  # element of both factors

    @property
    def of_tiles(self) -> bool:
        return self.bits == _TILE

    @property
    def accumulators(self) -> int:
        """Number of independent dependency chains. The hardware has 8 tiles, 32 registers of 512 bits or 16 of 256."""
        return 6 if self.of_tiles else 24 if self.bits == 512 else 12


_TILE = 16 * 512


# For each kind of product, the fastest instruction first.
INSTRUCTIONS: dict[str, tuple[Instruction, ...]] = {
    "int8": (
        Instruction("amx-int8", "tdpbssd", "llvm.x86.tdpbssd", _TILE, 2 * 16 * 16 * 64, "i32", "i8"),
        Instruction("avx512vnni", "vpdpbusd zmm", "llvm.x86.avx512.vpdpbusd.512", 512, 128, "i32", "i8"),
        Instruction("avxvnni", "vpdpbusd ymm", "llvm.x86.avx512.vpdpbusd.256", 256, 64, "i32", "i8"),
    ),
    "bf16": (
        Instruction("amx-bf16", "tdpbf16ps", "llvm.x86.tdpbf16ps", _TILE, 2 * 16 * 16 * 32, "f32", "bf16"),
        Instruction("avx512bf16", "vdpbf16ps zmm", "llvm.x86.avx512bf16.dpbf16ps.512", 512, 64, "f32", "bf16"),
        Instruction("avx512f", "vfmadd zmm", "llvm.fma.v16f32", 512, 32, "f32", "f32"),
        Instruction("fma", "vfmadd ymm", "llvm.fma.v8f32", 256, 16, "f32", "f32"),
    ),
}


def _tiles_body(ins: Instruction) -> str:
    """The body of a tile kernel: adds products of tiles 6 and 7, whose contents are arbitrary, to the other tiles."""
    config = [1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8]
    lines = [
        "%area = memref.alloca() : memref<64xi8>",
        f"%config = arith.constant dense<{config}> : vector<64xi8>",
        "vector.store %config, %area[%c0] : memref<64xi8>, vector<64xi8>",
        "%word = memref.extract_aligned_pointer_as_index %area : memref<64xi8> -> index",
        "%int = arith.index_cast %word : index to i64",
        "%at = llvm.inttoptr %int : i64 to !llvm.ptr",
        'llvm.call_intrinsic "llvm.x86.ldtilecfg"(%at) : (!llvm.ptr) -> ()',
        *[f"%t{i} = arith.constant {i} : i8" for i in range(8)],
        *[f'llvm.call_intrinsic "llvm.x86.tilezero"(%t{i}) : (i8) -> ()' for i in range(8)],
        "scf.for %r = %c0 to %rounds step %c1 {",
    ]
    lines += [
        f'llvm.call_intrinsic "{ins.intrinsic}"(%t{i}, %t6, %t7) : (i8, i8, i8) -> ()' for i in range(ins.accumulators)
    ]
    return "\n".join([*lines, "}", 'llvm.call_intrinsic "llvm.x86.tilerelease"() : () -> ()'])


def _rate_body(ins: Instruction) -> str:
    if ins.of_tiles:
        return _tiles_body(ins)
    width = {"i8": 8, "bf16": 16, "f32": 32}[ins.operand_type]
    acc = f"vector<{ins.bits // 32}x{ins.sum_type}>"
    operand = f"vector<{ins.bits // width}x{ins.operand_type}>"
    words = f"vector<{ins.bits // 64}xi64>"
    zero = "0.0" if ins.sum_type == "f32" else "0"
    count = ins.accumulators
    lines = [
        f"%z = arith.constant dense<{zero}> : {acc}",
        f"%xw = vector.load %data[%c0] : memref<{_WORDS}xi64>, {words}",
        f"%x = vector.bitcast %xw : {words} to {operand}",
        f"%sum:{count} = scf.for %r = %c0 to %rounds step %c1 iter_args("
        f"{', '.join(f'%a{i} = %z' for i in range(count))}) -> ({', '.join([acc] * count)}) {{",
    ]
    for i in range(count):
        args = f"%x, %x, %a{i}" if "fma" in ins.intrinsic else f"%a{i}, %x, %x"
        types = f"{operand}, {operand}, {acc}" if "fma" in ins.intrinsic else f"{acc}, {operand}, {operand}"
        lines.append(f'%n{i} = llvm.call_intrinsic "{ins.intrinsic}"({args}) : ({types}) -> {acc}')
    lines += [f"scf.yield {', '.join(f'%n{i}' for i in range(count))} : {', '.join([acc] * count)}", "}"]
    last = "%z"
    add = "arith.addf" if ins.sum_type == "f32" else "arith.addi"
    for i in range(count):
        lines.append(f"%t{i} = {add} {last}, %sum#{i} : {acc}")
        last = f"%t{i}"
    half = f"vector<{ins.bits // 32}xi32>"
    lines += [
        f"%bits = arith.bitcast {last} : {acc} to {half}" if ins.sum_type == "f32" else
        f"%bits = vector.bitcast {last} : {acc} to {half}",
        f"vector.store %bits, %out[%c0] : memref<16xi32>, {half}",
    ]  # fmt: skip
    return "\n".join(lines)


def _compile(body: str) -> bytes:
    text = _MODULE.format(words=_WORDS, body=body)
    return Cache().get_or_build(
        key_of(["limit", text, _FLAGS]),
        lambda: bytes(tools.compile_str(text, input_type="none", extra_args=_FLAGS)),
    )


class _Caller:
    """The device, program and data buffer of one thread."""

    def __init__(self, vmfb: bytes, data: Array) -> None:
        self.device = rt.get_driver("local-sync").create_default_device()
        instance = rt.VmInstance()
        module = rt.VmModule.copy_buffer(instance, vmfb)
        self.context = rt.VmContext(instance, modules=[rt.create_hal_module(instance, self.device), module])
        self.function = module.lookup_function("main")
        self.data = self._buffer(data)

    def _buffer(self, a: Array) -> Any:
        usage = rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING
        kind = rt.HalElementType.INT_64
        return self.device.allocator.allocate_buffer_copy(rt.MemoryType.DEVICE_LOCAL, usage, self.device, a, kind)

    def call(self, n: int, rounds: int) -> Callable[[], None]:
        inputs = rt.VmVariantList(2)
        inputs.push_ref(self._buffer(np.array([n, rounds], np.int64)))
        inputs.push_ref(self.data)

        def run() -> None:
            self.context.invoke(self.function, inputs, rt.VmVariantList(1))

        return run


def _together(calls: list[Callable[[], None]]) -> float:
    """Runs each call in its own thread, all starting together. Returns seconds from the first start to the last end."""
    barrier = threading.Barrier(len(calls))
    spans: list[tuple[float, float]] = []

    def body(call: Callable[[], None]) -> None:
        barrier.wait()
        start = time.perf_counter()
        call()
        spans.append((start, time.perf_counter()))

    threads = [threading.Thread(target=body, args=(c,)) for c in calls[1:]]
    for t in threads:
        t.start()
    body(calls[0])
    for t in threads:
        t.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)


def _best(make: Callable[[int], list[Callable[[], None]]], seconds: float = 0.003, repeats: int = 40) -> float:
    """Seconds of one round: the minimum over `repeats` calls of about `seconds` each. A limit is what the machine can
    do undisturbed, and a short call has a good chance of not being disturbed."""

    def best_of(calls: list[Callable[[], None]], count: int) -> float:
        return min(_together(calls) for _ in range(count))

    rounds, taken = 1, 0.0
    while taken < seconds / 2 and rounds < 1 << 30:
        taken = best_of(make(rounds), 5)
        if taken < seconds / 2:
            rounds = max(2 * rounds, int(rounds * seconds / max(taken, 1e-5)))
    return best_of(make(rounds), repeats) / rounds


@dataclass
class Limits:
    """The limits for one number of threads, each measured on first use."""

    threads: int
    bandwidths: dict[int, float] = field(default_factory=dict)  # bytes of the working set -> bytes per second
    rates: dict[str, float] = field(default_factory=dict)  # kind -> operations per second

    def bandwidth(self, size: int) -> float:
        """Bytes per second that all threads together read from a working set of about `size` bytes (at most 64 MiB, at
        least 64 KiB per thread, rounded to a power of two)."""
        slice_ = max(1 << 16, min(_WORDS * 8, 1 << round(np.log2(size))) // self.threads)
        if slice_ not in self.bandwidths:
            callers = self._callers()
            taken = _best(lambda rounds: [c.call(slice_ // 8, rounds) for c in callers])
            self.bandwidths[slice_] = slice_ * self.threads / taken
        return self.bandwidths[slice_]

    @cache  # noqa: B019  (there are two of them)
    def _callers(self) -> list[_Caller]:
        vmfb = _compile(_read_body())
        return [_Caller(vmfb, np.ones(_WORDS, np.int64)) for _ in range(self.threads)]

    def __hash__(self) -> int:
        return id(self)

    def instruction(self, kind: str) -> Instruction | None:
        """The fastest instruction in `INSTRUCTIONS` that the host has; None if it has none of them."""
        have = host_features()
        return next((i for i in INSTRUCTIONS[kind] if i.feature in have and not (i.of_tiles and tiles_refused())), None)

    def rate(self, kind: str) -> float | None:
        """Operations per second of all threads together; None if the host has no such instruction."""
        ins = self.instruction(kind)
        if ins is None:
            return None
        if kind not in self.rates:
            vmfb = _compile(_rate_body(ins))
            callers = [_Caller(vmfb, np.ones(_WORDS, np.int64)) for _ in range(self.threads)]
            taken = _best(lambda rounds: [c.call(0, rounds) for c in callers])
            self.rates[kind] = ins.accumulators * ins.operations * self.threads / taken
        return self.rates[kind]

    def seconds(self, operations: int, size: int, kind: str) -> float:
        """The least time for `operations` on `size` bytes, each read once from the memory level that holds a working
        set of this size."""
        rate = self.rate(kind)
        return max(size / self.bandwidth(size), operations / rate if rate else 0.0)

    def to_json(self) -> dict[str, Any]:
        return {
            "threads": self.threads,
            "read_gb_s": {f"{size * self.threads >> 10} KiB": round(b / 1e9, 1) for size, b in
                          sorted(self.bandwidths.items())},
            "rates_gop_s": {kind: round(r / 1e9) for kind, r in self.rates.items()},
            "instructions": {kind: i.name for kind in self.rates if (i := self.instruction(kind))},
        }  # fmt: skip
