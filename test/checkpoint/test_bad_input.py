# ruff: noqa: E501  (tables of cases, a row each)
"""Damaged, hostile and mismatched checkpoints: one error with the name of the tensor, no allocation beyond the file."""

from __future__ import annotations

import json
import os
import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import gguf
import hypothesis.strategies as st
import numpy as np
import pytest
from checkpoint import decoders, writers as w
from hypothesis import given, settings

import qmlir
from qmlir.checkpoint import QuantizedWeight
from qmlir.errors import CheckpointError

rng = np.random.default_rng(7)
K, N = 64, 16


def refused(path: Path, match: str, name: str | None = None) -> None:
    """Opening, or reading the tensor `name`, is refused in words that match."""

    def read() -> None:
        found = qmlir.checkpoint.open(path)
        if name is not None:
            assert found[name] is not None

    with pytest.raises(CheckpointError, match=match):
        read()


# ------------------------------------------------------------------------------------------- what is not a checkpoint


def test_pickles_are_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "run"),)

    for name in ("model.bin", "model.pt", "model.ckpt", "no_suffix"):
        (tmp_path / name).write_bytes(pickle.dumps(Evil()))
        refused(tmp_path / name, f"{name}: it holds pickled Python objects.*save the model as safetensors")
    with zipfile.ZipFile(tmp_path / "archive", "w") as z:
        z.writestr("archive/data.pkl", pickle.dumps(Evil()))
    refused(tmp_path / "archive", "pickled")
    (tmp_path / "model.safetensors").write_bytes(pickle.dumps(Evil()))
    refused(tmp_path / "model.safetensors", "not a safetensors file")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
    refused(folder, r"pytorch_model.bin: it holds pickled")
    assert not (tmp_path / "run").exists()


def test_paths_that_are_no_checkpoint(tmp_path: Path) -> None:
    refused(tmp_path / "missing.gguf", "no such file or folder")
    refused(tmp_path, r"has no checkpoint; looked for \*.safetensors, \*.gguf")
    (tmp_path / "model.onnx").write_bytes(b"onnx")
    refused(tmp_path / "model.onnx", "its suffix is '.onnx'; known: .safetensors, .gguf")
    (tmp_path / "empty.gguf").touch()
    refused(tmp_path / "empty.gguf", "it is empty")
    for name in ("a.safetensors", "b.safetensors"):
        w.write_safetensors(tmp_path / name, {"x": np.ones(1, np.float32)})
    refused(tmp_path, r"2 .safetensors files and no index \(a.safetensors, b.safetensors")


# ---------------------------------------------------------------------------------------------------- safetensors


def header(path: Path, said: Any, data: bytes = b"\0" * 64, length: int | None = None) -> Path:
    text = said if isinstance(said, bytes) else json.dumps(said).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype: str = "F32", shape: Any = (16,), offsets: Any = (0, 64)) -> dict[str, Any]:
    return {"a.weight": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


@pytest.mark.parametrize(
    ("said", "match"),
    [
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
    ],
)
def test_hostile_safetensors(said: Any, match: str, tmp_path: Path) -> None:
    refused(header(tmp_path / "m.safetensors", said), match)


@pytest.mark.parametrize("length", [0, 1, 10**9, 2**63, 2**64 - 1])
def test_safetensors_header_of_a_wrong_length(length: int, tmp_path: Path) -> None:
    refused(header(tmp_path / "m.safetensors", entry(), length=length), "its header|no JSON")


def test_safetensors_truncated_anywhere(tmp_path: Path) -> None:
    whole = w.write_safetensors(tmp_path / "whole.safetensors", {"a.weight": np.ones((4, 4), np.float32)}).read_bytes()
    for size in range(1, len(whole)):
        (tmp_path / "m.safetensors").write_bytes(whole[:size])
        refused(tmp_path / "m.safetensors", r"truncated|damaged|tensor 'a.weight' lies")


def test_index_of_shards(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    for said, match in (
        ({"weight_map": {"a": "../../etc/x.safetensors"}}, "shards are .safetensors files beside their index"),
        ({"weight_map": {"a": "x.bin"}}, "names the shard 'x.bin'"),
        ({"weight_map": {"a": "gone.safetensors"}}, "'gone.safetensors', which is missing"),
        ({"weight_map": {"a": 3}}, "has no 'weight_map'"),
        ({}, "has no 'weight_map'"),
    ):
        index.write_text(json.dumps(said))
        refused(tmp_path, match)
    index.write_text("{")
    refused(tmp_path, "is not JSON")


# ----------------------------------------------------------------------------------------------------------- GGUF


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


ROOM = b"\0" * 256


@pytest.mark.parametrize(
    ("data", "match"),
    [
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
        (gguf_bytes(info() + info(), counts=(2, 0)) + ROOM, "tensor 'a.weight' is there twice"),
        (gguf_bytes(info(name=b"n" * 2000)) + ROOM, "a tensor's name has 2000 bytes"),
        (gguf_bytes(struct.pack("<Q", 2**62)) + ROOM, "a tensor's name"),
        (gguf_bytes(pairs=pair(b"k", 9, array(4, 2**60)), counts=(0, 1)) + ROOM, "elements of metadata 'k'"),
        (gguf_bytes(pairs=pair(b"k", 9, array(8, 2**60)), counts=(0, 1)) + ROOM, "elements of metadata 'k'"),
        (gguf_bytes(pairs=pair(b"k", 9, array(9, 1) * 9), counts=(0, 1)) + ROOM, "'k' has the type 9, which is not known"),
        (gguf_bytes(pairs=pair(b"k", 99, b""), counts=(0, 1)) + ROOM, "metadata 'k' has the type 99"),
        (gguf_bytes(pairs=pair(b"general.alignment", 4, struct.pack("<I", 0)), counts=(0, 1)), "general.alignment is 0"),
        (gguf_bytes(pairs=pair(b"general.alignment", 8, struct.pack("<Q", 0)), counts=(0, 1)), "general.alignment is ''"),
    ],
)  # fmt: skip
def test_hostile_gguf(data: bytes, match: str, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(data)
    refused(tmp_path / "m.gguf", match)


def test_gguf_type_that_is_not_read(tmp_path: Path) -> None:
    kind = int(gguf.GGMLQuantizationType.Q2_K)
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(info(dims=(256, 1), kind=kind)) + ROOM)
    assert qmlir.checkpoint.open(tmp_path / "m.gguf").kind("a.weight") == "Q2_K"
    refused(tmp_path / "m.gguf", "tensor 'a.weight' is Q2_K; known: Q4_0, Q4_1, Q5_0", "a.weight")


def test_a_small_file_costs_little_memory(tmp_path: Path) -> None:
    files = [
        gguf_bytes(pairs=pair(b"k", 9, array(4, 2**60)), counts=(0, 1)) + ROOM,
        gguf_bytes(info(dims=(1 << 40, 1 << 20))) + ROOM,
        struct.pack("<Q", 2**40) + ROOM,
    ]
    tracemalloc.start()
    for i, data in enumerate(files):
        path = tmp_path / f"m{i}.{'gguf' if data[:4] == b'GGUF' else 'safetensors'}"
        path.write_bytes(data)
        refused(path, "m[012]")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


# --------------------------------------------------------------------------------- configurations that do not fit


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


@pytest.mark.parametrize(
    ("tensors", "config", "match"),
    [
        (gptq(), {"quant_method": "hqq"}, "quant_method is 'hqq'; known: compressed-tensors, awq, gptq, bitsandbytes"),
        (gptq(), w.gptq_config(colour="red"), "has the field 'colour', which is not known; known: act_group_aware"),
        (gptq(), w.gptq_config(bits=3), "bits is 3; known: 2, 4, 8"),
        (gptq(), w.gptq_config(checkpoint_format="marlin"), "checkpoint_format is 'marlin'; known: 'gptq', 'gptq_v2'"),
        (gptq(), w.gptq_config(dynamic={"-:.*": {}}), "dynamic"),
        (gptq(), w.gptq_config(group_size=0), "group_size is 0, which must be a positive integer, or -1"),
        (gptq(), w.gptq_config(group_size=16), r"tensor 'a.scales' has shape \[2, 16\], but must have \[4, 16\]"),
        (gptq(), w.gptq_config(bits=8), r"tensor 'a.qzeros'|tensor 'a.scales'"),
        (gptq(), w.gptq_config(version=2, sym=True), r"tensor 'a.qzeros' has zero points other than 8.*checkpoint_format"),
        (gptq(**{"a.g_idx": np.zeros(K, np.int32)}), w.gptq_config(), "tensor 'a.g_idx' puts 64 inputs into group 0"),
        (gptq(**{"a.g_idx": np.full(K, 9, np.int32)}), w.gptq_config(), "tensor 'a.g_idx' names group 9 of 2"),
        (gptq(**{"a.g_idx": np.full(K, -1, np.int32)}), w.gptq_config(), "tensor 'a.g_idx' names group -1 of 2"),
        ({k: v for k, v in gptq().items() if "qzeros" not in k}, w.gptq_config(), "tensor 'a.qzeros' is missing"),
        (gptq(**{"a.qweight": np.zeros((2, 2), np.float32)}), w.gptq_config(), "tensor 'a.qweight' is f32, but must be i32"),
        ({"a.weight": np.ones((2, 2), np.float32)}, w.gptq_config(), r"says gptq, but no tensor is called \*.qweight"),
        (gptq(), None, "tensor 'a.qweight' is quantised, but nothing beside the file says how: config.json"),
        (AWQ, w.awq_config(version="gemv"), "version is 'gemv'; known: 'gemm'"),
        (AWQ, w.awq_config(bits=8), "bits is 8; known: 4"),
        (AWQ, w.awq_config(64), r"tensor 'a.scales' has shape \[2, 16\], but must have \[1, 16\]"),
        (BNB, w.bnb_config("fp4"), "is nf4, but the configuration says 'fp4'"),
        (BNB, w.bnb_config(load_in_8bit=True), "load_in_8bit is True; known: False"),
        (state(shape=[1 << 30, 1 << 30]), w.bnb_config(), "tensor 'a.weight' has 512 bytes, but its state says"),
        (state(shape=[16]), w.bnb_config(), "shape .16. and block sizes must be two and one positive integers"),
        (state(blocksize=0), w.bnb_config(), "block sizes must be"),
        (state(blocksize=32), w.bnb_config(), r"tensor 'a.weight.absmax' has shape \[16\], but must have \[32\]"),
        (state(nested_blocksize=256, nested_offset="x"), w.bnb_config(), "nested_offset is not a number"),
        (state(colour=1), w.bnb_config(), "has the field 'colour', which is not known; known: blocksize"),
        (CT, w.ct_config("pack-quantized", {**INT4, "group_size": 64}), "tensor 'a.weight_scale' has shape"),
        (CT, w.ct_config("pack-quantized", {**INT4, "num_bits": 3}), "num_bits is 3; known: 2, 4, 8"),
        (CT, w.ct_config("pack-quantized", {**INT4, "colour": 1}), "'colour', which is not known; known: actorder, block"),
        (CT, w.ct_config("pack-quantized", {**INT4, "symmetric": False}), "tensor 'a.weight_zero_point' is missing"),
        (CT, w.ct_config("marlin-24", INT4), "format is 'marlin-24'; known: 'dense', 'int-quantized'"),
        (CT, w.ct_config("int-quantized", INT4), "tensor 'a.weight' is missing"),
        (CT, w.ct_config("nvfp4-pack-quantized", INT4), "'nvfp4-pack-quantized' is 4-bit floats in groups of 16"),
        (CT, w.ct_config("pack-quantized", {**INT4, "strategy": "row"}), "strategy is 'row'; known: 'tensor', 'channel'"),
        (CT, w.ct_config("pack-quantized", INT4, transform_config={"a": 1}), "transform_config, which changes"),
        ({**CT, "a.weight_shape": np.int64([1 << 50, 4])}, w.ct_config("pack-quantized", INT4), "'a.weight_shape' says"),
        ({**CT, "a.weight_shape": np.int64([16, 32])}, w.ct_config("pack-quantized", INT4), "tensor 'a.weight_packed'"),
        (CT, w.ct_config("pack-quantized", {**INT4, "strategy": "block"}), "strategy 'block' and block_structure go together"),
        (CT, w.ct_config("pack-quantized", {**INT4, "strategy": "block", "block_structure": [0, 4]}), "must be two positive integers"),
        (CT, w.ct_config("pack-quantized", {"strategy": "group"}), "strategy 'group' needs a group_size"),
        (CT, w.ct_config("pack-quantized", {**INT4, "strategy": "token"}), "strategy 'token' is for activations, not for weights"),
        (CT, w.ct_config("pack-quantized", {**INT4, "type": "float"}), "'pack-quantized' holds integers, but the configuration says float"),
        (CT, w.ct_config("float-quantized", {**INT4, "type": "float"}), "of 4-bit floats is not known"),
        (CT, w.ct_config("dense", INT4), "the configuration gives it the format 'dense'"),
        (CT, w.ct_config("pack-quantized", INT4, {"num_bits": 8, "strategy": "channel"}), "'channel' is for weights, not for its input"),
        (CT, w.ct_config("pack-quantized", INT4, {"num_bits": 8, "strategy": "tensor"}), "tensor 'a.input_scale' is missing"),
        (CT, w.ct_config("pack-quantized", INT4, sparsity_config={"format": "sparse-24-bitmask"}), "sparsity_config is"),
        (CT, w.ct_config("pack-quantized", INT4, config_groups={}), "config_groups is {}; it must name at least one group"),
        (CT, w.ct_config("pack-quantized", INT4, config_groups={"W4A16": ["Linear"]}), "presets by name are not known"),
        (CT, w.ct_config("pack-quantized", INT4, config_groups={"g": {"targets": ["Linear"]}}), "config_groups|g has no weights"),
        (CT, w.ct_config("pack-quantized", INT4, config_groups={"g": {"targets": "Linear"}}), "targets is 'Linear', which must be a list"),
        (CT, w.ct_config("pack-quantized", INT4, config_groups={"g": {"targets": [], "weights": INT4}}), "no group has 'a' among its targets"),
        (CT, w.ct_config("pack-quantized", INT4, config_groups={"g": {"targets": ["re:("], "weights": INT4}}), "the target '\\(' is not a pattern"),
        (CT, w.ct_config("pack-quantized", INT4, config_groups={"g": {"targets": [], "weights": 3}}), "weights is not a JSON object"),
        (CT, w.ct_config("pack-quantized", INT4, config_groups={"g": {"targets": [], "output_activations": {}}}), "output_activations is not known"),
        ({"a.weight": np.ones((2, 2), np.int8)}, w.ct_config("int-quantized", INT4), r"no tensor is called \*.weight_scale"),
        ({"a.weight": np.full((N, K), 9, np.int8), "a.weight_scale": np.ones((N, 2), np.float32)}, w.ct_config("naive-quantized", INT4), r"codes outside \[-8, 7\], but the configuration says 4 bits"),
        ({**CT, "a.weight_g_idx": np.zeros(K, np.int32)}, w.ct_config("pack-quantized", INT4), "tensor 'a.weight_g_idx' puts 64 inputs into group 0"),
        ({"a.weight_packed": np.zeros((N, 8), np.uint8), "a.weight_scale": np.zeros((N, 1), np.float16), "a.weight_global_scale": np.float32([0])},
         w.ct_config("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}), "tensor 'a.weight_scale' is f16, but must be e4m3"),
        ({"a.weight": np.ones((2, 2), np.float32)}, w.bnb_config(), "says bitsandbytes, but no tensor is called"),
        ({"a.weight": np.ones((2, 2), np.float32)}, w.awq_config(), r"says awq, but no tensor is called \*.qweight"),
        ({**BNB, "a.weight.quant_state.bitsandbytes__nf4": np.zeros(4, np.uint8)}, w.bnb_config(), "holds no JSON object"),
        (w.bnb_layer("a.weight", np.zeros((4, 33), int), np.ones(3, np.float32), range(16)), w.bnb_config(), "K is even"),
    ],
)  # fmt: skip
def test_configurations_that_do_not_fit(tensors: Any, config: Any, match: str, tmp_path: Path) -> None:
    refused(w.write_folder(tmp_path, tensors, config), match, "a.weight")


def test_a_tensor_in_two_shards_and_a_configuration_that_is_none(tmp_path: Path) -> None:
    for name in ("x.safetensors", "y.safetensors"):
        w.write_safetensors(tmp_path / name, {"a": np.ones(1, np.float32)})
    index = {"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(tmp_path, "y.safetensors: tensor 'a' is in another shard too")
    (tmp_path / "config.json").write_text("[]")
    refused(tmp_path / "x.safetensors", "config.json is not a JSON object")
    (tmp_path / "config.json").write_text('{"quantization_config": 3}')
    refused(tmp_path / "x.safetensors", "'quantization_config' is not a JSON object")


def test_names_that_are_not_there_and_weights_that_are_not_quantised(tmp_path: Path) -> None:
    model = qmlir.checkpoint.open(w.write_safetensors(tmp_path / "m.safetensors", {"a.weight": np.ones(3, np.float32)}))
    with pytest.raises(CheckpointError, match=r"has no tensor 'a.weigth'; did you mean 'a.weight'\?"):
        model["a.weigth"]
    with pytest.raises(CheckpointError, match=r"tensor 'a.weight' is not quantised, but float32"):
        model.quantized("a.weight")


def test_gguf_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    (tmp_path / "m.gguf").write_bytes(gguf_bytes() + ROOM)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(qmlir.QmlirError, match=r"GGUF files need the package gguf: pip install 'qmlir\[checkpoint\]'"):
        qmlir.checkpoint.open(tmp_path / "m.gguf")


# -------------------------------------------------------------------------------------------------------- fuzzing


def write_seeds(folder: Path) -> None:
    """Small valid checkpoints, copies of which are then damaged."""
    made: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "gptq": (gptq(), w.gptq_config()),
        "awq": (AWQ, w.awq_config()),
        "bnb": (BNB, w.bnb_config()),
        "ct": (CT, w.ct_config("pack-quantized", INT4)),
    }
    for name, (tensors, config) in made.items():
        w.write_folder(folder / name, tensors, config)
    decoders.write_gguf(folder / "m.gguf", decoders.Sizes(layers=1, hidden=32, inner=32, vocabulary=8))


def read_all(path: Path) -> None:
    """Everything that a reader does, or a CheckpointError."""
    try:
        model = qmlir.checkpoint.open(path)
    except CheckpointError as e:
        found: list[CheckpointError] = [e]
        names: list[str] = []
    else:
        found, names = [], list(model)
    for name in names:
        try:
            value = model[name]
            assert isinstance(value, QuantizedWeight) or value.shape == model.shape(name)
            if isinstance(value, QuantizedWeight):
                value.dequantize()
        except CheckpointError as e:
            found.append(e)
    assert all(str(path if path.is_dir() else path.parent) in str(e) for e in found)


def damaged(data: bytes, draw: Any) -> bytes:
    """Some bytes changed, removed, repeated, or lengths replaced by boundary values."""
    raw = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(raw) - 1, 0))) if draw(st.booleans()) else draw(st.integers(0, 400)) % len(raw)
        action = draw(st.sampled_from(["byte", "number", "cut", "repeat", "text"]))
        if action == "byte":
            raw[at] = draw(st.integers(0, 255))
        elif action == "number":
            value = draw(st.sampled_from([0, 1, 2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1, 10**9]))
            raw[at : at + 8] = struct.pack("<Q", value)
        elif action == "cut":
            del raw[at : at + draw(st.integers(1, 64))]
        elif action == "repeat":
            raw[at:at] = raw[at : at + draw(st.integers(1, 64))]
        else:
            raw[at : at + 4] = draw(st.sampled_from([b"-1, ", b"1e99", b"null", b"[[[[", b'"":0', b"true", b"9999"]))
        if not raw:
            raw = bytearray(b"\0")
    return bytes(raw)


def fuzz(folder: Path, draw: Any) -> None:
    """One damaged copy of one seed, read to the end."""
    seed = draw(st.sampled_from(seeds_in(folder)))
    target = folder / "fuzzed"
    target.mkdir(exist_ok=True)
    if seed.is_dir():
        victim = draw(st.sampled_from(["model.safetensors", "config.json"]))
        for name in ("model.safetensors", "config.json"):
            data = (seed / name).read_bytes()
            (target / name).write_bytes(damaged(data, draw) if name == victim else data)
        read_all(target)
    else:
        path = target / "m.gguf"
        path.write_bytes(damaged(seed.read_bytes(), draw))
        read_all(path)


def seeds_in(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.name != "fuzzed")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_seeds(folder)
    return folder


@given(st.data())
@settings(max_examples=200)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # damaged scales overflow
def test_damaged_files_are_refused_or_read(corpus: Path, data: Any) -> None:
    fuzz(corpus, data.draw)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damaged_files_for_minutes(corpus: Path) -> None:
    """QMLIR_FUZZ_SECONDS, 600 unless said otherwise."""
    import time

    seconds = float(os.environ.get("QMLIR_FUZZ_SECONDS", "600"))
    end, tried = time.monotonic() + seconds, 0

    @given(st.data())
    @settings(max_examples=200, derandomize=False, database=None)
    def explore(data: Any) -> None:
        nonlocal tried
        fuzz(corpus, data.draw)
        tried += 1

    while time.monotonic() < end:
        explore()
    print(f"{tried} damaged files in {seconds:.0f} seconds")  # `pytest -s` shows it
