"""The data type of a target: plain data about one device architecture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..core.mlir import ir
from ..core.rows import CapabilitiesRow
from ..ir.barriers import Reason
from .capabilities import Capabilities

RUNS = "runs in the tests"
FLOAT8 = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ")

# For every target except Vulkan: its `BaseDistribute` pipeline silently computes wrong results if a sum and its
# readers are in one dispatch (see qmlir-split-broadcast).
FUSE_ROWS = "qmlir-fuse-rows"
EXPAND_FUNCTIONS = "qmlir-expand-functions"
INDEX_SUMS = "qmlir-index-sums"  # for every GPU
NEUTRAL_ELEMENTS = "qmlir-neutral-elements"  # where IREE reduces across lanes: CUDA and ROCm
INDEX_SLICES = "qmlir-index-slices"  # CUDA and ROCm
BOUND_OPERANDS = "qmlir-bound-operands"  # CUDA and ROCm
SPREAD_SCANS = "qmlir-spread-scans"  # CUDA and ROCm
START_AT_ZERO = "qmlir-start-at-zero"  # CUDA and ROCm
ORDER_CONVOLUTIONS = "qmlir-order-convolutions"  # where IREE compiles convolutions to implicit GEMM

PRESENT = "present"  # the name of a target whose properties are those of the present device
MEASURED = "ran on a device"  # each kernel family, checked and measured by `benchmarks.gpu` (docs/benchmarks-gpu.md)
EMULATED = "executed in an emulator"  # each instruction of the kernels, in the tests (docs/emulation.md)
COMPILED = "compiled"  # and the tests look at the instructions; no such device has run the programs


def decode_pass(*kept: str) -> str:
    """The text of the pass that converts one-byte floats, except the formats `kept`, which the target itself
    converts."""
    return f"qmlir-decode-small-floats{{keep={'|'.join(kept)}}}" if kept else "qmlir-decode-small-floats"


@dataclass(frozen=True)
class Device:
    """A device as its driver reports it."""

    driver: str
    index: int
    name: str
    arch: str  # "sm_90", "gfx942"; "" if the driver does not report it (Vulkan)

    @property
    def uri(self) -> str:
        return f"{self.driver}://{self.index}"


@dataclass(frozen=True)
class Target:
    """One device architecture that programs can be compiled for, as data. Its `Backend` has the functions that compile
    for it; `capabilities` describes its devices.

    `device_attribute` is the text of the `#hal.device.target` that goes into `hal.device.targets`. qmlir builds it
    for every GPU, because IREE's flag leaves some architectures without a description and gives Vulkan a
    default that compiles int8 programs to wrong results. It is empty for a CPU, which flags describe.
    """

    backend: str
    name: str
    driver: str  # of iree.runtime
    summary: str
    status: str
    capabilities: Capabilities
    device_attribute: str = ""
    compiler_flags: tuple[str, ...] = ()
    barriers: tuple[Reason, ...] = ()  # the reasons in `ir.barriers.PER_TARGET` for which it needs barriers
    passes: tuple[str, ...] = ()  # run after the selection of strategies
    source_passes: tuple[str, ...] = ()  # run after IREE has formed executables, before it translates them
    code_passes: tuple[str, ...] = ()  # run after IREE has translated executables, before it serialises them
    unsigned_mma: bool = True  # whether IREE treats unsigned codes as unsigned on matrix instructions
    of_host: bool = False  # exactly the CPU of this host: the bare target `cpu`
    host: str = ""  # the model name of that CPU
    of_present: bool = False  # made from the properties of the present device, which runs its programs
    withheld: tuple[tuple[str, str], ...] = ()  # features of the host that are not used, and why

    @property
    def spelling(self) -> str:
        """As a user writes it: `rocm:gfx942`, or `cpu` for this host."""
        return self.backend if self.of_host else f"{self.backend}:{self.name}"

    def attach(self, module: ir.Module) -> None:
        """Set `hal.device.targets` on an `ir.Module`, unless flags describe the target."""
        if self.device_attribute:
            attribute = ir.Attribute.parse(f"[{self.device_attribute}]", context=module.context)
            module.operation.attributes["hal.device.targets"] = attribute

    def row(self) -> CapabilitiesRow:
        """JSON-able facts for `qmlir targets` and the manifest."""
        has = self.capabilities
        facts: CapabilitiesRow = {
            "target": self.spelling,
            "driver": self.driver,
            "summary": self.summary,
            "status": self.status,
            "mma": list(has.mma),
            "int8_dot": has.int8_dot,
            "dtypes": list(has.dtypes),
        }
        if has.subgroup_sizes:
            facts["subgroup_sizes"] = list(has.subgroup_sizes)
            facts["shared_memory"] = has.shared_memory
        else:
            facts["cpu_features"] = list(has.cpu_features)
        if self.host:
            facts["host"] = self.host
        return facts


def first_named(targets: Iterable[Target], names: Iterable[str]) -> Target | None:
    """The target with the first of the names that is in the table, None without names."""
    table = {target.name: target for target in targets}
    return next((table[name] for name in names), None)
