"""What the devices of a target have: limits, instructions and published figures, each a field."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peak:
    """Published peak figures of one product of the architecture.

    `rates` are dense multiply-accumulate rates in operations per second (two per multiply-accumulate) by
    operand type; `bandwidth` is bytes per second; `units` are its compute units (AMD) or multiprocessors (NVIDIA).
    """

    product: str
    rates: tuple[tuple[str, float], ...]
    bandwidth: float
    units: int = 1

    def rate(self, dtype: str) -> float | None:
        """The peak for operands of `dtype`, None when there is no published figure."""
        return dict(self.rates).get(dtype)


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
        subgroup_sizes: threads that run together; () of a CPU.
        shared_memory: bytes that one workgroup may use.
        loop_limit: iterations after which the driver leaves a loop.
        peak: figures of one product, for estimates.
    """

    dtypes: tuple[str, ...]
    int8_dot: bool = False
    mma: tuple[str, ...] = ()
    scaled_mma: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    cpu_features: tuple[str, ...] = ()
    subgroup_sizes: tuple[int, ...] = ()
    shared_memory: int = 0
    loop_limit: int | None = None
    peak: Peak | None = None

    @property
    def units(self) -> int:
        """Compute units or multiprocessors of the product that `peak` is of."""
        return 1 if self.peak is None else self.peak.units
