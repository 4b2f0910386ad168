"""bitsandbytes' 4-bit weights: nf4 and fp4, with plain or doubly quantised absmax.

A weight `[N, K]` is stored flat: two codes per byte, the first in the high bits; blocks of `blocksize` codes share an
absmax; `w = quant_map[q] * absmax[block]`. If doubly quantised, absmax is itself stored as one-byte codes:
`absmax[b] = nested_quant_map[q[b]] * nested_absmax[b / nested_blocksize] + nested_offset`.

Sources: Dettmers et al. 2023 (QLoRA), arXiv:2305.14314; bitsandbytes, `functional.py`, `QuantState`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..dialect.dtypes import NF4_VALUES, Array
from ..errors import CheckpointError
from .config import check_fields, choice
from .parts import part
from .scheme import TensorMap
from .value import QuantizedWeight

_KNOWN = (
    "quant_method", "load_in_4bit", "_load_in_4bit", "load_in_8bit", "_load_in_8bit", "bnb_4bit_quant_type",
    "bnb_4bit_use_double_quant", "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage", "llm_int8_threshold",
    "llm_int8_skip_modules", "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight", "modules_to_not_convert",
)  # fmt: skip
_STATE = ("quant_type", "blocksize", "dtype", "shape", "nested_blocksize", "nested_dtype", "nested_offset")
_TYPES = ("nf4", "fp4")
_MARK = ".quant_state.bitsandbytes__"


def scheme(config: Mapping[str, object], where: str) -> BitsAndBytes:
    """The scheme of a configuration. Raises CheckpointError for unknown fields and values."""
    check_fields(config, _KNOWN, where)
    choice(config, "load_in_8bit", (False,), where, False)
    choice(config, "load_in_4bit", (True,), where, True)
    return BitsAndBytes(choice(config, "bnb_4bit_quant_type", _TYPES, where, "fp4"))


@dataclass(frozen=True)
class _State:
    """Metadata of a weight: shape `[N, K]`, codes per block, and for doubly quantised absmax its block size and the
    offset that is added to it."""

    shape: tuple[int, int]
    block: int
    nested: tuple[int, float] | None


@dataclass(frozen=True)
class BitsAndBytes:
    quant_type: str

    def layers(self, tensors: TensorMap) -> dict[str, tuple[str, ...]]:
        found = {}
        for name in tensors:
            weight, mark, kind = name.partition(_MARK)
            if not mark:
                continue
            if kind != self.quant_type:
                raise CheckpointError(f"tensor {name!r} is {kind}, but the configuration says {self.quant_type!r}")
            parts = [weight, name, *(f"{weight}.{p}" for p in ("absmax", "quant_map", "nested_absmax",
                                                              "nested_quant_map"))]  # fmt: skip
            found[weight] = tuple(p for p in parts if p in tensors)
        if not found:
            raise CheckpointError(f"the configuration says bitsandbytes, but no tensor is called *{_MARK}*")
        return found

    def weight(self, name: str, tensors: TensorMap) -> QuantizedWeight:
        state = self._state(f"{name}{_MARK}{self.quant_type}", tensors)
        (n, k), block = state.shape, state.block
        packed = part(tensors, name, ("u8", "i8", "bf16", "f16", "f32"))
        raw = np.ascontiguousarray(packed).reshape(-1).view(np.uint8)
        if raw.size != -(-n * k // 2):
            raise CheckpointError(f"tensor {name!r} has {raw.size} bytes, but its state says [{n}, {k}]")
        if k % 2:
            raise CheckpointError(
                f"tensor {name!r} is [{n}, {k}]: a byte with codes of two rows is not known; K is even"
            )
        absmax = self._absmax(name, tensors, state, -(-n * k // block))
        # Blocks cross the ends of rows if K is not a multiple of the block size.
        even = math.gcd(k, block)
        scale = absmax[np.arange(n * k // even) * even // block].reshape(n, k // even)
        table = part(tensors, f"{name}.quant_map", ("f32",), (16,))
        own = self.quant_type == "nf4" and np.array_equal(table, np.asarray(NF4_VALUES, np.float32))
        return QuantizedWeight(
            name, (n, k), raw.reshape(n, k // 2), scale, "nf4" if own else "codebook", packing="high_first",
            codebook=None if own else table,
        )  # fmt: skip

    def _absmax(self, name: str, tensors: TensorMap, state: _State, blocks: int) -> Array:
        if state.nested is None:
            return part(tensors, f"{name}.absmax", ("f32",), (blocks,))
        codes = part(tensors, f"{name}.absmax", ("u8",), (blocks,))
        block, offset = state.nested
        table = part(tensors, f"{name}.nested_quant_map", ("f32",), (256,))
        scale = part(tensors, f"{name}.nested_absmax", ("f32",), (-(-blocks // block),))
        spread = scale[np.arange(blocks) // block]
        absmax: Array = (table[codes] * spread + np.float32(offset)).astype(np.float32)
        return absmax

    def _state(self, name: str, tensors: TensorMap) -> _State:
        """Read the state from the tensor that holds it as JSON."""
        raw = part(tensors, name, ("u8",), (None,))
        try:
            state = json.loads(raw.tobytes().decode())
        except (ValueError, RecursionError):
            state = None
        if not isinstance(state, dict):
            raise CheckpointError(f"tensor {name!r} holds no JSON object")
        check_fields(state, _STATE, f"tensor {name!r}")
        choice(state, "quant_type", (self.quant_type,), f"tensor {name!r}")
        sizes = [state.get("blocksize"), *(state["shape"] if isinstance(state.get("shape"), list) else [None])]
        if "nested_blocksize" in state:
            sizes.append(state["nested_blocksize"])
            if not isinstance(state.get("nested_offset"), (int, float)):
                raise CheckpointError(f"tensor {name!r}: nested_offset is not a number")
        if len(state.get("shape") or ()) != 2 or not all(type(s) is int and 0 < s < 2**40 for s in sizes):
            raise CheckpointError(
                f"tensor {name!r}: shape {state.get('shape')!r} and block sizes must be two and one positive integers"
            )
        nested = (state["nested_blocksize"], state["nested_offset"]) if "nested_blocksize" in state else None
        return _State((state["shape"][0], state["shape"][1]), state["blocksize"], nested)
