"""Files of `torch.export.save` as sources, each opened in a separate process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir.errors import FrontEndError

torch = pytest.importorskip("torch")


def saved(path: Path, quantised: bool = False) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model, x = (
        torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).eval(),
        torch.randn(3, 32),
    )
    if quantised:
        quantization = pytest.importorskip("torchao.quantization")
        quantization.quantize_(model, quantization.Int8DynamicActivationInt8WeightConfig())
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (x,)), str(path))
        return x, model(x)


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("quantised", [False, True], ids=["f32", "torchao"])
def test_a_fresh_process_compiles_a_saved_program(quantised: bool, tmp_path: Path) -> None:
    x, expected = saved(tmp_path / "model.pt2", quantised)
    command = [sys.executable, "-m", "qmlir", "compile", "model.pt2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    found = qmlir.load(tmp_path / "model.vmfb").main(x)
    np.testing.assert_allclose(np.asarray(found), expected.numpy(), rtol=1e-5, atol=2e-2 if quantised else 1e-5)


def test_a_program_that_was_compiled_before_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMLIR_CACHE", str(tmp_path / "cache"))
    saved(tmp_path / "model.pt2")
    first = qmlir.compile(tmp_path / "model.pt2")
    monkeypatch.setattr(torch.export, "load", None)
    assert qmlir.compile(str(tmp_path / "model.pt2")).vmfb == first.vmfb


def test_files_that_hold_no_program_are_refused(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "model.pt")
    with pytest.raises(FrontEndError, match=r"model.pt is a pickle of weights or of a module, which holds no program.*"
                       r"torch.export.save"):  # fmt: skip
        qmlir.compile(tmp_path / "model.pt")
    (tmp_path / "model.pt").rename(tmp_path / "weights.pt2")
    (tmp_path / "torn.pt2").write_bytes((tmp_path / "weights.pt2").read_bytes()[:200])
    for name in ("weights.pt2", "torn.pt2"):
        with pytest.raises(
            FrontEndError, match=rf"cannot open .*{name} as an exported program \(.*\); it opens what the"
        ):
            qmlir.compile(tmp_path / name)
    with pytest.raises(FrontEndError, match=r"cannot read .*none.pt2: No such file"):
        qmlir.compile(tmp_path / "none.pt2")
