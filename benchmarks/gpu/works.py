"""The works that are measured, each with its peers and goals.

A program contains the same product several times, on several sets of operands, so that a call takes much longer than
its fixed overhead, and so that no operand is still in the cache when it is used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from ..cpu.works import RESNET50

L2_BYTES = 60 << 20  # of an H200
ROTATE_BYTES = 2 * L2_BYTES  # least total size of the operands of one call
LONGEST = 64  # products of one call


@dataclass(frozen=True)
class Argument:
    """An argument of one product, drawn on the machine with the device. `fill`: `codes`, `normal`, `scale` or `ids`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    fill: str
    limit: int = 0  # of ids

    @property
    def bytes(self) -> int:
        return prod(self.shape) * {"i8": 1, "u8": 1, "e4m3": 1, "f16": 2, "bf16": 2, "f32": 4, "i32": 4}[self.dtype]


@dataclass(frozen=True)
class Weight:
    """A constant weight with `bits` bits per code. Its bytes are drawn on the machine with the device."""

    shape: tuple[int, int]
    bits: int


@dataclass(frozen=True)
class Goal:
    """`ratio` is the upper limit of qmlir's time divided by the peer's."""

    peer: str
    ratio: float


@dataclass(frozen=True)
class Work:
    """One product or convolution.

    Attributes:
        row: the row of the table.
        operands: arguments that differ between the products of a call.
        shared: arguments that all products of a call read.
        operations: two per multiply-add of one product; `bytes`: the bytes that it has to move.
        share: the share of a device limit that is the goal: ("int8 peak", 0.65), ("copy bandwidth", 0.75).
        problem: the parameters for the peers.
        strategy: the strategy to use, or "" for the target's choice.
    """

    name: str
    row: str
    op: str
    operands: tuple[Argument, ...]
    shared: tuple[Argument, ...]
    attributes: dict[str, Any]
    weight: Weight | None
    operations: float
    bytes: float
    peers: tuple[str, ...]
    goals: tuple[Goal, ...]
    problem: dict[str, Any]
    share: tuple[str, float] | None = None
    constants: dict[str, Any] = field(default_factory=dict)
    longest: int = LONGEST
    strategy: str = ""

    @property
    def rotating_bytes(self) -> int:
        weight = prod(self.weight.shape) * self.weight.bits // 8 if self.weight else 0
        return weight + sum(o.bytes for o in self.operands)

    @property
    def copies(self) -> int:
        """The number of sets of operands, used in turn."""
        return max(2, min(self.longest, -(-ROTATE_BYTES // max(self.rotating_bytes, 1))))

    @property
    def repeats(self) -> int:
        """Products per call: a multiple of `copies`, for at least about a millisecond of work."""
        seconds = max(self.operations / 1.0e15, self.bytes / 3.0e12)
        wanted = min(self.longest, max(2, round(4e-3 / max(seconds, 1e-7))))
        return max(1, round(wanted / self.copies)) * self.copies


INT8_PEERS = ("torch._int_mm + scales", "torch f16", "torch bf16", "triton int8")
LARGE = ((8192, 8192, 8192), (4096, 4096, 4096), (16384, 7168, 2304), (4096, 11008, 4096))  # M, N, K
DECODE = ((4096, 14336), (14336, 4096), (8192, 28672))  # K, N
MOE_TOKENS = (1, 16, 128, 1024, 4096)


def _product(name: str, row: str, m: int, n: int, k: int, dtype: str, peers: tuple[str, ...], goals: tuple[Goal, ...],
             share: tuple[str, float] | None = None) -> Work:  # fmt: skip
    """An 8-bit activation and an 8-bit weight, both arguments; per-row and per-column scales; f16 result."""
    return Work(
        name, row, "scaled_matmul",
        (Argument("lhs", dtype, (m, k), "codes"), Argument("rhs", dtype, (n, k), "codes")),
        (Argument("lhs_scale", "f32", (m, 1), "scale"), Argument("rhs_scale", "f32", (n, 1), "scale")),
        {"rhs_transposed": True, "out_dtype": "f16"}, None, 2.0 * m * n * k, m * k + n * k + 2.0 * m * n, peers, goals,
        {"kind": "product", "m": m, "n": n, "k": k}, share,
    )  # fmt: skip


def _short(name: str, row: str, m: int, n: int, k: int, lhs: str, goals: tuple[Goal, ...],
           share: tuple[str, float] | None, group: int = 128) -> Work:  # fmt: skip
    """An activation times a constant 4-bit weight with group scales. With a float activation the scales have its type,
    as in checkpoints and in the peers."""
    scale = (Argument("lhs_scale", "f32", (m, 1), "scale"),) if lhs == "i8" else ()
    kind, width = ("f32", 4) if lhs == "i8" else (lhs, 2)
    moved = m * k * (1 if lhs == "i8" else 2) + n * k / 2 + width * n * k / group + 2.0 * m * n
    return Work(
        name, row, "scaled_matmul", (Argument("lhs", lhs, (m, k), "codes" if lhs == "i8" else "normal"),),
        (*scale, Argument("rhs_scale", kind, (n, k // group), "scale")),
        {"rhs_transposed": True, "rhs_dtype": "i4", "rhs_packing": "low_first", "out_dtype": "f16"}, Weight((n, k), 4),
        2.0 * m * n * k, moved, ("torch f16", "torch._weight_int4pack_mm", "gemlite"), goals,
        {"kind": "product", "m": m, "n": n, "k": k, "group": group}, share,
    )  # fmt: skip


def _convolution(size: int, c: int, f: int, kernel: int, stride: int, batch: int) -> Work:
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1
    taps = kernel * kernel * c
    return Work(
        f"conv {size}x{size}x{c} {kernel}x{kernel}/{stride} -> {f}", "ResNet-50 convolutions, batch 32", "conv2d_q",
        (Argument("input", "i8", (batch, size, size, c), "codes"),
         Argument("weight", "i8", (f, kernel, kernel, c), "codes")),
        (Argument("weight_scale", "f32", (f,), "scale"),),
        {"weight_layout": "FHWC", "strides": (stride, stride), "padding": (pad,) * 4, "activation": "relu",
         "out_dtype": "i8"}, None, 2.0 * batch * out * out * f * taps,
        batch * (size * size * c + out * out * f) + f * taps, ("torch f16 channels-last",),
        (Goal("torch f16 channels-last", 0.6),),
        {"kind": "convolution", "batch": batch, "size": size, "c": c, "f": f, "kernel": kernel, "stride": stride},
        constants={"input_scale": 0.02, "out_scale": 0.05},
    )  # fmt: skip


def _experts(tokens: int, experts: int, topk: int, n: int, k: int) -> Work:
    rows = min(experts, tokens * topk)  # experts whose weights are read
    return Work(
        f"MoE product {tokens} tokens, {experts} experts, top {topk}, {k} -> {n}", "MoE, 64 experts, top 6",
        "grouped_matmul", (Argument("lhs", "i8", (tokens, k), "codes"),),
        (Argument("rhs", "i8", (experts, n, k), "codes"), Argument("expert_ids", "i32", (tokens, topk), "ids", experts),
         Argument("lhs_scale", "f32", (tokens, 1), "scale"), Argument("rhs_scale", "f32", (experts, n, 1), "scale")),
        {"rhs_transposed": True, "out_dtype": "f16"}, None, 2.0 * tokens * topk * n * k,
        tokens * k + float(rows) * n * k + 2.0 * tokens * topk * n, ("loop of torch f16",),
        (Goal("loop of torch f16", 0.5),),
        {"kind": "experts", "tokens": tokens, "experts": experts, "topk": topk, "n": n, "k": k},
    )  # fmt: skip


def works(tiny: bool = False) -> tuple[Work, ...]:
    """Every work, in the order of the table; `tiny`: the same kinds with small sizes, for the tests."""
    return tuple(replace(w, longest=2) for w in _tiny()) if tiny else tuple(_works())


def _works() -> Iterator[Work]:
    int8 = (Goal("torch._int_mm + scales", 1.0),)
    for m, n, k in LARGE:
        yield _product(f"w8a8 {m}x{n}x{k}", "w8a8, large", m, n, k, "i8", INT8_PEERS, int8, ("int8 peak", 0.65))
    for m, n, k in LARGE:
        # f32 sums, as docs/semantics.md requires, for which Hopper multiplies in f16. Then the fp8 instruction, which
        # sums 128 products.
        peers = ("torch._scaled_mm", "torch f16")
        yield _product(f"fp8 {m}x{n}x{k}, f32 sums", "fp8, large", m, n, k, "e4m3", peers, (Goal("torch f16", 1.0),))
        fast = _product(f"fp8 {m}x{n}x{k}, fast sums", "fp8, large", m, n, k, "e4m3", peers,
                        (Goal("torch._scaled_mm", 1.0),), ("fp8 peak", 0.65))  # fmt: skip
        yield replace(fast, strategy="wgmma-fp8-fast")
    packed = (Goal("torch f16", 0.30), Goal("gemlite", 0.9), Goal("torch._weight_int4pack_mm", 0.9))
    for lhs, scheme in (("f16", "w4a16 g128"), ("i8", "w4a8 g128")):
        for k, n in DECODE:
            for m in (1, 4, 16):
                share = ("copy bandwidth", 0.75) if m == 1 else None
                yield _short(f"{scheme} {m}x{n}x{k}", f"{scheme}, M <= 16", m, n, k, lhs, packed, share)
    for m in (1, 4, 16, 32, 64):
        yield _product(f"w8a8 {m}x4096x4096", "w8a8, M <= 64", m, 4096, 4096, "i8", INT8_PEERS[1:],
                       (Goal("torch f16", 0.55),))  # fmt: skip
    for size, c, f, kernel, stride in RESNET50:
        yield _convolution(size, c, f, kernel, stride, 32)
    for tokens in MOE_TOKENS:
        yield _experts(tokens, 64, 6, 1408, 2048)


def _tiny() -> Iterator[Work]:
    yield _product("w8a8 32x48x64", "w8a8, large", 32, 48, 64, "i8", INT8_PEERS, (Goal("torch._int_mm + scales", 1.0),),
                   ("int8 peak", 0.65))  # fmt: skip
    yield _short("w4a8 g32 1x64x64", "w4a8 g128, M <= 16", 1, 64, 64, "i8", (Goal("torch f16", 0.3),),
                 ("copy bandwidth", 0.75), 32)  # fmt: skip
    yield _convolution(8, 16, 16, 3, 1, 1)
    yield _experts(5, 4, 2, 16, 32)
