"""ONNX files that are missing or truncated. The table of hostile files is in `robustness/onnx_models.py`; damaged files
are a surface in `robustness/surfaces.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from robustness.onnx_models import product

from qmlir.compiler.compilation import text_at
from qmlir.errors import FrontEndError


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FrontEndError, match="No such file"):
        text_at(tmp_path / "model.onnx", "import")


def test_truncated_model(tmp_path: Path) -> None:
    data = product().SerializeToString()
    path = tmp_path / "model.onnx"
    for length in range(1, len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises(FrontEndError):
            text_at(path, "import")
