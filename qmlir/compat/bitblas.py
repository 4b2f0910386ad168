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

Differences from BitBLAS: weights are dequantised in f32 and rounded once to `A_dtype`, and sums are f32 (or exact
i32), whatever `accum_dtype` says; `fp4_e2m1` has the values of the OCP standard, while BitBLAS decodes powers of two;
the layout transforms for NVIDIA's ldmatrix (`propagate_a`, `propagate_b`) are refused, since layouts belong to the
target.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from .. import ops
from ..dialect import reference
from ..dialect.arrays import is_torch, to_torch
from ..dialect.dtypes import DTYPES, Array
from ..dialect.shapes import show
from ..errors import UsageError
from ..runtime.artifact import Artifact
from ..runtime.function import Function
from ..runtime.program import load
from ..spec import TensorSpec
from ._arguments import ArrayLike, dtype_of, expect, floats, integers, operand, rows, zero_points
from ._bitblas_config import ACTIVATION, OFFSET, OUT, WEIGHT, MatmulConfig

__all__ = ["Matmul", "MatmulConfig"]

_FIELDS = frozenset(f.name for f in fields(MatmulConfig))


class Matmul:
    """`bitblas.Matmul` (bitblas/ops/general_matmul): a compiled product, which `matmul(A, W, scale=..., zeros=...,
    bias=...)` runs.

    Args:
        config: a `MatmulConfig`.
        name, enable_tuning, from_database, backend: for BitBLAS's tuning and code generation; not used.
        target: a qmlir target, such as 'cpu' or 'cuda:sm_90a'.

    Raises:
        UsageError, VerifyError, TargetError: a configuration that cannot be compiled.
    """

    def __init__(
        self, config: MatmulConfig, name: str = "matmul", target: str = "cpu", enable_tuning: bool = True,
        from_database: bool = False, backend: str = "tl",
    ) -> None:  # fmt: skip
        if not isinstance(config, MatmulConfig):
            raise UsageError(f"Matmul takes a MatmulConfig, but got a {type(config).__name__}")
        if name == "cpu" or ":" in name:  # the target was once the second argument
            raise UsageError(f"'name' of Matmul is {name!r}, which is a target: pass target={name!r}")
        self.config = config
        self.target = target
        self._functions: dict[str, Function] = {}
        self.artifact = self._compile(self._zero_mode())
        self._functions[self._zero_mode()] = load(self.artifact).main

    def __repr__(self) -> str:
        c = self.config
        return f"<bitblas.Matmul {c.A_dtype}[{c.M}, {c.K}] x {c.W_dtype}[{c.N}, {c.K}] for {self.target}>"

    def __getattr__(self, name: str) -> object:
        """The fields of the configuration, as BitBLAS's operator has them."""
        if name in _FIELDS:
            return getattr(self.config, name)
        raise AttributeError(f"Matmul has no attribute {name!r}")

    # ---- compiling

    def _zero_mode(self) -> str:
        """The program's zero mode. `original` zeros are taken as integers; a call with fractions compiles again."""
        c = self.config
        if c.W_dtype in OFFSET:
            return "offset_int"
        if not c.with_zeros:
            return "none"
        return "rescale" if c.zeros_mode == "rescale" else "int"

    def _compile(self, zero_mode: str) -> Artifact:
        c = self.config
        m = c.M if isinstance(c.M, int) else None
        a, w = ACTIVATION[c.A_dtype], WEIGHT[c.W_dtype]
        plain_scale = TensorSpec((c.n, c.groups), c.scale_dtype)
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
            bias=TensorSpec((c.n,), OUT[c.out_dtype]) if c.with_bias else None,
            bias_stage="out" if c.with_bias else None,
            out_dtype=OUT[c.out_dtype],
            target=self.target,
        )

    # ---- weights

    def transform_weight(
        self, weight: ArrayLike, scale: ArrayLike | None = None, zeros: ArrayLike | None = None,
        bias: ArrayLike | None = None,
    ) -> ArrayLike | list[ArrayLike]:  # fmt: skip
        """`bitblas.Matmul.transform_weight`: convert codes to the W of a call: packed bytes, or the
        weight unchanged if its dtype needs no packing.

        Args:
            weight: `[N, K]` integer codes, unpacked, in the range of `W_dtype` (int1: -1 and 1); 8-bit floats and
                floats in their own type.
            scale, zeros, bias: returned unchanged.

        Returns:
            The weight, `[N, K*bits/8]` bytes of `storage_dtype` when packed; a list with the further arguments if
            any is given. A torch tensor for a torch tensor.

        Raises:
            UsageError: a wrong shape, or a code out of range.
        """
        c = self.config
        given = operand(weight, "weight", 2)
        expect(given, (c.n, c.k) if c.layout[1] == "t" else (c.k, c.n), "weight", self._weight_axes())
        transformed = given if c.packing == "none" else self._pack(given)
        if c.packing != "none" and is_torch(given):
            transformed = to_torch(transformed)
        further = [x for x in (scale, zeros, bias) if x is not None]
        return [transformed, *further] if further else transformed

    def _weight_axes(self) -> str:
        return "[N, K]" if self.config.layout[1] == "t" else "[K, N]"

    def _pack(self, weight: ArrayLike) -> Array:
        c = self.config
        codes = integers(weight, "weight", ("i8", "u8", "i32", "i64")).astype(np.int64)
        offset = OFFSET.get(c.W_dtype, 0)
        stored = WEIGHT[c.W_dtype]
        lo, hi = (-offset, offset - 1) if offset else (-1, 1) if stored == "i1" else (0, (1 << c.bits) - 1)
        bad = (codes < lo) | (codes > hi) | ((codes == 0) if stored == "i1" else False)
        if bad.any():
            n, k = (int(i) for i in np.argwhere(bad)[0])
            raise UsageError(f"weight[{n}, {k}] = {codes[n, k]} is not a code of {c.W_dtype}; they are "
                             + ("-1 and 1" if stored == "i1" else f"{lo} to {hi}"))  # fmt: skip
        codes = (codes + 1) // 2 if stored == "i1" else codes + offset
        return reference.pack(codes, stored, c.packing).view(c.storage_dtype)

    # ---- calls

    def forward(
        self, A: ArrayLike, W: ArrayLike, scale: ArrayLike | None = None, zeros: ArrayLike | None = None,
        bias: ArrayLike | None = None, output: ArrayLike | None = None,
    ) -> ArrayLike:  # fmt: skip
        """`bitblas.Matmul.forward`: `A [.., M, K] @ dequantize(W).T`.

        Args:
            A: `[.., K]` of `A_dtype`; with a fixed M its leading axes must hold M rows.
            W: what `transform_weight` returned.
            scale: `[N, K/group_size]` float (`[N]` for one group).
            zeros: see the module's docstring. `original` zeros with fractions are multiplied by the scale, which is
                exact in f32 for f16 and bf16 values, and subtracted as in `rescale`.
            bias: `[N]`, added in the result's type after the cast.
            output: an array or tensor that the result is written to.

        Returns:
            `[.., N]` of `out_dtype`; `output` if it is given.

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
        scales = None if scale is None else self._scales(scale)
        mode = self._zero_mode()
        if zeros is not None:
            assert scales is not None, "the configuration has zeros with scales only"
            zeros, mode = self._zeros(zeros, scales)
        operands = [a, self._weight(W), scales, zeros, None if bias is None else self._bias(bias)]
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

    def _activations(self, A: ArrayLike) -> tuple[ArrayLike, tuple[int, ...]]:
        c = self.config
        dtype = dtype_of(A := operand(A, "A"), "A")
        if dtype != ACTIVATION[c.A_dtype]:
            raise UsageError(f"'A' is {dtype}, but the config says A_dtype={c.A_dtype!r}")
        if c.layout[0] == "t":
            expect(A, (c.k, A.shape[-1] if not isinstance(c.M, int) else c.M), "A", "[K, M]")
            return A, (int(A.shape[-1]),)
        a, lead = rows(A, "A")
        if int(a.shape[1]) != c.k or (isinstance(c.M, int) and int(a.shape[0]) != c.M):
            rest = f"{c.M} rows" if isinstance(c.M, int) else "any number of rows"
            raise UsageError(f"'A' must have {rest} of K = {c.K}, but has shape {show(A.shape)}")
        return a, lead

    def _weight(self, W: ArrayLike) -> ArrayLike:
        c = self.config
        if c.packing == "none":
            return W
        packed = integers(W, "W")
        expect(packed, (c.n, c.k * c.bits // 8), "W", "[N, K*bits/8] (see transform_weight)")
        return np.ascontiguousarray(packed).view(np.uint8)

    def _scales(self, scale: ArrayLike) -> Array:
        c = self.config
        array = floats(scale, "scale")
        if array.ndim == 1 and c.groups == 1:
            array = array.reshape(-1, 1)
        expect(array, (c.n, c.groups), "scale", "[N, K/group_size]")
        return array.astype(DTYPES[c.scale_dtype].numpy)

    def _zeros(self, zeros: ArrayLike, scale: Array) -> tuple[Array, str]:
        """Zeros as the program takes them, `[N, K/group_size]`, and the zero mode of the program."""
        c = self.config
        if c.zeros_mode == "quantized":
            packed = integers(zeros, "zeros")
            expect(packed, (c.groups, c.n * c.bits // 8), "zeros", "[K/group_size, N*bits/8]")
            codes = reference.unpack(np.ascontiguousarray(packed).view(np.uint8), WEIGHT[c.W_dtype], "low_first")
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

    def _bias(self, bias: ArrayLike) -> Array:
        c = self.config
        array = zero_points(bias, "bias") if c.out_dtype == "int32" else floats(bias, "bias")
        expect(array, (c.n,), "bias", "[N]")
        return array.astype(DTYPES[OUT[c.out_dtype]].numpy)
