"""Weights that are parameters: packed when a program is loaded, and multiplied like weights inside the program."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.cover import others_slow
from support.dispatches import names
from support.forms import FORMS
from support.parameters import SCOPE, apart

import qmlir
from qmlir import TensorSpec as T
from qmlir.checking.interpreter import Interpreter
from qmlir.compiler.options import kept_parameters
from qmlir.core.cache import Cache
from qmlir.core.mlir import context, ir
from qmlir.runtime import inputs
from qmlir.runtime.packed import packed, to_text
from qmlir.runtime.program import run_packer

pytestmark = pytest.mark.sweep(fast=3, slow=40)

PRODUCTS = {
    f.name: f
    for f in FORMS
    if f.product and f.op not in ("sparse_matmul", "route") and "weight as an argument" not in f.name
}
FAST = (
    "scaled_matmul: s8 x s8, per token and channel",
    "scaled_matmul: s8 x u4, zero points, group 128",
    "scaled_matmul: f16 x nf4, group 64",
    "conv2d_q: s8 x s4",
)


def evaluated(artifact: Any, arguments: list[Any]) -> list[Any]:
    with context():
        module = ir.Module.parse(artifact.source("import"))
        return Interpreter(module).call("main", arguments)


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in PRODUCTS])
def test_parameters_are_as_constants(name: str, tmp_path: Path) -> None:
    form = PRODUCTS[name]
    held = form.compile("cpu", m=None)
    file = tmp_path / "weights.irpa"
    loads = apart(held, file)
    chosen = [s["chosen"] for s in held.manifest.strategies]
    assert [s["chosen"] for s in loads.manifest.strategies] == chosen
    program, same = qmlir.load(loads, parameters={SCOPE: str(file)}), qmlir.load(held)
    arguments = list(inputs.make(same.main.signature, held.manifest.arguments.get("main"), size=5, seed=1))
    got, expected = program.main(*arguments), evaluated(held, arguments)[0]
    np.testing.assert_array_equal(got, same.main(*arguments))
    if np.asarray(expected).dtype.kind in "iu":
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(np.float64(got), np.float64(expected), rtol=2e-2, atol=2e-2 * np.abs(expected).max())


@pytest.mark.parametrize("name", others_slow(FAST, FAST[1], FAST[3]))
def test_nothing_is_packed_in_a_call(name: str, tmp_path: Path) -> None:
    form: Any = PRODUCTS[name]
    held = form.compile("cpu", m=None)
    loads: Any = SimpleNamespace(compile=lambda target, m: apart(held, tmp_path / "weights.irpa"))
    assert len(names(loads, "cpu", None)) <= len(names(form, "cpu", None))


@pytest.mark.slow
def test_functions_share_what_is_packed(tmp_path: Path) -> None:
    """Two functions that read the same parameters share one packed copy."""
    held = PRODUCTS[FAST[1]].compile("cpu", m=None)
    one = apart(held, tmp_path / "weights.irpa")
    text = one.source("import")
    function = text[text.index("func.func") : text.rindex("}")]
    both = qmlir.compile(text.replace(function, function + function.replace("@main", "@other")), target="cpu")
    assert both.source("configured").count("util.initializer") == one.source("configured").count("util.initializer") > 0
    program = qmlir.load(both, parameters={SCOPE: str(tmp_path / "weights.irpa")})
    arguments = inputs.make(program.main.signature, {}, size=3, seed=1)
    np.testing.assert_array_equal(program.main(*arguments), program.other(*arguments))


def test_an_unsigned_weight_as_an_argument() -> None:
    """Regression: its codes lost their top bit when they were packed."""
    rng = np.random.default_rng(0)
    x, w = rng.integers(-128, 128, (40, 70), dtype=np.int8), rng.integers(0, 256, (33, 70)).astype(np.uint8)
    artifact = qmlir.ops.scaled_matmul.compile(
        T((40, 70), "i8"), T((33, 70), "u8"), rhs_transposed=True, out_dtype="i32"
    )
    assert artifact.manifest.strategies[0]["chosen"] != "stock"
    np.testing.assert_array_equal(qmlir.load(artifact).main(x, w), x.astype(np.int32) @ w.T.astype(np.int32))


def mapped_files() -> list[Path]:
    return [path for path in Cache().entries() if path.suffix == ".irpa"]


@pytest.mark.slow
def test_packed_weights_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes share one file; it is made again for other weights, or if it is damaged."""
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(tmp_path / "cache"))
    form, file = PRODUCTS[FAST[1]], tmp_path / "weights.irpa"
    held = form.compile("cpu", m=None)
    loads = qmlir.Artifact.of(apart(held, file, map_parameters=True).vmfb)  # as if read from a file
    arguments = inputs.make(qmlir.load(held).main.signature, {}, size=3, seed=1)
    expected = evaluated(held, list(arguments))[0]

    def result() -> Any:
        return qmlir.load(loads, parameters={SCOPE: str(file)}).main(*arguments)

    np.testing.assert_allclose(result(), expected, rtol=1e-6)
    (made_once,) = mapped_files()
    made = made_once.stat().st_mtime_ns
    np.testing.assert_allclose(result(), expected, rtol=1e-6)
    assert made_once.stat().st_mtime_ns == made  # read, not made again
    made_once.write_bytes(b"no archive")
    np.testing.assert_allclose(result(), expected, rtol=1e-6)
    os.utime(file, ns=(1, 1))  # as if it held other weights
    np.testing.assert_allclose(result(), expected, rtol=1e-6)
    assert len(mapped_files()) == 2
    Cache().clear()
    assert not mapped_files()
    monkeypatch.setenv("QMLIR_CACHE_DIR", "/proc/none")  # nothing can be written there
    np.testing.assert_allclose(result(), expected, rtol=1e-6)


def test_refusals() -> None:
    with pytest.raises(qmlir.errors.UsageError, match="keep_parameters is 'map'; it may be True or False"):
        qmlir.compile("module {}", keep_parameters="map")  # type: ignore[arg-type]
    with pytest.warns(DeprecationWarning, match="keep_parameters='mapped' is deprecated: use map_parameters=True"):
        assert kept_parameters("mapped", False) == "mapped"
    with pytest.raises(qmlir.errors.ArtifactError, match="the program that packs its weights cannot be read"):
        packed(to_text(b"")[:-1] + "~", {}, run_packer)
    with pytest.raises(qmlir.errors.ArtifactError, match=r"what packs the weights is not a \.vmfb"):
        packed(to_text(b"no program"), {}, run_packer)


@pytest.mark.slow
def test_another_target_keeps_parameters_as_they_are(lavapipe: str, tmp_path: Path) -> None:
    form, file = PRODUCTS[FAST[1]], tmp_path / "weights.irpa"
    held = form.compile("cpu", m=5)
    loads = apart(held, file, target=lavapipe, map_parameters=True)
    arguments = inputs.make(qmlir.load(held).main.signature, {}, seed=1)
    got = qmlir.load(loads, parameters={SCOPE: str(file)}).main(*arguments)
    np.testing.assert_allclose(got, evaluated(held, list(arguments))[0], rtol=1e-6)
