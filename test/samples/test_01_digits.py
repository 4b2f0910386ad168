"""samples/01_digits: the model is valid, exact layer by layer on the targets that run here, and accurate."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

import qmlir
from qmlir.core.mlir import context, ir

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "01_digits"
WEIGHTS = SAMPLE / "digits.safetensors"
LAYERS = ("conv1", "conv2", "conv3", "fc")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def have_lavapipe() -> bool:
    if os.environ.get("QMLIR_REQUIRE_LAVAPIPE"):
        return True
    return any(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"))


TARGETS = [
    "cpu",
    pytest.param("vulkan:lavapipe", marks=pytest.mark.skipif(not have_lavapipe(), reason="no lavapipe")),
]


@pytest.fixture(scope="module")
def sample() -> Iterator[SimpleNamespace]:
    """The sample's modules, which import each other as scripts in one folder do."""
    names = ("dataset", "quantize")
    sys.path.insert(0, str(SAMPLE))
    try:
        yield SimpleNamespace(**{name: __import__(name) for name in names})
    finally:
        sys.path.remove(str(SAMPLE))
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def images(sample: SimpleNamespace) -> Any:
    return sample.dataset.encode(sample.dataset.load()[1].images)


def reference_layers(images: Any) -> list[Any]:
    """The int8 output of every layer, by `qmlir.reference`."""
    t = load_file(WEIGHTS)

    def epilogue(name: str, source: str, lhs: str = "input", rhs: str = "weight") -> dict[str, Any]:
        prefix = "out_" if source != "input" else ""
        return {
            f"{lhs}_scale": t[f"{source}.{prefix}scale"],
            f"{lhs}_zero_point": t[f"{source}.{prefix}zero_point"],
            f"{lhs}_zero_mode": "int",
            f"{rhs}_scale": t[f"{name}.weight_scale"],
            "bias": t[f"{name}.bias"],
            "bias_stage": "acc",
            "out_dtype": "i8",
            "out_scale": t[f"{name}.out_scale"],
            "out_zero_point": t[f"{name}.out_zero_point"],
        }

    outputs: list[Any] = []
    x, source = images, "input"
    for name, stride in (("conv1", 1), ("conv2", 2), ("conv3", 1)):
        shape: dict[str, Any] = {"strides": (stride, stride), "padding": (1, 1, 1, 1), "activation": "relu"}
        x = qmlir.reference.conv2d_q(x, t[f"{name}.weight"], **shape, **epilogue(name, source))
        outputs.append(x)
        source = name
    flat = x.reshape(len(x), -1)
    side = epilogue("fc", source, "lhs", "rhs")
    fc = qmlir.reference.scaled_matmul(flat, t["fc.weight"], rhs_transposed=True, **side)
    return [*outputs, fc]


def test_model_obeys_the_dialect() -> None:
    importlib.import_module("qmlir.dialect.ops")  # defines the operations
    verify_module = importlib.import_module("qmlir.dialect.ods").verify_module
    with context():
        module = ir.Module.parse((SAMPLE / "digits.mlir").read_text(encoding="utf-8"))
        assert verify_module(module) == []


def test_parameters_match_the_model() -> None:
    text = (SAMPLE / "digits.mlir").read_text(encoding="utf-8")
    declared = dict(re.findall(r'"digits"::"([^"]+)"> : tensor<([^>]+)>', text))
    kinds = {"int8": "i8", "int32": "i32", "float32": "f32"}
    stored = {
        name: "x".join([*map(str, array.shape), kinds[array.dtype.name]]) for name, array in load_file(WEIGHTS).items()
    }
    assert declared == stored


@pytest.mark.slow
def test_training_evaluates_what_the_dialect_means(sample: SimpleNamespace, images: Any) -> None:
    t = load_file(WEIGHTS)
    layers, source = [], ("input.scale", "input.zero_point")
    for name, stride in (("conv1", 1), ("conv2", 2), ("conv3", 1), ("fc", 1)):
        out = (f"{name}.out_scale", f"{name}.out_zero_point")
        parameters = [t[f"{name}.{part}"] for part in ("weight", "weight_scale", "bias")]
        ends = [t[key][()] for key in (*source, *out)]
        layers.append(sample.quantize.Layer(name, *parameters, stride, name != "fc", *ends))
        source = out
    for ours, theirs in zip(sample.quantize.forward(layers, images), reference_layers(images), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_recorded_accuracy_is_true(sample: SimpleNamespace, images: Any) -> None:
    with safe_open(WEIGHTS, framework="np") as file:
        recorded = json.loads(file.metadata()["evaluation"])
    right = reference_layers(images)[-1].argmax(1) == sample.dataset.load()[1].labels
    assert recorded["int8_accuracy"] == pytest.approx(float(right.mean()))
    assert recorded["int8_accuracy"] >= 0.98
    assert abs(recorded["int8_accuracy"] - recorded["float_accuracy"]) <= 0.01
    assert recorded["split"] == sample.dataset.SPLIT


@pytest.fixture(scope="module", params=TARGETS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The model, compiled by the command line."""
    vmfb = tmp_path_factory.mktemp("digits") / "digits.vmfb"
    command = [sys.executable, "-m", "qmlir", "compile", str(SAMPLE / "digits.mlir"), "--target", request.param]
    command += ["--parameters", f"digits={WEIGHTS}", "-o", str(vmfb)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return qmlir.load(vmfb)


# The batch is dynamic: one image, and a number that is not a multiple of any tile size.
@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 37])
def test_every_layer_is_exact(count: int, program: Any, images: Any) -> None:
    batch = images[:count]
    layers = program.layers(batch)
    for name, ours, oracle in zip(LAYERS, layers, reference_layers(batch), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), oracle, err_msg=name)
    np.testing.assert_array_equal(np.asarray(program.main(batch)), np.asarray(layers[-1]))


def test_no_images_give_no_scores(program: Any, images: Any) -> None:
    assert np.asarray(program.main(images[:0])).shape == (0, 10)


@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan:lavapipe", marks=pytest.mark.slow)])
def test_sample_runs(target: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if target != "cpu":
        request.getfixturevalue("lavapipe")
    command = [sys.executable, str(SAMPLE / "run.py"), "--target", target]
    done = subprocess.run(command, env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"accuracy on 450 held-out digits: 9[89]\.\d\d% in int8", done.stdout)
    assert "time per image" in done.stdout
