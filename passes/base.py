"""The base class of passes: a pass is a frozen dataclass whose fields are its options.

The text `name{option=value ...}` of a pipeline and the dataclass convert to each other (`Pass.text`,
`registry.parse_pass`). A pass changes a module in place and reports through the `State` that it is given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ..core.spelling import location_text
from ..errors import Diagnostic, PassError
from ..targets.strategy import Decision

if TYPE_CHECKING:
    from ..core.mlir import OpLike, ir
    from ..dialect.dtypes import Array


@dataclass
class State:
    """State that the passes of one pipeline run share: their decisions and notes, for the manifest and for reports."""

    decisions: list[Decision] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)  # remarks and warnings, shown once
    # Loads the array of a named parameter; set by the compiler if parameter files were given.
    parameters: Callable[[str, str], Array] | None = None


class Pass:
    """Base of Python passes. Subclasses are frozen dataclasses with a `name` and a `summary`."""

    name: ClassVar[str]
    summary: ClassVar[str]

    def run(self, module: ir.Module, state: State) -> None:
        """Change `module` (an `ir.Module`) in place.

        Raises:
            PassError: with one diagnostic for each place that stopped the pass.
        """
        raise NotImplementedError

    def text(self) -> str:
        """The pass as written in a pipeline, without the options that have their default values."""
        options = []
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if value != f.default:
                spelled = str(value).lower() if isinstance(value, bool) else str(value)
                options.append(f"{f.name.replace('_', '-')}={spelled}")
        return self.name + ("{" + " ".join(options) + "}" if options else "")


def error_at(op: OpLike, message: str) -> Diagnostic:
    """A diagnostic at `op`'s location."""
    return Diagnostic(message, location_text(op.location))


def fail(pass_name: str, diagnostics: list[Diagnostic]) -> None:
    """Raise PassError if there are diagnostics."""
    if diagnostics:
        raise PassError(diagnostics, pass_name=pass_name)


__all__ = ["Diagnostic", "Pass", "PassError", "State", "dataclass", "error_at", "fail"]
