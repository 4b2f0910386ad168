"""Quantised torch models against torch itself: which operators are raised, and what the programs compute."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

import qmlir
from conformance.opened import opened
from qmlir.checking.compare import Tolerance, compare
from qmlir.checking.compiled import compile_source
from qmlir.checking.reference import Reference
from qmlir.checking.runners import open_runner
from qmlir.compiler.front_end import ImportOptions, ImportReport
from qmlir.core.mlir import context
from qmlir.frontends.torch import TorchFrontEnd

from support import torch_models as models  # isort: skip

SCHEMES = {
    "mlp": [*models.TORCHAO, "x86-static", "x86-dynamic", "xnnpack-static", "xnnpack-dynamic"],
    "conv": ["x86-static", "x86-qat", "xnnpack-static", "xnnpack-static-tensor"],
    "block": [*models.TORCHAO, "x86-static", "x86-dynamic", "xnnpack-static"],
    "encoder": ["int8-dynamic", "int8-dynamic-int4-group", "int8-weight", "x86-static", "x86-dynamic"],
}
EVERY = [(m, s) for m, schemes in SCHEMES.items() for s in schemes]
# In the fast tier: one of each kind of rule.
FAST = [("mlp", "int8-dynamic"), ("mlp", "x86-dynamic"), ("conv", "x86-static"), ("block", "int8-dynamic-int4-group")]
RUN_FAST = [("conv", "x86-static"), ("mlp", "int8-dynamic")]


def tiered(cases: list[tuple[str, str]], fast: list[tuple[str, str]]) -> list[Any]:
    return [pytest.param(*c, marks=[] if c in fast else [pytest.mark.slow], id="-".join(c)) for c in cases]


def imported(program: Any) -> tuple[str, ImportReport]:
    """The module's text, its weights elided, and the report."""
    options = ImportOptions("model")
    with context() as ctx:
        module = TorchFrontEnd().import_(program, context=ctx, options=options)
        return str(module.operation.get_asm(large_elements_limit=4, large_resource_limit=4)), options.report


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.parametrize(("model", "scheme"), tiered(EVERY, FAST))
def test_every_quantised_product_is_raised(model: str, scheme: str) -> None:
    text, report = imported(
        models.exported(models.quantised(model, scheme), models.example(model), models.MODELS[model][2])
    )
    products = Counter(e["became"] for e in report.raised)
    assert products["qmlir.scaled_matmul"] + products["qmlir.conv2d_q"] == models.MODELS[model][3]
    assert report.left == []
    # Attention has float operands in the model too, and is one op; nothing else multiplies floats.
    floats = sum(text.count(f"{op} ") for op in ("linalg.matmul", "linalg.batch_matmul", "linalg.conv_2d_nchw_fchw",
                                                 "linalg.depthwise_conv_2d_nhwc_hwc"))  # fmt: skip
    assert floats == 0
    assert text.count("iree_linalg_ext.attention ") == {"block": 1, "encoder": 2}.get(model, 0)
    if "weight" not in scheme:
        floats = [line for line in text.splitlines() if '"qmlir.scaled_matmul"(' in line and "(tensor<?x" in line
                  and "xf32>, tensor" in line.partition(": (")[2][:24]]  # fmt: skip
        assert not floats, "a product of codes has a float operand"


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_a_float_gelu_is_not_reported(approximate: str) -> None:
    """Regression: there was a warning that the exact gelu is a quantised op that is not raised."""
    program = torch.export.export(torch.nn.GELU(approximate), (torch.zeros(2, 3),))
    assert imported(program)[1].left == []


@pytest.mark.sweep(fast=2, slow=40)
@pytest.mark.parametrize(("model", "scheme"), tiered(EVERY, RUN_FAST))
def test_computes_what_torch_computes(model: str, scheme: str) -> None:
    module, x = models.quantised(model, scheme), models.example(model)
    function = opened(qmlir.compile(models.exported(module, x, models.MODELS[model][2]))).main
    for batch in (4, 3):
        x = models.example(model, batch, *x.shape[1 : len(models.MODELS[model][2])], seed=2)
        check(function(x), module(x).detach(), scheme)


# Quantisation schemes on each target, with static and dynamic shapes.
EXACT = [
    *((m, s, "cpu", d) for m, s in EVERY if "float8" not in s for d in ("dynamic", "static")),
    *((m, s, "vulkan:lavapipe", "dynamic") for m, s in [("block", "int8-dynamic"), ("block", "int8-dynamic-int4-group"),
                                                        ("encoder", "x86-static"), ("conv", "x86-static"),
                                                        ("mlp", "x86-dynamic")]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.sweep(slow=80)
@pytest.mark.parametrize(("model", "scheme", "target", "shapes"), EXACT)
def test_each_layer_is_exact_and_every_product_of_codes_is_one_of_integers(
    model: str, scheme: str, target: str, shapes: str, request: pytest.FixtureRequest
) -> None:
    """Each operation is compared with the reference on the compiled program's own operands: codes are bit-exact, floats
    differ by rounding only (docs/semantics.md, section 5). The manifest's strategies say what multiplies."""
    if target.startswith("vulkan"):
        request.getfixturevalue("lavapipe")
    axes = models.MODELS[model][2]
    sizes = (3, 5)[: len(axes)] if shapes == "dynamic" else ()
    program = models.exported(
        models.quantised(model, scheme), models.example(model), axes if shapes == "dynamic" else None
    )
    x = models.example(model, *sizes, seed=3).numpy()
    mine, reference = compile_source(program, "main", target, {}), open_runner("reference", program, "main", target, {})
    assert isinstance(reference, Reference)
    layers = mine.layers()
    assert len(layers) >= models.MODELS[model][3]
    got = mine.run_layers([x], layers)
    expected = reference.replay([x], reference.layers(), got)
    found = [compare(a.name, y.view(z.dtype), z, Tolerance()) for a, y, z in zip(layers, got, expected, strict=True)]
    assert not [c for c in found if not c.ok]
    products = [s for s in qmlir.compile(program, target=target).manifest.strategies if s["kind"] != "attention"]
    of_codes = [p for p in products if p["lhs"].endswith("i8") and p["rhs"].endswith("i8") and p["acc"] == "i32"]
    if "weight" in scheme:
        assert not of_codes
        return
    assert len(of_codes) == models.MODELS[model][3]
    # Attention without a kernel is two float products; there are no other float products.
    attentions = {"block": 1, "encoder": 2}.get(model, 0)
    assert len(products) - len(of_codes) == (0 if target == "cpu" else 2 * attentions)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["rocm:gfx942", "cuda:sm_80", "vulkan:ada"])
def test_dynamic_shapes_compile_for_gpus(target: str) -> None:
    """Batch and sequence are both dynamic in a product of attention."""
    module, x = models.quantised("block", "int8-dynamic"), models.example("block")
    artifact = qmlir.compile(models.exported(module, x, models.MODELS["block"][2]), target=target)
    assert sum(s["acc"] == "i32" for s in artifact.manifest.strategies) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "scheme"), [("conv", "x86-static"), ("mlp", "int8-dynamic"), ("block", "x86-static")]
)
def test_static_shapes(model: str, scheme: str) -> None:
    module, x = models.quantised(model, scheme), models.example(model)
    function = opened(qmlir.compile(models.exported(module, x, None))).main
    check(function(x), module(x).detach(), scheme)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "scheme"), [("conv", "x86-static"), ("mlp", "int8-dynamic"), ("block", "x86-static"),
                                               ("encoder", "x86-static")])  # fmt: skip
def test_on_vulkan(model: str, scheme: str, lavapipe: str) -> None:
    module, x = models.quantised(model, scheme), models.example(model)
    function = opened(qmlir.compile(models.exported(module, x, None), target=lavapipe)).main
    check(function(x), module(x).detach(), scheme)


def check(found: Any, expected: Any, scheme: str) -> None:
    """f32 results agree except for the order of f32 sums. If an intermediate float is rounded to a code, another order
    can change it to the next code, which changes later values by the weight of one code; attention spreads that over
    a sequence."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    error, size = (found - expected).abs(), expected.abs().max()
    if "weight" in scheme:  # nothing is rounded to codes
        assert error.max() <= 1e-5 * size
        return
    assert error.square().mean().sqrt() <= 0.002 * size
    assert error.max() <= 0.02 * size


@pytest.mark.slow
@pytest.mark.sweep(slow=60)
@pytest.mark.parametrize("config", ["Int8DynamicActivationInt8WeightConfig", "IntxWeightOnlyConfig"])
def test_weights_of_torchao_decide_what_is_cached(config: str) -> None:
    """Another weight, or another scale of the same codes, is another program. Regression: with a cache, the exported
    program of a quantised model could not be read."""
    quantization = pytest.importorskip("torchao.quantization")

    def program(factor: float) -> tuple[torch.nn.Module, torch.export.ExportedProgram]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.SiLU(), torch.nn.Linear(16, 8)).eval()
        model[2].weight.data *= factor
        quantization.quantize_(model, getattr(quantization, config)())
        return model, torch.export.export(model, (x,))

    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(1))
    for factor in (1.0, 1.0, 4.0):
        model, exported = program(factor)
        with torch.no_grad():
            expected = model(x).numpy()
        np.testing.assert_allclose(qmlir.load(qmlir.compile(exported)).main(x), expected, rtol=1e-4, atol=1e-4)
