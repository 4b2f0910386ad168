"""How a weight is stored, and its packed bytes: computed at compile time for constants, by ops for other weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....core.mlir import ir, tensor
from ....dialect.dtypes import Array
from ....kernels.at_load import at_load
from ....kernels.codes import Codes
from ....kernels.description import Factor, Kernel, Literal, Operand, Stage
from ....kernels.layouts import WeightLayout, by_columns
from ....kernels.scaled import Scaled
from ....kernels.weights import constant_bytes, known
from .gemm import Gemm
from .micro import IntegerMicro, Micro, Weights


def weights_for(codes: Codes, kernel: Kernel, micro: IntegerMicro) -> Weights:
    """The shortest storage that holds the codes. Codes declared to have 8 bits keep 8 bits: otherwise the program's
    speed would depend on the codes of a particular weight. Codes of an argument keep them too: packing shorter codes
    would cost time in every call."""
    whole = Weights(8, micro.offset)
    if codes.is_argument or kernel.rhs.magnitude > 16 or (codes.array is not None and codes.array.size == 0):
        return whole
    for bits in sorted(micro.bits):
        if bits < 8 and codes.high - codes.low < 1 << bits:
            # If short codes are multiplied as signed bytes, the sums of activations are not needed.
            return Weights(bits, codes.low, exact=micro.signed_short)
    if codes.array is None:
        return whole
    distinct = np.unique(codes.array)
    for bits in sorted(micro.bits):
        if bits < 8 and len(distinct) <= 1 << bits:
            return Weights(bits, micro.offset, tuple(int(code) for code in distinct))
    return whole


def decoded_weights(codes: Codes, micro: Micro) -> Weights:
    """The shortest storage of codes that are decoded one by one: signed, or unsigned if none is negative."""
    low, high = codes.low, codes.high
    for bits in sorted(micro.bits):
        if -(1 << (bits - 1)) <= low and high < 1 << (bits - 1):
            return Weights(bits, 0, signed=True)
        if low >= 0 and high < 1 << bits and bits < 8:
            return Weights(bits, 0)
    raise AssertionError("codes of more than 8 bits")


def scaled_weights(codes: Codes, form: Scaled, micro: Micro) -> Weights | None:
    """The shortest storage of codes whose values are a table; None if the micro-kernel has none."""
    low, high = codes.low, codes.high
    for bits in sorted(micro.bits):
        if bits < 8 and high - low < 1 << bits:
            values = tuple(form.values[(low + u) & 255] for u in range(1 << bits))
            return Weights(bits, low, values=values)
    whole = tuple(form.values[code & 255] for code in range(-128, 128))
    if 8 not in micro.bits or not consecutive(whole):
        return None  # a table of 256 values does not fit registers
    return Weights(8, 0, signed=True, values=whole)


def consecutive(values: tuple[float, ...]) -> bool:
    return all(value == values[0] + i for i, value in enumerate(values)) and values[0].is_integer()


def constant_zeros(decode: Stage, form: Scaled) -> Array | None:
    """The zero points of a scaled form if the decode reads them unchanged from a constant; None otherwise."""
    for argument, source in zip(decode.body.arguments, decode.sources, strict=False):
        if argument == form.zero:
            if isinstance(source, Operand):
                return known(source.value)
            return np.array([source.value.value]) if isinstance(source, Literal) else None
    return None


def halves_by_turns(codes: Array, lanes: int) -> Array:
    """Interleave the halves of N of `[.., N, K]`: `lanes` rows of the first, `lanes` rows of the second, and so on.
    Each half is padded to a multiple of `lanes`."""
    *matrices, n, k = codes.shape
    halves = codes.reshape(*matrices, 2, n // 2, k)
    halves = np.pad(halves, [(0, 0)] * (halves.ndim - 2) + [(0, -(n // 2) % lanes), (0, 0)])
    parts = halves.reshape(*matrices, 2, -1, lanes, k)
    return np.ascontiguousarray(np.moveaxis(parts, -4, -3)).reshape(*matrices, -1, k)


def emit_halves_by_turns(value: ir.Value, lanes: int) -> ir.Value:
    """Emit `halves_by_turns` of a tensor at the insertion point."""
    *matrices, n, k = ir.RankedTensorType(value.type).shape
    half = -(-n // 2 // lanes) * lanes
    padded = WeightLayout((2, half, k), ((2,), (half // lanes, lanes), (k,)), (1, 0, 2, 3))
    element, lead = value.type.element_type, [[i] for i in range(len(matrices))]
    at = len(matrices)
    halves = ir.RankedTensorType.get([*matrices, 2, n // 2, k], element)
    split = tensor.expand_shape(halves, value, [*lead, [at, at + 1], [at + 2]], [], [*matrices, 2, n // 2, k])
    whole = ir.RankedTensorType.get([*matrices, 2 * half, k], element)
    return tensor.collapse_shape(whole, padded.emit(split), [*lead, [at, at + 1, at + 2], [at + 3]])


def packed(gemm: Gemm, codes: Codes) -> ir.Value:
    """The weight of a kernel in its layout, at the insertion point: a constant; for parameters, a global that is
    computed when the program is loaded; for an argument, the result of ops in front of the kernel."""
    if codes.array is not None:
        return constant_bytes(_packed_array(gemm, codes.array))
    value, rhs = gemm.kernel.rhs.value, gemm.kernel.rhs
    if codes.parameters:
        made: ir.Value = at_load(value, lambda copy: _packed_value(gemm, replace(rhs, value=copy)))
        return made
    return gemm.micro.layout(gemm.kernel.n, gemm.kernel.k, rhs.k_last, gemm.weights).emit(value, rhs.flipped)


def _layout(gemm: Gemm) -> WeightLayout:
    """The layout of codes `[N, K]`."""
    n = gemm.kernel.n if gemm.kernel.gate is None else gemm.panels * gemm.micro.panel
    return gemm.micro.layout(n, gemm.kernel.k, True, gemm.weights)


def _packed_array(gemm: Gemm, codes: Array) -> Array:
    if gemm.weights.codes is not None:
        codes = np.searchsorted(np.array(gemm.weights.codes), codes)
    if gemm.kernel.gate is not None:
        codes = halves_by_turns(codes, gemm.micro.lanes)
    return _layout(gemm).each(codes)


def _packed_value(gemm: Gemm, rhs: Factor) -> ir.Value:
    value = by_columns(rhs)
    if gemm.kernel.gate is not None:
        value = emit_halves_by_turns(value, gemm.micro.lanes)
    return _layout(gemm).emit(value, rhs.flipped)
