"""Models and quantisers for the tests of the torch front end."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torchao.quantization as ao
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
    from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack
    from torchao.utils import unwrap_tensor_subclass

BATCH = torch.export.Dim("batch", min=2, max=64)
LENGTH = torch.export.Dim("length", min=2, max=64)


class Called(nn.Module):
    """A module that calls a function of tensors; torch exports only modules."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class Mlp(nn.Module):
    """[B, T, 64] -> [B, T, 16]"""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 96), nn.Linear(96, 16)

    def forward(self, x: Any) -> Any:
        return self.down(F.gelu(self.up(x)))


class ConvNet(nn.Module):
    """[B, 3, 6, 6] -> [B, 4]: a convolution with batch norm, a depthwise one, a residual, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.depthwise, self.pointwise = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.stem(x)))
        y = torch.relu(self.pointwise(F.relu6(self.depthwise(y))) + y)
        return self.head(F.max_pool2d(y, 2).mean((2, 3)))


class Block(nn.Module):
    """[B, T, 32] -> [B, T, 32]: a transformer block with four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: Any) -> Any:
        b, t, d = x.shape
        q, k, v = (y.view(b, t, 4, d // 4).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    """[B, T] i64 -> [B, 32]: embeddings, two blocks, the mean over tokens. Tokens are below 50; 0 is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 32), nn.Embedding(64, 32)
        self.first, self.second, self.norm = Block(), Block(), nn.LayerNorm(32)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        kept = (tokens != 0).to(torch.float32)[:, :, None]
        x = self.norm(self.second(self.first(x))) * kept
        return x.sum(1) / kept.sum(1).clamp(min=1.0)


# model -> (class, example shape, dynamic axes, products that are quantised)
MODELS: dict[str, tuple[Any, tuple[int, ...], dict[int, Any], int]] = {
    "mlp": (Mlp, (4, 7, 64), {0: BATCH, 1: LENGTH}, 2),
    "conv": (ConvNet, (4, 3, 6, 6), {0: BATCH}, 4),
    "block": (Block, (4, 7, 32), {0: BATCH, 1: LENGTH}, 4),
    "encoder": (Encoder, (4, 7), {0: BATCH, 1: LENGTH}, 8),
}

TORCHAO: dict[str, Callable[[], Any]] = {
    "int8-dynamic": lambda: ao.Int8DynamicActivationInt8WeightConfig(),
    "int8-weight": lambda: ao.Int8WeightOnlyConfig(),
    "int8-dynamic-int4-group": lambda: ao.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(32)
    ),
    "int4-weight": lambda: ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
    "float8-weight": lambda: ao.Float8WeightOnlyConfig(),
}


def _x86(**options: Any) -> Any:
    return x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config(**options))


def _xnnpack(**options: Any) -> Any:
    return xnnpack.XNNPACKQuantizer().set_global(xnnpack.get_symmetric_quantization_config(**options))


PT2E: dict[str, Callable[[], Any]] = {
    "x86-static": lambda: _x86(),
    "x86-dynamic": lambda: _x86(is_dynamic=True),
    "x86-qat": lambda: _x86(is_qat=True),
    "xnnpack-static": lambda: _xnnpack(is_per_channel=True),
    "xnnpack-static-tensor": lambda: _xnnpack(is_per_channel=False),
    "xnnpack-dynamic": lambda: _xnnpack(is_per_channel=True, is_dynamic=True),
}


def example(model: str, *sizes: int, seed: int = 1) -> Any:
    """An argument of a model. `sizes`: sizes of its dynamic axes; default: those of `MODELS`."""
    torch.manual_seed(seed)
    _, shape, axes, _ = MODELS[model]
    wanted = [*(sizes or shape[: len(axes)]), *shape[len(axes) :]]
    return torch.randint(0, 50, wanted) if model == "encoder" else torch.randn(wanted)


def quantised(model: str, scheme: str) -> Any:
    """A model of `MODELS`, quantised: a module that runs in torch."""
    torch.manual_seed(0)
    module = MODELS[model][0]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if scheme in TORCHAO:
            ao.quantize_(module.eval(), TORCHAO[scheme]())
            return module
        qat = scheme.endswith("qat")
        x = (example(model),)
        traced = torch.export.export(module.train(qat), x, dynamic_shapes=(MODELS[model][2],)).module()
        prepared = (prepare_qat_pt2e if qat else prepare_pt2e)(traced, PT2E[scheme]())
        for _ in range(2):
            prepared(*x)
        converted = convert_pt2e(prepared)
        if qat:
            move_exported_model_to_eval(converted)
        return converted


def exported(module: Any, x: Any, axes: dict[int, Any] | None) -> Any:
    """The module as an exported program. `axes`: its dynamic axes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(
            unwrap_tensor_subclass(module), (x,), dynamic_shapes=(axes,) if axes is not None else None
        )
