"""Each format against its own formula in float64 (GGUF: against the gguf package, bit for bit), and the weights as
operands of a product."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from checkpoint import writers as w
from gguf import GGMLQuantizationType

import qmlir
from qmlir.checkpoint import QuantizedWeight
from qmlir.dialect.dtypes import E2M1_VALUES, NF4_VALUES

N, K = 48, 128
GGUF_TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K", "MXFP4")
rng = np.random.default_rng(6)


def opened(path: Path, name: str = "layer.weight") -> QuantizedWeight:
    weight = qmlir.checkpoint.open(path)[name]
    assert isinstance(weight, QuantizedWeight)
    return weight


def check(weight: QuantizedWeight, real: Any, ulps: int = 1, compiled: bool = False) -> None:
    """The dequantised weight is the real one rounded, or at most `ulps` roundings away. A product agrees with float64,
    and with `compiled` (one weight of each layout) the compiled product does too."""
    got = weight.dequantize()
    assert got.dtype == np.float32
    assert got.shape == weight.shape == real.shape
    np.testing.assert_array_less(np.abs(got - real), ulps * 2.0**-23 * np.abs(real) + 1e-30)
    x = np.random.default_rng(1).standard_normal((3, real.shape[1])).astype(np.float32)
    exact = x.astype(np.float64) @ real.T
    terms = np.abs(x).astype(np.float64) @ np.abs(real).T
    y = qmlir.reference.scaled_matmul(**weight.product(x))
    assert (np.abs(y - exact) <= 2.0**-21 * terms).all()
    if compiled:
        bound = 2.0**-22 * np.abs(exact) + (real.shape[1] + ulps) * 2.0**-23 * terms
        y = qmlir.ops.scaled_matmul(**weight.product(x))
        assert (np.abs(y - exact) <= bound).all()


# ------------------------------------------------------------------------------------------------------- GGUF


def finite_blocks(kind: str, rows: int, columns: int) -> Any:
    """Blocks of random bytes whose f16 fields are small finite numbers."""
    block, size = gguf.GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    raw = rng.integers(0, 256, (rows, columns // block, size), np.uint8)
    halves = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q8_0": (0,), "Q4_K": (0, 2), "Q6_K": (208,)}
    for at in halves.get(kind, ()):
        values = rng.uniform(-0.1, 0.1, raw.shape[:2]).astype(np.float16)
        raw[..., at : at + 2] = values[..., None].view(np.uint8)
    if kind == "MXFP4":
        raw[..., 0] = rng.integers(110, 130, raw.shape[:2])
    return raw.reshape(rows, -1)


def write_gguf(path: Path, tensors: dict[str, tuple[str, Any]], metadata: dict[str, Any] | None = None) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (metadata or {}).items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    for name, (kind, data) in tensors.items():
        plain = kind in ("F32", "F16")
        writer.add_tensor(name, data, raw_dtype=None if plain else GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", GGUF_TYPES)
def test_gguf(kind: str, tmp_path: Path) -> None:
    raw = finite_blocks(kind, N, 512)
    path = write_gguf(tmp_path / "m.gguf", {"w": (kind, raw), "norm": ("F32", np.ones(4, np.float32))})
    model = qmlir.checkpoint.open(path)
    assert list(model) == ["w", "norm"]
    assert (model.kind("w"), model.shape("w")) == (kind, (N, 512))
    weight = opened(path, "w")
    expected = gguf.quants.dequantize(raw, GGMLQuantizationType[kind])
    np.testing.assert_array_equal(weight.dequantize(), expected)
    np.testing.assert_array_equal(weight.rows(np.array([5, 0])), expected[[5, 0]])
    # `expected` contains ggml's own roundings.
    check(weight, expected.astype(np.float64), ulps=4, compiled=kind in ("Q4_0", "Q4_K", "Q6_K"))
    np.testing.assert_array_equal(model["norm"], np.ones(4, np.float32))


def test_gguf_is_as_small_as_its_file(tmp_path: Path) -> None:
    raw = finite_blocks("Q4_0", N, 512)
    weight = opened(write_gguf(tmp_path / "m.gguf", {"w": ("Q4_0", raw)}), "w")
    assert weight.nbytes == raw.nbytes
    assert (weight.dtype, weight.packing, weight.group_size) == ("i4", "low_first", 32)


def test_gguf_metadata_and_stacks_of_experts(tmp_path: Path) -> None:
    raw = finite_blocks("Q8_0", 2 * N, 64).reshape(2, N, -1)
    path = write_gguf(tmp_path / "m.gguf", {"e": ("Q8_0", raw)}, {"llama.block_count": 3, "llama.eps": 0.5})
    model = qmlir.checkpoint.open(path)
    assert model.config["llama.block_count"] == 3
    assert model.config["llama.eps"] == 0.5
    expected = gguf.quants.dequantize(raw, GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(model.quantized("e").dequantize(), expected)


# ------------------------------------------------------------------------------------------------- GPTQ and AWQ


def grouped(bits: int, size: int, k: int = K, n: int = N) -> tuple[Any, Any, Any]:
    groups = -(-k // size)
    codes = rng.integers(0, 1 << bits, (k, n))
    scales = rng.uniform(0.001, 0.1, (groups, n)).astype(np.float16)
    return codes, scales, rng.integers(0, 1 << bits, (groups, n))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_gptq(bits: int, version: int, tmp_path: Path) -> None:
    codes, scales, zeros = grouped(bits, 32)
    groups = np.arange(K) // 32
    layer = w.gptq_layer("layer", codes, scales, zeros, groups, bits, version)
    folder = w.write_folder(tmp_path, layer, w.gptq_config(bits, 32, version))
    weight = opened(folder)
    assert (weight.dtype, weight.zero_mode, weight.group_size, weight.order) == (f"u{bits}", "int", 32, None)
    check(weight, w.gptq_real(codes, scales, zeros, groups))


@pytest.mark.parametrize("bits", [4, 8])
def test_gptq_symmetric_codes_are_signed(bits: int, tmp_path: Path) -> None:
    codes, scales, _ = grouped(bits, 32)
    zeros = np.full(scales.shape, 1 << (bits - 1))
    groups = np.arange(K) // 32
    layer = w.gptq_layer("layer", codes, scales, zeros, groups, bits)
    weight = opened(w.write_folder(tmp_path, layer, w.gptq_config(bits, 32, sym=True)))
    assert (weight.dtype, weight.zero_point) == (f"i{bits}", None)
    check(weight, w.gptq_real(codes, scales, zeros, groups))


def test_gptq_in_activation_order(tmp_path: Path) -> None:
    codes, scales, zeros = grouped(4, 32)
    groups = rng.permutation(np.arange(K) // 32)
    layer = w.gptq_layer("layer", codes, scales, zeros, groups)
    weight = opened(w.write_folder(tmp_path, layer, w.gptq_config(desc_act=True)))
    assert weight.order is not None
    assert "activation order" in str(weight)
    check(weight, w.gptq_real(codes, scales, zeros, groups), compiled=True)
    with pytest.raises(qmlir.QmlirError, match=r"'layer.weight' is in activation order.*\*\*weight.product\(x\)"):
        qmlir.ops.scaled_matmul(np.ones((1, K), np.float32), **weight)


@pytest.mark.parametrize("size", [-1, 48])
def test_gptq_one_group_and_a_last_group_that_is_cut(size: int, tmp_path: Path) -> None:
    codes, scales, zeros = grouped(4, K if size == -1 else size)
    groups = np.zeros(K, int) if size == -1 else np.arange(K) // size
    layer = w.gptq_layer("layer", codes, scales, zeros, groups)
    weight = opened(w.write_folder(tmp_path, layer, w.gptq_config(4, size)))
    assert weight.group_size == (None if size == -1 else 16)
    check(weight, w.gptq_real(codes, scales, zeros, groups))


def test_an_old_configuration_file_beside_the_weights(tmp_path: Path) -> None:
    codes, scales, zeros = grouped(4, 32)
    path = w.write_safetensors(tmp_path / "gptq_model.safetensors",
                               w.gptq_layer("layer", codes, scales, zeros, np.arange(K) // 32))  # fmt: skip
    said = {"bits": 4, "group_size": 32, "sym": False, "desc_act": False, "damp_percent": 0.01}
    (tmp_path / "quantize_config.json").write_text(json.dumps(said))
    check(opened(path), w.gptq_real(codes, scales, zeros, np.arange(K) // 32))


def test_awq(tmp_path: Path) -> None:
    codes, scales, zeros = grouped(4, 32)
    folder = w.write_folder(tmp_path, w.awq_layer("layer", codes, scales, zeros), w.awq_config())
    weight = opened(folder)
    assert (weight.packing, weight.transposed, weight.group_size) == ("interleaved", False, 32)
    check(weight, w.awq_real(codes, scales, zeros), compiled=True)


# ----------------------------------------------------------------------------------------------- bitsandbytes

FP4 = (0.0, 0.0052083, 0.6666667, 1.0, 0.3333333, 0.5, 0.1666667, 0.25,
       0.0, -0.0052083, -0.6666667, -1.0, -0.3333333, -0.5, -0.1666667, -0.25)  # fmt: skip


@pytest.mark.parametrize("k", [K, 96])  # 96: blocks of 64 cross the ends of rows
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_bitsandbytes(kind: str, k: int, tmp_path: Path) -> None:
    table = np.asarray(NF4_VALUES if kind == "nf4" else FP4, np.float32)
    codes = rng.integers(0, 16, (N, k))
    absmax = rng.uniform(0.01, 1, -(-N * k // 64)).astype(np.float32)
    layer = w.bnb_layer("layer.weight", codes, absmax, table, kind)
    weight = opened(w.write_folder(tmp_path, layer, w.bnb_config(kind)))
    assert weight.dtype == ("nf4" if kind == "nf4" else "codebook")
    check(weight, w.bnb_real(codes, absmax, table))


def test_bitsandbytes_double_quantisation(tmp_path: Path) -> None:
    codes = rng.integers(0, 16, (N, K))
    blocks = N * K // 64
    inner = rng.integers(0, 256, blocks).astype(np.uint8)
    table = np.sort(rng.uniform(-1, 1, 256)).astype(np.float32)
    outer = rng.uniform(0.1, 1, -(-blocks // 32)).astype(np.float32)
    layer = w.bnb_layer("layer.weight", codes, inner, NF4_VALUES, nested=(table, outer, 2.5, 32))
    weight = opened(w.write_folder(tmp_path, layer, w.bnb_config()))
    absmax = table[inner].astype(np.float64) * np.repeat(outer, 32)[:blocks] + 2.5
    check(weight, w.bnb_real(codes, absmax, np.float32(NF4_VALUES)), ulps=4, compiled=True)


# ----------------------------------------------------------------------------------------- compressed-tensors


def test_int8_weights_and_activations(tmp_path: Path) -> None:
    codes = rng.integers(-128, 128, (N, K)).astype(np.int8)
    scale = rng.uniform(0.001, 0.1, (N, 1)).astype(ml_dtypes.bfloat16)
    said = w.ct_config(
        "int-quantized", {"num_bits": 8, "strategy": "channel"}, {"num_bits": 8, "strategy": "token", "dynamic": True}
    )
    folder = w.write_folder(tmp_path, {"layer.weight": codes, "layer.weight_scale": scale}, said)
    weight = opened(folder)
    assert weight.activations == qmlir.checkpoint.Activations("i8", "token", dynamic=True)
    check(weight, codes * scale.astype(np.float64))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_pack_quantized(symmetric: bool, bits: int, tmp_path: Path) -> None:
    lo, hi = -(1 << (bits - 1)), 1 << (bits - 1)
    codes = rng.integers(lo, hi, (N, K))
    scales = rng.uniform(0.001, 0.1, (N, K // 32)).astype(np.float16)
    zeros = None if symmetric else rng.integers(lo, hi, scales.shape)
    args = {"num_bits": bits, "strategy": "group", "group_size": 32, "symmetric": symmetric}
    folder = w.write_folder(
        tmp_path, w.ct_packed("layer", codes, scales, zeros, bits), w.ct_config("pack-quantized", args)
    )
    weight = opened(folder)
    assert (weight.dtype, weight.group_size) == (f"i{bits}", 32)
    z = 0 if zeros is None else np.repeat(zeros, 32, 1)
    check(weight, (codes - z) * np.repeat(scales.astype(np.float64), 32, 1))


@pytest.mark.parametrize("strategy", ["tensor", "channel", "block"])
def test_float8(strategy: str, tmp_path: Path) -> None:
    codes = rng.standard_normal((N, K)).astype(ml_dtypes.float8_e4m3fn)
    shape = {"tensor": (1,), "channel": (N, 1), "block": (2, 4)}[strategy]
    scale = rng.uniform(0.001, 0.1, shape).astype(np.float32)
    args: dict[str, Any] = {"num_bits": 8, "type": "float", "strategy": strategy}
    if strategy == "block":
        args["block_structure"] = [32, 32]  # the second row of blocks is cut short
    folder = w.write_folder(
        tmp_path, {"layer.weight": codes, "layer.weight_scale": scale}, w.ct_config("float-quantized", args)
    )
    wide = np.repeat(np.repeat(scale, 32, 0)[:N], 32, 1) if strategy == "block" else scale
    check(opened(folder), codes.astype(np.float64) * wide)


def test_rows_of_a_weight_with_scales_of_blocks(tmp_path: Path) -> None:
    """Regression: some rows were multiplied by the scales of the first rows of blocks."""
    args = {"num_bits": 8, "strategy": "block", "block_structure": [32, 32]}
    codes = rng.integers(-128, 128, (N, K)).astype(np.int8)
    tensors = {"layer.weight": codes, "layer.weight_scale": rng.uniform(0.001, 0.1, (2, 4)).astype(np.float32)}
    weight = opened(w.write_folder(tmp_path, tensors, w.ct_config("int-quantized", args)))
    index = np.array([0, 40, 31, 47, 33, 5])
    np.testing.assert_array_equal(weight.rows(index), weight.dequantize()[index])


def test_a_last_group_that_is_cut_into_short_ones(tmp_path: Path) -> None:
    """Regression: `scaled_matmul(x, **weight)` was refused, because groups of fewer than 8 have to be stated."""
    codes, scale = rng.integers(-8, 8, (N, 36)), rng.uniform(0.5, 1, (N, 2)).astype(np.float32)
    said = w.ct_config("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 32})
    weight = opened(w.write_folder(tmp_path, w.ct_packed("layer", codes, scale), said))
    check(weight, codes * scale.astype(np.float64)[:, np.arange(36) // 32], compiled=True)


@pytest.mark.parametrize("kind", ["nvfp4", "mxfp4"])
def test_float4(kind: str, tmp_path: Path) -> None:
    codes = rng.integers(0, 16, (N, K)).astype(np.uint8)
    size = 16 if kind == "nvfp4" else 32
    layer = {"layer.weight_packed": codes[:, 0::2] | codes[:, 1::2] << 4}
    if kind == "nvfp4":
        scale = rng.uniform(1, 400, (N, K // size)).astype(ml_dtypes.float8_e4m3fn)
        layer |= {"layer.weight_scale": scale, "layer.weight_global_scale": np.float32([1234.5])}
        real = scale.astype(np.float64) / 1234.5
    else:
        exponents = rng.integers(100, 130, (N, K // size)).astype(np.uint8)
        layer |= {"layer.weight_scale": exponents}
        real = 2.0 ** (exponents.astype(np.float64) - 127)
    args = {
        "num_bits": 4,
        "type": "float",
        "strategy": "tensor_group" if kind == "nvfp4" else "group",
        "group_size": size,
    }
    weight = opened(w.write_folder(tmp_path, layer, w.ct_config(f"{kind}-pack-quantized", args)))
    check(weight, np.asarray(E2M1_VALUES)[codes] * np.repeat(real, size, 1), ulps=4, compiled=True)


def test_groups_of_layers_by_name_pattern_and_class(tmp_path: Path) -> None:
    codes = rng.integers(-8, 8, (N, K))
    scales = rng.uniform(0.001, 0.1, (N, 4)).astype(np.float16)
    eight = rng.integers(-128, 128, (N, K)).astype(np.int8)
    said = w.ct_config("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 32})
    said["config_groups"]["other"] = {
        "targets": ["re:.*down_proj"], "weights": {"num_bits": 8, "strategy": "channel"}, "format": "int-quantized",
    }  # fmt: skip
    tensors = {
        **w.ct_packed("a.up_proj", codes, scales),
        "a.down_proj.weight": eight, "a.down_proj.weight_scale": scales[:, :1],
        "lm_head.weight": np.ones((4, 4), np.float16),
    }  # fmt: skip
    model = qmlir.checkpoint.open(w.write_folder(tmp_path, tensors, said))
    assert sorted(model) == ["a.down_proj.weight", "a.up_proj.weight", "lm_head.weight"]
    assert model.quantized("a.up_proj.weight").dtype == "i4"
    assert model.quantized("a.down_proj.weight").dtype == "i8"
    assert model["lm_head.weight"].dtype == np.float16


# ----------------------------------------------------------------------------------------------- whole folders


def test_shards(tmp_path: Path) -> None:
    codes, scales, zeros = grouped(4, 32)
    layer = w.awq_layer("layer", codes, scales, zeros)
    w.write_folder(tmp_path, {"bias": np.ones(3, np.float32)}, w.awq_config())
    (tmp_path / "model.safetensors").rename(tmp_path / "model-2.safetensors")
    w.write_safetensors(tmp_path / "model-1.safetensors", layer)
    names = {"bias": "model-2.safetensors", **dict.fromkeys(layer, "model-1.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    model = qmlir.checkpoint.open(tmp_path)
    assert sorted(model) == ["bias", "layer.weight"]
    check(model.quantized("layer.weight"), w.awq_real(codes, scales, zeros))


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    model = qmlir.checkpoint.open(w.write_safetensors(tmp_path / "m.safetensors", {"a": array}))
    found = model["a"]
    assert isinstance(found, np.ndarray)
    assert not found.flags.owndata
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, array)
