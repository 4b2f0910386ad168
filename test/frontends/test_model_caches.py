"""Decoders from transformers, called token by token and compared with torch. Static caches are state of the program;
growing caches are arguments."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import qmlir

MISSING = [name for name in ("torch", "torchvision", "transformers") if find_spec(name) is None]
if MISSING:
    pytest.skip(f"{', '.join(MISSING)} not installed: pip install -e '.[models]'", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("models")]
LENGTH = 32
SMALL = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64,
}  # fmt: skip
ENCODER_DECODER = {
    "vocab_size": 128, "d_model": 64, "d_ff": 96, "d_kv": 16, "num_layers": 2, "num_heads": 4, "encoder_layers": 2,
    "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96, "max_position_embeddings": 64, "decoder_start_token_id": 0, "pad_token_id": 0,
}  # fmt: skip


def model(auto: str, kind: str, config: dict[str, Any]) -> Any:
    import torch

    from benchmarks.models.architectures import library, randomise

    transformers = library("transformers")
    torch.manual_seed(0)
    made = getattr(transformers, auto).from_config(transformers.AutoConfig.for_model(kind, **config))
    made.generation_config = transformers.GenerationConfig(
        use_cache=True, cache_implementation="static", pad_token_id=0, decoder_start_token_id=0,
        cache_config={"batch_size": 1, "max_cache_len": LENGTH},
    )  # fmt: skip
    return randomise(made, 0)


def compare(program: Any, calls: list[tuple[Any, ...]], names: tuple[str, ...] = ()) -> None:
    """Compare each call of the compiled program with torch; both start with new state."""
    import torch

    module, main = program.module(), qmlir.load(qmlir.compile(program)).main
    for arguments in calls:
        with torch.no_grad():
            expected = (module(**dict(zip(names, arguments, strict=True))) if names else module(*arguments)).numpy()
        got = np.asarray(main(*arguments))
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2"])
def test_decoder(kind: str) -> None:
    import torch

    made = model("AutoModelForCausalLM", kind, SMALL)
    from transformers.integrations.executorch import convert_and_export_with_cache

    program = convert_and_export_with_cache(
        made, example_input_ids=torch.tensor([[5]]), example_cache_position=torch.tensor([0])
    )
    calls = [(torch.tensor([[t]]), torch.tensor([i])) for i, t in enumerate((5, 7, 9, 11, 3, 8))]
    compare(program, calls, ("input_ids", "cache_position"))


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_encoder_and_decoder(kind: str) -> None:
    import torch

    made = model("AutoModelForSeq2SeqLM", kind, ENCODER_DECODER)
    from transformers.integrations.executorch import Seq2SeqLMExportableModule

    exported = Seq2SeqLMExportableModule(made, max_hidden_seq_length=64, max_cache_length=LENGTH)
    exported.export()
    encoder, ids = exported.exported_encoder, torch.tensor([[5, 7, 9, 11, 3, 8]])
    with torch.no_grad():
        hidden = encoder.module()(ids)
    got = np.asarray(qmlir.load(qmlir.compile(encoder)).main(ids))
    np.testing.assert_allclose(got, hidden.numpy(), rtol=0, atol=1e-5)
    calls = [(torch.tensor([[t]]), hidden, torch.tensor([i])) for i, t in enumerate((0, 4, 6, 9))]
    compare(exported.exported_decoder, calls)


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt2"])
def test_growing_cache(kind: str) -> None:
    """A DynamicCache is an argument and a result; a call may add any number of tokens to a cache of any length."""
    import torch

    made = model("AutoModelForCausalLM", kind, SMALL)
    from transformers.integrations.executorch import register_dynamic_cache_export_support

    register_dynamic_cache_export_support()
    ids = torch.randint(0, SMALL["vocab_size"], (2, 12), generator=torch.Generator().manual_seed(1))
    made.generation_config.cache_implementation = None
    with torch.no_grad():
        expected = made(ids, use_cache=False).logits.numpy()
        cache = made(ids[:, :4], use_cache=True).past_key_values
        part = [{0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO}] * SMALL["num_hidden_layers"]
        program = torch.export.export(
            made, (), {"input_ids": ids[:, 4:7], "cache": cache, "use_cache": True}, strict=False,
            dynamic_shapes={"input_ids": dict.fromkeys((0, 1), torch.export.Dim.AUTO), "cache": [part, part],
                            "use_cache": None},
        )  # fmt: skip
        state = torch.utils._pytree.tree_leaves(made(ids[:, :4], use_cache=True).past_key_values)
    main, at = qmlir.load(qmlir.compile(program)).main, 4
    for step in (2, 1, 1, 4):
        logits, *state = main(ids[:, at : at + step], *state)
        here = expected[:, at : at + step]
        np.testing.assert_allclose(np.asarray(logits), here, rtol=0, atol=2e-6 * np.abs(expected).max())
        at += step
