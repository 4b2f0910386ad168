"""unpack and its inverse (docs/semantics.md, section 3)."""

from __future__ import annotations

from .. import packing as _packing
from ..dtypes import Array
from ..ops.unpack import UnpackOp

_UNPACK = UnpackOp.DEFAULTS


def pack(codes: Array, dtype: str, packing: str = _UNPACK["packing"]) -> Array:
    """Codes `[.., L]`, one per element, to bytes `[.., ceil(L * bits / 8)]`, padded with zero bits.

    A 1-bit signed code is stored as the bit `q` of `2q - 1`; it is passed here as the stored bit.
    """
    return _packing.pack(codes, dtype, packing)


def unpack(input: Array, dtype: str, packing: str = _UNPACK["packing"], length: int | None = None) -> Array:
    """Bytes to codes, the inverse of `pack`: i8 for signed codes, u8 for unsigned and table codes.

    A 1-bit signed code comes back as the stored bit (0 or 1).

    Args:
        length: true number of codes along the last axis; default: all that the bytes hold.
    """
    return _packing.unpack(input, dtype, packing, length)
