"""qmlir-verify: check every op of the dialect against its definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...dialect import ops as _ops  # noqa: F401  (defines the dialect)
from ...dialect.ods import verify_module
from ...errors import VerifyError
from ..base import Pass, State

if TYPE_CHECKING:
    from ...core.mlir import ir


@dataclass(frozen=True)
class VerifyPass(Pass):
    """Ops of an unregistered namespace have no C++ verifier; this pass verifies them. It runs first, and after every
    pass that builds qmlir ops.
    """

    name: ClassVar[str] = "qmlir-verify"
    summary: ClassVar[str] = "check structure, types, shapes and attributes of every qmlir op"

    def run(self, module: ir.Module, state: State) -> None:
        found = verify_module(module)
        if found:
            raise VerifyError(found)
