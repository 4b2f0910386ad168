"""The signs of cooperative matrices in SPIR-V that IREE wrote.

MLIR's `gpu.subgroup_mma_compute` says of integer operands which are signed, and says nothing of the sums
(`MatrixCSignedComponentsKHR`, `MatrixResultSignedComponentsKHR` of SPV_KHR_cooperative_matrix). A product of i8 with
sums of i32 is then none that a device lists, and Mesa's lavapipe takes its codes as unsigned. IREE 3.13 refuses the
operations of SPIR-V themselves in what it compiles, so the two bits are set in the words that it wrote.
"""

from __future__ import annotations

import numpy as np

_MAGIC = 0x07230203
_HEADER = 5  # words of a module
_MULTIPLY_ADD = 4459  # OpCooperativeMatrixMulAddKHR: result type, result, A, B, C, and its operands' mask
_MASK = 6
_CODES_SIGNED, _SUMS_SIGNED = 0b0011, 0b1100


def signed(program: bytes) -> bytes:
    """A module of SPIR-V, or a `.vmfb` with some, whose products of signed codes have signed sums."""
    if len(program) % 4:
        program += bytes(-len(program) % 4)
    words = np.frombuffer(program, np.uint32).copy()
    for start in np.flatnonzero(words == _MAGIC):
        _sign(words, int(start))
    return words.tobytes()


def _sign(words: np.ndarray[tuple[int, ...], np.dtype[np.uint32]], start: int) -> None:
    """A module is a vector of the file: behind its length, or alone."""
    end = len(words) if start == 0 else min(len(words), start + int(words[start - 1]))
    at = start + _HEADER
    while at < end:
        count, operation = int(words[at]) >> 16, int(words[at]) & 0xFFFF
        if count == 0:
            return
        if operation == _MULTIPLY_ADD and count > _MASK and words[at + _MASK] & _CODES_SIGNED == _CODES_SIGNED:
            words[at + _MASK] |= _SUMS_SIGNED
        at += count
