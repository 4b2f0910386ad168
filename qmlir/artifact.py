"""Artifacts: a compiled program, one `.vmfb`, with its manifest inside.

The manifest is the reflection attribute `qmlir.manifest` of the first function, so that the file stays a plain
IREE module that `iree-run-module` runs too.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .errors import ArtifactError, Diagnostic, QmlirError
from .files import write_atomically
from .spec import Signature

MANIFEST_KEY = "qmlir.manifest"


@dataclass
class Artifact:
    """What `qmlir.compile` returns."""

    vmfb: bytes = field(repr=False)
    manifest: dict[str, Any] = field(repr=False)
    path: Path | None = None
    # Compiles the same source again for the text of a level, or of one dispatch of it.
    rebuild: Callable[[str, str | None], str] | None = field(default=None, repr=False, compare=False)

    @property
    def target(self) -> str:
        return str(self.manifest["target"])

    @property
    def functions(self) -> dict[str, Signature]:
        return {name: Signature.from_json(f) for name, f in self.manifest["functions"].items()}

    @property
    def notes(self) -> list[Diagnostic]:
        """What the compiler had to say of the program: parts that are known to be slow on the target."""
        return [Diagnostic(**n) for n in self.manifest.get("notes", [])]

    @property
    def import_report(self) -> dict[str, list[dict[str, str]]] | None:
        """What the front end raised, fused and left, with reasons; None for MLIR."""
        return self.manifest.get("import")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the `.vmfb`, all of it or nothing. Raises UsageError when the place cannot be written."""
        self.path = write_atomically(Path(path), self.vmfb)
        return self.path

    def source(self, level: str, dispatch: str | None = None, *, read_outside: bool = False) -> str:
        """The program at a level: `import`, `qmlir`, `linalg`, `configured`; `dispatch`, the IR of each dispatch that
        IREE forms; or the device code `asm`, `ptx`, `isa`, `spirv`. `dispatch` names one of them.

        It is built again: an artifact that was loaded from a file finds its source by the path in its manifest. Of
        what the manifest asks for, only what qmlir declares is done, and files that lie neither beside the artifact nor
        in the current folder are read only with `read_outside`.

        Raises:
            UsageError: an unknown level or dispatch, or a source that is gone, has changed or lies outside.
            ArtifactError: a manifest that asks for flags or passes that qmlir does not declare.
        """
        if self.rebuild is None:
            from .rebuilding import rebuilder

            self.rebuild = rebuilder(self, read_outside)
        return self.rebuild(level, dispatch)

    def _repr_html_(self) -> str:
        from .inspection import inspect

        return inspect(self)._repr_html_()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, sha256: str | None = None) -> Artifact:
        """Read a `.vmfb` that qmlir made.

        Args:
            sha256: of the whole file; another one is refused before anything in it is looked at.

        Raises:
            ArtifactError: missing, truncated, damaged, foreign, or not the file that is expected.
        """
        p = Path(path)
        try:
            data = p.read_bytes()
        except OSError as e:
            raise ArtifactError(f"cannot read {p}: {e.strerror or e}") from None
        if sha256 is not None:
            from .signing import check_digest

            check_digest(data, sha256, str(p))
        return replace(cls.of(data, str(p)), path=p)

    @classmethod
    def of(cls, data: bytes, name: str = "the program") -> Artifact:
        """The artifact of the bytes of a `.vmfb`.

        Raises:
            ArtifactError: truncated, damaged or foreign.
        """
        check_container(data, name)
        return cls(data, read_manifest(data, name))


def check_container(data: bytes, name: str) -> None:
    """A `.vmfb` is also a zip archive: its directory at the end and its checksums find truncation and damage,
    which IREE's own check of the flatbuffer does not."""
    if len(data) < 64:
        raise ArtifactError(f"{name} is no .vmfb: it has {len(data)} bytes")
    try:
        if not zipfile.is_zipfile(io.BytesIO(data)):
            raise ArtifactError(f"{name} is truncated or no .vmfb: the archive directory at its end is missing")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            broken = archive.testzip()
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, ArithmeticError, EOFError, MemoryError, RuntimeError,
            struct.error, zlib.error) as e:  # fmt: skip
        raise ArtifactError(f"{name} is damaged: {e}") from None
    if broken is not None:
        raise ArtifactError(f"{name} is damaged: the checksum of its part {broken!r} does not match")
    if "module.fb" not in names:
        raise ArtifactError(f"{name} is no .vmfb: it is an archive without a module")


def read_manifest(data: bytes, name: str) -> dict[str, Any]:
    """The manifest inside a `.vmfb`."""
    from .runtime import reflection

    text = reflection(data, name, MANIFEST_KEY)
    if text is None:
        raise ArtifactError(f"{name} was not made by qmlir: it is an IREE module without a manifest")
    try:
        manifest = json.loads(text)
    except ValueError:
        raise ArtifactError(f"{name} is damaged: its manifest is no JSON") from None
    return check_manifest(manifest, name)


def check_manifest(manifest: Any, name: str = "the program") -> dict[str, Any]:
    """The manifest, once its parts have the form that we write. What it says is not trusted beyond that.

    Raises:
        ArtifactError: naming the part.
    """
    if not isinstance(manifest, dict) or "functions" not in manifest or "target" not in manifest:
        raise ArtifactError(f"{name} is damaged: its manifest lacks functions or target")
    if "driver" not in manifest:
        raise ArtifactError(f"{name} is damaged: its manifest lacks the driver")
    for part, check in _PARTS.items():
        try:
            sound = part not in manifest or check(manifest[part])
        except (KeyError, TypeError, ValueError, AttributeError, QmlirError):
            sound = False
        if not sound:
            raise ArtifactError(f"{name} is damaged: its manifest's {part!r} is not what qmlir writes")
    return manifest


def _texts(value: Any, count: int | None = None) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value) and count in (None, len(value))


def _size(value: Any) -> bool:
    return value is None or (type(value) is int and 0 <= value < 2**63)


def _notes(value: Any) -> bool:
    return all(isinstance(v, str) for n in value for v in asdict(Diagnostic(**n)).values())


def _functions(value: Any) -> bool:
    made = {name: Signature.from_json(f) for name, f in value.items()}
    return bool(made) and all(isinstance(n, str) for s in made.values() for n, _ in s.inputs)


def _contraction(row: Any) -> bool:
    named = all(isinstance(row[k], str) for k in ("kind", "lhs", "rhs", "acc", "location", "chosen"))
    sizes = all(_size(x) for x in [*row["batch"], row["m"], row["n"], row["k"]])
    return named and sizes and isinstance(row["batch"], list) and all(_answer(a) for a in row["answers"])


def _answer(a: Any) -> bool:
    if not (isinstance(a["strategy"], str) and isinstance(a["accepted"], bool)):
        return False
    if not a["accepted"]:
        return isinstance(a["reason"], str) and isinstance(a["remedy"], str)
    seconds = a["seconds"]
    return isinstance(a["plan"], dict) and isinstance(a["note"], str) and (
        seconds is None or (isinstance(seconds, (int, float)) and 0 <= seconds < 1e9)
    )  # fmt: skip


def _schemes(value: Any) -> bool:
    from .inspection import scheme_text

    return isinstance(value, list) and all(isinstance(scheme_text(s), str) for s in value)


def _roles(value: Any) -> bool:
    return all(isinstance(row, dict) for rows in value.values() for row in rows)


def _report(value: Any) -> bool:
    return value is None or all(
        isinstance(v, str) for part in ("raised", "fused", "left") for row in value[part] for v in row.values()
    )


def _source(value: Any) -> bool:
    if value is None:
        return True
    options = value["options"]
    known = {"pipeline", "start", "parameters", "keep_parameters", "flags", "choice"}
    return (
        isinstance(value["path"], str) and isinstance(value["sha256"], str)
        and isinstance(value["import_options"], dict) and isinstance(options, dict) and set(options) <= known
        and _texts(options["flags"]) and isinstance(options["start"], str) and isinstance(options["parameters"], dict)
        and isinstance(options.get("choice", {}), dict)
    )  # fmt: skip


_PARTS: dict[str, Callable[[Any], bool]] = {
    "target": lambda v: isinstance(v, str),
    "driver": lambda v: isinstance(v, str),
    "pipeline": lambda v: isinstance(v, str),
    "qmlir": lambda v: isinstance(v, str),
    "iree": lambda v: isinstance(v, str),
    "functions": _functions,
    "notes": _notes,
    "cpu_features": _texts,
    "parameters": _texts,
    "parameter_types": lambda v: isinstance(v, list) and all(isinstance(p["scope"], str) for p in v),
    "capabilities": lambda v: isinstance(v, dict),
    "arguments": _roles,
    "ops": lambda v: all(isinstance(k, str) and type(n) is int for k, n in v.items()),
    "schemes": _schemes,
    "strategies": lambda v: isinstance(v, list) and all(_contraction(row) for row in v),
    "has_state": lambda v: isinstance(v, bool),
    "work": _size,
    "task_work": _size,
    "packer": lambda v: v is None or isinstance(v, str),
    "borrowed": lambda v: all(type(i) is int for numbers in v.values() for i in numbers),
    "import": _report,
    "source": _source,
}
