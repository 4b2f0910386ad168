"""How a weight is stored, and its bytes: constants at compile time, others by ops in front of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....dialect.dtypes import Array
from ....kernels.description import Kernel, Literal, Operand, Stage
from ....kernels.weights import constant_bytes, known
from .micro import Micro, Weights

if TYPE_CHECKING:
    from ....kernels.scaled import Scaled
    from .gemm import Gemm


def weights_for(codes: Array | None, kernel: Kernel, micro: Micro) -> Weights:
    """The shortest storage that holds the codes. Codes declared to have 8 bits keep them: what they are may change
    with the next weight, and the program's speed with it."""
    whole = Weights(8, micro.offset)
    if codes is None or kernel.rhs.magnitude > 16 or codes.size == 0:
        return whole
    low, high = int(codes.min()), int(codes.max())
    for bits in sorted(micro.bits):
        if bits < 8 and high - low < 1 << bits:
            return Weights(bits, low)
    distinct = np.unique(codes)
    for bits in sorted(micro.bits):
        if bits < 8 and len(distinct) <= 1 << bits:
            return Weights(bits, micro.offset, tuple(int(code) for code in distinct))
    return whole


def decoded_weights(codes: Array, micro: Micro) -> Weights:
    """The shortest storage of codes that are decoded one by one: signed, or not where none is negative."""
    low, high = (int(codes.min()), int(codes.max())) if codes.size else (0, 0)
    for bits in sorted(micro.bits):
        if -(1 << (bits - 1)) <= low and high < 1 << (bits - 1):
            return Weights(bits, 0, signed=True)
        if low >= 0 and high < 1 << bits and bits < 8:
            return Weights(bits, 0)
    raise AssertionError("codes of more than 8 bits")


def scaled_weights(codes: Array, form: Scaled, micro: Micro) -> Weights | None:
    """The shortest storage of codes that stand for numbers of a table; None where the micro-kernel has none."""
    low, high = (int(codes.min()), int(codes.max())) if codes.size else (0, 0)
    for bits in sorted(micro.bits):
        if bits < 8 and high - low < 1 << bits:
            values = tuple(form.values[(low + u) & 255] for u in range(1 << bits))
            return Weights(bits, low, values=values)
    whole = tuple(form.values[code & 255] for code in range(-128, 128))
    if 8 not in micro.bits or not consecutive(whole):
        return None  # what 256 codes stand for is no table that fits registers
    return Weights(8, 0, signed=True, values=whole)


def consecutive(values: tuple[float, ...]) -> bool:
    return all(value == values[0] + i for i, value in enumerate(values)) and values[0].is_integer()


def constant_zeros(decode: Stage, form: Scaled) -> Array | None:
    """The zero points of a scaled form where they are an operand of the decode as it stands, and constant."""
    for argument, source in zip(decode.body.arguments, decode.sources, strict=False):
        if argument == form.zero:
            if isinstance(source, Operand):
                return known(source.value)
            return np.array([source.value.value]) if isinstance(source, Literal) else None
    return None


def halves_by_turns(codes: Array, lanes: int) -> Array:
    """`[.., N, K]` with `lanes` rows of the first half of N, as many of the second, and so on; each half padded."""
    *matrices, n, k = codes.shape
    halves = codes.reshape(*matrices, 2, n // 2, k)
    halves = np.pad(halves, [(0, 0)] * (halves.ndim - 2) + [(0, -(n // 2) % lanes), (0, 0)])
    parts = halves.reshape(*matrices, 2, -1, lanes, k)
    return np.ascontiguousarray(np.moveaxis(parts, -4, -3)).reshape(*matrices, -1, k)


def packed(gemm: Gemm, codes: Array | None) -> Any:
    """The weight of a kernel in its layout, at the insertion point."""
    kernel, weights, micro = gemm.kernel, gemm.weights, gemm.micro
    if codes is None:
        return micro.layout(kernel.n, kernel.k, kernel.rhs.k_last, weights).emit(kernel.rhs.value)
    if weights.codes is not None:
        codes = np.searchsorted(np.array(weights.codes), codes)
    n = kernel.n
    if kernel.gate is not None:
        codes, n = halves_by_turns(codes, micro.lanes), gemm.panels * micro.panel
    layout = micro.layout(n, kernel.k, True, weights)
    array = layout.apply(codes) if codes.ndim == 2 else np.stack([layout.apply(matrix) for matrix in codes])
    return constant_bytes(array)
