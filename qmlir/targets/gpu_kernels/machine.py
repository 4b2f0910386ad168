"""What a kernel asks of a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ...core.mlir import ir
from ...kernels.bodies import Rule


class Machine(Protocol):
    """The instructions of a target, at the current insertion point."""

    @property
    def subgroup(self) -> int:
        """Threads that run together; neighbours in a workgroup."""

    @property
    def rules(self) -> Mapping[str, Rule]:
        """Ops of bodies that the target has a better form for."""

    @property
    def bf16_as_bits(self) -> bool:
        """Whether the target has no type of bf16, so that kernels read and write its bits."""

    @property
    def vectors_in_memory(self) -> bool:
        """Whether kernels see memory as vectors, as SPIR-V asks for; else vectors are loaded from memory of scalars."""

    def dot(self, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
        """`total` plus the dot product of two words of four signed codes, i32."""
