"""`import qmlir` is cheap: it loads neither a compiler, nor a runtime, nor a framework."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Modules that take tens of milliseconds or more to import; `import qmlir` and help need none of them.
HEAVY = ("iree.compiler", "iree.runtime", "torch", "torchao", "onnx", "onnxruntime", "scipy", "sklearn", "matplotlib",
         "distributed", "cryptography", "rich", "numpy", "ml_dtypes", "safetensors", "qmlir.core.mlir")  # fmt: skip
PARSER = "from qmlir.cli import build_parser; build_parser().format_help()"


@pytest.mark.parametrize("code", ["import qmlir; dir(qmlir)", PARSER], ids=["import qmlir", "qmlir --help"])
def test_import_loads_nothing_heavy(code: str) -> None:
    code = f"import sys; {code}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_loads() -> None:
    import qmlir

    for name in qmlir.__all__:
        assert getattr(qmlir, name) is not None
    assert set(qmlir.__all__) <= set(dir(qmlir))
