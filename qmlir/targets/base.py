"""What a target is: plain data about one device architecture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..core.mlir import ir
from ..core.rows import CapabilitiesRow
from ..ir.barriers import Reason
from .capabilities import Capabilities

RUNS = "runs in the tests"
FLOAT8 = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ")

# For every target but Vulkan, whose `BaseDistribute` pipeline is silently wrong where a sum and its readers are one
# dispatch (see qmlir-split-broadcast).
FUSE_ROWS = "qmlir-fuse-rows"
EXPAND_FUNCTIONS = "qmlir-expand-functions"
INDEX_SUMS = "qmlir-index-sums"  # for every GPU
NEUTRAL_ELEMENTS = "qmlir-neutral-elements"  # where IREE reduces across lanes: CUDA and ROCm
INDEX_SLICES = "qmlir-index-slices"  # CUDA and ROCm
BOUND_OPERANDS = "qmlir-bound-operands"  # CUDA and ROCm
SPREAD_SCANS = "qmlir-spread-scans"  # CUDA and ROCm
START_AT_ZERO = "qmlir-start-at-zero"  # CUDA and ROCm
ORDER_CONVOLUTIONS = "qmlir-order-convolutions"  # where IREE makes implicit products of convolutions

PRESENT = "present"  # the name of a target that is described by the device that is present
MEASURED = "ran on a device"  # each kernel family, checked and measured by `benchmarks.gpu` (docs/benchmarks-gpu.md)
EMULATED = "executed in an emulator"  # each instruction of it, in the tests (docs/emulation.md)
COMPILED = "compiled"  # and the instructions looked at in the tests; no such device has run it


def decode_pass(*kept: str) -> str:
    """The text of the pass that converts one-byte floats, but for the formats that the target itself converts."""
    return f"qmlir-decode-small-floats{{keep={'|'.join(kept)}}}" if kept else "qmlir-decode-small-floats"


@dataclass(frozen=True)
class Device:
    """A device as its driver reports it."""

    driver: str
    index: int
    name: str
    arch: str  # "sm_90", "gfx942"; "" where the driver does not say (Vulkan)

    @property
    def uri(self) -> str:
        return f"{self.driver}://{self.index}"


@dataclass(frozen=True)
class Target:
    """One device architecture that programs can be compiled for: data. How it is compiled for is its `Backend`, what
    its devices have are its `capabilities`.

    `device_attribute` is the text of the `#hal.device.target` that goes into `hal.device.targets`: built by
    us for every GPU, because IREE's flag leaves some architectures without a description and gives Vulkan a
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
    barriers: tuple[Reason, ...] = ()  # of `ir.barriers.PER_TARGET`, those that it needs
    passes: tuple[str, ...] = ()  # that the backend needs behind the selection of strategies
    source_passes: tuple[str, ...] = ()  # that it needs where IREE has formed executables, but not translated them
    code_passes: tuple[str, ...] = ()  # that it needs where IREE has translated executables, but not serialised them
    unsigned_mma: bool = True  # whether IREE multiplies unsigned codes by matrix instructions as unsigned ones
    of_host: bool = False  # exactly the CPU of this host: the bare target `cpu`
    host: str = ""  # its model name, of such a target
    of_present: bool = False  # the device that is present describes it, and runs its programs
    withheld: tuple[tuple[str, str], ...] = ()  # its features that are not used, and why

    @property
    def spelling(self) -> str:
        """As a user writes it: `rocm:gfx942`, or `cpu` for this host."""
        return self.backend if self.of_host else f"{self.backend}:{self.name}"

    def attach(self, module: ir.Module) -> None:
        """Set `hal.device.targets` on an `ir.Module`; nothing to do where flags describe the target."""
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
    """The target of the first name, None of no name."""
    table = {target.name: target for target in targets}
    return next((table[name] for name in names), None)
