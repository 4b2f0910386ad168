"""torch's dtypes and the dialect's names for them."""

from __future__ import annotations

import numpy as np
import torch

from ...dialect.dtypes import DTYPES, Array

FROM_TORCH: dict[torch.dtype, str] = {
    torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64", torch.int8: "i8",
    torch.uint8: "u8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.bool: "bool",
    torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2", torch.float8_e4m3fnuz: "e4m3fnuz",
    torch.float8_e5m2fnuz: "e5m2fnuz", torch.float8_e8m0fnu: "e8m0",
}  # fmt: skip
TO_TORCH = {name: dtype for dtype, name in FROM_TORCH.items()}
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
SMALL_FLOATS = tuple(TO_TORCH[n] for n in ("e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz"))


def code_name(dtype: torch.dtype, lo: int, hi: int) -> str:
    """The narrowest dtype of codes that holds `lo..hi` and is stored as `dtype`: 4-bit weights come one per byte."""
    stored = FROM_TORCH[dtype]
    signed = DTYPES[stored].signed
    for name in ("i2", "i4") if signed else ("u2", "u4"):
        if DTYPES[name].lo <= lo and hi <= DTYPES[name].hi:
            return name
    return stored


def to_numpy(t: torch.Tensor) -> Array:
    """The elements of a tensor as a numpy array, without a copy if it is contiguous and on the CPU."""
    t = t.detach().cpu()
    if not t.is_contiguous():
        t = t.contiguous()
    name = FROM_TORCH[t.dtype]
    if name in ("bf16", "e8m0") or t.dtype in SMALL_FLOATS:
        wide = t.reshape(-1).view(torch.uint8).numpy()
        return np.asarray(wide.view(DTYPES[name].numpy).reshape(tuple(t.shape)))
    return np.asarray(t.numpy())
