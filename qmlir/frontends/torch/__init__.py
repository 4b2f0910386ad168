"""The torch front end (extra `qmlir[torch]`): `torch.export.ExportedProgram`s."""

from __future__ import annotations

from typing import Any

from ...errors import UsageError
from ..base import ImportOptions


class TorchFrontEnd:
    """Accepts exported programs; torch itself is imported when one is."""

    name = "torch"

    def accepts(self, obj: Any) -> bool:
        kind = type(obj)
        return kind.__name__ == "ExportedProgram" and kind.__module__.startswith("torch.")

    def import_(self, obj: Any, *, context: Any, options: ImportOptions) -> Any:
        raise UsageError("this version does not import torch programs yet; export an ONNX model instead")
