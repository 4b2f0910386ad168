"""GPTQ, as AutoGPTQ and GPTQModel write it.

A layer is `qweight [K * bits / 32, N]` (i32, codes along K, low bits first), `qzeros [G, N * bits / 32]` (along N),
`scales [G, N]` and `g_idx [K]`, the group of each input: `w[k, n] = scales[g, n] * (q[k, n] - z[g, n])`, g = g_idx[k].
Checkpoint format `gptq` (v1) stores z - 1, where each packed field wraps around separately; `gptq_v2` stores z. In
activation order (`desc_act`) groups are not contiguous: the codes are sorted by group here, with the permutation in
`QuantizedWeight.order`.

Sources: Frantar et al. 2022, arXiv:2210.17323; GPTQModel, `nn_modules/qlinear` and `utils/model_dequant.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..dialect.dtypes import Array
from ..dialect.packing import pack
from ..errors import CheckpointError
from .config import check_fields, choice, group_size_of
from .parts import FLOATS, nibbles, part
from .scheme import TensorMap
from .value import QuantizedWeight, even_groups, group_order

# Added to the stored zero points.
_ZERO_OFFSET = {"gptq": 1, "gptq_v2": 0}
_MEANING = ("quant_method", "bits", "group_size", "sym", "desc_act", "checkpoint_format", "pack_dtype", "dynamic",
            "is_marlin_format", "format", "method")  # fmt: skip
# Fields that do not change the weights: how these were found, or how other programs run them.
_HISTORY = (
    "damp_percent", "damp_auto_increment", "static_groups", "true_sequential", "model_name_or_path",
    "model_file_base_name", "lm_head", "meta", "mse", "dataset", "tokenizer", "batch_size", "block_name_to_quantize",
    "module_name_preceding_first_block", "modules_in_block_to_quantize", "use_cuda_fp16", "model_seqlen",
    "use_exllama", "disable_exllama", "exllama_config", "max_input_length", "cache_block_outputs", "backend",
    "pad_token_id", "modules_to_not_convert", "act_group_aware", "hyb_act",
)  # fmt: skip


def scheme(config: Mapping[str, object], where: str) -> Gptq:
    """The scheme of a configuration. Raises CheckpointError for unknown fields and values."""
    check_fields(config, (*_MEANING, *_HISTORY), where)
    choice(config, "pack_dtype", ("int32",), where, "int32")
    choice(config, "is_marlin_format", (False,), where, False)
    if config.get("dynamic"):
        raise CheckpointError(f"{where}: dynamic, which quantises layers differently, is not known")
    said = {"checkpoint_format": config.get("checkpoint_format", config.get("format", "gptq"))}
    layout = choice(said, "checkpoint_format", tuple(_ZERO_OFFSET), where)
    return Gptq(
        choice(config, "bits", (2, 4, 8), where),
        group_size_of(config, "group_size", where),
        choice(config, "sym", (True, False), where, False),
        _ZERO_OFFSET[layout],
    )


@dataclass(frozen=True)
class Gptq:
    """A GPTQ scheme. `offset` is added to the stored zero points."""

    bits: int
    group_size: int
    symmetric: bool
    offset: int

    def layers(self, tensors: TensorMap) -> dict[str, tuple[str, ...]]:
        found = {}
        for name in tensors:
            if name.endswith(".qweight"):
                layer = name.removesuffix(".qweight")
                parts = [f"{layer}.{p}" for p in ("qweight", "qzeros", "scales", "g_idx")]
                found[f"{layer}.weight"] = tuple(p for p in parts if p in tensors)
        if not found:
            raise CheckpointError("the configuration says gptq, but no tensor is called *.qweight")
        return found

    def weight(self, name: str, tensors: TensorMap) -> QuantizedWeight:
        layer, per = name.removesuffix(".weight"), 32 // self.bits
        words = part(tensors, f"{layer}.qweight", ("i32",), (None, None))
        n, k = words.shape[1], words.shape[0] * per
        size = k if self.group_size == -1 else self.group_size
        groups = -(-k // size) if k else 0
        scale = part(tensors, f"{layer}.scales", FLOATS, (groups, n)).T
        zeros = nibbles(part(tensors, f"{layer}.qzeros", ("i32",), (groups, -(-n // per))), self.bits)
        zero = ((zeros[:, :n] + self.offset) & ((1 << self.bits) - 1)).T
        order = self._order(layer, tensors, k, groups, size)
        if order is None:
            # The bytes of a word hold codes of one column: gather the bytes of each column, still packed.
            raw = np.ascontiguousarray(words).view(np.uint8).reshape(words.shape[0], n, 4)
            codes = raw.transpose(1, 0, 2).reshape(n, -1)
        else:
            codes = _packed(nibbles(words.T, self.bits)[:, order], self.bits)
        scale, zero = (even_groups(a, k, size) for a in (scale, zero))
        middle = 1 << (self.bits - 1)
        signed = bool((zero == middle).all())
        if self.symmetric and not signed:
            raise CheckpointError(
                f"tensor {layer + '.qzeros'!r} has zero points other than {middle}, but the configuration says sym; "
                f"is its checkpoint_format ({' or '.join(_ZERO_OFFSET)}) right?"
            )
        packing = "none" if self.bits == 8 else "low_first"
        if signed:  # the two's complement code of q - middle is q with its top bit flipped
            flip = sum(middle << shift for shift in range(0, 8, self.bits))
            codes = codes ^ np.uint8(flip)
            codes = codes.view(np.int8) if self.bits == 8 else codes
            return QuantizedWeight(name, (n, k), codes, scale, f"i{self.bits}", packing=packing, order=order)
        return QuantizedWeight(name, (n, k), codes, scale, f"u{self.bits}", zero, "int", packing, order=order)

    def _order(self, layer: str, tensors: TensorMap, k: int, groups: int, size: int) -> Array | None:
        if f"{layer}.g_idx" not in tensors:
            return None
        index = part(tensors, f"{layer}.g_idx", ("i32", "i64"), (k,))
        try:
            return group_order(index, groups, size)
        except ValueError as e:
            raise CheckpointError(f"tensor {layer + '.g_idx'!r} {e}") from None


def _packed(codes: Array, bits: int) -> Array:
    """Pack codes `[N, K]` into bytes, low bits first."""
    return pack(codes, f"u{bits}", "low_first")
