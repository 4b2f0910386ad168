"""Access to the tensors that make up a quantised weight, with checks of dtype and shape."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from ..dialect.dtypes import Array, from_numpy
from ..errors import CheckpointError

FLOATS = ("f16", "bf16", "f32")


def part(
    tensors: Mapping[str, Array], name: str, dtypes: Collection[str], shape: tuple[int | None, ...] | None = None
) -> Array:
    """A tensor of one of `dtypes` and, if given, of `shape` (None: any size).

    Raises:
        CheckpointError: the tensor is missing, or has another dtype or shape; the message names it.
    """
    if name not in tensors:
        raise CheckpointError(f"tensor {name!r} is missing")
    array = tensors[name]
    try:
        found = from_numpy(array.dtype)
    except KeyError:
        found = str(array.dtype)
    if found not in dtypes:
        raise CheckpointError(f"tensor {name!r} is {found}, but must be {' or '.join(dtypes)}")
    if shape is not None:
        fits = len(shape) == array.ndim and all(w is None or w == s for w, s in zip(shape, array.shape, strict=True))
        if not fits:
            wanted = ", ".join("?" if s is None else str(s) for s in shape)
            raise CheckpointError(f"tensor {name!r} has shape {list(array.shape)}, but must have [{wanted}]")
    return array


def nibbles(words: Array, bits: int) -> Array:
    """Unpack words `[R, C]` of codes, low bits first, to codes `[R, C * 32 / bits]`, u8."""
    raw = np.ascontiguousarray(words).view(np.uint8)
    if bits == 8:
        return raw
    shifts = np.arange(8 // bits, dtype=np.uint8) * bits
    codes = (raw[..., None] >> shifts) & ((1 << bits) - 1)
    return codes.reshape(*raw.shape[:-1], -1)
