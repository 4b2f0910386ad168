"""qmlir-spread-scans: give each line of a scan a thread, on CUDA and ROCm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.attributes import axis_of
from ....ir.walk import collect
from ...base import Pass, State

FAULTS = (
    Fault(
        "On GPUs each thread of a workgroup computes all of a scan's lines, in memory that other threads also "
        "write, some of them its initial values: sums of 64-bit integers may be wrong.",
        canary="scan_of_lines",
    ),
)


@dataclass(frozen=True)
class SpreadScansPass(Pass):
    """Give each scan a lowering configuration that distributes neighbouring lines, those along the innermost axis that
    is not scanned, to the threads of a subgroup.

    IREE 3.13 gives a scan 64 threads, and distributes none of its loops to them: every thread scans all of the
    workgroup's lines, and reads the preceding sums from memory that other threads initialise and write meanwhile.
    """

    name: ClassVar[str] = "qmlir-spread-scans"
    summary: ClassVar[str] = "give each line of a scan a thread (CUDA, ROCm)"
    subgroup: int = 32

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, "iree_linalg_ext.scan"):
            axis = axis_of(op)
            shape = ir.RankedTensorType(op.operands[0].type).shape
            if len(shape) == 1:
                continue  # IREE gives a single line one thread
            thread = [int(i != axis) for i in range(len(shape))]
            workgroup, lines = list(thread), max(i for i in range(len(shape)) if i != axis)
            workgroup[lines] = self._threads(shape[lines])
            op.attributes["compilation_info"] = ir.Attribute.parse(
                "#iree_codegen.compilation_info<"
                f"lowering_config = #iree_gpu.lowering_config<{{workgroup = {workgroup}, thread = {thread}}}>, "
                "translation_info = <pipeline = #iree_gpu.pipeline<TileAndFuse> "
                f"workgroup_size = [{self.subgroup}, 1, 1] subgroup_size = {self.subgroup}>>"
            )

    def _threads(self, lines: int) -> int:
        """The number of lines of a workgroup: at most the number of lines of the scan, if it is known."""
        return self.subgroup if lines < 0 else min(self.subgroup, lines)
