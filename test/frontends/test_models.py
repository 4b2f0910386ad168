"""Whole models from torchvision, timm and transformers (those of `python -m benchmarks.models`) give right results."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from qmlir.core.isolation import ProcessLimits

PACKAGES = ("torch", "torchvision", "timm", "transformers", "onnxruntime", "onnxscript", "torchao")
MISSING = [name for name in PACKAGES if find_spec(name) is None]
if MISSING:
    pytest.skip(f"{', '.join(MISSING)} not installed: pip install -e '.[models]'", allow_module_level=True)

pytestmark = pytest.mark.slow


def rows() -> list[Any]:
    from benchmarks.models.__main__ import chosen
    from benchmarks.models.worker import key

    return [pytest.param(*row, id=key(*row)) for row in chosen([], [], [False, True])]


@pytest.mark.sweep(slow=60)  # a quarter of 500 models takes half an hour on one core
@pytest.mark.parametrize(("name", "form", "dynamic"), rows())
def test_model(name: str, form: str, dynamic: bool) -> None:
    from benchmarks.models.report import message, verdict
    from benchmarks.models.worker import measured

    row = measured(name, form, dynamic, rounds=0, limits=ProcessLimits(600, 8 << 30))
    if row["import"] == "not made":
        pytest.skip(message(row))
    assert verdict(row) == "right", message(row) or row
