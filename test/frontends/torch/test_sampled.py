"""grid_sample, against torch. The ONNX operator is in the onnx package's node tests."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn.functional import grid_sample

import qmlir


class Sampled(torch.nn.Module):
    def __init__(self, mode: str, padding: str, align_corners: bool) -> None:
        super().__init__()
        self.options = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}

    def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return grid_sample(x, grid, **self.options)


MODES, PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


@pytest.mark.sweep(fast=18, slow=60)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("aligned", [False, True])
def test_places_inside_and_beside_an_image(mode: str, padding: str, aligned: bool) -> None:
    """Regression: in each of these cases, torch-mlir's conversion read outside the image and gave arbitrary values."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 3, 5, 7, generator=generator)
    grid = torch.rand(2, 4, 6, 2, generator=generator) * 5 - 2.5
    auto = torch.export.Dim.AUTO
    sizes = (dict.fromkeys(range(4), auto), dict.fromkeys(range(3), auto))
    dynamic = aligned
    net = Sampled(mode, padding, aligned)
    exported = torch.export.export(net, (x, grid), dynamic_shapes=sizes if dynamic else None)
    main = qmlir.load(qmlir.compile(exported, target="cpu")).main
    torch.testing.assert_close(main(x, grid), net(x, grid), rtol=1e-5, atol=1e-5)
    if dynamic:
        smaller = x[:1, :2, :4, :1], grid[:1, :3]
        torch.testing.assert_close(main(*smaller), net(*smaller), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_three_axes_and_short_floats() -> None:
    generator = torch.Generator().manual_seed(2)
    x, grid = (
        torch.randn(1, 2, 4, 5, 3, generator=generator),
        torch.rand(1, 3, 4, 2, 3, generator=generator) * 4 - 2,
    )
    net = Sampled("bilinear", "reflection", False)
    main = qmlir.load(qmlir.compile(torch.export.export(net, (x, grid)), target="cpu")).main
    torch.testing.assert_close(main(x, grid), net(x, grid), rtol=1e-5, atol=1e-5)
    halves = x[..., 0].bfloat16(), grid[:, :, :, 0, :2].bfloat16()
    main = qmlir.load(qmlir.compile(torch.export.export(net, halves), target="cpu")).main
    expected = net(*(h.float() for h in halves)).bfloat16()
    torch.testing.assert_close(main(*halves), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.slow
def test_what_is_no_number_reads_nothing_outside() -> None:
    x, grid = torch.ones(1, 1, 3, 3), torch.zeros(1, 1, 4, 2)
    grid[0, 0, 0, 0], grid[0, 0, 1, 1], grid[0, 0, 2, 0] = float("nan"), float("inf"), 1e30
    for mode, padding in itertools.product(MODES, PADDINGS):
        main = qmlir.load(
            qmlir.compile(torch.export.export(Sampled(mode, padding, True), (x, grid)), target="cpu")
        ).main
        found = main(x, grid)[0, 0, 0]
        assert found[3] == 1
        assert all(torch.isnan(v) or -10 < v < 10 for v in found), (mode, padding, found)
