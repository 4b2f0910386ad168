"""Turns a source into a builder, which makes the module of its program in a context."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ..core.mlir import ir
from ..errors import Diagnostic, ParseError, UsageError
from .parsing import parse, show
from .registry import ImportedSource, find, front_ends


@dataclass(frozen=True)
class MlirSource:
    """A source that the compiler reads itself; called with a context, it parses."""

    text: str
    name: str

    def __call__(self, ctx: ir.Context) -> ir.Module:
        return parse(self.text, self.name)

    @property
    def path(self) -> str | None:
        """The file that the text is from; None if there is none."""
        return None if self.name == "-" else self.name

    @property
    def settings(self) -> Mapping[str, object]:
        return {}

    def key(self) -> str:
        return self.text


SourceProgram = MlirSource | ImportedSource

_WEIGHTS = "the file holds weights and no program; `qmlir import` makes a program of the files of a checkpoint"
_INSTEAD = {
    ".safetensors": _WEIGHTS,
    ".gguf": _WEIGHTS,
    ".vmfb": "the file is compiled already; `qmlir run` and qmlir.load take it",
    ".tflite": "the file is a TensorFlow Lite model, for which there is no front end; convert it to ONNX",
}


def program_of(source: object, settings: Mapping[str, object], start: str = "import") -> SourceProgram:
    """The builder of a source's program: called with a context, it parses or imports the source."""
    found = find(source)
    if found is None:
        if settings:
            raise UsageError(f"the source is MLIR, which takes no import options ({', '.join(sorted(settings))})")
        return MlirSource(*_source_text(source))
    if start != "import":
        raise UsageError(f"{found} imports sources, which start at level 'import', not at {start!r}")
    return ImportedSource(found, source, settings)


def builder(source: object, import_options: Mapping[str, object] | None = None) -> Callable[[ir.Context], ir.Module]:
    """A function that makes the module of a source in a context, for tools that do not compile programs."""
    return program_of(source, import_options or {})


def _source_text(source: object) -> tuple[str, str]:
    """Text and name of a source."""
    if isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source):
        path = Path(source)
        try:
            return path.read_text(), str(path)
        except UnicodeDecodeError:
            remedy = _INSTEAD.get(path.suffix, "the file is not MLIR text")
            raise ParseError([Diagnostic(remedy, f"{path}:1:1")]) from None
        except OSError as e:
            if isinstance(source, str) and "@" in source:
                return source, "-"
            raise UsageError(f"cannot read {path}: {e.strerror or e}") from None
    if isinstance(source, str):
        return source, "-"
    if hasattr(source, "operation"):
        return show(cast(ir.Module, source)), "-"
    if any(c.__module__.startswith("torch.") and c.__qualname__ == "Module" for c in type(source).__mro__):
        raise UsageError(
            f"cannot compile a torch module ({type(source).__qualname__}) before it is exported: give "
            "torch.export.export(model, args), or call torch.compile(model, backend='qmlir')"
        )
    raise UsageError(
        f"cannot compile a {type(source).__module__}.{type(source).__qualname__}; give the path of an .mlir file, MLIR "
        f"text, an ir.Module, or what a front end accepts ({', '.join(f.name for f in front_ends())})"
    )
