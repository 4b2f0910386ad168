"""qmlir-record-copies: commands that copy are recorded in each call."""

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
        "IREE records the commands of a program once, and says in each call which buffers they are of. Vulkan's "
        "copies stay those of the first call's buffers: results are of the first call's arguments.",
        canary="copied_again",
    ),
)


@dataclass(frozen=True)
class RecordCopiesPass(Pass):
    """Hides the length of each copy. Runs where IREE has formed commands (`Target.source_passes`): those of numbers
    that it does not know are recorded in each call.
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
