"""The checks that run before the measurements: every kernel family against qmlir.reference, at small sizes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import qmlir
from qmlir import TensorSpec
from qmlir.dialect.dtypes import DTYPES, Array, from_numpy

R = qmlir.reference
ROWS = (1, 4, 16, 33, 130)
HOPPER = "cuda:sm_90a"
Build = Callable[[np.random.Generator, int], dict[str, Any]]


@dataclass(frozen=True)
class Check:
    """A program and its operands. `build` makes the op's operands for m rows. Those in `arguments` become arguments of
    the program, with a dynamic number of rows if `dynamic` is set; the others become constants.

    Attributes:
        tolerance: relative to the largest result; 0 means bit-exact.
        choice: the options to choose where the target offers several.
        targets: the targets that the check is for; all if empty.
    """

    family: str
    name: str
    build: Build
    op: str = "scaled_matmul"
    rows: tuple[int, ...] = ROWS
    dynamic: bool = True
    arguments: tuple[str, ...] = ("lhs", "lhs_scale", "lhs_zero_point")
    tolerance: float = 0.0
    choice: Mapping[str, str] = field(default_factory=dict, hash=False)
    targets: tuple[str, ...] = ()

    def operands(self, m: int) -> dict[str, Any]:
        """The operands for m rows; constants do not depend on m."""
        seed = zlib.crc32(f"{self.family} {self.name}".encode())
        constants = self.build(np.random.default_rng(seed), self.rows[0])
        varying = self.build(np.random.default_rng(seed + m), m)
        return {**constants, **{name: varying[name] for name in self.arguments if name in varying}}

    def compile(self, target: str, m: int) -> Any:
        given: dict[str, Any] = {}
        for name, value in self.operands(m).items():
            if name not in self.arguments:
                given[name] = value
                continue
            array = np.asarray(value)
            shape = (None, *array.shape[1:]) if self.dynamic and name not in ("rhs", "group_sizes") else array.shape
            given[name] = TensorSpec(shape, from_numpy(array.dtype))
        return qmlir.ops.BY_NAME[self.op].compile(target=target, choice=self.choice or None, **given)

    def expected(self, m: int) -> Array:
        return np.asarray(R.BY_NAME[self.op](**self.operands(m)))


def _codes(rng: np.random.Generator, dtype: str, *shape: int) -> Array:
    d = DTYPES[dtype]
    if d.kind == "float":
        return rng.standard_normal(shape).astype(d.numpy)
    return rng.integers(d.lo, d.hi + 1, shape).astype(d.numpy)


def _scales(rng: np.random.Generator, *shape: int) -> Array:
    return (rng.random(shape) * 0.01 + 0.001).astype(np.float32)


def _weight(rng: np.random.Generator, dtype: str, *shape: int) -> dict[str, Any]:
    codes = _codes(rng, dtype, *shape)
    if DTYPES[dtype].bits == 8:
        return {"rhs": codes}
    return {"rhs": R.pack(codes, dtype, "low_first"), "rhs_dtype": dtype, "rhs_packing": "low_first"}


def _product(dtype: str = "i8", group: int = 0, n: int = 200, k: int = 512, lhs: str = "i8", **more: Any) -> Build:
    def build(rng: np.random.Generator, m: int) -> dict[str, Any]:
        scale = _scales(rng, n, k // group if group else 1)
        made = {"lhs": _codes(rng, lhs, m, k), **_weight(rng, dtype, n, k), "rhs_transposed": True, "rhs_scale": scale}
        if lhs in ("i8", "u8", "e4m3", "e5m2"):
            made["lhs_scale"] = _scales(rng, m, 1)
        for name, value in more.items():
            made[name] = value(rng, m, n, scale) if callable(value) else value
        return made

    return build


def checks() -> Iterator[Check]:
    """The checks of every family."""
    yield Check("w8a8", "200x512", _product())
    yield Check("w8a8", "ragged 33x70", _product(n=33, k=70))
    # Numbers of rows on both sides of the limits at which another kernel is launched.
    yield Check("w8a8", "wide 512x1024", _product(n=512, k=1024), rows=(1, 8, 9, 65, 130, 300, 1100))
    yield Check("w4a8", "wide 512x1024", _product("i4", n=512, k=1024), rows=(1, 8, 9, 65, 130))
    yield Check("w8a8", "static", _product(n=256, k=512), rows=(1, 16, 128, 256), dynamic=False)
    yield Check("w8a8", "weight as an argument", _product(), arguments=("lhs", "lhs_scale", "rhs"))
    yield Check("w8a8", "zero points", _product(
        lhs_zero_point=lambda rng, m, n, s: rng.integers(-9, 9, (m, 1)).astype(np.int32),
        rhs_zero_point=lambda rng, m, n, s: rng.integers(-9, 9, (n, 1)).astype(np.int32)))  # fmt: skip
    for rounding in ("half_even", "half_away", "trunc"):
        yield Check("w8a8", f"requantised {rounding}", _product(
            bias=lambda rng, m, n, s: rng.standard_normal(n).astype(np.float32), activation="relu", out_dtype="i8",
            out_scale=np.float32(0.25), rounding=rounding))  # fmt: skip
    yield Check("w8a8", "gelu", _product(activation="gelu", out_dtype="f16"), tolerance=2e-3)
    yield Check("w8a8", "swiglu", _product(activation="swiglu", gate_layout="halves"), tolerance=1e-5)
    for group in (0, 32, 64, 128):
        yield Check("w4a8", f"group {group}", _product("i4", group))
    yield Check("w4a8", "u4 with zeros, group 64", _product(
        "u4", 64, rhs_zero_point=lambda rng, m, n, s: rng.integers(0, 16, s.shape).astype(np.int32)))  # fmt: skip
    yield Check("w4a8", "static, group 128", _product("i4", 128, n=256, k=1024), rows=(1, 4, 8, 16), dynamic=False)
    for bits, group in (("i8", 0), ("i4", 128)):
        yield Check("weight only", f"f16 x {bits}", _product(bits, group, lhs="f16"), tolerance=2e-3)
    yield Check("weight only", "static f16 x i4", _product("i4", 128, n=256, k=1024, lhs="f16"), rows=(1, 4, 16),
                dynamic=False, tolerance=2e-3)  # fmt: skip
    for lhs, rhs in (("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e5m2", "e5m2")):
        yield Check("fp8", f"{lhs} x {rhs}", _product(rhs, lhs=lhs), tolerance=1e-4)
    # The sum of 128 codes keeps about 14 bits.
    for group in (0, 64, 128):
        yield Check("fp8", f"fast, group {group}", _product("e4m3", group, n=136, k=512, lhs="e4m3"), tolerance=5e-3,
                    choice={"strategy": "wgmma-fp8-fast"}, targets=(HOPPER,))  # fmt: skip
    yield from _shared()
    yield Check("w8a8", "K shared by warps", _product(n=72, k=4096), rows=(16, 33), dynamic=False)
    for kernel, stride in ((3, 1), (3, 2), (1, 1)):
        yield Check(
            "conv2d", f"{kernel}x{kernel}/{stride}", _convolution(kernel, stride), "conv2d_q", (2,), False, ("input",)
        )
    for name, build in (
        ("64 filters, padded", _convolution(3, 1, filters=64)),
        ("7x7/2 of 3 channels", _convolution(7, 2, filters=64, channels=3)),
        ("unsigned", _convolution(3, 1, lhs="u8")),
        ("2 groups", _convolution(3, 1, filters=128, groups=2)),
    ):
        yield Check("conv2d", name, build, "conv2d_q", (2,), False, ("input",))
    yield Check("conv2d", "f16 x i8", _float_convolution, "conv2d_q", (1, 2), True, ("input",), tolerance=2e-3)
    yield Check(
        "experts", "contiguous", _contiguous, "grouped_matmul", (70,), True, ("lhs", "lhs_scale", "group_sizes")
    )
    yield Check("experts", "contiguous, static", _contiguous, "grouped_matmul", (70, 300), False,
                ("lhs", "lhs_scale", "group_sizes"))  # fmt: skip
    yield Check("experts", "moe", _layer, "moe", (1, 33, 200), True,
                ("input", "input_scale", "expert_ids", "routing_weights"), tolerance=1e-2)  # fmt: skip
    yield Check("experts", "routed", _routed, "grouped_matmul", (1, 33), True, ("lhs", "lhs_scale", "expert_ids"))
    yield Check("experts", "f16 x i4, group 64", _float_experts, "grouped_matmul", (1, 33, 200), True,
                ("lhs", "expert_ids"), tolerance=2e-3)  # fmt: skip


def _shared() -> Iterator[Check]:
    """Kernels that split K between workgroups, whose order of execution on a device no test can predict."""

    def one(name: str, build: Build, strategy: str, tile: str, *targets: str, rows: tuple[int, ...] = (16, 130),
            tolerance: float = 1e-5) -> Check:  # fmt: skip
        choice = {"strategy": strategy, f"{strategy}-tile": f"{tile}-stream-k"}
        return Check(
            "K shared by workgroups", name, build, rows=rows, tolerance=tolerance, choice=choice, targets=targets
        )

    both = (HOPPER, "cuda:sm_80")
    for tile in ("16x64x128x1x4x1x4", "64x64x128x2x2x1x4", "128x128x128x2x4x1x3"):
        yield one(f"w8a8 {tile}", _product(n=136, k=2048), "mma-sync-int8", tile, *both, tolerance=0.0)
    for tile in ("16x64x128x1x4x1x4", "64x64x128x2x2x1x4"):
        yield one(f"w4a8, group 128 {tile}", _product("i4", 128, n=136, k=2048), "mma-sync-int8", tile, *both)
    halves = _product("i4", 128, k=2048, lhs="f16")
    yield one("f16 x i4", halves, "mma-sync-weight-only", "32x64x128x1x2x2x4", *both, tolerance=2e-3)
    yield one("fp8", _product("e4m3", k=2048, lhs="e4m3"), "mma-sync-fp8", "64x64x128x2x2x1x4", *both, tolerance=1e-4)
    wide = _product(n=136, k=2048)
    yield one("w8a8 on wgmma", wide, "wgmma-int8", "64x128x128x4x1x1x6", HOPPER, rows=(64, 130), tolerance=0.0)


def _convolution(
    kernel: int, stride: int, filters: int = 48, channels: int = 32, lhs: str = "i8", groups: int = 1
) -> Build:
    def build(rng: np.random.Generator, m: int) -> dict[str, Any]:
        zero = np.uint8(117) if lhs == "u8" else np.int8(5)
        return {"input": _codes(rng, lhs, m, 14, 14, channels), "groups": groups,
                "weight": _codes(rng, "i8", filters, kernel, kernel, channels // groups),
                "weight_layout": "FHWC", "input_scale": np.float32(0.02), "weight_scale": _scales(rng, filters),
                "input_zero_point": zero, "strides": (stride, stride), "padding": (kernel // 2,) * 4,
                "activation": "relu", "out_dtype": "i8", "out_scale": np.float32(0.5)}  # fmt: skip

    return build


def _float_convolution(rng: np.random.Generator, m: int) -> dict[str, Any]:
    return {"input": _codes(rng, "f16", m, 14, 14, 32), "weight": _codes(rng, "i8", 48, 3, 3, 32),
            "weight_layout": "FHWC", "weight_scale": _scales(rng, 48), "padding": (1, 1, 1, 1)}  # fmt: skip


def _float_experts(rng: np.random.Generator, m: int) -> dict[str, Any]:
    ids = np.stack([rng.permutation(8)[:2] for _ in range(m)]).astype(np.int32)
    return {"lhs": _codes(rng, "f16", m, 128), **_weight(rng, "i4", 8, 72, 128), "rhs_transposed": True,
            "rhs_scale": _scales(rng, 8, 72, 2), "expert_ids": ids}  # fmt: skip


def _contiguous(rng: np.random.Generator, m: int) -> dict[str, Any]:
    return {"lhs": _codes(rng, "i8", m, 128), "rhs": _codes(rng, "i8", 4, 72, 128), "rhs_transposed": True,
            "lhs_scale": _scales(rng, m, 1), "rhs_scale": _scales(rng, 4, 72, 1),
            "group_sizes": np.array([0, 33, 1, m - 34], np.int32)}  # fmt: skip


def _routed(rng: np.random.Generator, m: int) -> dict[str, Any]:
    ids = np.stack([rng.permutation(8)[:2] for _ in range(m)]).astype(np.int32)
    return {"lhs": _codes(rng, "i8", m, 128), "rhs": _codes(rng, "i8", 8, 72, 128), "rhs_transposed": True,
            "lhs_scale": _scales(rng, m, 1), "rhs_scale": _scales(rng, 8, 72, 1), "expert_ids": ids}  # fmt: skip


def _layer(rng: np.random.Generator, m: int) -> dict[str, Any]:
    ids = np.stack([rng.permutation(8)[:2] for _ in range(m)]).astype(np.int32)
    return {
        "input": _codes(rng, "i8", m, 128), "input_scale": _scales(rng, m, 1), "expert_ids": ids,
        "routing_weights": _scales(rng, m, 2), "w1": _codes(rng, "i8", 8, 192, 128),
        "w1_scale": _scales(rng, 8, 192, 1), "w2": _codes(rng, "i8", 8, 128, 192),
        "w2_scale": _scales(rng, 8, 128, 1), "weights_transposed": True, "activation": "relu",
        "intermediate_dtype": "i8",
    }  # fmt: skip
