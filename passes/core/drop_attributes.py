"""qmlir-drop-attributes: drop qmlir's own attributes, which IREE does not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...ir.barriers import BARRIER_REASON
from ...ir.walk import collect
from ..base import Pass, State

if TYPE_CHECKING:
    from ...core.mlir import ir


@dataclass(frozen=True)
class DropAttributesPass(Pass):
    """Drops the facts (`qmlir/ir/facts.py`) of ops, which only qmlir's kernels and passes read. The reasons of fusion
    barriers stay, because they decide which barriers are removed once IREE has formed dispatches."""

    name: ClassVar[str] = "qmlir-drop-attributes"
    summary: ClassVar[str] = "drop the attributes that qmlir's passes have written on ops"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module):
            for name in [a if isinstance(a, str) else a.name for a in op.attributes]:
                if name.startswith("qmlir.") and name != BARRIER_REASON:
                    del op.attributes[name]
