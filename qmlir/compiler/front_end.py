"""The protocol of front ends, the options that they get, and the report that they fill in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..errors import Diagnostic

if TYPE_CHECKING:
    from ..core.mlir import ir


@dataclass
class ImportReport:
    """What an import did with each op of the source, as shown by `artifact.import_report`.

    Attributes:
        raised: ops that became an operation of the dialect: op, location, that operation.
        fused: ops that became part of a raised op: op, location, location of the raised op.
        left: quantised ops that keep their framework's float definition, with the reason; each is also a warning.
    """

    raised: list[dict[str, str]] = field(default_factory=list)
    fused: list[dict[str, str]] = field(default_factory=list)
    left: list[dict[str, str]] = field(default_factory=list)

    def add_raised(self, op: str, where: str, became: str) -> None:
        self.raised.append({"op": op, "where": where, "became": became})

    def add_fused(self, op: str, where: str, into: str) -> None:
        self.fused.append({"op": op, "where": where, "into": into})

    def add_left(self, op: str, where: str, reason: str) -> None:
        self.left.append({"op": op, "where": where, "reason": reason})

    def warnings(self) -> list[Diagnostic]:
        """A warning for each op of `left`."""
        return [
            Diagnostic(f"quantised op {e['op']} is not raised and runs as its framework's float definition: "
                       f"{e['reason']}", e["where"], "warning")
            for e in self.left
        ]  # fmt: skip

    def to_json(self) -> dict[str, list[dict[str, str]]]:
        return {"raised": self.raised, "fused": self.fused, "left": self.left}


@dataclass(frozen=True)
class ImportOptions:
    """The options of an import, and its report.

    Attributes:
        name: name of the source in locations and errors: its path, or a word.
        settings: the front end's own options, from `qmlir.compile(..., import_options={...})`.
        report: the report that the importer fills in.
    """

    name: str
    settings: Mapping[str, object] = field(default_factory=dict)
    report: ImportReport = field(default_factory=ImportReport)


@runtime_checkable
class FrontEnd(Protocol):
    """An importer. `accepts` must be cheap and must not raise; heavy imports belong in `import_`.

    A front end may also have `fingerprint(obj, settings) -> str | None`: a digest of everything that the imported
    module depends on. With it, no import is needed if the compiled program is in the cache. Without it, or if it
    returns None, the source is imported and the module's text is the cache key.
    """

    @property
    def name(self) -> str: ...

    def accepts(self, obj: object) -> bool:
        """Whether this front end imports `obj`, a path or an object that the user passed to `qmlir.compile`."""
        ...

    def import_(self, obj: Any, *, context: ir.Context, options: ImportOptions) -> ir.Module:
        """Return an `ir.Module` in `context`, which is entered, with at least one public function on ranked tensors of
        builtin types.

        Raises:
            QmlirError: with the op or tensor in the message. Other exceptions are reported as defects of the plugin.
        """
        ...
