"""The ONNX front end (extra `qmlir[onnx]`): `.onnx` files and `onnx.ModelProto`s."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...compiler.front_end import ImportOptions
from ...errors import UsageError

if TYPE_CHECKING:
    import onnx

    from ...core.mlir import ir


class OnnxFrontEnd:
    """Accepts `model.onnx` and `onnx.ModelProto`; the package `onnx` is imported only when it is needed."""

    name = "onnx"

    def accepts(self, obj: object) -> bool:
        if isinstance(obj, (str, os.PathLike)):
            return Path(obj).suffix == ".onnx"
        kind = type(obj)
        return kind.__name__ == "ModelProto" and kind.__module__.startswith("onnx")

    def fingerprint(self, obj: onnx.ModelProto | Path | str, settings: Mapping[str, object]) -> str:
        """A digest of the model, its external data, and the package that infers its shapes."""
        _need_onnx()
        import onnx

        from .model import load

        name = os.fspath(obj) if isinstance(obj, (str, os.PathLike)) else type(obj).__name__
        return f"{load(obj, name).digest()} onnx {onnx.__version__} {sorted(settings.items())}"

    def import_(self, obj: onnx.ModelProto | Path | str, *, context: ir.Context, options: ImportOptions) -> ir.Module:
        _need_onnx()
        from .importer import import_model

        if options.settings:
            raise UsageError(f"the ONNX front end has no options ({', '.join(sorted(options.settings))})")
        return import_model(obj, context, options)


def _need_onnx() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise UsageError("ONNX models need the package 'onnx': pip install 'qmlir[onnx]'") from None
