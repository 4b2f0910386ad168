"""The description of a GPU for IREE's code generation (`#iree_gpu.target`), as data."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Spellings inside MMA names -> MLIR element types.
_TYPES = {
    "I8": "i8",
    "I32": "i32",
    "F16": "f16",
    "BF16": "bf16",
    "F32": "f32",
    "F64": "f64",
    "F8E4M3FN": "f8E4M3FN",
    "F8E5M2": "f8E5M2",
    "F8E4M3FNUZ": "f8E4M3FNUZ",
    "F8E5M2FNUZ": "f8E5M2FNUZ",
}
_MMA = re.compile(r"\w+?_([A-Z]+\d+)_(\d+)x(\d+)x(\d+)_([A-Z0-9]+)(?:_([A-Z0-9]+))?")


@dataclass(frozen=True)
class MatrixInstruction:
    """One matrix instruction: `acc[m, n] += lhs[m, k] * rhs[k, n]` by one subgroup."""

    name: str
    m: int
    n: int
    k: int
    lhs: str
    rhs: str
    acc: str


def parse_mma(name: str) -> MatrixInstruction:
    """Parse IREE's name of an MMA kind, which contains the shape and the types."""
    match = _MMA.fullmatch(name)
    if match is None:
        raise ValueError(f"no MMA kind: {name!r}")
    acc, m, n, k, lhs, rhs = match.groups()
    return MatrixInstruction(name, int(m), int(n), int(k), _TYPES[lhs], _TYPES[rhs or lhs], _TYPES[acc])


@dataclass(frozen=True)
class Gpu:
    """The fields of `#iree_gpu.target` and of the executable target around it.

    The fields are those that IREE 3.13 fills in for the targets that its flags know. They are written out here so
    that every architecture has a description that does not depend on a default.
    """

    device: str  # "cuda" | "hip" | "vulkan": the HAL device, not the name of qmlir's backend
    executable: str  # '"rocm", "rocm-hsaco-fb"'
    arch: str
    features: str
    subgroup_sizes: tuple[int, ...]
    shared_memory: int
    mma: tuple[str, ...] = ()
    compute: str = "fp64|fp32|fp16|int64|int32|int16|int8"
    threads: int = 1024
    workgroup_sizes: tuple[int, int, int] = (1024, 1024, 1024)
    workgroup_counts: tuple[int, int, int] = (2147483647, 65535, 65535)
    wgp_extra: str = ""  # further fields of the workgroup processor, e.g. the size of its register file
    configuration: str = ""  # further entries of the executable target's dictionary

    def attribute(self) -> str:
        """The text of the `#hal.device.target`.

        It always has `dot = dp4xi8toi32`: without it, IREE's SPIR-V path loses the sign of int8 operands.
        """

        def numbers(values: tuple[int, ...]) -> str:
            return "[" + ", ".join(map(str, values)) + "]"

        wgp = [
            f"compute = {self.compute}",
            "storage = b64|b32|b16|b8",
            "subgroup = shuffle|arithmetic",
            "dot = dp4xi8toi32",
            "mma = [" + ", ".join(f"<{kind}>" for kind in self.mma) + "]",
            f"subgroup_size_choices = {numbers(self.subgroup_sizes)}",
            f"max_workgroup_sizes = {numbers(self.workgroup_sizes)}",
            f"max_thread_count_per_workgroup = {self.threads}",
            f"max_workgroup_memory_bytes = {self.shared_memory}",
            f"max_workgroup_counts = {numbers(self.workgroup_counts)}",
        ]
        if self.wgp_extra:
            wgp.append(self.wgp_extra)
        description = f'#iree_gpu.target<arch = "{self.arch}", features = "{self.features}", wgp = <{", ".join(wgp)}>>'
        entries = [self.configuration] if self.configuration else []
        entries.append(f"iree_codegen.target_info = {description}")
        return (
            f'#hal.device.target<"{self.device}", [#hal.executable.target<{self.executable}, '
            f"{{{', '.join(entries)}}}>]> : !hal.device"
        )
