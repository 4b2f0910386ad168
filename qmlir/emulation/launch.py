"""Launches on an emulated device, and the interface of the executors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import QmlirError
from .memory import Memory


class EmulationError(QmlirError):
    """An emulated kernel has a fault, such as a race or an access out of bounds, or the device would refuse it. The
    message names the instruction, the workgroup, and the argument and element that were accessed."""


@dataclass(frozen=True)
class KernelLaunch:
    """One launch of a kernel.

    Attributes:
        code: an AMD code object (ELF) or PTX, as the driver received it.
        function: name of the kernel in it.
        grid: workgroups along x, y, z.
        block: threads of a workgroup along x, y, z.
        shared_bytes: dynamic shared memory (LDS) of a workgroup, in bytes.
        arguments: bytes of the kernel's arguments: AMD's kernarg segment, or the parameters of a CUDA kernel at the
            offsets that its PTX states.
    """

    code: bytes
    function: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: bytes


@dataclass(frozen=True)
class ArgumentLayout:
    """Layout of a kernel's arguments.

    Attributes:
        places: offset and size of each argument in bytes, in their order.
        size: total size of the arguments in bytes.
        hidden: arguments that AMD's runtime adds: kind, offset and size of each.
    """

    places: tuple[tuple[int, int], ...]
    size: int
    hidden: tuple[tuple[str, int, int], ...] = ()


@dataclass
class Counts:
    """Counters of a launch.

    Attributes:
        instructions: by kind ("matrix", "vector", "scalar", "memory", "shared", "branch", "wait", ...), one for
            every instruction of a wave or warp.
        bytes_read, bytes_written: bytes of device memory that the instructions access.
        shared_bytes: bytes of shared memory (LDS) read and written.
        bank_conflicts: extra cycles of accesses to shared memory because lanes use the same bank.
    """

    instructions: dict[str, int] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_written: int = 0
    shared_bytes: int = 0
    bank_conflicts: int = 0

    @classmethod
    def sum(cls, parts: Iterable[Counts]) -> Counts:
        """The sum over several launches."""
        made = cls()
        for part in parts:
            made.add(part)
        return made

    @property
    def total(self) -> int:
        return sum(self.instructions.values())

    def add(self, other: Counts) -> None:
        for kind, count in other.instructions.items():
            self.instructions[kind] = self.instructions.get(kind, 0) + count
        self.bytes_read += other.bytes_read
        self.bytes_written += other.bytes_written
        self.shared_bytes += other.shared_bytes
        self.bank_conflicts += other.bank_conflicts


class InstructionProgress(Protocol):
    """Called now and then with the number of instructions executed so far; raises to stop the launch."""

    def __call__(self, instructions: int) -> None: ...


@dataclass(frozen=True)
class Settings:
    """How to execute.

    Attributes:
        target: target of the program, such as `rocm:gfx942`; its limits are the device's.
        seed: seed of the order of workgroups and waves; None: in the order of their numbers.
        progress: see `InstructionProgress`.
    """

    target: str
    seed: int | None = None
    progress: InstructionProgress | None = None


class Executor(Protocol):
    """Executes launches of one kind of device code."""

    def run(self, launch: KernelLaunch, memory: Memory, settings: Settings) -> Counts:
        """Execute a launch to its end.

        Raises:
            EmulationError: the kernel has a fault, or the device would refuse the launch.
        """
