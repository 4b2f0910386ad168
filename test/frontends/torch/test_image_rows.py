"""A linear layer of channels-last images is one product of all pixels, whose weight is packed once."""

from __future__ import annotations

from typing import Any

import pytest

import qmlir

torch = pytest.importorskip("torch")


class Mixed(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.linear = torch.nn.LayerNorm(32), torch.nn.Linear(32, 48)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.linear(self.norm(x)))


@pytest.mark.sweep(fast=10, slow=60)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("shape", "dynamic"), [((2, 4, 4, 32), ()), ((2, 4, 5, 32), (0, 1)), ((2, 3, 4, 5, 32), (0,))])
def test_all_pixels_are_one_product(shape: tuple[int, ...], dynamic: tuple[int, ...], dtype: str) -> None:
    """Regression: copying the weight for each row of an image took ten times as long as torch."""
    kind = getattr(torch, dtype)
    model, x = Mixed().eval().to(kind), torch.randn(shape).to(kind)
    dims = {i: torch.export.Dim(f"d{i}", min=2, max=64) for i in dynamic}
    artifact = qmlir.compile(torch.export.export(model, (x,), dynamic_shapes=(dims,) if dims else None))
    [product] = [s for s in artifact.manifest.strategies if s["kind"] == "matmul"]
    assert product["batch"] == [], product
    with torch.no_grad():
        expected = model(x)
    tolerance = 1e-5 if dtype == "float32" else 3e-2
    torch.testing.assert_close(torch.as_tensor(qmlir.load(artifact).main(x)), expected, rtol=tolerance, atol=tolerance)
