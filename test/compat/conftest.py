"""Data and comparisons come from the numeric tests; results are judged by qmlir.reference and plain numpy."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest


def _module(name: str) -> Any:
    path = Path(__file__).resolve().parent.parent / "numerics" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"numerics_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_numerics = _module("conftest")
data, same, near, terms = _numerics.data, _numerics.same, _numerics.near, _numerics.terms


@pytest.fixture(scope="session")
def golden() -> Any:
    """The module with the exact results and the random stream that their recipes draw from."""
    return _module("test_golden")
