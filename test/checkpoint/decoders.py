"""Decoders with random weights, written to checkpoints and evaluated in numpy in float64, to judge the programs of
`qmlir import`. The evaluation computes whole sequences, without a cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from checkpoint import writers as w
from gguf import GGMLQuantizationType


@dataclass(frozen=True)
class Sizes:
    layers: int = 2
    hidden: int = 64
    inner: int = 96
    heads: int = 4
    kv_heads: int = 2
    vocabulary: int = 97
    base: float = 10000.0
    epsilon: float = 1e-5
    context: int = 128

    @property
    def head(self) -> int:
        return self.hidden // self.heads

    def matrices(self) -> dict[str, tuple[int, int]]:
        kv = self.kv_heads * self.head
        h, i = self.hidden, self.inner
        return {"q": (h, h), "k": (kv, h), "v": (kv, h), "o": (h, h), "gate": (i, h), "up": (i, h), "down": (h, i)}


# About 100 million parameters.
LARGE = Sizes(layers=12, hidden=768, inner=2048, heads=12, kv_heads=4, vocabulary=16000, context=256)

GGUF_NAMES = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "gate": "ffn_gate", "up": "ffn_up",
              "down": "ffn_down"}  # fmt: skip
HF_NAMES = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
            "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}  # fmt: skip


@dataclass
class Model:
    """The real weights: `layers[i][part]`, and how RoPE pairs the elements of a head."""

    sizes: Sizes
    pairs: str
    embedding: Any
    head: Any
    norm: Any
    layers: list[dict[str, Any]]

    def logits(self, tokens: list[int]) -> Any:
        """`[T, V]`, float64."""
        s = self.sizes
        x = self.embedding[tokens].astype(np.float64)
        count = len(tokens)
        angle = np.arange(count)[:, None] / s.base ** (np.arange(0, s.head, 2) / s.head)
        for layer in self.layers:
            h = self._norm(x, layer["attention_norm"])
            q = self._rotated((h @ layer["q"].T).reshape(count, s.heads, s.head), angle)
            k = self._rotated((h @ layer["k"].T).reshape(count, s.kv_heads, s.head), angle)
            v = (h @ layer["v"].T).reshape(count, s.kv_heads, s.head)
            out = np.empty((count, s.heads, s.head))
            for head in range(s.heads):
                shared = head // (s.heads // s.kv_heads)
                scores = q[:, head] @ k[:, shared].T / np.sqrt(s.head)
                scores[np.triu_indices(count, 1)] = -np.inf
                weights = np.exp(scores - scores.max(-1, keepdims=True))
                out[:, head] = weights / weights.sum(-1, keepdims=True) @ v[:, shared]
            x = x + out.reshape(count, -1) @ layer["o"].T
            h = self._norm(x, layer["mlp_norm"])
            gate = h @ layer["gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ layer["up"].T)) @ layer["down"].T
        return self._norm(x, self.norm) @ self.head.T

    def _norm(self, x: Any, weight: Any) -> Any:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + self.sizes.epsilon) * weight

    def _rotated(self, x: Any, angle: Any) -> Any:
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        half = self.sizes.head // 2
        a, b = (x[..., 0::2], x[..., 1::2]) if self.pairs == "interleaved" else (x[..., :half], x[..., half:])
        y = np.empty_like(x)
        first, second = a * cos - b * sin, b * cos + a * sin
        if self.pairs == "interleaved":
            y[..., 0::2], y[..., 1::2] = first, second
        else:
            y[..., :half], y[..., half:] = first, second
        return y


def random_matrix(rng: np.random.Generator, shape: tuple[int, int]) -> Any:
    return (rng.standard_normal(shape) / np.sqrt(shape[1])).astype(np.float32)


def write_gguf(path: Path, sizes: Sizes, kind: str = "Q4_0", head: str = "Q8_0", seed: int = 0) -> Model:
    """Write a checkpoint with the writer and quantiser of the gguf package; its dequantiser gives the real weights.
    `head` is the type of the embedding too."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(sizes.layers)
    writer.add_context_length(sizes.context)
    writer.add_embedding_length(sizes.hidden)
    writer.add_feed_forward_length(sizes.inner)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_layer_norm_rms_eps(sizes.epsilon)
    writer.add_rope_freq_base(sizes.base)
    writer.add_token_list([f"t{i}" for i in range(sizes.vocabulary)])

    def matrix(name: str, shape: tuple[int, int], kind: str) -> Any:
        quantised = gguf.quants.quantize(random_matrix(rng, shape), GGMLQuantizationType[kind])
        writer.add_tensor(f"{name}.weight", quantised, raw_dtype=GGMLQuantizationType[kind])
        return gguf.quants.dequantize(quantised, GGMLQuantizationType[kind]).astype(np.float64)

    def norm(name: str) -> Any:
        values = rng.uniform(0.5, 1.5, sizes.hidden).astype(np.float32)
        writer.add_tensor(f"{name}.weight", values)
        return values.astype(np.float64)

    embedding = matrix("token_embd", (sizes.vocabulary, sizes.hidden), head)
    layers = []
    for i in range(sizes.layers):
        layer = {part: matrix(f"blk.{i}.{GGUF_NAMES[part]}", shape, kind) for part, shape in sizes.matrices().items()}
        layers.append({**layer, "attention_norm": norm(f"blk.{i}.attn_norm"), "mlp_norm": norm(f"blk.{i}.ffn_norm")})
    model = Model(sizes, "interleaved", embedding, matrix("output", (sizes.vocabulary, sizes.hidden), head),
                  norm("output_norm"), layers)  # fmt: skip
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def write_gptq(folder: Path, sizes: Sizes, *, act_order: bool = False, tied: bool = False, seed: int = 0) -> Model:
    """A folder as GPTQ's programs save it: int4 in groups of 32 with zero points, f16 embedding and head."""
    rng = np.random.default_rng(seed)
    tensors: dict[str, Any] = {}
    size = 32

    def matrix(name: str, shape: tuple[int, int]) -> Any:
        n, k = shape
        real = random_matrix(rng, shape).T.reshape(k // size, size, n)
        lo, hi = real.min(1), real.max(1)
        scales = ((hi - lo) / 15).astype(np.float16)
        zeros = np.clip(np.rint(-lo / scales), 1, 15).astype(int)
        codes = np.clip(np.rint(real / scales[:, None]) + zeros[:, None], 0, 15).astype(int).reshape(k, n)
        groups = np.arange(k) // size
        if act_order:
            order = rng.permutation(k)
            groups, codes = groups[order], codes[order]
        tensors.update(w.gptq_layer(name, codes, scales, zeros, groups))
        return w.gptq_real(codes, scales, zeros, groups)

    def plain(name: str, array: Any, dtype: Any = np.float16) -> Any:
        tensors[f"{name}.weight"] = array.astype(dtype)
        return tensors[f"{name}.weight"].astype(np.float64)

    def norm(name: str) -> Any:
        return plain(name, rng.uniform(0.5, 1.5, sizes.hidden), np.float32)

    shape = (sizes.vocabulary, sizes.hidden)
    embedding = plain("model.embed_tokens", random_matrix(rng, shape))
    layers = []
    for i in range(sizes.layers):
        at = f"model.layers.{i}"
        layer = {part: matrix(f"{at}.{HF_NAMES[part]}", s) for part, s in sizes.matrices().items()}
        layers.append({**layer, "attention_norm": norm(f"{at}.input_layernorm"),
                       "mlp_norm": norm(f"{at}.post_attention_layernorm")})  # fmt: skip
    head = embedding if tied else plain("lm_head", random_matrix(rng, shape))
    model = Model(sizes, "halves", embedding, head, norm("model.norm"), layers)
    w.write_folder(
        folder, tensors, w.gptq_config(desc_act=act_order), model_type="llama", hidden_size=sizes.hidden,
        intermediate_size=sizes.inner, num_hidden_layers=sizes.layers, num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads, vocab_size=sizes.vocabulary, rms_norm_eps=sizes.epsilon,
        rope_theta=sizes.base, max_position_embeddings=sizes.context, hidden_act="silu", tie_word_embeddings=tied,
    )  # fmt: skip
    return model


def greedy(prefill: Any, decode: Any, prompt: list[int], steps: int) -> tuple[list[int], list[Any]]:
    """The tokens after the prompt, and the logits that each was chosen from."""
    logits = [prefill(np.asarray(prompt, np.int32))]
    tokens = [int(np.argmax(logits[0]))]
    for _ in range(steps - 1):
        logits.append(decode(np.asarray(tokens[-1:], np.int32)))
        tokens.append(int(np.argmax(logits[-1])))
    return tokens, logits


def judge(model: Model, prompt: list[int], tokens: list[int], logits: list[Any]) -> float:
    """Check that `tokens` are the model's own greedy choice. Returns the largest error of the logits against float64.

    One pass over all tokens is enough: if each is the likeliest after those before it, no other sequence is greedy.
    """
    exact = model.logits([*prompt, *tokens[:-1]])[len(prompt) - 1 :]
    assert tokens == exact.argmax(-1).tolist()
    return float(np.abs(np.stack(logits) - exact).max())
