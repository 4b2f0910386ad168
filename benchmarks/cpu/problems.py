"""The problems that works compute: the arrays, qmlir's program through the public API, and the reference result.

Activations are int8 with one scale. Peers that are fastest with u8 x s8 take the same real values as `codes + 128` with
zero point 128. All tokens have the same scale because most peers support only one scale per tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

import qmlir
from qmlir import TensorSpec as T

from .chain import Chain

Array = Any
Run = Callable[[], Any]
Built = tuple[qmlir.Artifact, list[Array]]

SCALE = np.float32(0.02)  # of activations


def unsigned(codes: Array) -> Array:
    """i8 codes as u8 codes of the same real values at the zero point 128."""
    return (codes.astype(np.int16) + 128).astype(np.uint8)


def pack_low_first(codes: Array) -> Array:
    """Packs i4 codes, one per element, in pairs along the last axis, the first code in the low nibble."""
    c = codes.astype(np.uint8) & 15
    return c[..., 0::2] | (c[..., 1::2] << 4)


class Problem:
    """Base class. `operations` (two per multiply-add) and `bytes` (weights, which every call reads) give a lower bound
    of the time; `rate` names the instruction rate for that bound (limits.py)."""

    operations: int
    bytes: int
    rate: str = "int8"

    def identity(self) -> str:
        """A text that identifies the problem, as a cache key."""
        return repr(self)

    def program(self) -> Built:
        """qmlir's program, compiled through the public API, and its arguments."""
        raise NotImplementedError

    def ours(self) -> Run:
        """A function that calls qmlir's program as a user does."""
        artifact, arguments = self.program()
        main = qmlir.load(artifact).main
        return lambda: main(*arguments)

    def reference(self) -> Array:
        """The result by the numerics contract, as real values."""
        raise NotImplementedError

    def real(self, result: Array) -> Array:
        """The result of qmlir's program as real values."""
        return np.asarray(result, np.float32)


@dataclass(frozen=True)
class Product(Problem):
    """`[M, K] x [K, N] -> f32 [M, N]`; scheme `w8a8`, `w4a8` or `w4a16`, int4 in groups of `group` along K.

    With `dynamic` the activations are f32 and quantised to int8 per token as part of the work.
    """

    m: int
    n: int
    k: int
    scheme: str = "w8a8"
    group: int = 128
    dynamic: bool = False

    @property
    def operations(self) -> int:  # type: ignore[override]
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:  # type: ignore[override]
        scales = self.n if self.scheme == "w8a8" else self.n * self.k // self.group
        return self.n * self.k // (1 if self.scheme == "w8a8" else 2) + 4 * scales

    @property
    def rate(self) -> str:  # type: ignore[override]
        return "bf16" if self.scheme == "w4a16" else "int8"

    @cached_property
    def lhs(self) -> Array:
        """Codes [M, K] i8."""
        return np.random.default_rng(0).integers(-127, 128, (self.m, self.k), dtype=np.int8)

    @property
    def lhs_real(self) -> Array:
        """[M, K] f32."""
        return self.lhs * SCALE

    @cached_property
    def weight(self) -> Array:
        """Codes: [K, N] i8, or [N, K] i8 with values in the int4 range."""
        rng = np.random.default_rng(1)
        if self.scheme == "w8a8":
            return rng.integers(-127, 128, (self.k, self.n), dtype=np.int8)
        return rng.integers(-8, 8, (self.n, self.k), dtype=np.int8)

    @cached_property
    def weight_scale(self) -> Array:
        """[1, N], or [N, K / group]: f32."""
        shape = (1, self.n) if self.scheme == "w8a8" else (self.n, self.k // self.group)
        return np.random.default_rng(2).uniform(0.005, 0.01, shape).astype(np.float32)

    def weight_real(self) -> Array:
        """[N, K] f32."""
        if self.scheme == "w8a8":
            return np.ascontiguousarray((self.weight * self.weight_scale).T)
        return self.weight * np.repeat(self.weight_scale, self.group, axis=1)

    def program(self) -> Built:
        op = qmlir.ops.scaled_matmul
        if self.dynamic:
            chain = Chain()
            x = chain.value("x", self.lhs_real)
            codes, scale = chain.op("dynamic_quantize", {"input": x}, count=2, granularity="token", recipe="amax")
            operands = {"lhs": codes, "rhs": chain.constant(self.weight), "lhs_scale": scale}
            y = chain.op("scaled_matmul", {**operands, "rhs_scale": chain.constant(self.weight_scale)})[0]
            return chain.built(y)
        if self.scheme == "w8a8":
            spec = T((self.m, self.k), "i8")
            artifact = op.compile(spec, self.weight, lhs_scale=T((self.m, 1), "f32"), rhs_scale=self.weight_scale)
            return artifact, [self.lhs, np.full((self.m, 1), SCALE, np.float32)]
        weight: dict[str, Any] = {"rhs_scale": self.weight_scale, "rhs_transposed": True, "rhs_dtype": "i4",
                                  "rhs_packing": "low_first"}  # fmt: skip
        packed = pack_low_first(self.weight)
        if self.scheme == "w4a8":
            artifact = op.compile(T((self.m, self.k), "i8"), packed, lhs_scale=T((self.m, 1), "f32"), **weight)
            return artifact, [self.lhs, np.full((self.m, 1), SCALE, np.float32)]
        # The peers multiply by weights that are dequantised to f32, not rounded to bf16.
        artifact = op.compile(T((self.m, self.k), "bf16"), packed, compute_dtype="f32", **weight)
        return artifact, [self.lhs_real.astype(ml_dtypes.bfloat16)]

    def reference(self) -> Array:
        """In f32 by BLAS. The contract's integer sums are below 2^24 here, or the result is judged by a tolerance."""
        if self.scheme == "w4a16":
            lhs = self.lhs_real.astype(ml_dtypes.bfloat16).astype(np.float32)
            return lhs @ self.weight_real().T
        return self.lhs_real @ self.weight_real().T


@dataclass(frozen=True)
class Convolution(Problem):
    """NHWC i8 to i8, one scale per filter. With `depthwise` there is one filter per channel."""

    batch: int
    size: int
    channels: int
    filters: int
    kernel: int
    stride: int
    depthwise: bool = False

    @property
    def padding(self) -> int:
        return self.kernel // 2

    @property
    def groups(self) -> int:
        return self.channels if self.depthwise else 1

    @property
    def out_size(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def operations(self) -> int:  # type: ignore[override]
        return 2 * self.batch * self.out_size**2 * prod(self.weight_shape)

    @property
    def bytes(self) -> int:  # type: ignore[override]
        images = self.size**2 * self.channels + self.out_size**2 * self.filters
        return self.batch * images + prod(self.weight_shape)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.filters, self.kernel, self.kernel, self.channels // self.groups)

    @cached_property
    def image(self) -> Array:
        shape = (self.batch, self.size, self.size, self.channels)
        return np.random.default_rng(0).integers(-127, 128, shape, dtype=np.int8)

    @cached_property
    def weight(self) -> Array:
        """FHWC i8."""
        return np.random.default_rng(1).integers(-127, 128, self.weight_shape, dtype=np.int8)

    @cached_property
    def weight_scale(self) -> Array:
        """[F] f32."""
        return np.random.default_rng(2).uniform(0.005, 0.01, self.filters).astype(np.float32)

    @property
    def out_scale(self) -> np.float32:
        """A scale with which three standard deviations of the sums fill the int8 range."""
        deviation = 74.0 * 74.0 * np.sqrt(prod(self.weight_shape[1:])) * SCALE * 0.0075
        return np.float32(3 * deviation / 127)

    def program(self) -> Built:
        artifact = qmlir.ops.conv2d_q.compile(
            T(self.image.shape, "i8"), self.weight, input_scale=SCALE,
            weight_scale=self.weight_scale.reshape(-1, 1, 1, 1), out_scale=self.out_scale, out_dtype="i8",
            **self.geometry(),
        )  # fmt: skip
        return artifact, [self.image]

    def geometry(self) -> dict[str, Any]:
        return {"input_layout": "NHWC", "weight_layout": "FHWC", "strides": (self.stride,) * 2,
                "padding": (self.padding,) * 4, "groups": self.groups}  # fmt: skip

    def reference(self) -> Array:
        codes = qmlir.reference.conv2d_q(
            self.image, self.weight, input_scale=SCALE, weight_scale=self.weight_scale.reshape(-1, 1, 1, 1),
            out_scale=self.out_scale, out_dtype="i8", **self.geometry(),
        )  # fmt: skip
        return self.real(codes)

    def real(self, result: Array) -> Array:
        return np.asarray(result).astype(np.float32) * self.out_scale


@dataclass(frozen=True)
class GatedMlp(Problem):
    """`down(swiglu(gate_up(x)))`: [M, H] i8 -> [M, 2 F] -> swiglu -> i8 [M, F] -> f32 [M, H]."""

    m: int
    hidden: int
    inner: int

    @property
    def operations(self) -> int:  # type: ignore[override]
        return 2 * self.m * 3 * self.hidden * self.inner

    @property
    def bytes(self) -> int:  # type: ignore[override]
        return 3 * self.hidden * self.inner

    @cached_property
    def x(self) -> Array:
        return np.random.default_rng(0).integers(-127, 128, (self.m, self.hidden), dtype=np.int8)

    @cached_property
    def up(self) -> Array:
        """[H, 2 F] i8: gate, then up."""
        return np.random.default_rng(1).integers(-127, 128, (self.hidden, 2 * self.inner), dtype=np.int8)

    @cached_property
    def down(self) -> Array:
        return np.random.default_rng(2).integers(-127, 128, (self.inner, self.hidden), dtype=np.int8)

    @cached_property
    def up_scale(self) -> Array:
        """[1, 2 F]: scales that give gates with standard deviation 2."""
        deviation = 74.0 * 74.0 * np.sqrt(self.hidden) * SCALE
        return (np.random.default_rng(3).uniform(1.5, 2.5, (1, 2 * self.inner)) / deviation).astype(np.float32)

    @cached_property
    def down_scale(self) -> Array:
        return np.random.default_rng(4).uniform(0.005, 0.01, (1, self.hidden)).astype(np.float32)

    @property
    def inner_scale(self) -> np.float32:
        return np.float32(8 / 127)

    def program(self) -> Built:
        c = Chain()
        x, s = c.value("x", self.x), c.constant(SCALE)
        h = c.op("scaled_matmul", {"lhs": x, "rhs": c.constant(self.up), "lhs_scale": s,
                                   "rhs_scale": c.constant(self.up_scale), "out_scale": c.constant(self.inner_scale)},
                 activation="swiglu", gate_layout="halves", out_dtype="i8")[0]  # fmt: skip
        y = c.op("scaled_matmul", {"lhs": h, "rhs": c.constant(self.down), "lhs_scale": c.constant(self.inner_scale),
                                   "rhs_scale": c.constant(self.down_scale)})[0]  # fmt: skip
        return c.built(y)

    def reference(self) -> Array:
        """In f32 by BLAS, with the codes that the contract gives between the products."""
        y = (self.x * SCALE) @ (self.up * self.up_scale)
        gate, up = y[:, : self.inner], y[:, self.inner :]
        h = gate / (1 + np.exp(-gate)) * up
        codes = np.clip(np.rint(h / self.inner_scale), -128, 127)
        return (codes * self.inner_scale).astype(np.float32) @ (self.down * self.down_scale)


@dataclass(frozen=True)
class Moe(Problem):
    """A layer of `experts` gated experts, `topk` of them per token; codes and scales as in `GatedMlp`."""

    tokens: int
    experts: int
    topk: int
    hidden: int
    inner: int

    @property
    def operations(self) -> int:  # type: ignore[override]
        return 2 * self.tokens * self.topk * 3 * self.hidden * self.inner

    @property
    def bytes(self) -> int:  # type: ignore[override]
        met = len(np.unique(self.ids))
        return met * 3 * self.hidden * self.inner

    @cached_property
    def x(self) -> Array:
        return np.random.default_rng(0).integers(-127, 128, (self.tokens, self.hidden), dtype=np.int8)

    @cached_property
    def w1(self) -> Array:
        """[E, H, 2 F]."""
        shape = (self.experts, self.hidden, 2 * self.inner)
        return np.random.default_rng(1).integers(-127, 128, shape, dtype=np.int8)

    @cached_property
    def w2(self) -> Array:
        """[E, F, H]."""
        shape = (self.experts, self.inner, self.hidden)
        return np.random.default_rng(2).integers(-127, 128, shape, dtype=np.int8)

    @cached_property
    def w1_scale(self) -> Array:
        deviation = 74.0 * 74.0 * np.sqrt(self.hidden) * SCALE
        shape = (self.experts, 1, 2 * self.inner)
        return (np.random.default_rng(3).uniform(1.5, 2.5, shape) / deviation).astype(np.float32)

    @cached_property
    def w2_scale(self) -> Array:
        shape = (self.experts, 1, self.hidden)
        return np.random.default_rng(4).uniform(0.005, 0.01, shape).astype(np.float32)

    @property
    def inner_scale(self) -> np.float32:
        return np.float32(8 / 127)

    @cached_property
    def ids(self) -> Array:
        """[T, topk] i32, distinct experts for each token."""
        rng = np.random.default_rng(5)
        chosen = [rng.permutation(self.experts)[: self.topk] for _ in range(self.tokens)]
        return np.asarray(chosen, np.int32)

    @cached_property
    def routing(self) -> Array:
        w = np.random.default_rng(6).uniform(0.1, 1, (self.tokens, self.topk)).astype(np.float32)
        return w / w.sum(1, keepdims=True)

    def program(self) -> Built:
        artifact = qmlir.ops.moe.compile(
            T(self.x.shape, "i8"), self.w1, self.w2, T(self.ids.shape, "i32"), T(self.routing.shape, "f32"),
            input_scale=SCALE, w1_scale=self.w1_scale, w2_scale=self.w2_scale, intermediate_scale=self.inner_scale,
            intermediate_dtype="i8", activation="swiglu", gate_layout="halves",
        )  # fmt: skip
        return artifact, [self.x, self.ids, self.routing]

    def rows(self) -> list[tuple[int, Array, Array]]:
        """For each expert that has tokens: its id, the tokens routed to it, and their routing weights [R, 1]."""
        found = []
        for e in np.unique(self.ids):
            token, slot = np.nonzero(self.ids == e)
            found.append((int(e), token, self.routing[token, slot][:, None]))
        return found

    def reference(self) -> Array:
        out = np.zeros((self.tokens, self.hidden), np.float32)
        for e, token, weight in self.rows():
            y = (self.x[token] * SCALE) @ (self.w1[e] * self.w1_scale[e])
            gate, up = y[:, : self.inner], y[:, self.inner :]
            codes = np.clip(np.rint(gate / (1 + np.exp(-gate)) * up / self.inner_scale), -128, 127)
            out[token] += weight * ((codes * self.inner_scale).astype(np.float32) @ (self.w2[e] * self.w2_scale[e]))
        return out
