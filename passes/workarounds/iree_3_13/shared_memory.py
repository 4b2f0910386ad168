"""qmlir-shared-memory: set the shared memory of each exported kernel to what the kernel uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....ir.walk import operations_of
from ....targets.gpu_kernels.shared_memory import SHARED_BYTES
from ...base import Diagnostic, Pass, State, error_at, fail

if TYPE_CHECKING:
    from ....core.mlir import OpLike, ir

FAULTS = (
    Fault(
        "IREE states the shared memory of all functions of an executable on each of its exports.",
        canary="shared_memory",
    ),
)


_LAUNCH_BYTES = "workgroup_local_memory"


@dataclass(frozen=True)
class SharedMemoryPass(Pass):
    """Set the shared memory of each export to the size that its function states, if it states one. Runs on the
    executables that IREE has translated (`Target.code_passes`).

    IREE 3.13 sets one size for all exports of an executable: the sum over all of its functions. An export that needs
    more than a workgroup of the target has is refused, because the device would refuse to load the program.
    """

    name: ClassVar[str] = "qmlir-shared-memory"
    summary: ClassVar[str] = "set the shared memory of each exported kernel, within the target's limit (CUDA)"

    def run(self, module: ir.Module, state: State) -> None:
        found: list[Diagnostic] = []
        for variant, export in exports(module):
            attributes = export.attributes
            if SHARED_BYTES in attributes:
                attributes[_LAUNCH_BYTES] = attributes[SHARED_BYTES]
                del attributes[SHARED_BYTES]
            asked = attributes[_LAUNCH_BYTES].value if _LAUNCH_BYTES in attributes else 0
            limit = shared_limit(variant)
            if limit is not None and asked > limit:
                kernel = attributes["sym_name"].value
                found.append(error_at(export, f"the kernel {kernel} needs {asked:,} bytes of shared memory, and a "
                                              f"workgroup of the target has {limit:,}"))  # fmt: skip
        fail(self.name, found)


def exports(module: ir.Module) -> Iterator[tuple[OpLike, OpLike]]:
    """Each export of a module's executables, as (`hal.executable.variant`, export)."""
    for executable in _children(module.operation, "hal.executable"):
        for variant in _children(executable, "hal.executable.variant"):
            for export in _children(variant, "hal.executable.export"):
                yield variant, export


def _children(parent: OpLike, name: str) -> list[OpLike]:
    return [op for op in operations_of(parent.regions[0].blocks[0]) if op.name == name]


def shared_limit(variant: OpLike) -> int | None:
    """The bytes of shared memory that a workgroup of a variant's target has; None if flags chose a target that does not
    state them."""
    found = re.search(r"max_workgroup_memory_bytes = (\d+)", str(variant.attributes["target"]))
    return None if found is None else int(found[1])
