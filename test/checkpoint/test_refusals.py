"""Paths that are not checkpoints, files truncated anywhere, and the memory that a refusal costs. The table of hostile
files is in `robustness/checkpoints.py`; damaged files are a surface of `robustness/surfaces.py`."""

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
import numpy as np
import pytest
from checkpoint import writers as w
from robustness.checkpoints import ROOM, array, gguf_bytes, info, pair, read

import qmlir
from qmlir.errors import CheckpointError


def refused(path: Path, match: str, name: str | None = None) -> None:
    """Check that opening, or reading the tensor `name`, is refused with a message that matches."""
    with pytest.raises(CheckpointError, match=match):
        read(path, name)


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
