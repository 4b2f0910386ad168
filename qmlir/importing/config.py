"""The configuration of a decoder of the Llama family, read from `config.json` or from the metadata of a GGUF file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ..checkpoint.contents import Checkpoint
from ..dialect.dtypes import Array
from ..errors import CheckpointError

# transformers' `model_type`s whose decoders consist of RMSNorm, RoPE, grouped attention and SwiGLU only.
HF_MODELS = ("llama", "mistral", "qwen2")
# GGUF's architectures, and how RoPE pairs the elements of a head: llama.cpp's converter permutes llama's heads.
GGUF_ARCHITECTURES = {"llama": "interleaved", "qwen2": "halves"}
_ROPE_TYPES = ("default", "linear", "llama3")


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes and constants of a decoder.

    Attributes:
        heads, kv_heads: query heads, and the key and value heads that they share.
        rotary: how many of a head's `head_size` elements RoPE rotates.
        rotary_pairs: the pairs that RoPE rotates in the checkpoint's heads: `interleaved` (2i with 2i + 1) or `halves`
            (i with i + rotary / 2).
        inverse_frequencies: `[rotary / 2]`, float64.
        tied: the embedding is also the output head.
    """

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    epsilon: float
    positions: int
    rotary: int
    rotary_pairs: str
    inverse_frequencies: Array
    tied: bool

    def rotation(self, count: int) -> tuple[Array, Array]:
        """cos and signed sin `[count, head_size]` by position, f32: `y[d] = x[d] * cos[d] + x[partner(d)] * sin[d]`,
        for heads in the order of `head_order`, whose partners are rotary / 2 apart."""
        angle = np.arange(count)[:, None] * self.inverse_frequencies
        cos, sin = np.ones((count, self.head_size)), np.zeros((count, self.head_size))
        half = self.rotary // 2
        first, second = slice(0, half), slice(half, self.rotary)
        cos[:, first] = cos[:, second] = np.cos(angle)
        sin[:, first], sin[:, second] = -np.sin(angle), np.sin(angle)
        return cos.astype(np.float32), sin.astype(np.float32)

    def head_order(self) -> Array | None:
        """The permutation of a query or key head's elements that puts partners rotary / 2 apart; None if they already
        are. Products of queries and keys do not depend on the order within a head."""
        if self.rotary_pairs == "halves":
            return None
        order = np.arange(self.head_size)
        order[: self.rotary] = np.concatenate([order[0 : self.rotary : 2], order[1 : self.rotary : 2]])
        return order


def config_of(model: Checkpoint) -> DecoderConfig:
    """The configuration of a checkpoint. Raises CheckpointError for one that is not a decoder of this family."""
    made = _from_gguf(model) if model.container == "gguf" else _from_json(model)
    for name in ("layers", "hidden", "inner", "heads", "kv_heads", "head_size", "vocabulary", "positions", "rotary"):
        value = getattr(made, name)
        if not 0 < value < 2**31:
            raise CheckpointError(f"{model.path}: the configuration says {name} = {value}")
    if made.heads % made.kv_heads:
        raise CheckpointError(f"{model.path}: {made.heads} query heads do not share {made.kv_heads} key heads evenly")
    if made.rotary % 2 or made.rotary > made.head_size:
        raise CheckpointError(f"{model.path}: RoPE turns {made.rotary} of {made.head_size} numbers of a head")
    return made


T = TypeVar("T")


class _Fields:
    """Access to the fields of a configuration, with type checks."""

    def __init__(self, said: Mapping[str, object], where: str, prefix: str = "") -> None:
        self._said, self._where, self._prefix = said, where, prefix

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        said = self._said.get(self._prefix + name)
        said = default if said is None else said
        value = float(said) if kind is float and type(said) is int else said
        fits = isinstance(value, bool) == (kind is bool) and not (isinstance(value, float) and not math.isfinite(value))
        if not fits or not isinstance(value, kind):
            raise CheckpointError(f"{self._where}: {self._prefix + name} is {said!r}, which must be {_KINDS[kind]}")
        return value


_KINDS: dict[type, str] = {int: "an integer", float: "a number", bool: "true or false", str: "a name"}


def _unsupported(where: str, field: str, kind: object, known: Iterable[str]) -> str:
    """The message proposes no similar name: under another architecture's name, a checkpoint computes something else."""
    return (f"{where}: the architecture {kind!r} ({field}) is not supported; supported are {', '.join(known)}. Another "
            "architecture's name would compute something else: export the model with torch.export instead")  # fmt: skip


def _from_json(model: Checkpoint) -> DecoderConfig:
    where = str(model.path.parent / "config.json")
    if not model.config:
        raise CheckpointError(f"cannot read {where}, which says what the model is")
    kind = model.config.get("model_type")
    if kind not in HF_MODELS:
        raise CheckpointError(_unsupported(where, "model_type", kind, HF_MODELS))
    f = _Fields(model.config, where)
    _refuse(model.config, where)
    heads, hidden = f.get("num_attention_heads", int), f.get("hidden_size", int)
    size = f.get("head_dim", int, hidden // max(heads, 1))
    scaling = model.config.get("rope_scaling") or model.config.get("rope_parameters") or {}
    if not isinstance(scaling, dict):
        raise CheckpointError(f"{where}: rope_scaling is {scaling!r}, which must be an object")
    base = float(scaling.get("rope_theta") or f.get("rope_theta", float, 10000.0))
    return DecoderConfig(
        layers=f.get("num_hidden_layers", int),
        hidden=hidden,
        inner=f.get("intermediate_size", int),
        heads=heads,
        kv_heads=f.get("num_key_value_heads", int, heads),
        head_size=size,
        vocabulary=f.get("vocab_size", int),
        epsilon=f.get("rms_norm_eps", float, 1e-6),
        positions=f.get("max_position_embeddings", int, 2048),
        rotary=size,
        rotary_pairs="halves",
        inverse_frequencies=_scaled(_frequencies(base, size), scaling, where),
        tied=f.get("tie_word_embeddings", bool, False),
    )


def _refuse(config: Mapping[str, object], where: str) -> None:
    """Raise CheckpointError for fields that change the computation in an unsupported way."""
    if config.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"{where}: hidden_act is {config['hidden_act']!r}; known: 'silu'")
    # Mistral has a sliding window by default, and does not know `use_sliding_window`.
    mistral = config.get("model_type") == "mistral"
    sliding = config.get("sliding_window", 4096 if mistral else None)
    if sliding is not None and (mistral or config.get("use_sliding_window", True)):
        said = f"is {sliding!r}" if "sliding_window" in config else f"is not stated, which means {sliding}"
        raise CheckpointError(f"{where}: sliding_window {said}; known: null, attention to all that came before")


def _frequencies(base: float, size: int) -> Array:
    if not (math.isfinite(base) and base > 0):
        raise CheckpointError(f"rope_theta is {base!r}, which must be a positive number")
    exponents: Array = np.arange(0, size, 2, dtype=np.float64) / max(size, 1)
    return np.asarray(1.0 / base**exponents)


def _scaled(frequencies: Array, scaling: Mapping[str, object], where: str) -> Array:
    """Frequencies for sequences longer than the model was trained on.

    Source of llama3's formula: transformers, `modeling_rope_utils.py`, `_compute_llama3_parameters`.
    """
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in _ROPE_TYPES:
        raise CheckpointError(f"{where}: rope_type is {kind!r}; known: {', '.join(_ROPE_TYPES)}")
    if kind == "default":
        return frequencies
    f = _Fields(scaling, where)
    factor = f.get("factor", float)
    if factor <= 0:
        raise CheckpointError(f"{where}: the factor of rope_scaling is {factor}, which must be positive")
    if kind == "linear":
        return np.asarray(frequencies / factor)
    low, high = f.get("low_freq_factor", float), f.get("high_freq_factor", float)
    trained = f.get("original_max_position_embeddings", int)
    if not 0 < low < high or trained <= 0:
        raise CheckpointError(f"{where}: rope_scaling says low_freq_factor {low}, high_freq_factor {high} of {trained}")
    wavelength = 2 * np.pi / frequencies
    smooth = np.clip((trained / wavelength - low) / (high - low), 0, 1)
    return np.asarray((1 - smooth) * frequencies / factor + smooth * frequencies)


def _from_gguf(model: Checkpoint) -> DecoderConfig:
    where = str(model.path)
    kind = model.config.get("general.architecture")
    if kind not in GGUF_ARCHITECTURES:
        raise CheckpointError(_unsupported(where, "general.architecture", kind, GGUF_ARCHITECTURES))
    f = _Fields(model.config, where, f"{kind}.")
    if f.get("expert_count", int, 0):
        raise CheckpointError(f"{where}: {kind}.expert_count is not 0; mixtures of experts are not imported")
    heads, hidden = f.get("attention.head_count", int), f.get("embedding_length", int)
    size = f.get("attention.key_length", int, hidden // max(heads, 1))
    if f.get("attention.value_length", int, size) != size:
        raise CheckpointError(f"{where}: keys and values of a head differ in length")
    rotary = f.get("rope.dimension_count", int, size)
    frequencies = _frequencies(f.get("rope.freq_base", float, 10000.0), rotary)
    # As in llama.cpp: linear if no type is stated; the factor may be under the key of older converters, or missing.
    scaling = f.get("rope.scaling.type", str, "linear")
    if scaling not in ("none", "linear"):
        raise CheckpointError(f"{where}: {kind}.rope.scaling.type is {scaling!r}; known: none, linear")
    factor = f.get("rope.scaling.factor", float, f.get("rope.scale_linear", float, 0.0))
    if scaling == "linear" and factor:
        frequencies = _scaled(frequencies, {"type": "linear", "factor": factor}, where)
    if f.get("rope.scaling.attn_factor", float, 1.0) != 1:
        raise CheckpointError(f"{where}: {kind}.rope.scaling.attn_factor, which scales what RoPE turns, is not known")
    if not f.get("attention.causal", bool, True):
        raise CheckpointError(f"{where}: {kind}.attention.causal is false; known: attention to all that came before")
    if "rope_freqs.weight" in model:  # llama3's scaling, computed by the converter
        factors = np.asarray(model["rope_freqs.weight"], np.float64)
        if factors.shape != frequencies.shape or not (factors > 0).all():
            raise CheckpointError(f"{where}: tensor 'rope_freqs.weight' must be {list(frequencies.shape)}, positive")
        frequencies = frequencies / factors
    embedding = model.shape("token_embd.weight") if "token_embd.weight" in model else (0,)
    return DecoderConfig(
        layers=f.get("block_count", int),
        hidden=hidden,
        inner=f.get("feed_forward_length", int),
        heads=heads,
        kv_heads=f.get("attention.head_count_kv", int, heads),
        head_size=size,
        vocabulary=f.get("vocab_size", int, embedding[0]),
        epsilon=f.get("attention.layer_norm_rms_epsilon", float, 1e-5),
        positions=f.get("context_length", int, 2048),
        rotary=rotary,
        rotary_pairs=GGUF_ARCHITECTURES[kind],
        inverse_frequencies=frequencies,
        tied="output.weight" not in model,
    )
