"""The rows of the support matrix: one form is an operation with a scheme, compiled for every target.

A new row is one line in `FORMS`. As in deployed programs, the arguments of a call are given as `TensorSpec`s, and the
constants of a program (weights, their scales and zero points) as arrays of seeded random codes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import qmlir
from qmlir import SparseSpec, SparseWeight, TensorSpec
from qmlir.dialect.dtypes import DTYPES

M, N, K = 128, 256, 512  # whole tiles of every matrix instruction
GROUPS, TOPK = 8, 2

Arguments = dict[str, Any]


class Operands:
    """Specs of arguments and arrays of constants for one form; `m` is None if the number of rows is dynamic."""

    def __init__(self, name: str, m: int | None = M) -> None:
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.m = m

    def codes(self, dtype: str, *shape: int) -> Any:
        """Constant codes, unpacked."""
        d = DTYPES[dtype]
        if d.kind == "float":
            return (self.rng.standard_normal(shape) * 4).astype(d.numpy)
        lo, hi = (d.lo, d.hi) if d.is_int else (0, 15)
        if dtype == "i1":
            return self.rng.integers(0, 2, shape).astype(np.int8)
        return self.rng.integers(lo, hi + 1, shape).astype(d.numpy)

    def weight(self, dtype: str, *shape: int, side: str = "rhs", packing: str = "low_first") -> Arguments:
        """A constant weight, packed when its codes are shorter than a byte."""
        codes = self.codes(dtype, *shape)
        if DTYPES[dtype].bits == 8:
            return {side: codes, **({f"{side}_dtype": dtype} if DTYPES[dtype].is_int else {})}
        packed = qmlir.reference.pack(codes, dtype, packing)
        return {side: packed, f"{side}_dtype": dtype, f"{side}_packing": packing}

    def scales(self, *shape: int, dtype: str = "f32") -> Any:
        if dtype == "e8m0":
            return (2.0 ** self.rng.integers(-6, 3, shape)).astype(DTYPES["e8m0"].numpy)
        return (self.rng.random(shape) * 0.01 + 0.001).astype(DTYPES[dtype].numpy)

    def zeros(self, *shape: int, lo: int = 1, hi: int = 15) -> Any:
        return self.rng.integers(lo, hi, shape).astype(np.int32)

    def rows(self, dtype: str, *tail: int) -> TensorSpec:
        """An argument of M rows."""
        return TensorSpec((self.m, *tail), dtype)


@dataclass(frozen=True)
class Form:
    """`build` makes the keyword arguments of `qmlir.ops.<op>.compile`, or with op `program` MLIR text."""

    op: str
    scheme: str
    build: Callable[[Operands], Any] = field(compare=False)
    # The type of the multiplication: "int8" and 8-bit floats have their own matrix instructions on some targets, "f16"
    # is exact for everything else, "" is a form without a matrix product.
    product: str = "int8"

    @property
    def name(self) -> str:
        return f"{self.op}: {self.scheme}"

    def compile(self, target: str, *, m: int | None = M, flags: tuple[str, ...] = ()) -> Any:
        """The artifact for `target`."""
        made = self.build(Operands(self.name, m))
        if self.op == "program":
            return qmlir.compile(made, target=target, flags=flags)
        return qmlir.ops.BY_NAME[self.op].compile(target=target, flags=flags, **made)


# ---- products of two quantised operands


def _s8(d: Operands, weight: str = "i8", group: int = 0, lhs: str = "i8", **more: Any) -> Arguments:
    """A quantised activation times a constant weight `[N, K]`."""
    scale = d.scales(N, K // group if group else 1)
    return {"lhs": d.rows(lhs, K), **d.weight(weight, N, K), "rhs_transposed": True, "lhs_scale": d.rows("f32", 1),
            "rhs_scale": scale, **more}  # fmt: skip


def _s8_tensor(d: Operands) -> Arguments:
    scalar = TensorSpec((), "f32")
    return {**_s8(d), "lhs_scale": scalar, "rhs_scale": np.float32(0.02)}


def _u8(d: Operands) -> Arguments:
    return {**_s8(d, lhs="u8"), "lhs_zero_point": d.rows("i32", 1), "rhs_zero_point": d.zeros(N, 1)}


def _u4_zeros(group: int) -> Callable[[Operands], Arguments]:
    return lambda d: {**_s8(d, "u4", group), "rhs_zero_point": d.zeros(N, K // group if group else 1)}


def _requantised(d: Operands) -> Arguments:
    bias = d.rng.integers(-999, 999, N).astype(np.int32)
    return {**_s8(d), "bias": bias, "activation": "relu", "out_dtype": "i8", "out_scale": np.float32(0.05),
            "out_zero_point": np.int32(3)}  # fmt: skip


def _batched(d: Operands) -> Arguments:
    return {"lhs": TensorSpec((4, d.m, K), "i8"), "rhs": TensorSpec((4, N, K), "i8"), "rhs_transposed": True,
            "lhs_scale": TensorSpec((4, d.m, 1), "f32"), "rhs_scale": np.float32(0.02)}  # fmt: skip


def _arguments(d: Operands) -> Arguments:
    """Both operands are arguments, the right one `[K, N]`, as in attention."""
    return {"lhs": d.rows("i8", K), "rhs": TensorSpec((K, N), "i8"), "lhs_scale": d.rows("f32", 1),
            "rhs_scale": TensorSpec((1, N), "f32")}  # fmt: skip


def _blocks(lhs: str) -> Callable[[Operands], Arguments]:
    """Scales of 1 x 128 on the activation and 128 x 128 on the weight."""
    return lambda d: {**_s8(d, lhs, lhs=lhs), "lhs_scale": d.rows("f32", K // 128),
                      "rhs_scale": d.scales(N // 128, K // 128)}  # fmt: skip


def _float8(lhs: str, rhs: str) -> Callable[[Operands], Arguments]:
    return lambda d: _s8(d, rhs, lhs=lhs)


def _mx(lhs: str, rhs: str) -> Callable[[Operands], Arguments]:
    """OCP microscaling: one power-of-two scale per 32 codes along K, on both operands."""
    return lambda d: {**_s8(d, rhs, 32), "lhs": d.rows(lhs if DTYPES[lhs].bits == 8 else "i8", K), "lhs_dtype": lhs,
                      "lhs_scale": d.rows("e8m0", K // 32),
                      "rhs_scale": d.scales(N, K // 32, dtype="e8m0")}  # fmt: skip


def _nvfp4(d: Operands) -> Arguments:
    return {**_s8(d, "e2m1", 16), "lhs": d.rows("i8", K), "lhs_dtype": "e2m1", "lhs_scale": d.rows("e4m3", K // 16),
            "rhs_scale": d.scales(N, K // 16, dtype="e4m3"), "lhs_global_scale": np.float32(0.5),
            "rhs_global_scale": np.float32(0.25)}  # fmt: skip


# ---- weight only


def _weight_only(
    lhs: str, weight: str, group: int = 0, zero: str = "", scale: str = "f32", **more: Any
) -> Callable[[Operands], Arguments]:
    def build(d: Operands) -> Arguments:
        g = K // group if group else 1
        kw = {"lhs": d.rows(lhs, K), **d.weight(weight, N, K), "rhs_transposed": True,
              "rhs_scale": d.scales(N, g, dtype=scale), "out_dtype": lhs, **more}  # fmt: skip
        if zero:
            kw["rhs_zero_mode"] = zero
        if zero == "int":
            kw["rhs_zero_point"] = d.zeros(N, g)
        elif zero == "packed_int":
            kw["rhs_zero_point"] = qmlir.reference.pack(d.codes(weight, N, g), weight, "low_first")
        elif zero:
            kw["rhs_zero_point"] = d.scales(N, g)
        if weight == "codebook":
            kw["codebook"] = np.sort(d.rng.standard_normal(16)).astype(np.float32)
        return kw

    return build


# ---- convolutions


def _conv(
    weight: str = "i8", lhs: str = "i8", channels: int = 64, filters: int = 128, groups: int = 1, **more: Any
) -> Callable[[Operands], Arguments]:
    def build(d: Operands) -> Arguments:
        batch = None if d.m is None else 1
        nchw = more.get("input_layout") == "NCHW"
        image = (batch, channels, 16, 16) if nchw else (batch, 16, 16, channels)
        kw = {"input": TensorSpec(image, lhs), "padding": (1, 1, 1, 1), "groups": groups,
              **d.weight(weight, filters, 3, 3, channels // groups, side="weight"),
              "weight_scale": d.scales(filters), **more}  # fmt: skip
        if lhs in ("i8", "u8"):
            kw["input_scale"] = np.float32(0.02)
        if lhs == "u8":
            kw["input_zero_point"] = np.uint8(117)
        return kw

    return build


# ---- groups of rows


def _grouped(
    lhs: str, weight: str, group: int = 0, routed: bool = False, **more: Any
) -> Callable[[Operands], Arguments]:
    def build(d: Operands) -> Arguments:
        kw = {"lhs": d.rows(lhs, K), **d.weight(weight, GROUPS, N, K), "rhs_transposed": True,
              "rhs_scale": d.scales(GROUPS, N, K // group if group else 1), **more}  # fmt: skip
        if lhs not in ("f16", "bf16", "f32"):
            kw["lhs_scale"] = d.rows("f32", 1)
        if routed:
            kw |= {"expert_ids": d.rows("i32", TOPK), "routing_weights": d.rows("f32", TOPK)}
        else:
            kw["group_sizes"] = TensorSpec((GROUPS,), "i32")
        return kw

    return build


def _moe(lhs: str, weight: str, **more: Any) -> Callable[[Operands], Arguments]:
    """A layer with a gated activation, F = N."""

    def build(d: Operands) -> Arguments:
        kw = {"input": d.rows(lhs, K), "w1": d.weight(weight, GROUPS, 2 * N, K)["rhs"],
              "w2": d.weight(weight, GROUPS, N, N)["rhs"], "weights_transposed": True,
              "w1_scale": d.scales(GROUPS, 2 * N, 1), "w2_scale": d.scales(GROUPS, N, 1),
              "expert_ids": d.rows("i32", TOPK), "routing_weights": d.rows("f32", TOPK), "activation": "swiglu",
              **more}  # fmt: skip
        if DTYPES[weight].bits < 8:
            kw |= {"weight_dtype": weight, "weight_packing": "low_first"}
        if lhs not in ("f16", "bf16", "f32"):
            kw["input_scale"] = d.rows("f32", 1)
        return kw

    return build


# ---- sparse weights


def _sparse(
    dtype: str, format: str, share: float, block: tuple[int, int] = (1, 1), at_run_time: bool = False
) -> Callable[[Operands], Arguments]:
    """A weight `[N, K]` with this share of its entries, or blocks, stored in every row."""

    def build(d: Operands) -> Arguments:
        more: Arguments = {"lhs_scale": d.rows("f32", 1), "rhs_scale": d.scales(N, 1)} if dtype == "i8" else {}
        blocks = block if format == "bsr" else None
        if at_run_time:
            spec = SparseSpec(format, (N, K), dtype, int(share * N * K), blocks, rhs_transposed=True)
            return {"lhs": d.rows(dtype, K), "weight": spec, **more}
        rows, columns = N // block[0], K // block[1]
        of = 4 if format == "2:4" else columns  # `share` applies to each run of this many
        order = np.argsort(d.rng.random((rows, columns // of, of)))
        stored = np.kron((order < share * of).reshape(rows, columns), np.ones(block, bool))
        dense = np.where(stored, d.codes(dtype, N, K), DTYPES[dtype].numpy.type(0))
        weight = SparseWeight.from_dense(dense, format, block=blocks, rhs_transposed=True)
        return {"lhs": d.rows(dtype, K), "weight": weight, **more}

    return build


# ---- conversions, and programs of several operations


def _dynamic_product(d: Operands) -> str:
    """dynamic_quantize and the product in one program: W8A8 with dynamic activations."""
    rows = "?" if d.m is None else d.m
    w = d.codes("i8", N, K).tobytes().hex().upper()
    return f"""
    func.func @main(%x: tensor<{rows}x{K}xf16>, %s: tensor<{N}x1xf32>) -> tensor<{rows}x{N}xf16> {{
      %w = arith.constant dense<"0x{w}"> : tensor<{N}x{K}xi8>
      %q, %qs = "qmlir.dynamic_quantize"(%x) : (tensor<{rows}x{K}xf16>) -> (tensor<{rows}x{K}xi8>, tensor<{rows}x1xf32>)
      %y = "qmlir.scaled_matmul"(%q, %w, %qs, %s) {{rhs_transposed = true,
          operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"]}}
          : (tensor<{rows}x{K}xi8>, tensor<{N}x{K}xi8>, tensor<{rows}x1xf32>, tensor<{N}x1xf32>) -> tensor<{rows}x{N}xf16>
      return %y : tensor<{rows}x{N}xf16>
    }}"""  # noqa: E501


def _dequant(dtype: str, group: int, **more: Any) -> Callable[[Operands], Arguments]:
    def build(d: Operands) -> Arguments:
        t = DTYPES[dtype]
        kw = {"input": d.rows("i8" if t.kind == "table" else dtype, K), "dtype": dtype,
              "scale": d.scales(M, K // group), **more}  # fmt: skip
        if t.bits < 8:
            kw |= {"input": d.rows("u8", K * t.bits // 8), "packing": "low_first"}
        return kw

    return build


def _converted(lhs: str, **more: Any) -> Callable[[Operands], Arguments]:
    return lambda d: {"input": d.rows(lhs, K), **more}


def _packed(dtype: str, packing: str) -> Callable[[Operands], Arguments]:
    return lambda d: {"input": d.rows("u8", K * DTYPES[dtype].bits // 8), "dtype": dtype, "packing": packing}


FORMS: tuple[Form, ...] = (
    Form("scaled_matmul", "s8 x s8, per tensor", _s8_tensor),
    Form("scaled_matmul", "s8 x s8, per token and channel", _s8),
    Form("scaled_matmul", "s8 x s8, weight as an argument", _arguments),
    Form("scaled_matmul", "s8 x s8, batched", _batched),
    Form("scaled_matmul", "s8 x s8, bias, relu, s8 result", _requantised),
    Form("scaled_matmul", "u8 x s8, zero points", _u8),
    Form("scaled_matmul", "s8 x s4, per channel", lambda d: _s8(d, "i4")),
    Form("scaled_matmul", "s8 x s4, group 128", lambda d: _s8(d, "i4", 128)),
    Form("scaled_matmul", "s8 x s4, group 32", lambda d: _s8(d, "i4", 32)),
    Form("scaled_matmul", "s8 x u4, zero points, per channel", _u4_zeros(0)),
    Form("scaled_matmul", "s8 x u4, zero points, group 128", _u4_zeros(128)),
    Form("scaled_matmul", "s8 x s2, per channel", lambda d: _s8(d, "i2")),
    Form("scaled_matmul", "s8 x 1 bit, per channel", lambda d: _s8(d, "i1")),
    Form("scaled_matmul", "s8 x s8, blocks 1x128 by 128x128", _blocks("i8")),
    Form("scaled_matmul", "f16 x s8, per channel", _weight_only("f16", "i8"), "f16"),
    Form("scaled_matmul", "f16 x s4, group 128", _weight_only("f16", "i4", 128), "f16"),
    Form("scaled_matmul", "f16 x u4, group 128, zero points", _weight_only("f16", "u4", 128, "int"), "f16"),
    Form("scaled_matmul", "f16 x u4, group 128, offset_float", _weight_only("f16", "u4", 128, "offset_float"), "f16"),
    Form("scaled_matmul", "f16 x u4, group 128, rescale", _weight_only("f16", "u4", 128, "rescale"), "f16"),
    Form("scaled_matmul", "f16 x u4, group 128, packed_int", _weight_only("f16", "u4", 128, "packed_int"), "f16"),
    Form("scaled_matmul", "f16 x s2, group 128", _weight_only("f16", "i2", 128), "f16"),
    Form("scaled_matmul", "bf16 x s8, per channel", _weight_only("bf16", "i8"), "bf16"),
    Form("scaled_matmul", "bf16 x s4, group 128", _weight_only("bf16", "i4", 128), "bf16"),
    Form("scaled_matmul", "f32 x s4, group 128", _weight_only("f32", "i4", 128), "f32"),
    Form("scaled_matmul", "f32 x s4, group 128, computed in f16",
         _weight_only("f32", "i4", 128, compute_dtype="f16"), "f16"),
    Form("scaled_matmul", "f16 x nf4, group 64", _weight_only("f16", "nf4", 64), "f16"),
    Form("scaled_matmul", "f16 x codebook, group 128", _weight_only("f16", "codebook", 128), "f16"),
    Form("scaled_matmul", "f16 x fp4 e2m1, MX (32, e8m0)", _weight_only("f16", "e2m1", 32, scale="e8m0"), "f16"),
    Form("scaled_matmul", "f16 x e4m3, per channel", _weight_only("f16", "e4m3"), "f16"),
    Form("scaled_matmul", "e4m3 x e4m3", _float8("e4m3", "e4m3"), "f8E4M3FN"),
    Form("scaled_matmul", "e5m2 x e5m2", _float8("e5m2", "e5m2"), "f8E5M2"),
    Form("scaled_matmul", "e4m3 x e5m2", _float8("e4m3", "e5m2"), "f16"),
    Form("scaled_matmul", "e4m3fnuz x e4m3fnuz", _float8("e4m3fnuz", "e4m3fnuz"), "f8E4M3FNUZ"),
    Form("scaled_matmul", "e5m2fnuz x e5m2fnuz", _float8("e5m2fnuz", "e5m2fnuz"), "f8E5M2FNUZ"),
    Form("scaled_matmul", "e4m3 x e4m3, blocks 1x128 by 128x128", _blocks("e4m3"), "f8E4M3FN"),
    Form("scaled_matmul", "e4m3 x e4m3, MX (32, e8m0)", _mx("e4m3", "e4m3"), "f8E4M3FN"),
    Form("scaled_matmul", "fp4 e2m1 x e2m1, MX (32, e8m0)", _mx("e2m1", "e2m1"), "f16"),
    Form("scaled_matmul", "fp4 e2m1 x e2m1, NVFP4 (16, e4m3)", _nvfp4, "f16"),
    Form("scaled_matmul", "s8 x e4m3", lambda d: _s8(d, "e4m3"), "f16"),
    Form("conv2d_q", "s8 x s8, 3x3", _conv()),
    Form("conv2d_q", "u8 x s8, zero point", _conv(lhs="u8")),
    Form("conv2d_q", "s8 x s4", _conv("i4")),
    Form("conv2d_q", "s8 x s8, NCHW", _conv(input_layout="NCHW")),
    Form("conv2d_q", "s8 x s8, stride 2", _conv(strides=(2, 2))),
    Form("conv2d_q", "s8 x s8, dilated", _conv(dilations=(2, 2), padding=(2, 2, 2, 2))),
    Form("conv2d_q", "s8 x s8, transposed", _conv(transposed=True, strides=(2, 2))),
    Form("conv2d_q", "s8 x s8, 4 groups", _conv(groups=4)),
    Form("conv2d_q", "s8 x s8, depthwise", _conv(groups=64, filters=64), ""),
    Form("conv2d_q", "f16 x s8", _conv(lhs="f16"), "f16"),
    Form("grouped_matmul", "s8 x s8, contiguous", _grouped("i8", "i8")),
    Form("grouped_matmul", "s8 x s8, routed", _grouped("i8", "i8", routed=True)),
    Form("grouped_matmul", "s8 x s4, contiguous", _grouped("i8", "i4")),
    Form("grouped_matmul", "s8 x s4, group 128, routed", _grouped("i8", "i4", 128, routed=True)),
    Form("grouped_matmul", "f16 x s4, group 128, contiguous", _grouped("f16", "i4", 128, out_dtype="f16"), "f16"),
    Form("grouped_matmul", "f16 x s4, group 128, routed", _grouped("f16", "i4", 128, True, out_dtype="f16"), "f16"),
    Form("grouped_matmul", "e4m3 x e4m3, contiguous", _grouped("e4m3", "e4m3"), "f8E4M3FN"),
    Form("grouped_matmul", "e4m3 x e4m3, routed", _grouped("e4m3", "e4m3", routed=True), "f8E4M3FN"),
    Form("moe", "s8 x s8, s8 between", _moe("i8", "i8", intermediate_dtype="i8")),
    Form("moe", "s8 x s4, s8 between", _moe("i8", "i4", intermediate_dtype="i8")),
    Form("moe", "f16 x s4", _moe("f16", "i4", intermediate_dtype="f16", out_dtype="f16"), "f16"),
    Form("sparse_matmul", "csr s8 x s8, a tenth stored", _sparse("i8", "csr", 1 / 10)),
    Form("sparse_matmul", "csr s8 x s8, at run time", _sparse("i8", "csr", 1 / 10, at_run_time=True)),
    Form("sparse_matmul", "2:4 s8 x s8", _sparse("i8", "2:4", 1 / 2)),
    Form("sparse_matmul", "bsr 16 x 16 f16 x f16, a sixteenth stored", _sparse("f16", "bsr", 1 / 16, (16, 16)), "f16"),
    Form("sparse_matmul", "coo f16 x f16, a tenth stored", _sparse("f16", "coo", 1 / 10), "f16"),
    # So few entries are read one by one (passes/core/lower/sparse_form.py), without a matrix product.
    Form("sparse_matmul", "coo f16 x f16, 1 in 128 stored", _sparse("f16", "coo", 1 / 128), ""),
    Form("route", "softmax", lambda d: {"logits": d.rows("f32", GROUPS), "topk": TOPK}, ""),
    Form("moe_align_block_size", "blocks of 16",
         lambda d: {"expert_ids": d.rows("i32", TOPK), "experts": GROUPS, "block_size": 16}, ""),
    Form("program", "dynamic_quantize and s8 x s8", _dynamic_product),
    Form("dynamic_quantize", "f16, per token", _converted("f16"), ""),
    Form("dynamic_quantize", "f16, per token, asymmetric", _converted("f16", symmetric=False), ""),
    Form("dynamic_quantize", "f32, groups of 32", _converted("f32", granularity="group", group_size=32), ""),
    Form("quantize", "f32 to s8", _converted("f32", scale=np.float32(0.02)), ""),
    Form("quantize", "f16 to u8, zero point",
         _converted("f16", scale=np.float32(0.02), zero_point=np.int32(9), out_dtype="u8"), ""),
    Form("dequant", "s8, per token", _dequant("i8", K), ""),
    Form("dequant", "s4, group 128", _dequant("i4", 128), ""),
    Form("dequant", "nf4, group 64", _dequant("nf4", 64), ""),
    Form("dequant", "e4m3", _dequant("e4m3", K), ""),
    Form("dequant", "e5m2fnuz", _dequant("e5m2fnuz", K), ""),
    Form("unpack", "s4, low_first", _packed("i4", "low_first"), ""),
    Form("unpack", "u2, interleaved", _packed("u2", "interleaved"), ""),
)  # fmt: skip
