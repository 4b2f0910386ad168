"""Models with random weights from a seed, small enough to compile in seconds: repeated layers are few."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

SEED = 0


@dataclass(frozen=True)
class Architecture:
    """A model. `make(seed)` gives the module in evaluation mode and its arguments; `dynamic` names the dynamic
    dimensions, by argument and axis."""

    name: str
    library: str
    make: Callable[[int], tuple[Any, tuple[Any, ...]]]
    dynamic: Mapping[int, Mapping[int, str]]


TABLE: dict[str, Architecture] = {}


class Outputs(torch.nn.Module):  # type: ignore[misc]
    """Wraps a model of transformers: positional arguments become keyword arguments, and the result is one tensor."""

    def __init__(self, model: Any, names: tuple[str, ...], result: str, more: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.result, self.more = model, names, result, dict(more)

    def forward(self, *args: Any) -> Any:
        return getattr(self.model(**dict(zip(self.names, args, strict=True)), **self.more), self.result)


@cache
def library(name: str) -> Any:
    """Imports a library of models. torchvision's wheels may be built for another torch than the installed one, in which
    case its operators do not load. Classifiers use none of them, so it is enough to declare them for the import."""
    if name in ("timm", "transformers"):
        library("torchvision")
    declared = torch.library.Library("torchvision", "FRAGMENT")
    while True:
        try:
            return importlib.import_module(name)
        except RuntimeError as e:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(e))
            if missing is None:
                raise
            declared.define(f"{missing[1]}(Tensor x) -> Tensor")
            _DECLARED.append(declared)
            for loaded in [m for m in sys.modules if m.split(".")[0] in ("torchvision", name)]:
                del sys.modules[loaded]


_DECLARED: list[Any] = []  # a torch.library.Library removes its declarations when it is garbage-collected


def randomise(model: Any, seed: int) -> Any:
    """`model` in evaluation mode, with random batch norm statistics and noise added to every constant weight."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if not value.is_floating_point() or value.numel() < 2:
                continue
            if name.endswith("running_var"):
                value.copy_(torch.rand(value.shape, generator=draw) + 0.5)
            elif name.endswith("running_mean"):
                value.copy_(torch.randn(value.shape, generator=draw) * 0.1)
            elif isinstance(value, torch.nn.Parameter) and bool((value == value.flatten()[0]).all()):
                value.add_(torch.randn(value.shape, generator=draw).to(value.dtype) * 0.05)
    return model.eval()


def image(seed: int, size: int, channels: int = 3, batch: int = 2) -> Any:
    """A batch of images, [batch, channels, size, size]."""
    return torch.randn(batch, channels, size, size, generator=torch.Generator().manual_seed(seed))


def tokens(seed: int, vocabulary: int, length: int, batch: int = 2) -> Any:
    """A batch of token ids, i64 [batch, length]."""
    return torch.randint(0, vocabulary, (batch, length), generator=torch.Generator().manual_seed(seed))


def _vision(name: str, size: int = 64, **options: Any) -> None:
    def make(seed: int) -> tuple[Any, tuple[Any, ...]]:
        torch.manual_seed(seed)
        model = getattr(library("torchvision").models, name)(weights=None, num_classes=10, **options)
        return randomise(model, seed), (image(seed, size),)

    TABLE[name] = Architecture(name, "torchvision", make, {0: {0: "batch"}})


def _timm(name: str, size: int = 64, **options: Any) -> None:
    def make(seed: int) -> tuple[Any, tuple[Any, ...]]:
        torch.manual_seed(seed)
        model = library("timm").create_model(name, pretrained=False, num_classes=10, **options)
        return randomise(model, seed), (image(seed, size),)

    TABLE[f"timm {name}"] = Architecture(f"timm {name}", "timm", make, {0: {0: "batch"}})


# Settings of the text models below, by the names that most configurations of transformers use.
_SMALL = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
_ENCODER = {k: v for k, v in _SMALL.items() if k not in ("num_key_value_heads", "head_dim")}
_CAUSAL, _BASE = "AutoModelForCausalLM", "AutoModel"


def _model(kind: str, auto: str, seed: int, settings: Mapping[str, Any]) -> Any:
    transformers = library("transformers")
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, **settings)
    return randomise(getattr(transformers, auto).from_config(config), seed)


def _text(kind: str, auto: str = _CAUSAL, base: Mapping[str, Any] = _SMALL, result: str = "", **options: Any) -> None:
    """A model from token ids to logits or hidden states, batch and sequence dynamic."""
    settings = {**base, **options}
    result = result or ("logits" if auto == _CAUSAL else "last_hidden_state")

    def make(seed: int) -> tuple[Any, tuple[Any, ...]]:
        model = _model(kind, auto, seed, settings)
        ids = tokens(seed, int(settings.get("vocab_size", 128)), 12).clamp(min=3)
        return Outputs(model, ("input_ids",), result, {"use_cache": False} if auto == _CAUSAL else {}), (ids,)

    TABLE[kind] = Architecture(kind, "transformers", make, {0: {0: "batch", 1: "sequence"}})


def _other(name: str, inputs: Mapping[str, Callable[[int], Any]], result: str, kind: str = "", auto: str = _BASE,
           dynamic: Mapping[int, Mapping[int, str]] | None = None, more: Mapping[str, Any] | None = None,
           **options: Any) -> None:  # fmt: skip
    """A model of transformers with the given inputs."""

    def make(seed: int) -> tuple[Any, tuple[Any, ...]]:
        model = _model(kind or name, auto, seed, options)
        wrapped = Outputs(model, tuple(inputs), result, more or {})
        return wrapped, tuple(of(seed) for of in inputs.values())

    found = {i: {0: "batch"} for i in range(len(inputs))} if dynamic is None else dynamic
    TABLE[name] = Architecture(name, "transformers", make, found)


class Recurrent(torch.nn.Module):  # type: ignore[misc]
    """A recurrent network of two layers and a linear layer."""

    def __init__(self, cell: str, bidirectional: bool) -> None:
        super().__init__()
        self.cell = getattr(torch.nn, cell)(32, 48, 2, batch_first=True, bidirectional=bidirectional)
        self.out = torch.nn.Linear(96 if bidirectional else 48, 10)

    def forward(self, x: Any) -> Any:
        return self.out(self.cell(x)[0])


def _recurrent(cell: str, bidirectional: bool = False) -> None:
    def make(seed: int) -> tuple[Any, tuple[Any, ...]]:
        torch.manual_seed(seed)
        x = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(seed))
        return Recurrent(cell, bidirectional).eval(), (x,)

    name = cell.lower() + (" bidirectional" if bidirectional else "")
    TABLE[name] = Architecture(name, "torch", make, {0: {0: "batch"}})


for _name in ("resnet18", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1", "regnet_y_400mf",
              "efficientnet_b0", "mnasnet0_5"):  # fmt: skip
    _vision(_name)
_timm("densenet121", block_config=(1, 2, 1, 1))
_vision("googlenet", aux_logits=False, init_weights=False)
_vision("vgg11_bn")

_timm("resnet26t")
_timm("convnext_atto", depths=(1, 1, 1, 1))
_timm("convnextv2_atto", depths=(1, 1, 1, 1))
_timm("vit_tiny_patch16_224", img_size=64, depth=2)
_timm("deit3_small_patch16_224", img_size=64, depth=2)
_timm("beit_base_patch16_224", img_size=64, depth=1, embed_dim=96, num_heads=3)
_timm("eva02_tiny_patch14_224", size=56, img_size=56, depth=2)
_timm("swin_tiny_patch4_window7_224", size=56, img_size=56, depths=(2, 1), num_heads=(2, 4), embed_dim=32)
_timm("swinv2_tiny_window8_256", img_size=64, depths=(2, 1), num_heads=(2, 4), embed_dim=32)
_timm("mixer_s32_224", img_size=64)
_timm("mobilevit_xxs")
_timm("mobilevitv2_050")
_timm("efficientformer_l1", size=224, depths=(1, 1, 1, 2))
_timm("levit_128s", size=224)
_timm("poolformer_s12")
_timm("pvt_v2_b0", depths=(1, 1, 1, 1))
_timm("repvgg_a0")
_timm("ghostnet_050")
_timm("edgenext_xx_small")
_timm("fastvit_t8", layers=(1, 1, 1, 1))
_timm("xcit_nano_12_p16_224", img_size=64, depth=1)
_timm("cait_xxs24_224", img_size=64, depth=1)
_timm("gmlp_ti16_224", img_size=64)
_timm("inception_next_atto", depths=(1, 1, 1, 1))
_timm("mobilenetv4_conv_small")
_timm("skresnet18")
_timm("resnest14d")
_timm("mixnet_s")
_timm("lambda_resnet26t", size=128)
_timm("convit_tiny", img_size=64, depth=3, local_up_to_layer=2)

_text("bert", _BASE, _ENCODER)
_text("distilbert", _BASE, {"vocab_size": 128, "dim": 64, "hidden_dim": 96, "n_layers": 2, "n_heads": 4})
_text("roberta", _BASE, _ENCODER)
_text("electra", _BASE, _ENCODER, embedding_size=64)
_text("albert", _BASE, _ENCODER, embedding_size=32)
_text("deberta-v2", _BASE, _ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=16)
_text("mpnet", _BASE, _ENCODER)
_text("modernbert", _BASE, _ENCODER, local_attention=8, global_attn_every_n_layers=2)
_text("llama")
_text("mistral", sliding_window=8)
_text("qwen2")
_text("qwen3")
_text("gemma")
_text("gemma2", query_pre_attn_scalar=16, sliding_window=8)
_text("gemma3_text", query_pre_attn_scalar=16, sliding_window=8)
_text("phi", num_key_value_heads=4)
_text("phi3")
_text("smollm3")
_text("olmo2")
_text("cohere")
_text("granite")
_text("starcoder2")
_text("lfm2", layer_types=["conv", "full_attention"])
_text("stablelm")
_text("gpt2", base={"vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64})
_text("gpt_neox")
_text("gptj", base={"vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 8})
_text("opt", base=_ENCODER, ffn_dim=96, word_embed_proj_dim=64)
_text("bloom", base={"vocab_size": 128, "hidden_size": 64, "n_layer": 2, "n_head": 4})
_text("falcon", base=_ENCODER, new_decoder_architecture=False)
_text("mpt", base={"vocab_size": 128, "d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 64})
_text("mixtral", num_local_experts=4)
_text("qwen2_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32)
_text("qwen3_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
_text("olmoe", num_experts=4, num_experts_per_tok=2)
_text("deepseek_v2", q_lora_rank=None, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16,
      n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, first_k_dense_replace=1, n_group=None,
      topk_group=None, n_shared_experts=1, num_key_value_heads=4)  # fmt: skip
_text("deepseek_v3", q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16,
      n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, first_k_dense_replace=1, n_group=2,
      topk_group=1, n_shared_experts=1, num_key_value_heads=4, head_dim=8)  # fmt: skip
_text("gpt_oss", num_local_experts=4, num_experts_per_tok=2, sliding_window=8)
_text("mamba", base={"vocab_size": 128, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2})
_text("mamba2", base={"vocab_size": 128, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "num_heads": 8,
                      "head_dim": 8, "n_groups": 1, "chunk_size": 8})  # fmt: skip

_SEQ: dict[str, Any] = {
    "vocab_size": 128, "d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
_IDS = {"input_ids": lambda seed: tokens(seed, 120, 12) + 3, "decoder_input_ids": lambda seed: tokens(seed, 120, 6) + 3}
_BOTH = {0: {0: "batch", 1: "source"}, 1: {0: "batch", 1: "sequence"}}
_T5: dict[str, Any] = {"vocab_size": 128, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 1, "num_heads": 4,
       "decoder_start_token_id": 1}  # fmt: skip
_other("t5", _IDS, "logits", auto="AutoModelForSeq2SeqLM", dynamic=_BOTH, more={"use_cache": False}, **_T5)
_other("mt5", _IDS, "logits", auto="AutoModelForSeq2SeqLM", dynamic=_BOTH, more={"use_cache": False}, **_T5)
for _name in ("bart", "marian", "pegasus", "m2m_100"):
    _other(_name, _IDS, "logits", auto="AutoModelForSeq2SeqLM", dynamic=_BOTH, more={"use_cache": False}, **_SEQ)
_other("whisper", {"input_features": lambda seed: image(seed, 1, 8).reshape(2, 8, 1).repeat(1, 1, 64) * image(
           seed + 1, 64, 1)[:, 0, :8], "decoder_input_ids": lambda seed: tokens(seed, 120, 6) + 3}, "logits",
       auto="AutoModelForSpeechSeq2Seq", more={"use_cache": False}, num_mel_bins=8, max_source_positions=32,
       max_target_positions=32, **{k: v for k, v in _SEQ.items() if k != "max_position_embeddings"})  # fmt: skip
_CLIP: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
_other("clip", {"input_ids": lambda seed: tokens(seed, 120, 12) + 3, "pixel_values": lambda seed: image(seed, 32)},
       "logits_per_image", projection_dim=32, dynamic={},
       text_config={**_CLIP, "vocab_size": 128, "max_position_embeddings": 32, "eos_token_id": 2, "bos_token_id": 1},
       vision_config={**_CLIP, "image_size": 32, "patch_size": 8})  # fmt: skip
_other("siglip", {"pixel_values": lambda seed: image(seed, 32)}, "pooler_output", kind="siglip_vision_model",
       image_size=32, patch_size=8, **_CLIP)  # fmt: skip
_other("dinov2", {"pixel_values": lambda seed: image(seed, 32)}, "last_hidden_state", image_size=32, patch_size=8,
       **_CLIP)  # fmt: skip
_other("segformer", {"pixel_values": lambda seed: image(seed, 64)}, "logits", auto="AutoModelForSemanticSegmentation",
       depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], decoder_hidden_size=32)  # fmt: skip
_other("wav2vec2", {"input_values": lambda seed: image(seed, 1, 1600).reshape(2, 1600)}, "last_hidden_state",
       conv_dim=[16] * 3, conv_stride=[5, 2, 2], conv_kernel=[10, 3, 3], num_conv_pos_embeddings=16,
       num_conv_pos_embedding_groups=4, **_CLIP)  # fmt: skip
_other("wavlm", {"input_values": lambda seed: image(seed, 1, 1600).reshape(2, 1600)}, "last_hidden_state",
       conv_dim=[16] * 3, conv_stride=[5, 2, 2], conv_kernel=[10, 3, 3], num_conv_pos_embeddings=16,
       num_conv_pos_embedding_groups=4, dynamic={}, **_CLIP)  # fmt: skip
_other("fnet", {"input_ids": lambda seed: tokens(seed, 120, 12) + 3}, "last_hidden_state",
       dynamic={0: {0: "batch", 1: "sequence"}}, **_ENCODER)  # fmt: skip
_recurrent("LSTM")
_recurrent("LSTM", True)
_recurrent("GRU")
_recurrent("GRU", True)

# The models that are also measured in the quantised forms and the other formats by default.
QUANTISED = (
    "resnet18", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x0_5", "timm vit_tiny_patch16_224",
    "timm swin_tiny_patch4_window7_224", "timm convnext_atto", "bert", "distilbert", "llama", "qwen2", "gemma2",
    "mixtral", "gpt2", "t5", "whisper", "mamba", "lstm", "gru",
)  # fmt: skip
