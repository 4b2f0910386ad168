"""qmlir-verify: every op of the dialect obeys its definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...dialect import ops as _ops  # noqa: F401  (defines the dialect)
from ...dialect.ods import verify_module
from ...errors import VerifyError
from ..base import Pass, State


@dataclass(frozen=True)
class VerifyPass(Pass):
    """Ops of an unregistered namespace have no C++ verifier; this is theirs. Runs first and after every pass
    that builds our ops."""

    name: ClassVar[str] = "qmlir-verify"
    summary: ClassVar[str] = "check structure, types, shapes and attributes of every qmlir op"

    def run(self, module: Any, state: State) -> None:
        found = verify_module(module)
        if found:
            raise VerifyError(found)
