"""What the devices of a target have: limits, instructions and published figures, each a field."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peak:
    """Figures of one product of the architecture, for estimates (`cost.py`). None: not known; an estimate takes a
    typical value in its place and says so.

    Attributes:
        rates: dense multiply-accumulate rates in operations per second (two per multiply-accumulate) by operand type.
        bandwidth: of its memory, bytes per second.
        units: compute units (AMD) or multiprocessors (NVIDIA).
        clock: that a unit keeps up while it multiplies, in Hz.
        lanes: 32-bit operations of a unit in a clock, beside its matrix instructions.
        dots: dot products of four codes, of a unit in a clock.
        shared_bytes: that a unit reads from its shared memory in a clock.
        cache_bytes: that reach a unit from the cache that all units share, in a clock.
        threads: of a unit that run at the same time in a kernel of products, whose registers leave no room for more.
        latency: seconds from one load of memory to the next that depends on it.
    """

    product: str
    rates: tuple[tuple[str, float], ...]
    bandwidth: float
    units: int | None = None
    clock: float | None = None
    lanes: float | None = None
    dots: float | None = None
    shared_bytes: float | None = None
    cache_bytes: float | None = None
    threads: int | None = None
    latency: float | None = None

    def rate(self, dtype: str) -> float | None:
        """The peak for operands of `dtype`, None when there is no published figure."""
        return dict(self.rates).get(dtype)


@dataclass(frozen=True)
class Core:
    """Figures of one core of a CPU, each a second.

    Attributes:
        operations: of `vpdpbusd` on 512 bits, two a multiply-add.
        floats: of the functions of attention on vectors of f32, which need several instructions each.
        elements: results of one elementwise op of a chain.
        looked_up: codes, in a table of 256.
        pooled: codes under a window.
        copied: bytes brought into another layout.
        shared: bytes read from the cache that cores share.
        own: bytes read from its own.
    """

    operations: float
    floats: float
    elements: float
    looked_up: float
    pooled: float
    copied: float
    shared: float
    own: float


@dataclass(frozen=True)
class Capabilities:
    """What every device of an architecture has. What only some backends have is empty or None for the others.

    Attributes:
        dtypes: operand types of contractions that compile, MLIR spelling.
        int8_dot: an instruction that multiplies and adds int8 in groups of four.
        mma: matrix instructions by IREE's names, as `MFMA_I32_16x16x32_I8`.
        scaled_mma: those whose operands have a scale for each block of codes.
        features: that not every architecture of a GPU backend has: "wgmma", "mfma".
        cpu_features: that a program needs of its host, LLVM spelling without "+".
        subgroup_sizes: threads that run together, first the number that built-in kernels ask for; () of a CPU.
        shared_memory: bytes that one workgroup may use.
        static_shared_memory: bytes of it that every kernel has without asking for more.
        unit_registers: 32-bit registers of a multiprocessor.
        simds: of a compute unit.
        simd_waves: subgroups that a SIMD runs at the same time, at most.
        simd_registers: of a lane of a SIMD, for all its subgroups.
        sum_registers: of a lane that may hold sums of a product in a built-in kernel; with more it would spill.
        shared_sum_registers: the same where workgroups share K (`stream_k`).
        compute_capability: NVIDIA's number of the architecture, (9, 0) of sm_90 and of sm_90a.
        own_code_only: whether its programs run on devices of exactly this compute capability; else on later ones, too.
        loop_limit: iterations after which the driver leaves a loop.
        peak: figures of one product, for estimates.
        core: of a CPU, the same.
    """

    dtypes: tuple[str, ...]
    int8_dot: bool = False
    mma: tuple[str, ...] = ()
    scaled_mma: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    cpu_features: tuple[str, ...] = ()
    subgroup_sizes: tuple[int, ...] = ()
    shared_memory: int = 0
    static_shared_memory: int = 0
    unit_registers: int = 0
    simds: int = 0
    simd_waves: int = 0
    simd_registers: int = 0
    sum_registers: int = 0
    shared_sum_registers: int = 0
    compute_capability: tuple[int, int] | None = None
    own_code_only: bool = False
    loop_limit: int | None = None
    peak: Peak | None = None
    core: Core | None = None
