"""The ONNX front end (extra `qmlir[onnx]`): `.onnx` files and `onnx.ModelProto`s."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..base import ImportOptions


class OnnxFrontEnd:
    """Accepts `model.onnx` and `onnx.ModelProto`; `onnx` itself is imported when a model is."""

    name = "onnx"

    def accepts(self, obj: Any) -> bool:
        if isinstance(obj, (str, os.PathLike)):
            return Path(obj).suffix == ".onnx"
        kind = type(obj)
        return kind.__name__ == "ModelProto" and kind.__module__.startswith("onnx")

    def import_(self, obj: Any, *, context: Any, options: ImportOptions) -> Any:
        from ...errors import UsageError

        try:
            import onnx  # noqa: F401
        except ImportError:
            raise UsageError("ONNX models need the package 'onnx': pip install 'qmlir[onnx]'") from None
        from .importer import import_model

        return import_model(obj, context, options)
