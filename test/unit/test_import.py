"""`import qmlir` is cheap: it loads neither a compiler, nor a runtime, nor a framework."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("iree.compiler", "iree.runtime", "torch", "onnx")


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, qmlir; dir(qmlir); print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_loads() -> None:
    import qmlir

    for name in qmlir.__all__:
        assert getattr(qmlir, name) is not None
    assert set(qmlir.__all__) <= set(dir(qmlir))
