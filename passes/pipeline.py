"""Pipelines: parse the text of a pipeline, in which Python and C++ passes mix, and run it.

Example: `qmlir-verify,qmlir-fold,func.func(canonicalize,cse)`. A name in the registry is a Python pass; any other
element is passed to MLIR's own PassManager unchanged.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from .. import settings
from ..core.mlir import ir, passmanager
from ..core.spelling import location_text
from ..errors import Diagnostic, DiagnosticsError, PassError, UsageError
from ..ir.walk import collect
from .base import Pass, State
from .registry import PASSES, UPSTREAM, parse_pass

if TYPE_CHECKING:
    from ..core.mlir import OpLike

AfterPass: TypeAlias = "Callable[[str, ir.Module], None]"  # (text of the pass, module)


@dataclass(frozen=True)
class CxxPass:
    """A pass, or a nest of passes, of MLIR or IREE."""

    source: str

    def text(self) -> str:
        return self.source


@dataclass
class Pipeline:
    """A sequence of passes over a `builtin.module`."""

    steps: list[Pass | CxxPass]
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Pipeline:
        """Parse a pipeline. Raises UsageError with similar names for an unknown pass or option."""
        text = text.strip()
        if text.startswith("builtin.module(") and text.endswith(")"):
            text = text[len("builtin.module(") : -1]
        steps: list[Pass | CxxPass] = []
        for part in _split(text):
            name = part.split("{", 1)[0].strip()
            if name in PASSES or name.startswith("qmlir-"):
                steps.append(parse_pass(part))
            else:
                _check_cxx(part)
                steps.append(CxxPass(part))
        return cls(steps)

    def text(self) -> str:
        return ",".join(step.text() for step in self.steps)

    def run(self, module: ir.Module, state: State, *, after: AfterPass | None = None, reproducer: bool = True) -> None:
        """Run every pass on `module` in place.

        Raises:
            DiagnosticsError: from the pass that failed; a PassError names a reproducer file.
        """
        reproducer = reproducer and _small(module)
        for i, step in enumerate(self.steps):
            # The clone shares its constants; it is printed only if a pass fails.
            before = module.operation.clone() if reproducer else None
            start = time.perf_counter()
            try:
                if isinstance(step, Pass):
                    step.run(module, state)
                    _check(step, module)
                else:
                    _run_cxx(step, module)
            except PassError as e:
                e.pass_name = e.pass_name or step.text()
                if before is not None and _small(before):
                    rest = ",".join(s.text() for s in self.steps[i:])
                    e.reproducer = write_reproducer(str(before), rest)
                raise
            self.seconds[step.text()] = self.seconds.get(step.text(), 0.0) + time.perf_counter() - start
            if after is not None:
                after(step.text(), module)


def undeclared(text: str) -> list[str]:
    """The elements of a pipeline that a file may not name: passes that are neither qmlir's nor in `registry.UPSTREAM`,
    and upstream passes with options, some of which write files.

    Raises:
        UsageError: brackets do not match, or a pass of qmlir has an unknown option.
    """
    found = []
    for part in _split(text):
        name = part.split("{", 1)[0].strip()
        nest = re.fullmatch(r"[\w.]+\((.*)\)", part, re.S)
        if nest is not None:
            found += undeclared(nest[1])
        elif name in PASSES:
            parse_pass(part)
        elif part not in UPSTREAM:
            found.append(part)
    return found


def _small(module: OpLike | ir.Module) -> bool:
    """Whether the module is small enough to print for a reproducer: constants of 2^20 elements or more are splats."""

    def large(op: OpLike) -> bool:
        t = op.results[0].type
        if not isinstance(t, ir.RankedTensorType):
            return False
        count = prod(t.get_dim_size(i) for i in range(t.rank))
        # A resource (front ends store large weights in these) does not tell whether it is a splat: it counts as large.
        return count >= 1 << 20 and not getattr(op.attributes["value"], "is_splat", False)

    return not collect(module, "arith.constant", where=large)


def write_reproducer(ir_text: str, pipeline: str) -> Path:
    """Write a file whose first line is the command that repeats the failure."""
    digest = hashlib.sha256((ir_text + pipeline).encode()).hexdigest()[:12]
    folder = settings.reproducer_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"qmlir-reproducer-{digest}.mlir"
    command = f"qmlir-opt --pass-pipeline={shlex.quote(pipeline)} {path}"
    path.write_text(f"// {command}\n{ir_text}")
    return path


def _check(step: Pass, module: ir.Module) -> None:
    """Verify the IR that a Python pass built, because C++ passes crash on invalid IR."""
    try:
        module.operation.verify()
    except ir.MLIRError as e:
        raise PassError(mlir_diagnostics(e), f"pass {step.text()} built invalid IR:", pass_name=step.text()) from None


def _run_cxx(step: CxxPass, module: ir.Module) -> None:
    manager = passmanager.PassManager.parse(f"builtin.module({step.source})")
    try:
        manager.run(module.operation)
    except ir.MLIRError as e:
        raise PassError(mlir_diagnostics(e), pass_name=step.source) from None


def mlir_diagnostics(e: ir.MLIRError) -> list[Diagnostic]:
    """The errors of an MLIRError as `Diagnostic`s."""
    found = [Diagnostic(d.message, location_text(d.location)) for d in e.error_diagnostics]
    return found or [Diagnostic(str(e))]


def _check_cxx(text: str) -> None:
    with ir.Context():
        try:
            passmanager.PassManager.parse(f"builtin.module({text})")
        except ValueError as e:
            known = ", ".join(PASSES)
            inner = next((name for name in re.findall(r"[\w.-]+", text) if name in PASSES), None)
            if inner is not None:
                raise UsageError(f"pass {inner!r} runs on the whole module; write it outside of {text!r}") from None
            # MLIR's first line is "MLIR Textual PassPipeline Parser:1:1: error: ...".
            reason = str(e).strip().splitlines()[0].rpartition(": error: ")[2]
            raise UsageError(f"cannot read the pass {text!r}: {reason}; passes of qmlir: {known}") from None


def _split(text: str) -> Iterator[str]:
    """Top-level elements of a pipeline, split at commas outside brackets."""
    depth, start = 0, 0
    for i, ch in enumerate(text):
        depth += (ch in "({<[") - (ch in ")}>]")
        if depth < 0:
            break
        if ch == "," and depth == 0:
            if text[start:i].strip():
                yield text[start:i].strip()
            start = i + 1
    if depth != 0:
        raise UsageError(f"brackets do not match in the pipeline {text!r}")
    if text[start:].strip():
        yield text[start:].strip()


__all__ = ["CxxPass", "DiagnosticsError", "Pipeline", "mlir_diagnostics", "write_reproducer"]
