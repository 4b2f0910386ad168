"""The registered front ends: qmlir's, and entry points of group `qmlir.frontends`, loaded if a source is not MLIR."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TypeVar

from ..core.mlir import context, ir
from ..errors import Diagnostic, DiagnosticsError, FrontEndError, QmlirError
from .front_end import FrontEnd, ImportOptions, ImportReport
from .patterns import foreign_patterns

GROUP = "qmlir.frontends"

# qmlir's front ends, in the order in which they are asked. They are listed here because a checkout that is not
# installed has no entry points. A new front end is one folder, one line here and one line in pyproject.toml.
BUILT_IN: dict[str, str] = {
    "onnx": "qmlir.frontends.onnx:OnnxFrontEnd",
    "torch": "qmlir.frontends.torch:TorchFrontEnd",
}

T = TypeVar("T")


@dataclass(frozen=True)
class Registered:
    """A front end and where it comes from."""

    name: str
    origin: str  # "qmlir", or the distribution that brought it
    front_end: FrontEnd

    def __str__(self) -> str:
        return _title(self.name, self.origin)

    def accepts(self, source: object) -> bool:
        return bool(self._called(lambda: self.front_end.accepts(source), "could not read the source"))

    def fingerprint(self, source: object, settings: Mapping[str, object]) -> str | None:
        """The front end's own digest of a source. None if it has none, or if there are raising patterns of other
        packages, on which the imported module may depend as well."""
        own = getattr(self.front_end, "fingerprint", None)
        if own is None or foreign_patterns():
            return None
        found = self._called(lambda: own(source, settings), "could not read the source")
        return None if found is None else f"{self.name} {self.origin} {found}"

    def import_(self, source: object, context: ir.Context, options: ImportOptions) -> ir.Module:
        """Import a source. Raises FrontEndError, which names this front end."""
        module = self._called(
            lambda: self.front_end.import_(source, context=context, options=options), f"could not import {options.name}"
        )
        if not isinstance(module, ir.Module):
            raise FrontEndError([], f"{self} gave a {type(module).__name__} for {options.name}, not an ir.Module")
        if module.context != context:
            raise FrontEndError([], f"{self} built the module of {options.name} in a context of its own; it must use "
                                "the one it was given")  # fmt: skip
        return module

    def _called(self, call: Callable[[], T], failed: str) -> T:
        return _called(call, f"{self} {failed}:")


def _title(name: str, origin: str) -> str:
    return f"front end {name!r}" + ("" if origin == "qmlir" else f" (of {origin})")


def _called(call: Callable[[], T], headline: str) -> T:
    """The result of `call`. Its exceptions become FrontEndErrors that begin with `headline`, a front end's name."""
    try:
        return call()
    except FrontEndError as e:
        raise FrontEndError(e.diagnostics, f"{headline} {e.headline}" if e.headline else headline) from e.__cause__
    except DiagnosticsError as e:
        raise FrontEndError(e.diagnostics, headline) from None
    except QmlirError as e:
        raise FrontEndError([Diagnostic(str(e))], headline) from None
    except RecursionError:
        raise FrontEndError([Diagnostic("the source is nested too deeply")], headline) from None
    except Exception as e:
        text = (str(e).strip().splitlines() or [""])[0]
        raise FrontEndError([Diagnostic(f"{type(e).__name__}: {text}")], headline) from e


def _made(loaded: object) -> object:
    """The front end that an entry point names: an instance, a class to instantiate, or a module."""
    return loaded() if isinstance(loaded, type) else loaded


@cache
def _built_in(name: str) -> Registered:
    module, _, attribute = BUILT_IN[name].partition(":")
    made: FrontEnd = getattr(importlib.import_module(module), attribute)()
    return Registered(name, "qmlir", made)


def _load(entry: EntryPoint) -> Registered:
    distribution = entry.dist
    origin = f"{distribution.name} {distribution.version}" if distribution is not None else entry.value
    title = _title(entry.name, origin)
    found = _called(lambda: _made(entry.load()), f"{title} could not be loaded:")
    if not isinstance(found, FrontEnd):
        missing = next(needed for needed in ("name", "accepts", "import_") if not hasattr(found, needed))
        raise FrontEndError([], f"{title} has no {missing!r}: it is not a front end")
    return Registered(str(found.name), origin, found)


def front_ends() -> list[Registered]:
    """Every front end in the order in which they are asked: those of qmlir, then the others by the name of their entry
    point.

    Raises FrontEndError for one that does not load.
    """
    others = sorted((e for e in entry_points(group=GROUP) if e.value not in BUILT_IN.values()), key=lambda e: e.name)
    return [*map(_built_in, BUILT_IN), *map(_load, others)]


def _is_mlir(source: object) -> bool:
    """Whether the compiler reads a source itself, without a front end."""
    if isinstance(source, str) and ("\n" in source or "@" in source):
        return not Path(source).is_file() if "\n" not in source else True
    if isinstance(source, (str, os.PathLike)):
        return Path(source).suffix in (".mlir", "")
    return hasattr(source, "operation")


def find(source: object) -> Registered | None:
    """The first front end that accepts a source; None if there is none, or if the source is MLIR."""
    if _is_mlir(source):
        return None
    return next((f for f in front_ends() if f.accepts(source)), None)


class ImportedSource:
    """A source with its front end, as a builder of programs: called with a context, it imports the source."""

    def __init__(self, front_end: Registered, source: object, settings: Mapping[str, object]) -> None:
        self._front_end, self._source, self.settings = front_end, source, dict(settings)
        self.report = ImportReport()
        self._key: str | None = None

    @property
    def name(self) -> str:
        """The path of the source, or the type of an object."""
        return self.path or type(self._source).__name__

    @property
    def path(self) -> str | None:
        """The path of the source; None for an object."""
        return os.fspath(self._source) if isinstance(self._source, (str, os.PathLike)) else None

    def __call__(self, context: ir.Context) -> ir.Module:
        """Import the source into `context`, and set `report` to the report of this import."""
        self.report = ImportReport()
        options = ImportOptions(self.name, self.settings, self.report)
        return self._front_end.import_(self._source, context, options)

    def key(self) -> str:
        """A digest of the source's content for the cache. It is computed once, because it may need an import."""
        if self._key is None:
            self._key = self._front_end.fingerprint(self._source, self.settings) or self._text_digest()
        return self._key

    def _text_digest(self) -> str:
        with context() as ctx:
            text = self(ctx).operation.get_asm(enable_debug_info=True)
        return hashlib.sha256(text.encode()).hexdigest()
