"""Quantised torch models against torch itself: what is raised, and what is computed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

import qmlir
from qmlir._mlir import context
from qmlir.frontends.base import ImportOptions, ImportReport
from qmlir.frontends.torch import TorchFrontEnd

from support import torch_models as models  # isort: skip

SCHEMES = {
    "mlp": [*models.TORCHAO, "x86-static", "x86-dynamic", "xnnpack-static", "xnnpack-dynamic"],
    "conv": ["x86-static", "x86-qat", "xnnpack-static", "xnnpack-static-tensor"],
    "block": [*models.TORCHAO, "x86-static", "x86-dynamic", "xnnpack-static"],
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


@pytest.mark.parametrize(("model", "scheme"), tiered(EVERY, FAST))
def test_every_quantised_product_is_raised(model: str, scheme: str) -> None:
    text, report = imported(
        models.exported(models.quantised(model, scheme), models.example(model), models.MODELS[model][2])
    )
    products = Counter(e["became"] for e in report.raised)
    assert products["qmlir.scaled_matmul"] + products["qmlir.conv2d_q"] == models.MODELS[model][3]
    assert report.left == []
    # Attention is of floats in the model too, and one op; nothing else multiplies floats.
    floats = sum(text.count(f"{op} ") for op in ("linalg.matmul", "linalg.batch_matmul", "linalg.conv_2d_nchw_fchw",
                                                 "linalg.depthwise_conv_2d_nhwc_hwc"))  # fmt: skip
    assert floats == 0
    assert text.count("iree_linalg_ext.attention ") == (1 if model == "block" else 0)
    if "weight" not in scheme:
        floats = [line for line in text.splitlines() if '"qmlir.scaled_matmul"(' in line and "(tensor<?x" in line
                  and "xf32>, tensor" in line.partition(": (")[2][:24]]  # fmt: skip
        assert not floats, "a product of codes has a float operand"


@pytest.mark.parametrize(("model", "scheme"), tiered(EVERY, RUN_FAST))
def test_computes_what_torch_computes(model: str, scheme: str) -> None:
    module, x = models.quantised(model, scheme), models.example(model)
    function = qmlir.load(qmlir.compile(models.exported(module, x, models.MODELS[model][2]))).main
    torch.manual_seed(2)
    for batch in (4, 3):
        x = torch.randn(batch, *x.shape[1:])
        check(function(x), module(x).detach(), scheme)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "scheme"), [("conv", "x86-static"), ("mlp", "int8-dynamic"), ("block", "x86-static")]
)
def test_static_shapes(model: str, scheme: str) -> None:
    module, x = models.quantised(model, scheme), models.example(model)
    function = qmlir.load(qmlir.compile(models.exported(module, x, None))).main
    check(function(x), module(x).detach(), scheme)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "scheme"), [("conv", "x86-static"), ("mlp", "int8-dynamic")])
def test_on_vulkan(model: str, scheme: str, lavapipe: str) -> None:
    module, x = models.quantised(model, scheme), models.example(model)
    function = qmlir.load(qmlir.compile(models.exported(module, x, None), target=lavapipe)).main
    check(function(x), module(x).detach(), scheme)


def check(found: Any, expected: Any, scheme: str) -> None:
    """f32 results agree but for the order of f32 sums. Where a float in between is rounded to a code, another order can
    move it to the next one, which moves what follows by the weight of one code; attention spreads that over a
    sequence."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    error, size = (found - expected).abs(), expected.abs().max()
    if "weight" in scheme:  # nothing is rounded to codes
        assert error.max() <= 1e-5 * size
        return
    assert error.square().mean().sqrt() <= 0.002 * size
    assert error.max() <= 0.02 * size
