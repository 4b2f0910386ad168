"""The torch front end (extra `qmlir[torch]`): `torch.export.ExportedProgram`s, `torch.ops.qmlir.*`, and
`torch.compile(model, backend="qmlir")`.

A program is raised as an FX graph (`raise_`: dynamic quantisations, products with their epilogues, then the remaining
quantised operators) and then imported (`importer`). Operators that torch-mlir does not convert are decomposed
(`decompose`), and the import is repeated. torch itself is imported only when a program is imported.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from ...compiler.front_end import ImportOptions
from ...core.files import digest_of_file
from ...errors import FrontEndError, UsageError

if TYPE_CHECKING:
    import torch

    from ...core.mlir import ir
    from .backend import FxProgram

    _Source: TypeAlias = FxProgram | torch.export.ExportedProgram | Path | str

_OPTIONS = ("parameters",)
_PROGRAM = ".pt2"
_PICKLES = (".pt", ".pth")  # pickles of weights or of a module, without a program


def register_operators() -> None:
    """Define the operators `torch.ops.qmlir.*`, for models that call them."""
    from .custom_ops import register

    register()


class TorchFrontEnd:
    """The front end for exported programs and their files. Option `parameters`: a `.irpa` or `.safetensors` file to
    which the weights are written instead of into the program; pass it to `qmlir.load(..., parameters={"model": path})`.
    """

    name = "torch"

    def accepts(self, obj: _Source) -> bool:
        if isinstance(obj, (str, os.PathLike)):
            return Path(obj).suffix in (_PROGRAM, *_PICKLES)
        kind = type(obj)
        if kind.__name__ == "FxProgram" and kind.__module__ == f"{__name__}.backend":
            return True  # a subgraph of torch.compile
        return kind.__name__ == "ExportedProgram" and kind.__module__.startswith("torch.")

    def fingerprint(self, obj: _Source, settings: Mapping[str, object]) -> str | None:
        if settings:
            return None  # an import that writes a file must not be skipped
        if isinstance(obj, (str, os.PathLike)):
            return _digest(_program_file(obj))  # of the bytes: a cached program is not opened
        from .program import fingerprint

        return str(obj.fingerprint()) if hasattr(obj, "fingerprint") else fingerprint(obj)

    def import_(self, obj: _Source, *, context: ir.Context, options: ImportOptions) -> ir.Module:
        from .attention import fuse_attention
        from .batch_norm import fold_batch_norms
        from .custom_ops import register
        from .decompose import decompose_known
        from .files import opened
        from .importer import import_decomposed
        from .indices import index_by_known_masks
        from .parameters import ParameterFile
        from .program import prepare
        from .raise_ import raise_quantised
        from .recurrent import fuse_recurrent
        from .simplify import views_of_strides
        from .sizes import settle_sizes

        if isinstance(obj, (str, os.PathLike)):
            obj = opened(_program_file(obj))
        unknown = sorted(set(options.settings) - set(_OPTIONS))
        if unknown:
            raise UsageError(f"unknown import option {unknown[0]!r} of torch programs; options: {', '.join(_OPTIONS)}")
        register()
        graph = obj.prepare() if hasattr(obj, "prepare") else prepare(obj)
        index_by_known_masks(graph)
        views_of_strides(graph)
        settle_sizes(graph)
        fuse_recurrent(graph)
        fold_batch_norms(graph)
        decompose_known(graph)
        raise_quantised(graph, options.report)
        fuse_attention(graph)
        path = options.settings.get("parameters")
        parameters = ParameterFile(Path(cast("str | os.PathLike[str]", path))) if path is not None else None
        return import_decomposed(graph, context, options.name, options.report, parameters)


def _program_file(source: os.PathLike[str] | str) -> Path:
    """The path of an exported program. Raises FrontEndError for a pickle, UsageError if torch is not installed."""
    path = Path(source)
    if path.suffix in _PICKLES:
        raise FrontEndError(
            [], f"{path} is a pickle of weights or of a module, which holds no program; in Python, where the module's "
            "class is: torch.export.save(torch.export.export(model, args), 'model.pt2')"
        )  # fmt: skip
    if importlib.util.find_spec("torch") is None:
        raise UsageError("torch programs need the package 'torch': pip install 'qmlir[torch]'")
    return path


def _digest(path: Path) -> str:
    try:
        digest = digest_of_file(path)
    except OSError as e:
        raise FrontEndError([], f"cannot read {path}: {e.strerror or e}") from None
    return f"{digest} torch {importlib.metadata.version('torch')}"
