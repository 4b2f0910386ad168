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
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..core import rebuilding
from ..core.files import write_atomically
from ..core.hal import reflection
from ..errors import ArtifactError, Diagnostic
from ..signing import check_digest
from ..spec import Signature
from .inspection import inspection
from .manifest import Manifest

MANIFEST_KEY = "qmlir.manifest"
# Extensions of sources, which users sometimes pass in place of a `.vmfb`.
SOURCES = (".mlir", ".onnx", ".pt2")


@dataclass
class Artifact:
    """A compiled program, as `qmlir.compile` returns it: the bytes of a `.vmfb` and its manifest."""

    vmfb: bytes = field(repr=False)
    manifest: Manifest = field(repr=False)
    path: Path | None = None
    # Compiles the same source again for the text of a level, or of one dispatch of it.
    rebuild: Callable[[str, str | None], str] | None = field(default=None, repr=False, compare=False)

    @property
    def target(self) -> str:
        """The target that the program is compiled for, such as `cuda:sm_90a`."""
        return self.manifest.target

    @property
    def functions(self) -> dict[str, Signature]:
        """The signature of each function of the program, by name."""
        return dict(self.manifest.functions)

    @property
    def notes(self) -> list[Diagnostic]:
        """Diagnostics of the compiler about parts that are known to be slow on the target."""
        return list(self.manifest.notes)

    @property
    def import_report(self) -> dict[str, list[dict[str, str]]] | None:
        """The ops that the front end raised, fused and left, with reasons; None for a program in MLIR."""
        return self.manifest.import_report

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the `.vmfb` atomically, and return its path. Raises UsageError when it cannot be written."""
        self.path = write_atomically(Path(path), self.vmfb)
        return self.path

    def source(self, level: str, dispatch: str | None = None, *, read_outside: bool = False) -> str:
        """The program at a level: `import`, `qmlir`, `linalg`, `configured`; `dispatch`, the IR of each dispatch that
        IREE forms; or the device code `asm`, `ptx`, `isa`, `spirv`. The argument `dispatch` selects one dispatch.

        The program is compiled again. An artifact that was loaded from a file finds its source by the path in its
        manifest. Flags and passes that the manifest names are applied only if qmlir declares them, and files outside
        the artifact's folder and the current folder are read only with `read_outside`.

        Raises:
            UsageError: an unknown level or dispatch, or a source that is gone, has changed or is in another folder.
            ArtifactError: a manifest that asks for flags or passes that qmlir does not declare.
        """
        if self.rebuild is None:
            self.rebuild = rebuilding.registered()(self, read_outside)
        return self.rebuild(level, dispatch)

    def _repr_html_(self) -> str:
        return inspection(self.vmfb, self.manifest, self.path)._repr_html_()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, sha256: str | None = None) -> Artifact:
        """Read a `.vmfb` that qmlir made.

        Args:
            sha256: digest of the whole file; a file with another digest is refused before its content is read.

        Raises:
            ArtifactError: the file is missing, truncated, damaged, foreign, or has another digest.
        """
        p = Path(path)
        try:
            data = p.read_bytes()
        except OSError as e:
            raise ArtifactError(f"cannot read {p}: {e.strerror or e}") from None
        if sha256 is not None:
            check_digest(data, sha256, str(p))
        try:
            return replace(cls.of(data, str(p)), path=p)
        except ArtifactError as e:
            if p.suffix in SOURCES:
                raise ArtifactError(f"{e}; qmlir compile {p} makes one") from None
            raise

    @classmethod
    def of(cls, data: bytes, name: str = "the program") -> Artifact:
        """The artifact of the bytes of a `.vmfb`.

        Raises:
            ArtifactError: the bytes are truncated, damaged or foreign.
        """
        check_container(data, name)
        return cls(data, read_manifest(data, name))


def check_container(data: bytes, name: str) -> None:
    """Check the zip archive that a `.vmfb` also is. The directory at its end and its checksums reveal truncation and
    damage, which IREE's own check of the flatbuffer does not.

    Raises:
        ArtifactError: the archive is truncated, damaged or foreign.
    """
    if len(data) < 64:
        raise ArtifactError(f"{name} is not a .vmfb: it has {len(data)} bytes")
    try:
        if not zipfile.is_zipfile(io.BytesIO(data)):
            raise ArtifactError(f"{name} is truncated or not a .vmfb: the archive directory at its end is missing")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            broken = archive.testzip()
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, ArithmeticError, EOFError, MemoryError, RuntimeError,
            struct.error, zlib.error) as e:  # fmt: skip
        raise ArtifactError(f"{name} is damaged: {e}") from None
    if broken is not None:
        raise ArtifactError(f"{name} is damaged: the checksum of its part {broken!r} does not match")
    if "module.fb" not in names:
        raise ArtifactError(f"{name} is not a .vmfb: it is an archive without a module")


def read_manifest(data: bytes, name: str) -> Manifest:
    """The manifest inside a `.vmfb`."""
    text = reflection(data, name, MANIFEST_KEY)
    if text is None:
        raise ArtifactError(f"{name} was not made by qmlir: it is an IREE module without a manifest")
    try:
        manifest = json.loads(text)
    except ValueError:
        raise ArtifactError(f"{name} is damaged: its manifest is not JSON") from None
    return Manifest.from_json(manifest, name)
