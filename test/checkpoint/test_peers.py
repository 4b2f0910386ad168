"""Weights quantised and packed by the formats' own packages, against what those packages dequantise them to.

Needs the extra `peers`, and the two packages that ask for CUDA, installed without their dependencies
(`pip install --no-deps auto-gptq autoawq accelerate`). All of them run on the CPU here.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoint import writers as w

import qmlir

pytestmark = pytest.mark.slow

N, K = 64, 256


def array(tensor: Any) -> Any:
    """A torch tensor as a numpy array with the same bits."""
    import torch

    raw = {
        torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
        torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    }
    tensor = tensor.detach()
    if tensor.dtype in raw:
        bits, dtype = raw[tensor.dtype]
        return tensor.contiguous().view(bits).numpy().view(dtype)
    return tensor.numpy()


def opened(folder: Path, tensors: dict[str, Any], said: dict[str, Any], name: str) -> Any:
    w.write_folder(folder, {n: array(t) for n, t in tensors.items()}, said)
    return qmlir.checkpoint.open(folder).quantized(name).dequantize()


def inside(package: str, module: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of a package, without the package's own `__init__`, which imports the dependencies of all its models."""
    found = find_spec(package)
    if found is None or found.submodule_search_locations is None:
        pytest.skip(f"{package} is not installed")
    bare = ModuleType(package)
    bare.__path__ = list(found.submodule_search_locations)
    monkeypatch.setitem(sys.modules, package, bare)
    return importlib.import_module(f"{package}.{module}")


def linear(groups: Any, bits: int) -> tuple[Any, Any, Any]:
    """A layer of random weights, with scales and zero points `[N, G]` whose range covers each group of columns;
    `groups[k]` is the group of column k. No code is at the edge of the range, because the packages do not clamp."""
    import torch

    layer = torch.nn.Linear(K, N, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(N, K, generator=torch.Generator().manual_seed(3)))
    scales, zeros = [], []
    for g in range(int(groups.max()) + 1):
        part = layer.weight.detach()[:, groups == g]
        low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
        scales.append((1.01 * (high - low) / (2**bits - 2)).half().float())
        zeros.append((-low / scales[-1]).ceil().clamp(1, 2**bits - 1))
    return layer.half(), torch.stack(scales, 1), torch.stack(zeros, 1)


@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_gptq(bits: int, act_order: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    package = inside("auto_gptq", "nn_modules.qlinear.qlinear_cuda", monkeypatch)
    groups = torch.arange(K) // 32
    if act_order:
        groups = groups[torch.randperm(K, generator=torch.Generator().manual_seed(4))]
    layer, scales, zeros = linear(groups, bits)
    packed = package.QuantLinear(bits, 32, K, N, bias=False)
    packed.pack(layer, scales, zeros, groups.to(torch.int32))
    said = w.gptq_config(bits, 32, desc_act=act_order)
    got = opened(tmp_path, {f"a.{n}": t for n, t in packed.state_dict().items()}, said, "a.weight")
    packed.scales = packed.scales.float()  # the package multiplies in the type of the scales
    expected = packed(torch.eye(K)).T.numpy()
    np.testing.assert_allclose(got, expected, rtol=2.0**-22, atol=1e-9)
    assert np.abs(got - layer.weight.detach().float().numpy()).max() <= 0.51 * scales.max().item() + 0.01


def test_awq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    package = inside("awq", "modules.linear.gemm", monkeypatch)
    layer, scales, zeros = linear(torch.arange(K) // 32, 4)
    packed = package.WQLinear_GEMM.from_linear(layer, 4, 32, scales=scales.T.contiguous(), zeros=zeros.T.contiguous())
    got = opened(tmp_path, {f"a.{n}": t for n, t in packed.state_dict().items()}, w.awq_config(32), "a.weight")
    expected = package.dequantize_gemm(packed.qweight, packed.qzeros, packed.scales.float(), 4, 32).T.numpy()
    np.testing.assert_allclose(got, expected, rtol=2.0**-22, atol=1e-9)
    assert np.abs(got - layer.weight.detach().float().numpy()).max() <= 0.51 * scales.max().item() + 0.01


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("double", [False, True])
def test_bitsandbytes(double: bool, kind: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("bitsandbytes.functional")
    weight = torch.randn(N, K, generator=torch.Generator().manual_seed(1))
    packed, state = functional.quantize_4bit(weight, blocksize=64, compress_statistics=double, quant_type=kind)
    tensors = {"a.weight": packed, **{f"a.weight.{n}": t for n, t in state.as_dict(packed=True).items()}}
    expected = functional.dequantize_4bit(packed, state).numpy()
    got = opened(tmp_path, tensors, w.bnb_config(kind), "a.weight")
    np.testing.assert_allclose(got, expected, rtol=2.0**-21, atol=1e-9)


FORMATS: dict[str, tuple[dict[str, Any], str]] = {
    "W4A16": ({"num_bits": 4, "strategy": "group", "group_size": 64}, "pack-quantized"),
    "W4A16_ASYM": ({"num_bits": 4, "strategy": "group", "group_size": 64, "symmetric": False}, "pack-quantized"),
    "W8A16": ({"num_bits": 8, "strategy": "channel"}, "pack-quantized"),
    "W8A8": ({"num_bits": 8, "strategy": "channel"}, "int-quantized"),
    "FP8": ({"num_bits": 8, "type": "float", "strategy": "tensor"}, "float-quantized"),
    "FP8_BLOCK": (
        {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [32, 64]},
        "float-quantized",
    ),
    "NVFP4": ({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, "nvfp4-pack-quantized"),
}


@pytest.mark.parametrize("preset", FORMATS)
def test_compressed_tensors(preset: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    args, fmt = FORMATS[preset]
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    compressor = BaseCompressor.get_value_from_registry(fmt)
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(N, K, generator=generator)
    shape = {"channel": (N, 1), "tensor": (1,), "block": (2, 4)}.get(args["strategy"])
    if shape is None:
        shape = (N, K // args["group_size"])
    state = {"weight": weight, "weight_scale": torch.rand(shape, generator=generator) * 0.05 + 0.05}
    if args.get("symmetric") is False:
        state["weight_zero_point"] = torch.randint(-8, 8, shape, generator=generator).to(torch.int8)
    if preset == "NVFP4":
        # As in its quantiser: 448 x 6 represents the largest weight, and group scales are e4m3.
        overall = 448 * 6 / weight.abs().max()
        groups = weight.abs().reshape(N, -1, 16).amax(-1) / 6 * overall
        state |= {"weight_scale": groups.to(torch.float8_e4m3fn).to(torch.float32),
                  "weight_global_scale": overall.reshape(1)}  # fmt: skip
    packed = compressor.compress(dict(state), scheme)
    expected = compressor.decompress(dict(packed), scheme)["weight"].to(torch.float32).numpy()
    got = opened(tmp_path, {f"a.{n}": t for n, t in packed.items()}, w.ct_config(fmt, args), "a.weight")
    # The package dequantises NVFP4 in bf16, rounding the scale and the product.
    np.testing.assert_allclose(got, expected, rtol=2.0**-7 if preset == "NVFP4" else 2.0**-20, atol=1e-9)
    assert np.abs(got - weight.numpy()).max() < 4 * np.abs(weight.numpy()).max()
