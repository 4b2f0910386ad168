"""Sums of f16 and bf16 are as exact as torch's and onnxruntime's, which sum in f32."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import qmlir
from conformance.opened import opened

FUNCTIONS = {
    "sum": lambda x: x.sum(-1), "sum of rows": lambda x: x.sum(0), "sum of all": lambda x: x.sum(),
    "mean": lambda x: x.mean(-1), "var": lambda x: x.var(-1), "std": lambda x: x.std(-1),
    "cumsum": lambda x: x.cumsum(-1), "layer_norm": lambda x: F.layer_norm(x, (x.shape[-1],), x[0] * 2, x[1]),
    "group_norm": lambda x: F.group_norm(x, 4), "rms_norm": lambda x: F.rms_norm(x, (x.shape[-1],), x[0]),
    "norm": lambda x: x.norm(dim=-1), "logsumexp": lambda x: torch.logsumexp(x, -1),
    "softmax": lambda x: torch.softmax(x, -1), "log_softmax": lambda x: torch.log_softmax(x, -1),
    "pooled": lambda x: F.avg_pool1d(x[None], 512), "pooled to one": lambda x: F.adaptive_avg_pool1d(x[None], 1),
    "product": lambda x: x @ x.T,
}  # fmt: skip
NODES: dict[str, dict[str, Any]] = {
    "ReduceSum": {}, "ReduceMean": {}, "ReduceL2": {}, "ReduceSumSquare": {}, "ReduceLogSumExp": {},
    "GlobalAveragePool": {}, "AveragePool": {"kernel_shape": [1, 512]}, "Softmax": {},
}  # fmt: skip


class Functions(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return tuple(f(x) for f in FUNCTIONS.values())


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize(("dtype", "unit"), [(torch.float16, 2**-10), (torch.bfloat16, 2**-7)])
def test_torch(dtype: Any, unit: float) -> None:
    """Regression: a pooling to one value was off by two thirds."""
    x = (torch.rand(16, 4096, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.5).to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = opened(qmlir.compile(torch.export.export(Functions(), (x,)))).main(x)
    for name, got, want in zip(FUNCTIONS, results, Functions()(x.double()), strict=True):
        assert got.dtype == dtype, name
        # Two units, because some functions round twice, as in torch.
        error = (got.double() - want).abs() / want.abs().clamp(min=0.1)
        assert error.max() <= 2 * unit, (name, error.max())


WIDE = {
    "sum": lambda x: x.sum(-1, dtype=torch.float32), "cumsum": lambda x: x.cumsum(-1, dtype=torch.float32),
    "log_softmax": lambda x: F.log_softmax(x, -1, dtype=torch.float32),
    "mean": lambda x: torch.mean(x, (0, 1), dtype=torch.float32),
    "short": lambda x: x.float().sum(-1, dtype=torch.float16),
}  # fmt: skip


class Wide(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return tuple(f(x) for f in WIDE.values())


def test_torch_with_a_type_of_its_own() -> None:
    x = (torch.rand(4, 256, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.5).to(torch.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = opened(qmlir.compile(torch.export.export(Wide(), (x,)))).main(x)
    for got, want in zip(results, Wide()(x), strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=1e-3 if got.dtype == torch.float16 else 1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.sweep(slow=60)
@pytest.mark.parametrize(("kind", "dtype", "unit"), [
    (TensorProto.FLOAT16, np.float16, 2**-10), (TensorProto.BFLOAT16, ml_dtypes.bfloat16, 2**-7),
])  # fmt: skip
def test_onnx(kind: int, dtype: Any, unit: float) -> None:
    x = (np.random.default_rng(0).random((1, 4, 4, 1024)) * 0.5 + 0.5).astype(dtype)

    def model(kind: int) -> Any:
        nodes = [helper.make_node(n, ["x"], [n], **a) for n, a in NODES.items()]
        described = [helper.make_tensor_value_info(n, kind, None) for n in NODES]
        graph = helper.make_graph(nodes, "sums", [helper.make_tensor_value_info("x", kind, x.shape)], described)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
        return onnx.shape_inference.infer_shapes(made, strict_mode=True)

    results = opened(qmlir.compile(model(kind))).main(x)
    wanted = ReferenceEvaluator(model(TensorProto.DOUBLE)).run(None, {"x": x.astype(np.float64)})
    for name, got, want in zip(NODES, results, wanted, strict=True):
        assert got.dtype == dtype, name
        error = np.abs(got.astype(np.float64) - want) / np.abs(want)
        assert error.max() <= unit, (name, error.max())
