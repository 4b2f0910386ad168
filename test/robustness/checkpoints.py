# ruff: noqa: E501  (tables of cases, a row each)
"""Hostile checkpoints, and configurations that do not fit their tensors: one error with the name of the tensor."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from checkpoint import writers as w
from robustness.case import Feed, rows

import qmlir
from qmlir.errors import CheckpointError

rng = np.random.default_rng(7)
K, N = 64, 16
ROOM = b"\0" * 256


def header(path: Path, said: Any, data: bytes = b"\0" * 64, length: int | None = None) -> Path:
    text = said if isinstance(said, bytes) else json.dumps(said).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype: str = "F32", shape: Any = (16,), offsets: Any = (0, 64)) -> dict[str, Any]:
    return {"a.weight": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


def gguf_bytes(
    tensors: bytes = b"", pairs: bytes = b"", counts: tuple[int, int] = (1, 0), magic: bytes = b"GGUF", version: int = 3
) -> bytes:  # fmt: skip
    return magic + struct.pack("<IQQ", version, *counts) + pairs + tensors


def info(name: bytes = b"a.weight", dims: tuple[int, ...] = (32, 2), kind: int = 2, offset: int = 0) -> bytes:
    return (struct.pack("<Q", len(name)) + name + struct.pack("<I", len(dims))
            + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset))  # fmt: skip


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value


def array(kind: int, count: int) -> bytes:
    return struct.pack("<IQ", kind, count)


def gptq(**change: Any) -> dict[str, Any]:
    groups = np.arange(K) // 32
    layer = w.gptq_layer("a", rng.integers(0, 16, (K, N)), rng.random((2, N)), np.full((2, N), 8), groups)
    return {**layer, **change}


AWQ = w.awq_layer("a", rng.integers(0, 16, (K, N)), rng.random((2, N)), rng.integers(0, 16, (2, N)))
BNB = w.bnb_layer("a.weight", rng.integers(0, 16, (N, K)), rng.random(N * K // 64).astype(np.float32), range(16))
CT = w.ct_packed("a", rng.integers(-8, 8, (N, K)), rng.random((N, 2)).astype(np.float16))
INT4 = {"num_bits": 4, "strategy": "group", "group_size": 32}


def state(**change: Any) -> dict[str, Any]:
    key = "a.weight.quant_state.bitsandbytes__nf4"
    said = {**json.loads(BNB[key].tobytes()), **change}
    return {**BNB, key: np.frombuffer(json.dumps(said).encode(), np.uint8)}


def read(path: Path, name: str | None = None) -> Any:
    """Open a checkpoint, and read the tensor `name`."""
    found = qmlir.checkpoint.open(path)
    return found if name is None else found[name]


def read_gguf(data: bytes, folder: Path) -> Any:
    (folder / "m.gguf").write_bytes(data)
    return read(folder / "m.gguf")


FEEDS: dict[str, Feed] = {
    "safetensors header": lambda said, folder: read(header(folder / "m.safetensors", said)),
    "safetensors header's length": lambda length, folder: read(
        header(folder / "m.safetensors", entry(), length=length)
    ),
    "GGUF": read_gguf,
    "checkpoint": lambda given, folder: read(w.write_folder(folder, *given), "a.weight"),
}
SAFETENSORS: list[tuple[Any, str]] = [
    (entry(offsets=(0, 1 << 60)), r"tensor 'a.weight' lies at bytes 0 to \d+, but the file holds 64"),
    (entry(offsets=(64, 0)), "tensor 'a.weight' lies at bytes 64 to 0"),
    (entry(offsets=(-64, 0)), "tensor 'a.weight' has shape .* non-negative"),
    (entry(shape=(1 << 40, 1 << 40)), "tensor 'a.weight' is F32 .* takes .* bytes, but the file gives it 64"),
    (entry(shape=(-4, -4)), "tensor 'a.weight' has shape"),
    (entry(shape=(True, 16)), "tensor 'a.weight' has shape"),
    (entry(shape=(15,)), "takes 60 bytes, but the file gives it 64"),
    (entry(dtype="F7"), "tensor 'a.weight' has dtype 'F7'; known: BOOL, I8"),
    ({"a.weight": {"dtype": "F32"}}, "tensor 'a.weight' lacks one of"),
    ({"a.weight": 3}, "tensor 'a.weight' lacks one of"),
    ([1, 2], "not a JSON object"),
    (b"not json at all", "its header is not JSON"),
    (b"[" * 5000, "its header is not JSON"),
    (b"\xff\xfe" * 20, "its header is not JSON"),
    ({**entry(), "b": entry(offsets=(32, 96))["a.weight"]}, "tensor 'b' lies at bytes"),
    ({**entry(), "b": entry(shape=(8,), offsets=(32, 64))["a.weight"]}, "is damaged: "),  # they overlap
]
LENGTHS = (0, 1, 10**9, 2**63, 2**64 - 1)
GGUF: list[tuple[bytes, str]] = [
    (b"GGUF", "truncated or damaged: the version"),
    (gguf_bytes(magic=b"GGML") + ROOM, "does not start with 'GGUF'"),
    (gguf_bytes(version=1) + ROOM, "GGUF version 1; known: 2, 3"),
    (gguf_bytes(version=3 << 24) + ROOM, "big-endian"),
    (gguf_bytes(counts=(2**63, 0)) + ROOM, "it says 9223372036854775808 tensors"),
    (gguf_bytes(counts=(0, 2**63)) + ROOM, "it says 9223372036854775808 metadata"),
    (gguf_bytes(info(offset=1 << 40)) + ROOM, r"tensor 'a.weight' is Q4_0 \[2, 32\]: 36 bytes at 1099511627776"),
    (gguf_bytes(info(offset=8)) + ROOM, "tensors start at multiples of 32"),
    (gguf_bytes(info(dims=(1 << 62, 1 << 62))) + ROOM, "tensor 'a.weight' is Q4_0"),
    (gguf_bytes(info(dims=(33, 2))) + ROOM, "rows of 33, which are not whole blocks of 32"),
    (gguf_bytes(info(dims=())) + ROOM, "tensor 'a.weight' has 0 axes"),
    (gguf_bytes(info(dims=(32,) * 9)) + ROOM, "tensor 'a.weight' has 9 axes; there are 1 to 4"),
    (gguf_bytes(info(kind=777)) + ROOM, "tensor 'a.weight' has the type 777, which ggml does not have"),
    (gguf_bytes(info() + info(), counts=(2, 0)) + ROOM, "tensor 'a.weight' occurs twice"),
    (gguf_bytes(info(name=b"n" * 2000)) + ROOM, "a tensor's name has 2000 bytes"),
    (gguf_bytes(struct.pack("<Q", 2**62)) + ROOM, "a tensor's name"),
    (gguf_bytes(pairs=pair(b"k", 9, array(4, 2**60)), counts=(0, 1)) + ROOM, "elements of metadata 'k'"),
    (gguf_bytes(pairs=pair(b"k", 9, array(8, 2**60)), counts=(0, 1)) + ROOM, "elements of metadata 'k'"),
    (gguf_bytes(pairs=pair(b"k", 9, array(9, 1) * 9), counts=(0, 1)) + ROOM, "'k' has the type 9, which is not known"),
    (gguf_bytes(pairs=pair(b"k", 99, b""), counts=(0, 1)) + ROOM, "metadata 'k' has the type 99"),
    (gguf_bytes(pairs=pair(b"general.alignment", 4, struct.pack("<I", 0)), counts=(0, 1)), "general.alignment is 0"),
    (gguf_bytes(pairs=pair(b"general.alignment", 8, struct.pack("<Q", 0)), counts=(0, 1)), "general.alignment is ''"),
]
# Tensors, their configuration.
CONFIGURATIONS: list[tuple[Any, str]] = [
    ((gptq(), {"quant_method": "hqq"}), "quant_method is 'hqq'; known: compressed-tensors, awq, gptq, bitsandbytes"),
    ((gptq(), w.gptq_config(colour="red")), "has the field 'colour', which is not known; known: act_group_aware"),
    ((gptq(), w.gptq_config(bits=3)), "bits is 3; known: 2, 4, 8"),
    ((gptq(), w.gptq_config(checkpoint_format="marlin")), "checkpoint_format is 'marlin'; known: 'gptq', 'gptq_v2'"),
    ((gptq(), w.gptq_config(dynamic={"-:.*": {}})), "dynamic"),
    ((gptq(), w.gptq_config(group_size=0)), "group_size is 0, which must be a positive integer, or -1"),
    ((gptq(), w.gptq_config(group_size=16)), r"tensor 'a.scales' has shape \[2, 16\], but must have \[4, 16\]"),
    ((gptq(), w.gptq_config(bits=8)), r"tensor 'a.qzeros'|tensor 'a.scales'"),
    ((gptq(), w.gptq_config(version=2, sym=True)), r"tensor 'a.qzeros' has zero points other than 8.*checkpoint_format"),
    ((gptq(**{"a.g_idx": np.zeros(K, np.int32)}), w.gptq_config()), "tensor 'a.g_idx' puts 64 inputs into group 0"),
    ((gptq(**{"a.g_idx": np.full(K, 9, np.int32)}), w.gptq_config()), "tensor 'a.g_idx' names group 9 of 2"),
    ((gptq(**{"a.g_idx": np.full(K, -1, np.int32)}), w.gptq_config()), "tensor 'a.g_idx' names group -1 of 2"),
    (({k: v for k, v in gptq().items() if "qzeros" not in k}, w.gptq_config()), "tensor 'a.qzeros' is missing"),
    ((gptq(**{"a.qweight": np.zeros((2, 2), np.float32)}), w.gptq_config()), "tensor 'a.qweight' is f32, but must be i32"),
    (({"a.weight": np.ones((2, 2), np.float32)}, w.gptq_config()), r"says gptq, but no tensor is called \*.qweight"),
    ((gptq(), None), "tensor 'a.qweight' is quantised, but nothing beside the file says how: config.json"),
    ((AWQ, w.awq_config(version="gemv")), "version is 'gemv'; known: 'gemm'"),
    ((AWQ, w.awq_config(bits=8)), "bits is 8; known: 4"),
    ((AWQ, w.awq_config(64)), r"tensor 'a.scales' has shape \[2, 16\], but must have \[1, 16\]"),
    ((BNB, w.bnb_config("fp4")), "is nf4, but the configuration says 'fp4'"),
    ((BNB, w.bnb_config(load_in_8bit=True)), "load_in_8bit is True; known: False"),
    ((state(shape=[1 << 30, 1 << 30]), w.bnb_config()), "tensor 'a.weight' has 512 bytes, but its state says"),
    ((state(shape=[16]), w.bnb_config()), "shape .16. and block sizes must be two and one positive integers"),
    ((state(blocksize=0), w.bnb_config()), "block sizes must be"),
    ((state(blocksize=32), w.bnb_config()), r"tensor 'a.weight.absmax' has shape \[16\], but must have \[32\]"),
    ((state(nested_blocksize=256, nested_offset="x"), w.bnb_config()), "nested_offset is not a number"),
    ((state(colour=1), w.bnb_config()), "has the field 'colour', which is not known; known: blocksize"),
    ((CT, w.ct_config("pack-quantized", {**INT4, "group_size": 64})), "tensor 'a.weight_scale' has shape"),
    ((CT, w.ct_config("pack-quantized", {**INT4, "num_bits": 3})), "num_bits is 3; known: 2, 4, 8"),
    ((CT, w.ct_config("pack-quantized", {**INT4, "colour": 1})), "'colour', which is not known; known: actorder, block"),
    ((CT, w.ct_config("pack-quantized", {**INT4, "symmetric": False})), "tensor 'a.weight_zero_point' is missing"),
    ((CT, w.ct_config("marlin-24", INT4)), "format is 'marlin-24'; known: 'dense', 'int-quantized'"),
    ((CT, w.ct_config("int-quantized", INT4)), "tensor 'a.weight' is missing"),
    ((CT, w.ct_config("nvfp4-pack-quantized", INT4)), "'nvfp4-pack-quantized' is 4-bit floats in groups of 16"),
    ((CT, w.ct_config("pack-quantized", {**INT4, "strategy": "row"})), "strategy is 'row'; known: 'tensor', 'channel'"),
    ((CT, w.ct_config("pack-quantized", INT4, transform_config={"a": 1})), "transform_config, which changes"),
    (({**CT, "a.weight_shape": np.int64([1 << 50, 4])}, w.ct_config("pack-quantized", INT4)), "'a.weight_shape' says"),
    (({**CT, "a.weight_shape": np.int64([16, 32])}, w.ct_config("pack-quantized", INT4)), "tensor 'a.weight_packed'"),
    ((CT, w.ct_config("pack-quantized", {**INT4, "strategy": "block"})), "strategy 'block' and block_structure go together"),
    ((CT, w.ct_config("pack-quantized", {**INT4, "strategy": "block", "block_structure": [0, 4]})), "must be two positive integers"),
    ((CT, w.ct_config("pack-quantized", {"strategy": "group"})), "strategy 'group' needs a group_size"),
    ((CT, w.ct_config("pack-quantized", {**INT4, "strategy": "token"})), "strategy 'token' is for activations, not for weights"),
    ((CT, w.ct_config("pack-quantized", {**INT4, "type": "float"})), "'pack-quantized' holds integers, but the configuration says float"),
    ((CT, w.ct_config("float-quantized", {**INT4, "type": "float"})), "of 4-bit floats is not known"),
    ((CT, w.ct_config("dense", INT4)), "the configuration gives it the format 'dense'"),
    ((CT, w.ct_config("pack-quantized", INT4, {"num_bits": 8, "strategy": "channel"})), "'channel' is for weights, not for its input"),
    ((CT, w.ct_config("pack-quantized", INT4, {"num_bits": 8, "strategy": "tensor"})), "tensor 'a.input_scale' is missing"),
    ((CT, w.ct_config("pack-quantized", INT4, sparsity_config={"format": "sparse-24-bitmask"})), "sparsity_config is"),
    ((CT, w.ct_config("pack-quantized", INT4, config_groups={})), "config_groups is {}; it must name at least one group"),
    ((CT, w.ct_config("pack-quantized", INT4, config_groups={"W4A16": ["Linear"]})), "presets by name are not known"),
    ((CT, w.ct_config("pack-quantized", INT4, config_groups={"g": {"targets": ["Linear"]}})), "config_groups|g has no weights"),
    ((CT, w.ct_config("pack-quantized", INT4, config_groups={"g": {"targets": "Linear"}})), "targets is 'Linear', which must be a list"),
    ((CT, w.ct_config("pack-quantized", INT4, config_groups={"g": {"targets": [], "weights": INT4}})), "no group has 'a' among its targets"),
    ((CT, w.ct_config("pack-quantized", INT4, config_groups={"g": {"targets": ["re:("], "weights": INT4}})), "the target '\\(' is not a pattern"),
    ((CT, w.ct_config("pack-quantized", INT4, config_groups={"g": {"targets": [], "weights": 3}})), "weights is not a JSON object"),
    ((CT, w.ct_config("pack-quantized", INT4, config_groups={"g": {"targets": [], "output_activations": {}}})), "output_activations is not known"),
    (({"a.weight": np.ones((2, 2), np.int8)}, w.ct_config("int-quantized", INT4)), r"no tensor is called \*.weight_scale"),
    (({"a.weight": np.full((N, K), 9, np.int8), "a.weight_scale": np.ones((N, 2), np.float32)}, w.ct_config("naive-quantized", INT4)), r"codes outside \[-8, 7\], but the configuration says 4 bits"),
    (({**CT, "a.weight_g_idx": np.zeros(K, np.int32)}, w.ct_config("pack-quantized", INT4)), "tensor 'a.weight_g_idx' puts 64 inputs into group 0"),
    (({"a.weight_packed": np.zeros((N, 8), np.uint8), "a.weight_scale": np.zeros((N, 1), np.float16), "a.weight_global_scale": np.float32([0])}, w.ct_config("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16})), "tensor 'a.weight_scale' is f16, but must be e4m3"),
    (({"a.weight": np.ones((2, 2), np.float32)}, w.bnb_config()), "says bitsandbytes, but no tensor is called"),
    (({"a.weight": np.ones((2, 2), np.float32)}, w.awq_config()), r"says awq, but no tensor is called \*.qweight"),
    (({**BNB, "a.weight.quant_state.bitsandbytes__nf4": np.zeros(4, np.uint8)}, w.bnb_config()), "holds no JSON object"),
    ((w.bnb_layer("a.weight", np.zeros((4, 33), int), np.ones(3, np.float32), range(16)), w.bnb_config()), "K is even"),
]  # fmt: skip
CASES = [
    *rows("safetensors header", CheckpointError, SAFETENSORS),
    *rows("safetensors header's length", CheckpointError, [(length, "its header|not JSON") for length in LENGTHS]),
    *rows("GGUF", CheckpointError, GGUF),
    *rows("checkpoint", CheckpointError, CONFIGURATIONS),
]
