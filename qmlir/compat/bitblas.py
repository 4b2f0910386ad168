"""BitBLAS's mixed-precision matrix product: `MatmulConfig` and `Matmul`.

Sources in microsoft/BitBLAS: docs/PythonAPI.md, bitblas/ops/general_matmul (fields, defaults, weight formats) and
bitblas/quantization (packing). Conventions: weights `[N, K]` (layout 'nt'), sub-byte codes packed low element first
along K; signed `int4` and `int2` codes are stored with 2^(bits-1) added, `int1` as the bit b of 2b - 1; scales and
zeros are `[N, K/group_size]`; the bias is added after the cast to `out_dtype`.

| zeros_mode | value of a weight | zeros |
|---|---|---|
| `original` | `(q - zeros) * scale` | `[N, K/group_size]`, float or integer |
| `rescale` | `q * scale - zeros` | `[N, K/group_size]`, float |
| `quantized` | `(q - zeros) * scale` | packed along N: `[K/group_size, N*bits/8]` bytes |

What differs from BitBLAS: weights are dequantised in f32 and rounded once to `A_dtype`, and sums are f32 (or exact
i32), whatever `accum_dtype` says; `fp4_e2m1` has the values of the OCP standard, while BitBLAS decodes powers of two;
the layout transforms for NVIDIA's ldmatrix (`propagate_a`, `propagate_b`) are refused, since layouts belong to the
target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .. import ops, reference
from ..dialect.arrays import to_torch
from ..dialect.dtypes import DTYPES, Array
from ..dialect.shapes import show
from ..errors import UsageError
from ..runtime.artifact import Artifact
from ..runtime.function import Function
from ..runtime.program import load
from ..spec import TensorSpec
from ._arguments import dtype_of, expect, floats, integers, one_of, operand, rows, zero_points

__all__ = ["Matmul", "MatmulConfig"]

_ACTIVATION = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint8": "u8",
               "e4m3_float8": "e4m3", "e5m2_float8": "e5m2"}  # fmt: skip
# Storage of a weight: `int4` and `int2` codes carry an offset, which the zero mode takes off again.
_WEIGHT = {**_ACTIVATION, "int4": "u4", "uint4": "u4", "int2": "u2", "uint2": "u2", "int1": "i1", "uint1": "u1",
           "nf4": "nf4", "fp4_e2m1": "e2m1"}  # fmt: skip
_OFFSET = {"int4": 8, "int2": 2}
_OUT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int32": "i32"}
_ACCUMULATOR = ("float16", "float32", "int32")
_LAYOUTS = ("nn", "nt", "tn", "tt")
_ZEROS_MODES = ("original", "rescale", "quantized")
_FLOATS = ("float32", "float16", "bfloat16")
_DYNAMIC = (1, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class MatmulConfig:
    """What a `Matmul` computes: `C[M, N] = A[M, K] @ dequantize(W)[N, K].T (+ bias)`.

    Args:
        M: rows of A: a number, or a list (BitBLAS's sizes to optimise for), which makes M dynamic. Default: dynamic.
        N, K: sizes, required.
        A_dtype: float16, bfloat16, float32, int8, uint8, e4m3_float8, e5m2_float8.
        W_dtype: those, or int4, uint4, int2, uint2, int1, uint1, nf4, fp4_e2m1.
        out_dtype: float32, float16, bfloat16, int32, int8 (saturated).
        accum_dtype: float16, float32 or int32; see the module's docstring.
        layout: 'nt' for quantised weights; products of A_dtype and the same W_dtype also take 'nn', 'tn' and 'tt'.
        with_bias, with_scaling, with_zeros: which operands a call takes.
        group_size: codes along K that share a scale; -1: all of K.
        zeros_mode: see the module's docstring.
        storage_dtype: int8 or uint8, the type of packed weights.
        fast_decoding: True packs 4-bit weights in the interleaved order of BitBLAS's LOP3 decoding; None and False in
            plain order, which is what qmlir's kernels read best.
        propagate_a, propagate_b: None or False.
        optimize_stratety: BitBLAS's choice between tuning for one row or for many; not used, so spelled upstream.

    Raises:
        UsageError: a field that is missing, unknown, or does not go with the others.
    """

    M: int | Sequence[int] | None = None
    N: int | None = None
    K: int | None = None
    A_dtype: str = "float16"
    W_dtype: str = "float16"
    out_dtype: str = "float16"
    accum_dtype: str = "float16"
    layout: str = "nt"
    with_bias: bool = False
    group_size: int = -1
    with_scaling: bool = False
    with_zeros: bool = False
    zeros_mode: str = "original"
    storage_dtype: str = "int8"
    fast_decoding: bool | None = None
    propagate_a: Any = None
    propagate_b: Any = None
    optimize_stratety: Any = None

    def __post_init__(self) -> None:
        for name in ("N", "K"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} must be a positive number, but is {value!r}")
        # BitBLAS reads None as the default in these fields.
        for name, default in (("group_size", -1), ("zeros_mode", "original"), ("with_bias", False),
                              ("with_scaling", False), ("with_zeros", False), ("M", _DYNAMIC)):  # fmt: skip
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        if not isinstance(self.M, int):
            object.__setattr__(self, "M", tuple(self.M or ()))
        for name, known in (("A_dtype", _ACTIVATION), ("W_dtype", _WEIGHT), ("out_dtype", _OUT),
                            ("accum_dtype", _ACCUMULATOR), ("layout", _LAYOUTS), ("zeros_mode", _ZEROS_MODES),
                            ("storage_dtype", ("int8", "uint8"))):  # fmt: skip
            one_of(getattr(self, name), known, name)
        self._check_together()

    def _check_together(self) -> None:
        """Fields that exclude or need each other."""
        if self.group_size != -1 and (self.group_size < 1 or self.k % self.group_size):
            raise UsageError(f"group_size={self.group_size} does not divide K = {self.K}; -1 means all of K")
        if self.layout != "nt" and (self.bits < 8 or self.with_scaling):
            raise UsageError(f"layout={self.layout!r} is for plain operands; quantised weights take 'nt'")
        if self.with_zeros and not self.with_scaling:
            raise UsageError("with_zeros needs with_scaling: BitBLAS would not read the zeros")
        if self.with_zeros and not self.W_dtype.startswith("uint"):
            raise UsageError(f"with_zeros is for unsigned weights, but W_dtype is {self.W_dtype!r}")
        if self.with_zeros and self.zeros_mode == "quantized" and self.n % (8 // self.bits):
            raise UsageError(f"zeros_mode='quantized' packs {8 // self.bits} zeros a byte, which N = {self.N} does not "
                             "fill")  # fmt: skip
        if self.bits < 8 and self.k % (8 // self.bits):
            raise UsageError(f"{self.W_dtype} packs {8 // self.bits} codes a byte, which K = {self.K} does not fill")
        if self.out_dtype == "int32" and (self.with_scaling or self.A_dtype not in ("int8", "uint8")):
            raise UsageError("out_dtype='int32' is the raw sum of integers: A_dtype int8 or uint8 and no scaling")
        if self.with_bias and self.out_dtype == "int8":
            raise UsageError("with_bias adds to the result's type, which int8 would overflow; use out_dtype='float16'")
        for name in ("propagate_a", "propagate_b"):
            if getattr(self, name):
                raise UsageError(f"{name} permutes an operand for NVIDIA's ldmatrix; leave it None, qmlir chooses the "
                                 "layouts of a target")  # fmt: skip
        if self.fast_decoding and (self.bits != 4 or self.k % 8 or self.A_dtype not in _FLOATS):
            raise UsageError("fast_decoding interleaves 4-bit weights for float activations, in words of 8 codes along "
                             f"K; here are {self.A_dtype} x {self.W_dtype} and K = {self.K}")  # fmt: skip

    @property
    def n(self) -> int:
        assert self.N is not None
        return self.N

    @property
    def k(self) -> int:
        assert self.K is not None
        return self.K

    @property
    def groups(self) -> int:
        """Scales a channel."""
        return 1 if self.group_size == -1 else self.k // self.group_size

    @property
    def bits(self) -> int:
        """Bits of a weight."""
        return DTYPES[_WEIGHT[self.W_dtype]].bits

    @property
    def packing(self) -> str:
        return "none" if self.bits >= 8 else "interleaved" if self.fast_decoding else "low_first"


class Matmul:
    """A compiled product. `matmul(A, W, scale=..., zeros=..., bias=...)` runs it.

    Args:
        config: a `MatmulConfig`.
        target: a target of qmlir's, such as 'cpu' or 'cuda:sm_90a'.

    Raises:
        UsageError, VerifyError, TargetError: a configuration that cannot be compiled.
    """

    def __init__(self, config: MatmulConfig, target: str = "cpu") -> None:
        if not isinstance(config, MatmulConfig):
            raise UsageError(f"Matmul takes a MatmulConfig, but got a {type(config).__name__}")
        self.config = config
        self.target = target
        self._functions: dict[str, Function] = {}
        self.artifact = self._compile(self._zero_mode())
        self._functions[self._zero_mode()] = load(self.artifact).main

    def __repr__(self) -> str:
        c = self.config
        return f"<bitblas.Matmul {c.A_dtype}[{c.M}, {c.K}] x {c.W_dtype}[{c.N}, {c.K}] for {self.target}>"

    def __getattr__(self, name: str) -> Any:
        """The fields of the configuration, as BitBLAS's operator has them."""
        if name in _FIELDS:
            return getattr(self.config, name)
        raise AttributeError(f"Matmul has no attribute {name!r}")

    # ---- compiling

    def _zero_mode(self) -> str:
        """How the program reads zeros. `original` zeros are integers unless a call brings others."""
        c = self.config
        if c.W_dtype in _OFFSET:
            return "offset_int"
        if not c.with_zeros:
            return "none"
        return "rescale" if c.zeros_mode == "rescale" else "int"

    def _compile(self, zero_mode: str) -> Artifact:
        c = self.config
        m = c.M if isinstance(c.M, int) else None
        a, w = _ACTIVATION[c.A_dtype], _WEIGHT[c.W_dtype]
        plain_scale = TensorSpec((c.n, c.groups), _scale_dtype(c))
        stored = c.k if c.packing == "none" else c.k * c.bits // 8
        lhs = (c.k, m) if c.layout[0] == "t" else (m, c.k)
        rhs = (c.n, stored) if c.layout[1] == "t" else (stored, c.n)
        zeros = None
        if c.with_zeros:
            zeros = TensorSpec((c.n, c.groups), "f32" if zero_mode == "rescale" else "i32")
        return ops.scaled_matmul.compile(
            TensorSpec(lhs, a),
            TensorSpec(rhs, w if c.packing == "none" else "u8"),
            rhs_dtype=w,
            rhs_packing=c.packing,
            rhs_zero_mode=zero_mode,
            lhs_transposed=c.layout[0] == "t",
            rhs_transposed=c.layout[1] == "t",
            rhs_scale=plain_scale if c.with_scaling else None,
            rhs_zero_point=zeros,
            group_size=None if c.group_size == -1 else c.group_size,
            bias=TensorSpec((c.n,), _OUT[c.out_dtype]) if c.with_bias else None,
            bias_stage="out" if c.with_bias else None,
            out_dtype=_OUT[c.out_dtype],
            target=self.target,
        )

    # ---- weights

    def transform_weight(self, weight: Any, scale: Any = None, zeros: Any = None, bias: Any = None) -> Any:
        """Codes to what a call takes as W: packed bytes, or the weight as it is when its dtype needs none.

        Args:
            weight: `[N, K]` integer codes, one an element, in the range of `W_dtype` (int1: -1 and 1); 8-bit floats and
                floats in their own type.
            scale, zeros, bias: returned as they are.

        Returns:
            The weight, `[N, K*bits/8]` bytes of `storage_dtype` when packed; a list with the further arguments when
            one is given. A torch tensor for a torch tensor.

        Raises:
            UsageError: a wrong shape, or a code out of range.
        """
        c = self.config
        given = operand(weight, "weight", 2)
        expect(given, (c.n, c.k) if c.layout[1] == "t" else (c.k, c.n), "weight", self._weight_axes())
        transformed = given if c.packing == "none" else self._pack(given)
        if c.packing != "none" and type(given).__module__ == "torch":
            transformed = to_torch(transformed)
        further = [x for x in (scale, zeros, bias) if x is not None]
        return [transformed, *further] if further else transformed

    def _weight_axes(self) -> str:
        return "[N, K]" if self.config.layout[1] == "t" else "[K, N]"

    def _pack(self, weight: Any) -> Array:
        c = self.config
        codes = integers(weight, "weight", ("i8", "u8", "i32", "i64")).astype(np.int64)
        offset = _OFFSET.get(c.W_dtype, 0)
        stored = _WEIGHT[c.W_dtype]
        lo, hi = (-offset, offset - 1) if offset else (-1, 1) if stored == "i1" else (0, (1 << c.bits) - 1)
        bad = (codes < lo) | (codes > hi) | ((codes == 0) if stored == "i1" else False)
        if bad.any():
            n, k = (int(i) for i in np.argwhere(bad)[0])
            raise UsageError(f"weight[{n}, {k}] = {codes[n, k]} is no {c.W_dtype} code; they are "
                             + ("-1 and 1" if stored == "i1" else f"{lo} to {hi}"))  # fmt: skip
        codes = (codes + 1) // 2 if stored == "i1" else codes + offset
        return reference.pack(codes, stored, c.packing).view(c.storage_dtype)

    # ---- calls

    def forward(
        self, A: Any, W: Any, scale: Any = None, zeros: Any = None, bias: Any = None, output: Any = None
    ) -> Any:
        """`A [.., M, K] @ dequantize(W).T`.

        Args:
            A: `[.., K]` of `A_dtype`; with a fixed M its leading axes must hold M rows.
            W: what `transform_weight` returned.
            scale: `[N, K/group_size]` float (`[N]` for one group).
            zeros: see the module's docstring. `original` zeros with fractions are multiplied by the scale, which f32
                holds exactly for f16 and bf16 values, and taken off as in `rescale`.
            bias: `[N]`, added in the result's type after the cast.
            output: an array or tensor that takes the result.

        Returns:
            `[.., N]` of `out_dtype`; `output` when it is given.

        Raises:
            UsageError, InputError: operands that do not fit the configuration.
        """
        c = self.config
        for name, value, wanted in (("scale", scale, c.with_scaling), ("zeros", zeros, c.with_zeros),
                                    ("bias", bias, c.with_bias)):  # fmt: skip
            if (value is not None) != wanted:
                field = {"scale": "with_scaling"}.get(name, f"with_{name}")
                raise UsageError(f"the config says {field}={wanted}, but {name!r} is "
                                 + ("missing" if wanted else "given"))  # fmt: skip
        a, lead = self._activations(A)
        if scale is not None:
            scale = self._scales(scale)
        mode = self._zero_mode()
        if zeros is not None:
            zeros, mode = self._zeros(zeros, scale)
        operands = [a, self._weight(W), scale, zeros, None if bias is None else self._bias(bias)]
        result = self._function(mode)(*[x for x in operands if x is not None])
        result = result.reshape(*lead, c.n)
        if output is None:
            return result
        expect(output, result.shape, "output", "[.., N]")
        output[...] = result
        return output

    __call__ = forward

    def _function(self, zero_mode: str) -> Function:
        if zero_mode not in self._functions:
            self._functions[zero_mode] = load(self._compile(zero_mode)).main
        return self._functions[zero_mode]

    def _activations(self, A: Any) -> tuple[Any, tuple[int, ...]]:
        c = self.config
        dtype = dtype_of(A := operand(A, "A"), "A")
        if dtype != _ACTIVATION[c.A_dtype]:
            raise UsageError(f"'A' is {dtype}, but the config says A_dtype={c.A_dtype!r}")
        if c.layout[0] == "t":
            expect(A, (c.k, A.shape[-1] if not isinstance(c.M, int) else c.M), "A", "[K, M]")
            return A, (int(A.shape[-1]),)
        a, lead = rows(A, "A")
        if int(a.shape[1]) != c.k or (isinstance(c.M, int) and int(a.shape[0]) != c.M):
            rest = f"{c.M} rows" if isinstance(c.M, int) else "any number of rows"
            raise UsageError(f"'A' must have {rest} of K = {c.K}, but has shape {show(A.shape)}")
        return a, lead

    def _weight(self, W: Any) -> Any:
        c = self.config
        if c.packing == "none":
            return W
        packed = integers(W, "W")
        expect(packed, (c.n, c.k * c.bits // 8), "W", "[N, K*bits/8] (see transform_weight)")
        return np.ascontiguousarray(packed).view(np.uint8)

    def _scales(self, scale: Any) -> Array:
        c = self.config
        array = floats(scale, "scale")
        if array.ndim == 1 and c.groups == 1:
            array = array.reshape(-1, 1)
        expect(array, (c.n, c.groups), "scale", "[N, K/group_size]")
        return array.astype(DTYPES[_scale_dtype(c)].numpy)

    def _zeros(self, zeros: Any, scale: Array) -> tuple[Array, str]:
        """Zeros as the program takes them, `[N, K/group_size]`, and the zero mode of the program."""
        c = self.config
        if c.zeros_mode == "quantized":
            packed = integers(zeros, "zeros")
            expect(packed, (c.groups, c.n * c.bits // 8), "zeros", "[K/group_size, N*bits/8]")
            codes = reference.unpack(np.ascontiguousarray(packed).view(np.uint8), _WEIGHT[c.W_dtype], "low_first")
            return codes.T.astype(np.int32), "int"
        if c.zeros_mode == "original" and dtype_of(operand(zeros, "zeros"), "zeros") not in ("f32", "f16", "bf16"):
            array = zero_points(zeros, "zeros")
        else:
            array = floats(zeros, "zeros")
        if array.ndim == 1 and c.groups == 1:
            array = array.reshape(-1, 1)
        expect(array, (c.n, c.groups), "zeros", "[N, K/group_size]")
        if c.zeros_mode == "rescale":
            return array.astype(np.float32), "rescale"
        rounded = array.astype(np.int32)
        if np.array_equal(rounded, array):
            return rounded, "int"
        if c.A_dtype not in ("float16", "bfloat16"):
            raise UsageError(
                "'zeros' have fractions, which zeros_mode='original' takes with A_dtype float16 or bfloat16, not "
                f"{c.A_dtype}; use zeros_mode='rescale' with zeros * scale"
            )
        return array.astype(np.float32) * scale.astype(np.float32), "rescale"

    def _bias(self, bias: Any) -> Array:
        c = self.config
        array = zero_points(bias, "bias") if c.out_dtype == "int32" else floats(bias, "bias")
        expect(array, (c.n,), "bias", "[N]")
        return array.astype(DTYPES[_OUT[c.out_dtype]].numpy)


def _scale_dtype(c: MatmulConfig) -> str:
    """Scales have the activations' type, f32 beside integers and 8-bit floats."""
    return _ACTIVATION[c.A_dtype] if c.A_dtype in _FLOATS else "f32"


_FIELDS = frozenset(f.name for f in fields(MatmulConfig))
