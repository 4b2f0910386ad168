"""Writers of checkpoints for the tests. Each format is packed here from its specification, by loops over codes and
without qmlir's code. The real weights follow the format's own formula in float64."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

Tensors = dict[str, Any]
_NAMES = {"int8": "I8", "uint8": "U8", "int32": "I32", "int64": "I64", "float16": "F16", "float32": "F32",
          "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}  # fmt: skip


def write_safetensors(path: Path, tensors: Tensors) -> Path:
    """Write a file: eight bytes for the length of the header, a JSON header, the data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data, at = [], 0
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": _NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [at, at + len(raw)],
        }
        data.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
    return path


def write_folder(folder: Path, tensors: Tensors, quantization: dict[str, Any] | None, **config: Any) -> Path:
    """Write a folder as transformers saves it."""
    folder.mkdir(parents=True, exist_ok=True)
    if quantization is not None:
        config = {**config, "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def pack_words(codes: Any, bits: int, axis: int, order: tuple[int, ...] | None = None) -> Any:
    """Pack unsigned codes into i32 words along an axis: element `order[i]` of a word is at bit `i * bits`."""
    per = 32 // bits
    moved = np.moveaxis(np.asarray(codes, np.uint32), axis, 0)
    moved = np.pad(moved, [(0, -len(moved) % per)] + [(0, 0)] * (moved.ndim - 1))
    words = np.zeros((len(moved) // per, *moved.shape[1:]), np.uint32)
    for row in range(len(words)):
        for i in range(per):
            words[row] |= moved[row * per + (order[i] if order else i)] << np.uint32(i * bits)
    return np.ascontiguousarray(np.moveaxis(words, 0, axis)).view(np.int32)


# ------------------------------------------------------------------------------------------------------- GPTQ


def gptq_config(bits: int = 4, group_size: int = 32, version: int = 1, **more: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": group_size, "sym": False, "desc_act": False,
            "checkpoint_format": "gptq" if version == 1 else "gptq_v2", **more}  # fmt: skip


def gptq_layer(name: str, codes: Any, scales: Any, zeros: Any, groups: Any, bits: int = 4, version: int = 1) -> Tensors:
    """codes `[K, N]`, scales f16 and zeros `[G, N]`, groups `[K]`. v1 stores each zero point minus one."""
    stored = (np.asarray(zeros) - (1 if version == 1 else 0)) % (1 << bits)
    return {
        f"{name}.qweight": pack_words(codes, bits, 0),
        f"{name}.qzeros": pack_words(stored, bits, 1),
        f"{name}.scales": np.asarray(scales, np.float16),
        f"{name}.g_idx": np.asarray(groups, np.int32),
    }


def gptq_real(codes: Any, scales: Any, zeros: Any, groups: Any) -> Any:
    """`[N, K]`, float64."""
    s, z = (np.asarray(a, np.float64)[groups] for a in (scales, zeros))
    return (s * (np.asarray(codes, np.float64) - z)).T


# -------------------------------------------------------------------------------------------------------- AWQ

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def awq_config(group_size: int = 32, **more: Any) -> dict[str, Any]:
    return {"quant_method": "awq", "bits": 4, "group_size": group_size, "zero_point": True, "version": "gemm", **more}


def awq_layer(name: str, codes: Any, scales: Any, zeros: Any) -> Tensors:
    """codes `[K, N]`, scales and zeros `[G, N]`."""
    return {
        f"{name}.qweight": pack_words(codes, 4, 1, AWQ_ORDER),
        f"{name}.qzeros": pack_words(zeros, 4, 1, AWQ_ORDER),
        f"{name}.scales": np.asarray(scales, np.float16),
    }


def awq_real(codes: Any, scales: Any, zeros: Any) -> Any:
    repeat = len(codes) // len(scales)
    s, z = (np.repeat(np.asarray(a, np.float64), repeat, 0) for a in (scales, zeros))
    return ((np.asarray(codes, np.float64) - z) * s).T


# ----------------------------------------------------------------------------------------------- bitsandbytes


def bnb_config(kind: str = "nf4", **more: Any) -> dict[str, Any]:
    return {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind, **more}


def bnb_layer(
    name: str, codes: Any, absmax: Any, table: Any, kind: str = "nf4", blocksize: int = 64,
    nested: tuple[Any, Any, float, int] | None = None,
) -> Tensors:  # fmt: skip
    """4-bit codes `[N, K]`, one absmax per block: one-byte codes if `nested` (their table, absmax, offset, block)."""
    flat = np.asarray(codes, np.uint8).reshape(-1)
    state = {"quant_type": kind, "blocksize": blocksize, "dtype": "bfloat16", "shape": list(codes.shape)}
    made: Tensors = {
        name: (flat[0::2] << 4 | flat[1::2]).reshape(-1, 1),
        f"{name}.absmax": np.asarray(absmax),
        f"{name}.quant_map": np.asarray(table, np.float32),
    }
    if nested is not None:
        made[f"{name}.nested_quant_map"] = np.asarray(nested[0], np.float32)
        made[f"{name}.nested_absmax"] = np.asarray(nested[1], np.float32)
        state |= {"nested_offset": nested[2], "nested_blocksize": nested[3], "nested_dtype": "float32"}
    text = json.dumps(state).encode()
    return {**made, f"{name}.quant_state.bitsandbytes__{kind}": np.frombuffer(text, np.uint8)}


def bnb_real(codes: Any, absmax: Any, table: Any, blocksize: int = 64) -> Any:
    flat = np.asarray(table, np.float64)[np.asarray(codes).reshape(-1)]
    return (flat * np.repeat(np.asarray(absmax, np.float64), blocksize)[: flat.size]).reshape(codes.shape)


# ----------------------------------------------------------------------------------------- compressed-tensors


def ct_config(fmt: str, weights: dict[str, Any], inputs: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "output_activations": None}
    return {"quant_method": "compressed-tensors", "format": fmt, "config_groups": {"group_0": group},
            "ignore": ["lm_head"], "quantization_status": "compressed", **more}  # fmt: skip


def ct_packed(name: str, codes: Any, scales: Any, zeros: Any = None, bits: int = 4) -> Tensors:
    """Signed codes `[N, K]`, scales and signed zeros `[N, G]`."""
    offset = 1 << (bits - 1)
    made: Tensors = {
        f"{name}.weight_packed": pack_words(np.asarray(codes) + offset, bits, 1),
        f"{name}.weight_scale": np.asarray(scales),
        f"{name}.weight_shape": np.asarray(codes.shape, np.int64),
    }
    if zeros is not None:
        made[f"{name}.weight_zero_point"] = pack_words(np.asarray(zeros) + offset, bits, 0)
    return made
