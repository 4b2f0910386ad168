"""The names of a decoder's tensors in each container, and access to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..checkpoint import QuantizedWeight
from ..checkpoint.contents import Checkpoint
from ..dialect.dtypes import Array
from ..errors import CheckpointError
from .config import DecoderConfig
from .weights import ModelWeight

EMBEDDING, NORM, HEAD = "embedding", "norm", "head"
_SAFETENSORS = {
    EMBEDDING: "model.embed_tokens", NORM: "model.norm", HEAD: "lm_head",
    "attention_norm": "model.layers.{}.input_layernorm", "q": "model.layers.{}.self_attn.q_proj",
    "k": "model.layers.{}.self_attn.k_proj", "v": "model.layers.{}.self_attn.v_proj",
    "o": "model.layers.{}.self_attn.o_proj", "mlp_norm": "model.layers.{}.post_attention_layernorm",
    "gate": "model.layers.{}.mlp.gate_proj", "up": "model.layers.{}.mlp.up_proj",
    "down": "model.layers.{}.mlp.down_proj",
}  # fmt: skip
_GGUF = {
    EMBEDDING: "token_embd", NORM: "output_norm", HEAD: "output", "attention_norm": "blk.{}.attn_norm",
    "q": "blk.{}.attn_q", "k": "blk.{}.attn_k", "v": "blk.{}.attn_v", "o": "blk.{}.attn_output",
    "mlp_norm": "blk.{}.ffn_norm", "gate": "blk.{}.ffn_gate", "up": "blk.{}.ffn_up", "down": "blk.{}.ffn_down",
}  # fmt: skip
NAMES: Mapping[str, Mapping[str, str]] = {"safetensors": _SAFETENSORS, "gguf": _GGUF}


@dataclass(frozen=True)
class DecoderTensors:
    """The tensors of a decoder by their role, checked against the configuration."""

    model: Checkpoint
    config: DecoderConfig

    def name(self, part: str, layer: int = 0) -> str:
        return NAMES[self.model.container][part].format(layer) + ".weight"

    def matrix(self, part: str, layer: int = 0) -> tuple[str, ModelWeight]:
        """Name and weight `[N, K]`."""
        name = self.name(part, layer)
        weight = self.model[name]
        wanted = self._shape(part)
        if tuple(weight.shape) != wanted:
            raise CheckpointError(
                f"{self.model.path}: tensor {name!r} has shape {list(weight.shape)}, but the configuration gives "
                f"{list(wanted)}"
            )
        if not isinstance(weight, QuantizedWeight) and weight.dtype.name not in ("float32", "float16", "bfloat16"):
            raise CheckpointError(f"{self.model.path}: tensor {name!r} is {weight.dtype}, which is not a weight")
        order = self._row_order(part)
        return name, weight if order is None else _reordered(weight, order)

    def gate_up(self, layer: int) -> tuple[str, ModelWeight] | None:
        """Gate and up as one weight, gate first; None if they cannot be joined, or have biases."""
        (name, gate), (_, up) = self.matrix("gate", layer), self.matrix("up", layer)
        if any(self.bias(part, layer) is not None for part in ("gate", "up")):
            return None
        joined = _joined(gate, up)
        return None if joined is None else (name.replace("gate", "gate_up"), joined)

    def bias(self, part: str, layer: int) -> Array | None:
        """The bias of a projection; most have none."""
        name = NAMES[self.model.container][part].format(layer) + ".bias"
        if name not in self.model:
            return None
        vector, order = self._vector(name, self._shape(part)[0]), self._row_order(part)
        return vector if order is None else vector[order]

    def _row_order(self, part: str) -> Array | None:
        """The permutation of a projection's outputs that `DecoderConfig.head_order` requires, or None."""
        order = self.config.head_order() if part in ("q", "k") else None
        if order is None:
            return None
        heads = self.config.heads if part == "q" else self.config.kv_heads
        return (np.arange(heads)[:, None] * self.config.head_size + order).reshape(-1)

    def norm(self, part: str, layer: int = 0) -> tuple[str, Array]:
        """Name and weight `[hidden]`, f32."""
        name = self.name(part, layer)
        return name, self._vector(name, self.config.hidden)

    def _vector(self, name: str, size: int) -> Array:
        value = self.model[name]
        if isinstance(value, QuantizedWeight) or value.shape != (size,):
            raise CheckpointError(f"{self.model.path}: tensor {name!r} is not a vector of {size}")
        return value.astype(np.float32)

    def _shape(self, part: str) -> tuple[int, int]:
        c = self.config
        q, kv = c.heads * c.head_size, c.kv_heads * c.head_size
        return {
            EMBEDDING: (c.vocabulary, c.hidden), HEAD: (c.vocabulary, c.hidden), "q": (q, c.hidden),
            "k": (kv, c.hidden), "v": (kv, c.hidden), "o": (c.hidden, q),
            "gate": (c.inner, c.hidden), "up": (c.inner, c.hidden), "down": (c.hidden, c.inner),
        }[part]  # fmt: skip


def _reordered(weight: ModelWeight, order: Array) -> ModelWeight:
    """The weight with its outputs permuted. Containers that need this store one output per row."""
    if not isinstance(weight, QuantizedWeight):
        return weight[order]
    assert weight.transposed

    def rows(array: Array) -> Array:
        return array[order] if array.ndim == 2 and len(array) == len(order) else array

    zero = None if weight.zero_point is None else rows(weight.zero_point)
    return replace(weight, codes=rows(weight.codes), scale=rows(weight.scale), zero_point=zero)


def _joined(first: ModelWeight, second: ModelWeight) -> ModelWeight | None:
    """One weight with the outputs of `first`, then of `second`; None if they differ in more than their values."""
    if not (isinstance(first, QuantizedWeight) and isinstance(second, QuantizedWeight)):
        if isinstance(first, QuantizedWeight) or isinstance(second, QuantizedWeight) or first.dtype != second.dtype:
            return None
        return np.concatenate([first, second])
    alike = ("dtype", "zero_mode", "packing", "transposed", "activations", "order", "codebook", "global_scale")
    if any(not np.array_equal(getattr(first, n), getattr(second, n)) for n in alike) or not first.transposed:
        return None
    pairs = [(first.codes, second.codes), (first.scale, second.scale)]
    if first.zero_point is not None and second.zero_point is not None:
        pairs.append((first.zero_point, second.zero_point))
    elif first.zero_point is not None or second.zero_point is not None:
        return None
    rows = len(first.codes)
    if any(a.ndim != 2 or a.shape != b.shape or len(a) != rows for a, b in pairs):
        return None
    codes, scale, *zero = map(np.concatenate, pairs)
    shape = (2 * rows, first.shape[1])
    return replace(first, shape=shape, codes=codes, scale=scale, zero_point=zero[0] if zero else None)
