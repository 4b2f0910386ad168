"""AWQ in AutoAWQ's layout `gemm`.

A layer is `qweight [K, N / 8]` (i32), `qzeros [G, N / 8]` and `scales [G, N]`: `w[k, n] = (q[k, n] - z[g, n]) *
scales[g, n]`. Word j holds columns 8j .. 8j + 7 in the order 0, 2, 4, 6, 1, 3, 5, 7, low bits first, which is the
dialect's packing `interleaved`: codes are not repacked.

Sources: Lin et al. 2023, arXiv:2306.00978; AutoAWQ, `awq/utils/packing_utils.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..dialect.packing import unpack
from ..errors import CheckpointError
from .config import check_fields, choice, group_size_of
from .parts import FLOATS, part
from .scheme import TensorMap
from .value import QuantizedWeight, even_groups

_KNOWN = (
    "quant_method", "bits", "w_bit", "group_size", "q_group_size", "zero_point", "version", "modules_to_not_convert",
    "backend", "do_fuse", "fuse_max_seq_len", "modules_to_fuse", "exllama_config",
)  # fmt: skip


def scheme(config: Mapping[str, object], where: str) -> Awq:
    """The scheme of a configuration. Raises CheckpointError for unknown fields and values."""
    check_fields(config, _KNOWN, where)
    choice({"bits": config.get("bits", config.get("w_bit"))}, "bits", (4,), where)
    choice({"version": str(config.get("version", "gemm")).lower()}, "version", ("gemm",), where)
    choice(config, "zero_point", (True,), where, True)
    size = config.get("group_size", config.get("q_group_size"))
    return Awq(group_size_of({"group_size": size}, "group_size", where))


@dataclass(frozen=True)
class Awq:
    group_size: int

    def layers(self, tensors: TensorMap) -> dict[str, tuple[str, ...]]:
        found = {}
        for name in tensors:
            if name.endswith(".qweight"):
                layer = name.removesuffix(".qweight")
                parts = [f"{layer}.{p}" for p in ("qweight", "qzeros", "scales")]
                found[f"{layer}.weight"] = tuple(p for p in parts if p in tensors)
        if not found:
            raise CheckpointError("the configuration says awq, but no tensor is called *.qweight")
        return found

    def weight(self, name: str, tensors: TensorMap) -> QuantizedWeight:
        layer = name.removesuffix(".weight")
        words = part(tensors, f"{layer}.qweight", ("i32",), (None, None))
        k, n = words.shape[0], words.shape[1] * 8
        size = k if self.group_size == -1 else self.group_size
        groups = -(-k // size) if k else 0
        scale = part(tensors, f"{layer}.scales", FLOATS, (groups, n))
        zeros = part(tensors, f"{layer}.qzeros", ("i32",), (groups, n // 8))
        zero = unpack(np.ascontiguousarray(zeros).view(np.uint8), "u4", "interleaved", n)
        codes = np.ascontiguousarray(words).view(np.uint8)
        scale, zero = (even_groups(a, k, size, axis=0) for a in (scale, zero))
        return QuantizedWeight(name, (n, k), codes, scale, "u4", zero, "int", "interleaved", transposed=False)
