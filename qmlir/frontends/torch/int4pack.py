"""Unpack torch's int4 weights for CPUs."""

from __future__ import annotations

from functools import cache

import torch


@cache
def _positions(n: int, k: int) -> torch.Tensor:
    """For each nibble of a packed `[n, k/2]` weight (low nibbles first), the index of its code in `[n, k]`.

    The order depends on the vector instructions of the CPU that packs, so torch is asked for it: each group of 4 bits
    of the codes' indices is packed as if it were the codes."""
    index = torch.arange(n * k, dtype=torch.int64).reshape(n, k)
    found = torch.zeros(n * k, dtype=torch.int64)
    for shift in range(0, max(n * k - 1, 1).bit_length(), 4):
        quartet = ((index >> shift) & 15).to(torch.int32)
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(quartet, 1).reshape(-1)
        found |= torch.stack([packed & 15, packed >> 4], -1).reshape(-1).to(torch.int64) << shift
    return found


def unpack_for_cpu(packed: torch.Tensor) -> torch.Tensor:
    """A weight `[N, K/2]` of `_convert_weight_to_int4pack_for_cpu` as codes `[N, K]`, u8 of 0..15."""
    n, k = packed.shape[0], packed.shape[1] * 2
    nibbles = torch.stack([packed & 15, packed >> 4], -1).reshape(-1)
    codes = torch.empty(n * k, dtype=torch.uint8)
    codes[_positions(n, k)] = nibbles
    return codes.reshape(n, k)
