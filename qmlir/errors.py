"""The one error hierarchy. Every message says what, where, why and, where it can, what would work."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Diagnostic:
    """One message about one place in the user's program."""

    message: str
    location: str = ""  # "file:line:col", or empty when the program was built in memory
    severity: str = "error"

    def __str__(self) -> str:
        return f"{self.location}: {self.severity}: {self.message}" if self.location else self.message


class SlowFallbackWarning(UserWarning):
    """A part of a program is compiled to code that is known to be slow. `strict` makes it an error."""


class TuningWarning(UserWarning):
    """The tuning database has no record for the program."""


class QmlirError(Exception):
    """Base class of all errors of qmlir."""


class UsageError(QmlirError):
    """The call itself is wrong: an unknown option, a value outside an enumeration, a missing argument."""


class TargetError(QmlirError):
    """An unknown target, a target that cannot do what is asked, or no device for it."""


class DiagnosticsError(QmlirError):
    """Base class of errors with locations in a program."""

    def __init__(self, diagnostics: list[Diagnostic], headline: str = "") -> None:
        self.diagnostics = list(diagnostics)
        self.headline = headline
        super().__init__(str(self))

    def __str__(self) -> str:
        return "\n".join([*([self.headline] if self.headline else []), *map(str, self.diagnostics)])

    def rename(self, old: str, new: str) -> None:
        """Replace the file name `old` by `new` in every location."""
        self.diagnostics = [
            replace(d, location=new + d.location[len(old) :]) if d.location.startswith(f"{old}:") else d
            for d in self.diagnostics
        ]


class ParseError(DiagnosticsError):
    """The input is not MLIR."""


class VerifyError(DiagnosticsError):
    """An op of the dialect violates its definition."""


class FrontEndError(DiagnosticsError):
    """A front end could not import a source; each diagnostic names an op or a tensor."""


class PassError(DiagnosticsError):
    """A pass failed on a program. `reproducer` is a file with the IR and the command that repeats the failure."""

    def __init__(
        self,
        diagnostics: list[Diagnostic],
        headline: str = "",
        *,
        pass_name: str = "",
        reproducer: Path | None = None,
    ) -> None:
        self.pass_name = pass_name
        self.reproducer = reproducer
        super().__init__(diagnostics, headline)

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\nreproducer: {self.reproducer}" if self.reproducer else text


class CompileError(DiagnosticsError):
    """IREE refused a program that qmlir's passes accepted, or crashed on it."""


class ArtifactError(QmlirError):
    """A `.vmfb` that is truncated, damaged, of another program, or made for another host."""


class CheckpointError(QmlirError):
    """A checkpoint that is truncated, damaged, hostile, or contradicts its configuration."""


class InputError(QmlirError):
    """Arguments of a compiled function that do not match its signature, or values out of range."""


def runtime_reason(e: Exception) -> str:
    """The message in an IREE error `where: STATUS; message; while ...`, without the places in IREE's sources."""
    first = str(e).splitlines()[0] if str(e) else type(e).__name__
    parts = [p.strip() for p in first.split(";") if p.strip()]
    return parts[1] if len(parts) > 1 else first


def caller() -> int:
    """The `stacklevel` of the first frame outside of this package, for a warning by the calling function."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "qmlir":
        level, frame = level + 1, frame.f_back
    return level
