"""The torch front end (extra `qmlir[torch]`): `torch.export.ExportedProgram`s, `torch.ops.qmlir.*`, and
`torch.compile(model, backend="qmlir")`.

A program is raised as an FX graph (`raise_`: dynamic quantisations, products with their epilogues, what is left), and
then imported (`importer`); what torch-mlir does not convert is decomposed (`decompose`) and tried again. torch itself
is imported when a program is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...compiler.front_end import ImportOptions
from ...errors import UsageError

if TYPE_CHECKING:
    import torch

    from ...core.mlir import ir
    from .backend import FxProgram

_OPTIONS = ("parameters",)


def register_operators() -> None:
    """Define `torch.ops.qmlir.*`, for models that call them."""
    from .custom_ops import register

    register()


class TorchFrontEnd:
    """Accepts exported programs. Option `parameters`: a `.irpa` or `.safetensors` file that the weights go to, to be
    given to `qmlir.load(..., parameters={"model": path})`, instead of into the program."""

    name = "torch"

    def accepts(self, obj: FxProgram | torch.export.ExportedProgram) -> bool:
        kind = type(obj)
        if kind.__name__ == "FxProgram" and kind.__module__ == f"{__name__}.backend":
            return True  # a subgraph of torch.compile
        return kind.__name__ == "ExportedProgram" and kind.__module__.startswith("torch.")

    def fingerprint(self, obj: FxProgram | torch.export.ExportedProgram, settings: Mapping[str, object]) -> str | None:
        if settings:
            return None  # an import that writes a file is not skipped
        from .program import fingerprint

        return str(obj.fingerprint()) if hasattr(obj, "fingerprint") else fingerprint(obj)

    def import_(
        self, obj: FxProgram | torch.export.ExportedProgram, *, context: ir.Context, options: ImportOptions
    ) -> ir.Module:
        from .attention import fuse_attention, register as register_attention
        from .batch_norm import fold_batch_norms
        from .custom_ops import register
        from .decompose import decompose_known
        from .importer import import_decomposed
        from .indices import index_by_known_masks
        from .parameters import ParameterFile
        from .program import prepare
        from .raise_ import raise_quantised
        from .recurrent import fuse_recurrent, register as register_recurrence

        unknown = sorted(set(options.settings) - set(_OPTIONS))
        if unknown:
            raise UsageError(f"unknown import option {unknown[0]!r} of torch programs; options: {', '.join(_OPTIONS)}")
        register()
        register_attention()
        register_recurrence()
        graph = obj.prepare() if hasattr(obj, "prepare") else prepare(obj)
        index_by_known_masks(graph)
        fuse_recurrent(graph)
        fold_batch_norms(graph)
        decompose_known(graph)
        raise_quantised(graph, options.report)
        fuse_attention(graph)
        path = options.settings.get("parameters")
        parameters = ParameterFile(Path(path)) if path is not None else None
        return import_decomposed(graph, context, options.name, options.report, parameters)
