"""The epilogue that all products share (docs/semantics.md, section 4, steps 2 to 7)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..dtypes import DTYPES, Array
from ..enums import GATED
from ..ops.product import ProductOp
from .values import F32, expand, reciprocal, requantize

_DEFAULTS = ProductOp.DEFAULTS
_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True)
class ReferenceEpilogue:
    """Keyword arguments of a product that act after the contraction."""

    bias: Array | None = None
    bias_stage: str | None = None
    alpha: float = _DEFAULTS["alpha"]
    beta: float = _DEFAULTS["beta"]
    c: Array | None = None
    activation: str = _DEFAULTS["activation"]
    act_clamp: tuple[float, float] | None = None
    gate_layout: str = _DEFAULTS["gate_layout"]
    act_scale: Array | None = None
    out_dtype: str = _DEFAULTS["out_dtype"]
    out_scale: Array | None = None
    out_multiplier: Array | None = None
    out_zero_point: Array | None = None
    rounding: str = _DEFAULTS["rounding"]
    clamp: tuple[int, int] | None = None

    def stage(self) -> str:
        """The stage at which the bias is added: stated, else "acc" for an i32 bias and "scaled" for any other."""
        if self.bias_stage is not None:
            return self.bias_stage
        return "acc" if self.bias is not None and np.asarray(self.bias).dtype == np.int32 else "scaled"

    def acc_bias(self, acc: Array) -> Array:
        """Step 1: add the i32 bias to the accumulator (int64), modulo 2^32."""
        if self.bias is None or self.stage() != "acc":
            return acc
        return (acc + np.asarray(self.bias).astype(np.int64)).astype(np.int32).astype(np.int64)

    def raw(self, acc: Array) -> Array:
        """The i32 result: the accumulator, plus the i32 bias of step 7."""
        if self.bias is not None and self.stage() == "out":
            acc = acc + np.asarray(self.bias).astype(np.int64)
        return acc.astype(np.int32)

    def finish(self, y: Array) -> Array:
        """Steps 3 to 7 on the scaled f32 value."""
        if self.bias is not None and self.stage() == "scaled":
            y = y + np.asarray(self.bias).astype(F32)
        if self.alpha != 1.0:
            y = F32(self.alpha) * y
        if self.c is not None:
            y = y + F32(self.beta) * np.asarray(self.c).astype(F32)
        y = activate(y, self.activation, self.act_clamp, self.gate_layout)
        if self.act_scale is not None:
            y = y * expand(np.asarray(self.act_scale).astype(F32), y.shape, "act_scale", "result")
        d = DTYPES[self.out_dtype]
        if d.is_int:
            lo, hi = self.clamp or (d.lo, d.hi)
            if self.out_multiplier is not None:
                factor = np.asarray(self.out_multiplier)
            else:
                factor = np.asarray(F32(1) if self.out_scale is None else reciprocal(self.out_scale))
            f = expand(factor.astype(F32), y.shape, "out_scale", "result")
            z = self.out_zero_point
            z = None if z is None else expand(np.asarray(z), y.shape, "out_zero_point", "result")
            return requantize(y, f, z, d, self.rounding, lo, hi)
        with np.errstate(over="ignore"):
            out = y.astype(d.numpy)
            if self.bias is not None and self.stage() == "out":
                out = (out.astype(F32) + np.asarray(self.bias).astype(d.numpy).astype(F32)).astype(d.numpy)
        return out


def sigmoid(x: Array) -> Array:
    """`1 / (1 + exp(-x))` in float64."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-x.astype(np.float64)))


def activate(y: Array, name: str, clamp: tuple[float, float] | None, gate_layout: str) -> Array:
    """Apply an activation to f32 values; transcendental functions are computed in float64 and rounded once."""
    if name in GATED:
        half = y.shape[-1] // 2
        gate, up = (y[..., :half], y[..., half:]) if gate_layout == "halves" else (y[..., ::2], y[..., 1::2])
        return activate(gate, "silu" if name == "swiglu" else "gelu", None, gate_layout) * up
    x = y.astype(np.float64)
    if name == "none":
        return y
    if name == "relu":
        return np.maximum(y, F32(0))
    if name == "relu6":
        return np.clip(y, F32(0), F32(6))
    if name == "clamp":
        assert clamp is not None
        return np.clip(y, F32(clamp[0]), F32(clamp[1]))
    if name == "gelu":
        return (0.5 * x * (1 + _erf(x / math.sqrt(2)))).astype(F32)
    if name == "gelu_tanh":
        # Hendrycks and Gimpel 2016, the tanh form.
        return (0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))).astype(F32)
    if name == "silu":
        return (x * sigmoid(x)).astype(F32)
    if name == "tanh":
        return np.tanh(x).astype(F32)
    raise ValueError(f"unknown activation {name!r}")
