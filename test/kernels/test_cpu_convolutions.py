"""f32 convolutions by kernels that gather from the image, against torch's in f64. The data are integers, so all sums
are exact in f32 and results are bit-exact."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from support.arm import Emulator
from torch import nn

import qmlir
from qmlir.targets import resolve

TARGETS = {"cpu:x86-64-v4": "avx512-f32-conv", "cpu:x86-64-v3": "avx2-f32-conv"}

# Image, filters and their windows, options: channels that are whole vectors or not, of one or several blocks of K,
# windows of one line or one column, strides, dilations, padding on each side, results smaller than a vector's lanes.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "stem": ((2, 3, 23, 18), (20, 7, 7), {"stride": 2, "padding": 3}),
    "whole-vectors": ((1, 32, 9, 11), (45, 3, 3), {"padding": 1}),
    "two-blocks": ((1, 150, 6, 5), (70, 3, 3), {"padding": 1, "bias": False}),
    "many-blocks": ((1, 300, 5, 5), (33, 3, 3), {"padding": (2, 0)}),
    "one-line": ((3, 15, 4, 9), (8, 1, 3), {"padding": (0, 1)}),
    "one-column": ((1, 17, 9, 4), (64, 5, 1), {"stride": (2, 1)}),
    "holes": ((1, 21, 12, 13), (37, 3, 3), {"dilation": (2, 3), "padding": 2}),
    "holes-down": ((1, 24, 12, 13), (16, 3, 3), {"dilation": (2, 1), "padding": (2, 1)}),
    "pixels": ((2, 40, 7, 7), (24, 1, 1), {}),
    "pixels-apart": ((2, 40, 9, 9), (24, 1, 1), {"stride": 2}),
    "pixels-padded": ((1, 16, 5, 5), (16, 1, 1), {"padding": 1}),
    "smaller-than-its-window": ((1, 8, 2, 2), (12, 5, 5), {"padding": 4}),
    "wide-steps": ((1, 8, 11, 11), (12, 2, 2), {"stride": 3, "padding": 1}),
    "three-vectors": ((1, 16, 7, 7), (80, 3, 3), {"padding": 1}),
    "groups": ((2, 12, 7, 9), (20, 3, 3), {"padding": 1, "groups": 4}),
    "wide-groups": ((1, 80, 6, 5), (140, 3, 3), {"stride": 2, "padding": 1, "groups": 2, "bias": False}),
    "groups-of-blocks": ((1, 400, 5, 4), (60, 3, 3), {"padding": 1, "groups": 2}),
    "pixels-in-groups": ((2, 24, 5, 5), (32, 1, 1), {"groups": 2}),
    "one-result": ((1, 16, 1, 1), (16, 3, 3), {"padding": 1}),
    "one-result-of-a-part": ((1, 16, 4, 4), (16, 3, 3), {"stride": 2}),
    "one-result-of-all": ((1, 16, 3, 3), (16, 3, 3), {}),
}


def layer_of(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    shape, (filters, height, width), options = CASES[name]
    layer = nn.Conv2d(shape[1], filters, (height, width), **options).eval()
    return with_integers(layer, len(name)), shape


def with_integers(model: nn.Module, seed: int, most: int = 3) -> nn.Module:
    """The model with integers from `-most` to `most` as its parameters."""
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.data = torch.randint(-most, most + 1, p.shape, generator=generator).float()
    return model


def images(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(sum(shape))).float()


def expected(model: nn.Module, *args: torch.Tensor) -> Any:
    with torch.no_grad():
        found = model.double()(*(a.double() for a in args)).float().numpy()
    model.float()
    return found


def compiled(model: nn.Module, x: torch.Tensor, target: str, dynamic: bool = False) -> qmlir.Artifact:
    axes = ({0: torch.export.Dim("batch", min=2, max=8)},) if dynamic else None
    return qmlir.compile(torch.export.export(model, (x,), dynamic_shapes=axes), target=target)


def runs_here(target: str) -> bool:
    return set(resolve(target).capabilities.cpu_features) <= set(resolve("cpu").capabilities.cpu_features)


@pytest.mark.sweep(fast=40, slow=26)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("one-result")])
def test_static_images(name: str, target: str) -> None:
    same_as_torch(name, target)


@pytest.mark.sweep(fast=6, slow=4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("one-result")])
def test_one_result(name: str, target: str) -> None:
    """Regression: a single row of the product was read from the start of the image, wherever its window was (Inception
    v3 on 96 pixels, the last levels of RetinaNet's pyramid)."""
    same_as_torch(name, target)


def same_as_torch(name: str, target: str) -> None:
    if not runs_here(target):
        pytest.skip(f"this host does not run {target}")
    layer, shape = layer_of(name)
    x = images(shape)
    artifact = compiled(layer, x, target)
    assert artifact.manifest.strategies[0]["chosen"] == TARGETS[target], artifact.manifest.strategies[0]["answers"]
    np.testing.assert_array_equal(qmlir.load(artifact).main(x), expected(layer, x))


@pytest.mark.sweep(fast=6, slow=26)
@pytest.mark.parametrize("name", ["stem", "two-blocks", "pixels", "holes", "groups"])
def test_any_number_of_images(name: str) -> None:
    layer, shape = layer_of(name)
    artifact = compiled(layer, images((3, *shape[1:])), "cpu:x86-64-v3", dynamic=True)
    assert artifact.manifest.strategies[0]["chosen"] == "avx2-f32-conv"
    main = qmlir.load(artifact).main
    for count in (2, 5, 8):
        x = images((count, *shape[1:]))
        np.testing.assert_array_equal(main(x), expected(layer, x))


class Block(nn.Module):
    """Consecutive convolutions, with the ops that networks have between them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.pool = nn.Conv2d(3, 16, 3, 2, 1), nn.MaxPool2d(3, 2, 1)
        self.one, self.two = nn.Conv2d(16, 16, 3, 1, 1), nn.Conv2d(16, 16, 3, 1, 1)
        self.each, self.last = nn.Conv2d(40, 40, 3, 2, 1, groups=40), nn.Conv2d(40, 9, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(torch.relu(self.stem(x)))
        y = torch.relu(self.two(torch.relu(self.one(x))) + x)
        x = torch.cat([x, y, y[:, 4:12]], 1)
        return self.last(nn.functional.relu6(self.each(x))).sum((2, 3))


@pytest.mark.slow
def test_what_is_fused_and_what_is_between() -> None:
    """Bias, clamp and sum are fused into the kernels, and only the first image is transposed."""
    torch.manual_seed(0)
    model = Block().eval()
    x = torch.randn(2, 3, 33, 30)
    artifact = compiled(model, x, "cpu:x86-64-v3")
    text = artifact.source("configured")
    assert sum("linalg.transpose" in line and "tensor<2x" in line for line in text.splitlines()) == 1
    plans = [a["plan"] for s in artifact.manifest.strategies for a in s["answers"] if a["strategy"] == s["chosen"]]
    assert [p["fused"] for p in plans if "fused" in p] == [2, 2, 3, 3]
    np.testing.assert_allclose(qmlir.load(artifact).main(x), expected(model, x), rtol=1e-5, atol=1e-5)


class Lines(nn.Module):
    """The first layers of speech models: convolutions along time, with activations and a pooling between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(3, 20, 10, 5), nn.Conv1d(20, 33, 3, 2, padding=2)
        self.third = nn.Conv1d(33, 8, 3, padding=2, dilation=2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool1d(torch.relu(self.second(torch.relu(self.first(x)))), 2)
        return self.third(x).transpose(1, 2)


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("dynamic", [False, True])
def test_lines(dynamic: bool) -> None:
    """Only the input is transposed: the model itself makes the channels its last axis."""
    model = with_integers(Lines().eval(), 1, most=2)
    artifact = compiled(model, images((7, 3, 103)), "cpu:x86-64-v3", dynamic)
    plans = [a["plan"] for s in artifact.manifest.strategies for a in s["answers"] if a["strategy"] == s["chosen"]]
    assert [(s["chosen"], p["fused"]) for s, p in zip(artifact.manifest.strategies, plans, strict=True)] == [
        ("avx2-f32-conv", 4), ("avx2-f32-conv", 3), ("avx2-f32-conv", 1)
    ]  # fmt: skip
    images_of = "7" if not dynamic else r"\?"
    turned = re.findall(rf"linalg.transpose ins\(%\S+ : tensor<({images_of}x.*?)>\)", artifact.source("configured"))
    assert turned == ["?x3x103xf32" if dynamic else "7x3x103xf32"]
    for count in (2, 3) if dynamic else (7,):
        x = images((count, 3, 103))
        np.testing.assert_array_equal(qmlir.load(artifact).main(x), expected(model, x))


class Patches(nn.Module):
    """The first layers of vision transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 24, 4, 4), nn.LayerNorm(24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.patches(x).flatten(2).transpose(1, 2))


@pytest.mark.slow
def test_pixels_as_tokens() -> None:
    torch.manual_seed(0)
    model = Patches().eval()
    x = torch.randn(5, 3, 16, 12)
    artifact = compiled(model, x, "cpu:x86-64-v3")
    turned = re.findall(r"linalg.transpose ins\(%\S+ : tensor<(5x.*?)>\)", artifact.source("configured"))
    assert turned == ["5x3x16x12xf32"]
    np.testing.assert_allclose(qmlir.load(artifact).main(x), expected(model, x), rtol=1e-5, atol=1e-5)


def test_a_filter_that_comes_with_a_call() -> None:
    """No kernel is used, because it would have to pack the filter in every call."""

    class Given(nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return nn.functional.conv2d(x, w, padding=1)

    x, w = images((1, 16, 8, 8)), images((24, 16, 3, 3))
    artifact = qmlir.compile(torch.export.export(Given(), (x, w)))
    assert "conv_2d_nchw_fchw" in artifact.source("configured")
    np.testing.assert_array_equal(qmlir.load(artifact).main(x, w), expected(Given(), x, w))


@pytest.mark.sweep(fast=4, slow=26)
@pytest.mark.parametrize("name", ["stem", "two-blocks", "one-line", "groups"])
def test_on_arm(name: str, arm: Emulator) -> None:
    layer, shape = layer_of(name)
    x = images(shape)
    artifact = compiled(layer, x, "cpu:aarch64")
    assert artifact.manifest.strategies[0]["chosen"] == "neon-f32-conv"
    np.testing.assert_array_equal(arm.run(artifact, [[x.numpy()]])[0], expected(layer, x))


# ---------------------------------------------------------------------------------------------------- depthwise

# Image, windows, options: full and ragged blocks of channels, padding on every side or none, results computed several
# at once or one at a time, padding wider than the window.
DEPTHWISE: dict[str, tuple[tuple[int, ...], tuple[int, int], dict[str, Any]]] = {
    "full-blocks": ((1, 32, 9, 13), (3, 3), {"padding": 1}),
    "ragged": ((2, 21, 7, 8), (3, 3), {"padding": 1, "stride": 2}),
    "five": ((1, 40, 6, 5), (5, 5), {"padding": 2, "bias": False}),
    "holes": ((1, 20, 17, 9), (5, 3), {"stride": (2, 1), "dilation": (1, 2)}),
    "one-line": ((1, 16, 3, 20), (1, 11), {"padding": (0, 5)}),
    "wide-margins": ((1, 17, 2, 2), (5, 5), {"padding": 3}),
    "past-its-window": ((1, 16, 9, 11), (2, 2), {"stride": 3, "padding": (0, 1)}),
    "one-channel-each": ((1, 3, 5, 4), (3, 3), {}),
}


def depthwise(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    shape, window, options = DEPTHWISE[name]
    layer = nn.Conv2d(shape[1], shape[1], window, groups=shape[1], **options).eval()
    return nn.Sequential(with_integers(layer, len(name)), nn.ReLU6()), shape


@pytest.mark.sweep(fast=20, slow=26)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", DEPTHWISE)
def test_each_channel_by_itself(name: str, target: str) -> None:
    if not runs_here(target):
        pytest.skip(f"this host does not run {target}")
    layer, shape = depthwise(name)
    x = images(shape)
    artifact = compiled(layer, x, target)
    [found] = artifact.manifest.strategies
    assert found["chosen"] == TARGETS[target].replace("conv", "depthwise"), found["answers"]
    np.testing.assert_array_equal(qmlir.load(artifact).main(x), expected(layer, x))


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("name", ["full-blocks", "ragged"])
def test_each_channel_of_any_number_of_images(name: str) -> None:
    layer, shape = depthwise(name)
    main = qmlir.load(compiled(layer, images((3, *shape[1:])), "cpu", dynamic=True)).main
    for count in (2, 7):
        x = images((count, *shape[1:]))
        np.testing.assert_array_equal(main(x), expected(layer, x))


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("name", ["ragged", "five"])
def test_each_channel_on_arm(name: str, arm: Emulator) -> None:
    layer, shape = depthwise(name)
    x = images(shape)
    artifact = compiled(layer, x, "cpu:aarch64")
    assert artifact.manifest.strategies[0]["chosen"] == "neon-f32-depthwise"
    np.testing.assert_array_equal(arm.run(artifact, [[x.numpy()]])[0], expected(layer, x))


class Gated(nn.Module):
    """Products whose results are read twice: by the ops that compute a gate from them, and by the gated product."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.each = nn.Conv2d(8, 24, 3), nn.Conv2d(24, 24, 3, groups=24)
        self.linear = nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.hardswish(self.each(nn.functional.silu(self.conv(x))))
        y = self.linear(x.mean((2, 3)))
        return y * torch.tanh(torch.exp(y) + 1)


@pytest.mark.slow
def test_what_is_made_of_a_result_and_reads_it_again() -> None:
    torch.manual_seed(0)
    model = Gated().eval()
    x = torch.randn(2, 8, 9, 9)
    artifact = compiled(model, x, "cpu:x86-64-v3")
    plans = [a["plan"] for s in artifact.manifest.strategies for a in s["answers"] if a["strategy"] == s["chosen"]]
    assert [p["fused"] for p in plans] == [3, 6, 5]
    np.testing.assert_allclose(qmlir.load(artifact).main(x), expected(model, x), rtol=1e-5, atol=1e-6)
