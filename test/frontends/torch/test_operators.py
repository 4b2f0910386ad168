"""Single operators: torch's own quantised products, custom operators, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import torch_models as models

import qmlir
from conformance.opened import opened
from qmlir.compiler import patterns
from qmlir.errors import FrontEndError, SlowFallbackWarning, UsageError
from qmlir.frontends import raising
from qmlir.frontends.torch import register_operators

register_operators()


class Call(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def export(function: Any, *args: Any, axes: Any = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(Call(function), args, dynamic_shapes=axes)


def compiled(function: Any, *args: Any) -> Any:
    artifact = qmlir.compile(export(function, *args))
    report = artifact.import_report
    assert report is not None
    assert report["left"] == []
    return opened(artifact).main(*args), [e["became"] for e in report["raised"]]


def codes(*shape: int, dtype: Any = torch.int8) -> Any:
    return torch.randint(-128 if dtype == torch.int8 else 0, 128, shape, dtype=dtype)


def test_int_mm() -> None:
    a, b = codes(17, 32), codes(32, 16)
    found, raised = compiled(lambda a: torch._int_mm(a, b), a)
    assert torch.equal(found, torch._int_mm(a, b))
    assert raised == ["qmlir.scaled_matmul"]


@pytest.mark.slow
def test_custom_operators() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(5, 32), codes(8, 32)
    scale = torch.rand(8, 1)

    def model(x: Any) -> Any:
        q, s, _ = torch.ops.qmlir.dynamic_quantize(x, granularity="token")
        return torch.ops.qmlir.scaled_matmul(q, w, lhs_scale=s, rhs_scale=scale, rhs_transposed=True, activation="relu")

    found = opened(qmlir.compile(export(model, x))).main(x)
    q, s, _ = qmlir.reference.dynamic_quantize(x.numpy())
    expected = qmlir.reference.scaled_matmul(
        q, w.numpy(), lhs_scale=s, rhs_scale=scale.numpy(), rhs_transposed=True, activation="relu"
    )
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(model(x).numpy(), expected, rtol=1e-6)  # run eagerly


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize("eager", [True, False])
def test_sparse_custom_operator(eager: bool) -> None:
    """`qmlir.ops.sparse_matmul` takes its weight as one object, the custom operator as separate tensors."""
    weight = torch.tensor([[0, 2, 0, -3], [0, 0, 0, 0], [7, 0, 0, 1]], dtype=torch.int8)  # [N, K]
    values, x = torch.tensor([2, -3, 7, 1], dtype=torch.int8), codes(5, 4)
    indices, indptr = (torch.tensor(t, dtype=torch.int32) for t in ([1, 3, 0, 3], [0, 2, 2, 4]))

    def model(x: Any) -> Any:
        return torch.ops.qmlir.sparse_matmul(
            x, values, indices, indptr=indptr, format="csr", rhs_shape=[3, 4], rhs_transposed=True, out_dtype="i32"
        )

    found = model(x) if eager else opened(qmlir.compile(export(model, x))).main(x)
    assert torch.equal(found, x.int() @ weight.int().T)


def test_custom_operator_that_is_wrong() -> None:
    x, w = codes(5, 32), codes(8, 30)
    with pytest.raises(FrontEndError, match=r"scaled_matmul \(test_operators.py:\d+\): .*K differs: 'lhs' \[5, 32\]"):
        qmlir.compile(export(lambda x: torch.ops.qmlir.scaled_matmul(x, w, rhs_transposed=True), x))


@pytest.mark.slow
@pytest.mark.parametrize("group", [32, 64])
def test_int4pack(group: int) -> None:
    torch.manual_seed(0)
    n, k = 64, 128
    q = torch.randint(0, 16, (n, k), dtype=torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q, 1)
    both = torch.rand(k // group, n, 2) - 0.5
    x = torch.randn(5, k)
    found, raised = compiled(lambda x: torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, group, both), x)
    scale, zero = (both[..., i].t().repeat_interleave(group, 1) for i in (0, 1))
    expected = x.double() @ ((q - 8) * scale.double() + zero).t()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    assert raised == ["qmlir.scaled_matmul"]


@pytest.mark.slow
def test_int8pack() -> None:
    torch.manual_seed(0)
    x, w, s = torch.randn(5, 32, dtype=torch.bfloat16), codes(16, 32), torch.rand(16, dtype=torch.bfloat16)
    found, raised = compiled(lambda x: torch.ops.aten._weight_int8pack_mm(x, w, s), x)
    expected = x.double() @ (w.double() * s.double()[:, None]).t()
    torch.testing.assert_close(found.double(), expected, rtol=2**-7, atol=1e-3)
    assert raised == ["qmlir.scaled_matmul"]


@pytest.mark.slow
def test_scaled_mm() -> None:
    torch.manual_seed(0)
    a = torch.randn(16, 32).to(torch.float8_e4m3fn)
    b = torch.randn(16, 32).to(torch.float8_e4m3fn).t()
    sa, sb = torch.tensor(0.5), torch.tensor(0.25)
    found, raised = compiled(lambda a: torch._scaled_mm(a, b, sa, sb, out_dtype=torch.float32), a)
    torch.testing.assert_close(found, a.float() @ b.float() * 0.125, rtol=1e-5, atol=1e-5)
    assert raised == ["qmlir.scaled_matmul"]


def test_quantise_and_dequantise_alone() -> None:
    ops = torch.ops.quantized_decomposed
    torch.manual_seed(0)
    x = torch.randn(4, 33) * 3

    def model(x: Any) -> Any:
        q = ops.quantize_per_tensor(x, 0.02, 7, 0, 255, torch.uint8)
        return q, ops.dequantize_per_tensor(q, 0.02, 7, 0, 255, torch.uint8)

    (q, d), raised = compiled(model, x)
    assert torch.equal(q, model(x)[0])
    assert torch.equal(d, model(x)[1])
    assert q.dtype == torch.uint8
    assert raised == ["qmlir.quantize", "qmlir.dequant"]


def test_quantise_per_token_rounds_before_the_zero_point() -> None:
    """docs/semantics.md, section 6: torch's codes differ if a quotient is half way between two codes, and only then."""
    ops = torch.ops.quantized_decomposed
    x = torch.tensor([[0.25, 0.75, -0.25, 1.3], [0.125, 0.375, 0.1, 1.0], [0.5, 1.5, -0.5, 0.3]])
    scale, zero = torch.tensor([[0.5], [0.25], [1.0]]), torch.tensor([[1], [-3], [4]], dtype=torch.int32)

    def model(x: Any, scale: Any, zero: Any) -> Any:
        return ops.quantize_per_token(x, scale, zero, -128, 127, torch.int8)

    found, raised = compiled(model, x, scale, zero)
    assert raised == ["qmlir.quantize"]
    assert torch.equal(found, (torch.round(x / scale) + zero).to(torch.int8))
    half_way = (x / scale).frac().abs() == 0.5
    assert torch.equal(found != model(x, scale, zero), half_way & (zero % 2 == 1))


@pytest.mark.slow
def test_what_follows_a_product_keeps_its_meaning() -> None:
    """Regression: hardtanh with a default upper bound got both default bounds; a column added to a product with one
    channel became its bias; a factor with more axes, or of a wider type, gave a result of the wrong shape or type;
    added integers became an integer bias; codes that were transposed twice got the scales of the transposed codes."""
    ops = torch.ops.quantized_decomposed
    torch.manual_seed(0)
    x, weights, scales = torch.randn(3, 8), [codes(n, 8) for n in (8, 1, 4, 4, 4, 8)], torch.rand(8) * 0.01 + 0.01
    column, row, zeros = torch.randn(3, 1), torch.rand(4), torch.zeros(8, dtype=torch.int64)

    def product(x: Any, which: int) -> Any:
        return torch.nn.functional.linear(x, ops.dequantize_per_tensor(weights[which], 0.01, 0, -128, 127, torch.int8))

    def model(x: Any) -> Any:
        x = ops.quantize_per_tensor(x, 0.02, 3, -128, 127, torch.int8)
        x = ops.dequantize_per_tensor(x, 0.02, 3, -128, 127, torch.int8)
        twice = ops.dequantize_per_channel(weights[5].t().t(), scales, zeros, 0, -128, 127, torch.int8)
        return (torch.nn.functional.hardtanh(product(x, 0), -0.1), product(x, 1) + column,
                product(x, 2) * row.reshape(1, 1, 4), product(x, 3) + torch.tensor([1, 2, 3, 4]),
                torch.nn.functional.linear(x.bfloat16(), weights[4].bfloat16()) * row,
                torch.nn.functional.linear(x, twice))  # fmt: skip

    found = opened(qmlir.compile(export(model, x))).main(x)
    for i, (got, want) in enumerate(zip(found, model(x), strict=True)):
        tolerance = 2e-2 if i == 4 else 1e-4
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def test_a_chosen_scale_with_another_zero_point() -> None:
    """Regression: a quantisation by a scale chosen from its input used the chosen zero point, whichever zero point it
    was given."""
    ops = torch.ops.quantized_decomposed
    torch.manual_seed(0)
    x = torch.rand(4, 32)

    def model(x: Any) -> Any:
        scale, _ = ops.choose_qparams.tensor(x, -128, 127, 1e-6, torch.int8)
        return ops.quantize_per_tensor.tensor(x, scale, torch.tensor(-100), -128, 127, torch.int8)

    assert torch.equal(opened(qmlir.compile(export(model, x))).main(x), model(x))


@pytest.mark.slow
def test_unraised_operator_is_a_warning_with_its_place() -> None:
    """The dialect has no 16-bit codes, so a product by 16-bit weights is a float product."""
    ops = torch.ops.quantized_decomposed
    w = torch.randint(-100, 100, (8, 32), dtype=torch.int16)

    def model(x: Any) -> Any:
        return x @ ops.dequantize_per_tensor(w, 0.1, 0, -100, 100, torch.int16).t()

    x = torch.randn(4, 32)
    with pytest.warns(
        SlowFallbackWarning, match=r"test_operators.py.*quantized_decomposed.dequantize_per_tensor is not"
    ):
        artifact = qmlir.compile(export(model, x))
    assert artifact.import_report is not None
    left = artifact.import_report["left"]
    assert {e["op"] for e in left} == {"torch.quantized_decomposed.dequantize_per_tensor", "torch.aten.matmul"}
    assert all("test_operators.py" in e["where"] and "torch.int16" in e["reason"] for e in left)
    torch.testing.assert_close(opened(artifact).main(x), model(x))


@pytest.mark.slow
def test_product_without_a_form_is_a_warning() -> None:
    """A transposed convolution of codes stays a float convolution, and the report says so."""
    ops = torch.ops.quantized_decomposed
    w = codes(4, 2, 3, 3)

    def model(x: Any) -> Any:
        x = ops.dequantize_per_tensor(x, 0.1, 3, -128, 127, torch.int8)
        return torch.nn.functional.conv_transpose2d(x, ops.dequantize_per_tensor(w, 0.1, 0, -128, 127, torch.int8))

    x = codes(1, 4, 5, 5)
    with pytest.warns(SlowFallbackWarning, match="the dialect has no product of this form"):
        artifact = qmlir.compile(export(model, x))
    torch.testing.assert_close(opened(artifact).main(x), model(x), rtol=1e-5, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("padding", ["same", "valid", 2])
def test_padding_of_convolutions(padding: Any) -> None:
    ops = torch.ops.quantized_decomposed
    w = codes(6, 4, 2, 3)

    def model(x: Any) -> Any:
        x = ops.dequantize_per_tensor(x, 0.5, 3, -128, 127, torch.int8)
        w_ = ops.dequantize_per_tensor(w, 0.5, 0, -128, 127, torch.int8)
        return torch.nn.functional.conv2d(x, w_, padding=padding, dilation=(1, 2))

    x = codes(2, 4, 7, 8)
    found, raised = compiled(model, x)
    assert torch.equal(found, model(x))  # the sums are exact
    assert raised == ["qmlir.conv2d_q"]


@pytest.mark.slow
def test_a_pattern_of_somebody_else() -> None:
    with torch.library._scoped_library("acme", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CPU")
        library.impl("twice", lambda x: torch.empty_like(x), "Meta")

        def twice(op: Any) -> Any:
            return op.build("dequant", input=np.full((4, 4), 2, np.int8), scale=1.0)

        program = export(lambda x: torch.ops.acme.twice(x), torch.ones(4, 4))
        with pytest.raises(
            FrontEndError, match=r"the operator acme\.twice, twice \(.*\), is not converted by torch-mlir"
        ):
            qmlir.compile(program)
        raising.register_raising("torch.acme.twice", twice)
        try:
            assert torch.equal(opened(qmlir.compile(program)).main(torch.ones(4, 4)), torch.full((4, 4), 2.0))
        finally:
            patterns._PATTERNS.pop("torch.acme.twice")


@pytest.mark.sweep(fast=3, slow=3)
@pytest.mark.parametrize(
    ("operator", "function"),
    [
        ("aten.index.Tensor", lambda x, mask: x[mask].sum()),
        ("aten.index.Tensor", lambda x, mask: x[:, mask[0]]),
        ("aten.masked_select", torch.masked_select),
    ],
)
def test_elements_that_a_mask_chooses_are_refused(operator: str, function: Any) -> None:
    """Regression: `x[mask]` took all memory of the machine."""
    x = torch.randn(4, 5)
    program = export(function, x, x > 0)
    with pytest.raises(FrontEndError, match=r"depends on the data.*torch\.where") as refused:
        qmlir.compile(program)
    assert f"the operator {operator}" in str(refused.value)
    assert "test_operators.py:" in str(refused.value)


@pytest.mark.slow
def test_indices_and_places_of_a_mask() -> None:
    x, places = torch.randn(4, 5), torch.tensor([2, 0])
    program = export(lambda x, places: (x[places], x[:, places], torch.nonzero(x > 0)), x, places)
    found = opened(qmlir.compile(program)).main(x, places)
    for got, expected in zip(found, (x[places], x[:, places], torch.nonzero(x > 0)), strict=True):
        assert torch.equal(got, expected)


def test_unknown_import_option() -> None:
    with pytest.raises(FrontEndError, match="unknown import option 'parameter' of torch programs; options: parameters"):
        qmlir.compile(export(lambda x: x + 1, torch.ones(2)), import_options={"parameter": "w.irpa"})


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["irpa", "safetensors"])
def test_parameters_beside_the_program(tmp_path: Path, suffix: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 128)).eval()
    models.ao.quantize_(model, models.TORCHAO["int8-dynamic"]())
    x = torch.randn(3, 256)
    path = tmp_path / f"weights.{suffix}"
    artifact = qmlir.compile(models.exported(model, x, None), import_options={"parameters": path}, keep_parameters=True)
    assert len(artifact.vmfb) < path.stat().st_size
    found = opened(artifact, parameters={"model": str(path)}).main(x)
    torch.testing.assert_close(found, model(x).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize("layer", [torch.nn.Conv2d(3, 5, 2, stride=2), torch.nn.MaxPool2d(2)], ids=["conv", "pool"])
def test_one_window_that_leaves_the_end_of_its_input_unread(layer: Any) -> None:
    """Regression: IREE refused an input longer than the only window along an axis."""
    x = torch.randn(2, 3, 3, 6, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = opened(qmlir.compile(export(layer, x))).main(x)
        torch.testing.assert_close(torch.as_tensor(found), layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_cosine_of_repeated_numbers() -> None:
    """Regression: Cohere's rotary embedding failed with 'failed to legalize operation arith.mului_extended'."""
    x = torch.randn(2, 7, 8) * 100
    found, _ = compiled(lambda x: torch.repeat_interleave(x, 2, dim=-1).cos(), x)
    torch.testing.assert_close(found, torch.repeat_interleave(x, 2, dim=-1).cos(), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.sweep(slow=60)
@pytest.mark.parametrize("channels", [2, 4, 5])
def test_depthwise_convolution_of_few_channels_on_vulkan(channels: int, lavapipe: str) -> None:
    """Regression: every second channel of four was wrong, without an error."""
    torch.manual_seed(0)
    for size, padding, stride in (((6, 6), 0, 1), ((7, 9), 1, 2), ((4, 6), 0, 2), ((3, 3), 0, 1)):
        layer = torch.nn.Conv2d(channels, channels, 3, stride=stride, padding=padding, groups=channels)
        x = torch.randn(1, channels, *size)
        with torch.no_grad():
            found = opened(qmlir.compile(export(layer, x), target=lavapipe)).main(x)
            torch.testing.assert_close(torch.as_tensor(found), layer(x), rtol=1e-5, atol=1e-5)


CONVOLUTIONS = {
    "rows": (torch.nn.Conv1d(6, 10, 3, padding=1), (2, 6, 21)),
    "rows-apart": (torch.nn.Conv1d(6, 10, 3, stride=2, dilation=3), (1, 6, 31)),
    "rows-in-groups": (torch.nn.Conv1d(6, 9, 5, groups=3), (2, 6, 21)),
    "patches": (torch.nn.Conv2d(3, 24, 4, stride=4), (1, 3, 16, 24)),
    "stem": (torch.nn.Conv2d(3, 20, 7, stride=2, padding=3), (2, 3, 23, 18)),
    "pixels-apart": (torch.nn.Conv2d(8, 20, 1, stride=2, bias=False), (2, 8, 9, 9)),
    "groups": (torch.nn.Conv2d(12, 18, 3, padding=1, groups=3), (2, 12, 7, 9)),
    "depthwise": (torch.nn.Conv2d(20, 20, 3, padding=1, groups=20), (2, 20, 7, 9)),
    "depthwise-apart": (torch.nn.Conv2d(20, 20, (5, 3), stride=(2, 1), dilation=(1, 2), groups=20), (1, 20, 17, 9)),
    "volume": (torch.nn.Conv3d(3, 6, 3, padding=1, stride=(1, 2, 2)), (2, 3, 5, 8, 8)),
}


@pytest.mark.slow
@pytest.mark.sweep(slow=60)
@pytest.mark.parametrize("batch", ["static", "dynamic"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_floats(name: str, batch: str) -> None:
    """Convolutions that IREE's own code would compute element by element."""
    layer, shape = CONVOLUTIONS[name]
    torch.manual_seed(0)
    x = torch.randn(shape if batch == "static" else (3, *shape[1:]))
    axes = None if batch == "static" else (({0: torch.export.Dim("batch", min=2, max=8)},),)
    artifact = qmlir.compile(export(layer.eval(), x, axes=axes))
    text = artifact.source("configured")
    assert "linalg.conv" not in text
    assert "depthwise_conv_2d_nchw" not in text
    with torch.no_grad():
        expected = layer.double()(x.double()).numpy()
    layer.float()
    np.testing.assert_allclose(np.asarray(opened(artifact).main(x)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize("name", ["dequantize", "dequant"])
def test_an_operator_by_both_of_its_names(name: str) -> None:
    """The operator has the function's current name and its former name."""
    operator, scale = getattr(torch.ops.qmlir, name), torch.tensor([0.5])
    found, _ = compiled(lambda q: operator(q, scale), q := codes(3, 4))
    assert torch.equal(found, q * 0.5)
    assert torch.equal(operator(q, scale), q * 0.5)


def test_required_attributes_are_required() -> None:
    with pytest.raises(RuntimeError, match="format"):
        torch.ops.qmlir.sparse_matmul(
            torch.ones(2, 2), torch.ones(1), torch.zeros(1, dtype=torch.int32), rhs_shape=[2, 2]
        )


def test_an_operation_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"there is no operation 'dequantise'; did you mean 'dequantize'"):
        qmlir.ops.named("dequantise")


class SmallConstants(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.table, self.conv = torch.nn.Linear(8, 6), torch.nn.Embedding(5, 6), torch.nn.Conv2d(1, 2, 1)
        self.place = torch.nn.Buffer(torch.randn(5, 3))

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> Any:
        y = self.linear(x) + self.table(ids)
        return y, self.conv(y[:, None, :, None]), y + self.place[2, 1]


@pytest.mark.slow
def test_small_constants_of_bf16_on_vulkan(lavapipe: str) -> None:
    """Regression: no driver took the shaders of a bf16 layer with a bias, or of a small table."""
    torch.manual_seed(0)
    model = SmallConstants().to(torch.bfloat16).eval()
    x, ids = torch.randn(3, 8).to(torch.bfloat16), torch.tensor([4, 0, 4])
    with torch.no_grad():
        expected = model(x, ids)
    for got, want in zip(qmlir.load(qmlir.compile(export(model, x, ids), target=lavapipe)).main(x, ids), expected,
                         strict=True):  # fmt: skip
        torch.testing.assert_close(got, want, rtol=2**-7, atol=2**-7)


def test_arguments_and_results_of_other_dtypes() -> None:
    x = torch.randn(2, 3)
    with pytest.raises(
        FrontEndError, match=r"test_operators.py:\d+: error: result 1 is torch.complex64, .*view_as_real"
    ):
        qmlir.compile(export(lambda x: (x, torch.complex(x, x)), x))
    with pytest.raises(
        FrontEndError, match=r"argument 'args_0' is torch.complex64, which compiled programs do not support"
    ):
        qmlir.compile(export(lambda x: x.real, torch.complex(x, x)))
    with pytest.raises(FrontEndError, match=r"result 0 is torch.uint16, .* use one of f32, f16"):
        qmlir.compile(export(lambda x: x.to(torch.uint16), x))


def test_places_in_a_tensor_without_axes() -> None:
    """Regression: the process crashed."""
    with pytest.raises(FrontEndError, match=r"aten.nonzero, .* has a 0-d operand"):
        qmlir.compile(export(torch.nonzero, torch.tensor(1.0)))
