"""qmlir-record-copies: record commands that copy buffers in each call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.barriers import opaque
from ....ir.walk import collect
from ...base import Pass, State

FAULTS = (
    Fault(
        "IREE records the commands of a program once, and binds their buffers in each call. On Vulkan, copies keep "
        "the buffers of the first call: results are of the first call's arguments.",
        canary="copied_again",
    ),
)


@dataclass(frozen=True)
class RecordCopiesPass(Pass):
    """Hide the length of one copy in each `stream.cmd.execute` that has copies: IREE records commands with values that
    it does not know in each call. Runs after IREE has formed the commands (`Target.source_passes`).
    """

    name: ClassVar[str] = "qmlir-record-copies"
    summary: ClassVar[str] = "record commands that copy in each call (Vulkan)"

    def run(self, module: ir.Module, state: State) -> None:
        for commands in collect(module, "stream.cmd.execute"):
            copy = next(iter(collect(commands, "stream.cmd.copy")), None)
            if copy is None:
                continue
            length = len(copy.operands) - 1
            with commands.location, ir.InsertionPoint(commands):
                copy.operands[length] = opaque(copy.operands[length])
