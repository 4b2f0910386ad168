"""BitBLAS's `MatmulConfig`, qmlir's names of its dtypes, and the checks of its fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..dialect.dtypes import DTYPES
from ..errors import UsageError
from ._arguments import one_of

ACTIVATION = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint8": "u8",
              "e4m3_float8": "e4m3", "e5m2_float8": "e5m2"}  # fmt: skip
# How a weight is stored: `int4` and `int2` codes have an offset added, which the zero mode subtracts.
WEIGHT = {**ACTIVATION, "int4": "u4", "uint4": "u4", "int2": "u2", "uint2": "u2", "int1": "i1", "uint1": "u1",
           "nf4": "nf4", "fp4_e2m1": "e2m1"}  # fmt: skip
OFFSET = {"int4": 8, "int2": 2}
OUT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int32": "i32"}
_ACCUMULATOR = ("float16", "float32", "int32")
_LAYOUTS = ("nn", "nt", "tn", "tt")
_ZEROS_MODES = ("original", "rescale", "quantized")
_FLOATS = ("float32", "float16", "bfloat16")
_DYNAMIC = (1, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class MatmulConfig:
    """`bitblas.MatmulConfig` (bitblas/ops/general_matmul): what a `Matmul` computes,
    `C[M, N] = A[M, K] @ dequantize(W)[N, K].T (+ bias)`.

    Args:
        M: rows of A: a number, or a list (BitBLAS's sizes to optimise for), which makes M dynamic. Default: dynamic.
        N, K: sizes, required.
        A_dtype: float16, bfloat16, float32, int8, uint8, e4m3_float8, e5m2_float8.
        W_dtype: any of these, or int4, uint4, int2, uint2, int1, uint1, nf4, fp4_e2m1.
        out_dtype: float32, float16, bfloat16, int32, int8 (saturated).
        accum_dtype: float16, float32 or int32; see the module's docstring.
        layout: 'nt' for quantised weights; products of A_dtype and the same W_dtype also take 'nn', 'tn' and 'tt'.
        with_bias, with_scaling, with_zeros: which operands a call takes.
        group_size: codes along K that share a scale; -1: all of K.
        zeros_mode: see the module's docstring.
        storage_dtype: int8 or uint8, the type of packed weights.
        fast_decoding: True packs 4-bit weights in the interleaved order of BitBLAS's LOP3 decoding; None and False in
            plain order, which qmlir's kernels read best.
        propagate_a, propagate_b: None or False.
        optimize_stratety: BitBLAS's choice between tuning for one row or for many; not used. The spelling is BitBLAS's.

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
    propagate_a: bool | None = None
    propagate_b: bool | None = None
    optimize_stratety: int | None = None

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
        for name, known in (("A_dtype", ACTIVATION), ("W_dtype", WEIGHT), ("out_dtype", OUT),
                            ("accum_dtype", _ACCUMULATOR), ("layout", _LAYOUTS), ("zeros_mode", _ZEROS_MODES),
                            ("storage_dtype", ("int8", "uint8"))):  # fmt: skip
            one_of(getattr(self, name), known, name)
        self._check_together()

    def _check_together(self) -> None:
        """Raise UsageError for fields that exclude or need each other."""
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
        """Scales per channel."""
        return 1 if self.group_size == -1 else self.k // self.group_size

    @property
    def bits(self) -> int:
        """Bits of a weight."""
        return DTYPES[WEIGHT[self.W_dtype]].bits

    @property
    def packing(self) -> str:
        return "none" if self.bits >= 8 else "interleaved" if self.fast_decoding else "low_first"

    @property
    def scale_dtype(self) -> str:
        """The dtype of scales: that of the activations, or f32 for integer and 8-bit float activations."""
        return ACTIVATION[self.A_dtype] if self.A_dtype in _FLOATS else "f32"
