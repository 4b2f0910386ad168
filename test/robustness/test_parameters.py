"""Parameters that are loaded with a program or baked in, and files that are not parameter files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from robustness.parameters import WEIGHTS, S, W, X, kept, parameter_file

import qmlir
from qmlir.errors import UsageError


@pytest.mark.parametrize("suffix", ["safetensors", "irpa"])
def test_parameters_baked_in_and_loaded_agree(suffix: str, tmp_path: Path) -> None:
    path = str(parameter_file(tmp_path, suffix, {"w": W, "s": S}))
    expected = X.astype(np.float32) @ W.astype(np.float32) * S
    np.testing.assert_array_equal(qmlir.load(kept(), parameters={"model": path}).main(X), expected)
    baked = qmlir.compile(WEIGHTS, parameters={"model": path})
    np.testing.assert_array_equal(qmlir.load(baked).main(X), expected)


def test_parameter_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs a parameter file for scope 'model'.*--parameters model=FILE"):
        qmlir.load(kept())
    with pytest.raises(UsageError, match=r"cannot read the parameter file .*none\.irpa"):
        qmlir.load(kept(), parameters={"model": str(tmp_path / "none.irpa")})
    for name in ("junk.safetensors", "junk.irpa", "junk.gguf", "junk.txt"):
        (tmp_path / name).write_bytes(b"junk")
        with pytest.raises(UsageError, match=rf"cannot read the parameter file .*{name}"):
            qmlir.load(kept(), parameters={"model": str(tmp_path / name)})
    whole = parameter_file(tmp_path, "safetensors", {"w": W, "s": S})
    with pytest.raises(UsageError, match="the program loads no parameters of scope 'extra'"):
        qmlir.load(kept(), parameters={"model": str(whole), "extra": str(whole)})
    whole.write_bytes(whole.read_bytes()[:-3])
    with pytest.raises(UsageError, match=r"cannot read the parameter file .*p\.safetensors"):
        qmlir.load(kept(), parameters={"model": str(whole)})
