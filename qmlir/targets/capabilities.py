"""Properties of a target's devices: limits, instructions and published figures, each a field."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peak:
    """Figures of one product of the architecture, for estimates (`cost.py`). None: not known; an estimate uses a
    typical value instead and says so.

    Attributes:
        rates: dense multiply-accumulate rates in operations per second (two per multiply-accumulate) by operand type.
        bandwidth: memory bandwidth in bytes per second.
        units: compute units (AMD) or multiprocessors (NVIDIA).
        clock: frequency in Hz that a unit sustains during matrix instructions.
        lanes: 32-bit operations per unit and clock, without its matrix instructions.
        dots: dot products of four codes per unit and clock.
        shared_bytes: bytes that a unit reads from its shared memory per clock.
        cache_bytes: bytes per clock from the cache that all units share to one unit.
        threads: threads per unit that run at the same time in a matmul kernel, whose registers leave no room for more.
        latency: seconds from one memory load to the next that depends on it.
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
        """The peak rate for operands of `dtype`, None if there is no published figure."""
        return dict(self.rates).get(dtype)


@dataclass(frozen=True)
class Core:
    """Figures of one CPU core, each per second.

    Attributes:
        operations: integer operations of `vpdpbusd` on 512 bits, two per multiply-add.
        floats: elements of the functions of attention on f32 vectors, which need several instructions each.
        elements: results of one elementwise op of a chain.
        looked_up: codes looked up in a table of 256.
        pooled: codes read under pooling windows.
        copied: bytes copied into another layout.
        shared: bytes read from the cache that cores share.
        own: bytes read from the core's own cache.
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
    """Properties that every device of an architecture has. Fields that only some backends use are empty or None for
    the others.

    Attributes:
        dtypes: operand types of contractions that compile, MLIR spelling.
        int8_dot: whether there is an instruction that multiplies and adds int8 in groups of four.
        mma: matrix instructions by IREE's names, such as `MFMA_I32_16x16x32_I8`.
        scaled_mma: matrix instructions whose operands have a scale for each block of codes.
        features: features that not every architecture of a GPU backend has: "wgmma", "mfma".
        cpu_features: features that a program needs of its host, LLVM spelling without "+".
        subgroup_sizes: subgroup sizes, the one that built-in kernels request first; () for a CPU.
        shared_memory: bytes that one workgroup may use.
        static_shared_memory: bytes of it that a kernel may use without requesting more.
        unit_registers: 32-bit registers per multiprocessor.
        simds: SIMDs per compute unit.
        simd_waves: the most subgroups that a SIMD runs at the same time.
        simd_registers: registers per lane of a SIMD, for all its subgroups.
        sum_registers: registers per lane for accumulators in a built-in kernel; with more it would spill.
        shared_sum_registers: as `sum_registers`, if workgroups share K (`stream_k`).
        compute_capability: NVIDIA's number of the architecture, (9, 0) for sm_90 and sm_90a.
        own_code_only: whether programs run only on devices of exactly this compute capability; else on later ones, too.
        loop_limit: iterations after which the driver leaves a loop.
        peak: figures of one product, for estimates.
        core: figures of a CPU core, for estimates.
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
