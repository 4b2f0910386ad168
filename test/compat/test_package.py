"""qmlir.compat loads on first use, and its page lists every public function."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import qmlir

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "compat.md").read_text()
MODULES = ("aiter", "bitblas", "composable_kernel", "executorch")


def test_modules_load_on_first_use() -> None:
    code = (
        "import sys, qmlir; qmlir.compat; dir(qmlir.compat); "
        "print([m for m in sys.modules if m.startswith('qmlir.compat.') or m == 'numpy'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_names_its_modules() -> None:
    assert tuple(qmlir.compat.__all__) == MODULES
    assert inspect.ismodule(qmlir.compat.aiter)
    with pytest.raises(AttributeError, match="has no attribute 'cublas'"):
        _ = qmlir.compat.cublas


@pytest.mark.parametrize("module", MODULES)
def test_the_page_lists_every_function(module: str) -> None:
    section = re.split(r"^## ", PAGE, flags=re.M)
    text = next(s for s in section if f"`qmlir.compat.{module}`" in s.splitlines()[0])
    for name in importlib.import_module(f"qmlir.compat.{module}").__all__:
        assert f"`{name}`" in text or f"`{name}(" in text, f"docs/compat.md does not list {module}.{name}"


@pytest.mark.parametrize("module", MODULES)
def test_every_function_says_what_it_takes(module: str) -> None:
    loaded = importlib.import_module(f"qmlir.compat.{module}")
    for name in loaded.__all__:
        value = getattr(loaded, name)
        if inspect.isfunction(value):
            assert value.__doc__, name
            if module != "composable_kernel":  # whose functors take no target
                assert inspect.signature(value).parameters["target"].default == "cpu", name
