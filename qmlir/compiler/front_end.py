"""What a front end is, the options that it gets, and what it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..errors import Diagnostic

if TYPE_CHECKING:
    from ..core.mlir import ir


@dataclass
class ImportReport:
    """What an import did with each op of the source: the report of `artifact.import_report`.

    Attributes:
        raised: ops that became an operation of the dialect: op, place, what they became.
        fused: ops that a raised one took in: op, place, the place of the one that took it.
        left: quantised ops that stayed as the framework defines them, with the reason; each is a warning too.
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
        """A warning for each quantised op that was left."""
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
        name: what to call the source in locations and errors: its path, or a word.
        settings: options of the front end's own, from `qmlir.compile(..., import_options={...})`.
        report: where the importer says what it did.
    """

    name: str
    settings: Mapping[str, object] = field(default_factory=dict)
    report: ImportReport = field(default_factory=ImportReport)


@runtime_checkable
class FrontEnd(Protocol):
    """An importer. `accepts` must be cheap and must not raise; heavy imports belong into `import_`.

    A front end may also have `fingerprint(obj, settings) -> str | None`: a digest of all that the imported module
    depends on. It saves the import when the compiled program is in the cache. Without it (or when it is None) the
    source is imported and the module's own text is the key.
    """

    @property
    def name(self) -> str: ...

    def accepts(self, obj: object) -> bool:
        """Whether `obj` (what the user gave `qmlir.compile`: a path or an object) is this front end's."""
        ...

    def import_(self, obj: Any, *, context: ir.Context, options: ImportOptions) -> ir.Module:
        """An `ir.Module` in `context` (which is entered), with at least one public function on ranked tensors of
        builtin types.

        Raises:
            QmlirError: with the op or tensor in the message. Anything else is reported as a defect of the plugin.
        """
        ...
