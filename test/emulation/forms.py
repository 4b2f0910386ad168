"""Forms of programs for emulated devices: how their operands are drawn, and how their results are judged."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import qmlir
from qmlir.dialect.dtypes import DTYPES

R = qmlir.reference
ROWS = (1, 3, 16, 33, 70)


class Draw:
    """Random operands from one seeded stream."""

    def __init__(self, name: str) -> None:
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))

    def codes(self, dtype: str, *shape: int) -> Any:
        d = DTYPES[dtype]
        if d.kind == "float":
            return (self.rng.standard_normal(shape) * 3).astype(d.numpy)
        lo, hi = (d.lo, d.hi) if d.is_int else (0, 15)
        if dtype == "i1":
            lo, hi = 0, 1
        return self.rng.integers(lo, hi + 1, shape).astype(d.numpy)

    def scales(self, *shape: int) -> Any:
        return (self.rng.random(shape) * 0.01 + 0.001).astype(np.float32)

    def zeros(self, *shape: int, lo: int = -9, hi: int = 10) -> Any:
        return self.rng.integers(lo, hi, shape).astype(np.int32)

    def floats(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape).astype(np.float32)

    def weight(self, dtype: str, *shape: int) -> dict[str, Any]:
        """The operand `rhs` and the attributes that describe its storage."""
        codes = self.codes(dtype, *shape)
        if DTYPES[dtype].bits == 8:
            return {"rhs": codes}
        return {"rhs": R.pack(codes, dtype, "low_first"), "rhs_dtype": dtype, "rhs_packing": "low_first"}


# Draws all operands for m rows. Operands that are not arguments are drawn once, and are constants of the program.
Build = Callable[[Draw, int], dict[str, Any]]


@dataclass(frozen=True)
class Form:
    """A program: an op with its operands for m rows. The operands named in `arguments` are arguments."""

    family: str
    name: str
    build: Build = field(compare=False)
    op: str = "scaled_matmul"
    rows: tuple[int, ...] = ROWS
    dynamic: bool = True
    arguments: tuple[str, ...] = ("lhs", "lhs_scale", "lhs_zero_point", "c")
    choice: str = ""  # of a tile or a strategy, as `qmlir-select` takes it
    judge: str = (
        "exact"  # or "near": the order of float sums is not fixed; or "smooth": after a transcendental function
    )
    targets: tuple[str, ...] = ("cuda:sm_80", "cuda:sm_90a")
    options: dict[str, Any] = field(default_factory=dict, compare=False)  # how workgroups run

    @property
    def id(self) -> str:
        return f"{self.family}-{self.name}"


def w8(d: Draw, m: int, n: int = 72, k: int = 160, **more: Any) -> dict[str, Any]:
    return {"lhs": d.codes("i8", m, k), "rhs": d.codes("i8", n, k), "rhs_transposed": True,
            "lhs_scale": d.scales(m, 1), "rhs_scale": d.scales(n, 1), **more}  # fmt: skip


def w8_zeros(d: Draw, m: int, n: int = 72, k: int = 1100) -> dict[str, Any]:
    """Unsigned activations, and zero points on both sides."""
    return {**w8(d, m, n, k), "lhs": d.codes("u8", m, k), "lhs_zero_point": d.zeros(m, 1, lo=0, hi=256),
            "rhs_zero_point": d.zeros(n, 1)}  # fmt: skip


def w8_finished(d: Draw, m: int, n: int = 72, k: int = 1100) -> dict[str, Any]:
    """With every step of an epilogue."""
    return {**w8(d, m, n, k), "bias": d.floats(n), "c": d.floats(m, n), "beta": 1.0, "activation": "relu",
            "out_dtype": "i8", "out_scale": np.float32(0.25)}  # fmt: skip


def w4(dtype: str, group: int = 0, n: int = 72, k: int = 256, **more: Any) -> Build:
    def build(d: Draw, m: int) -> dict[str, Any]:
        scale = d.scales(n, k // group if group else 1)
        made = {"lhs": d.codes("i8", m, k), **d.weight(dtype, n, k), "rhs_transposed": True,
                "lhs_scale": d.scales(m, 1), "rhs_scale": scale}  # fmt: skip
        if more.get("zeros"):
            made["rhs_zero_point"] = d.zeros(*scale.shape, lo=0, hi=16)
        if more.get("lhs_zeros"):
            made["lhs_zero_point"] = d.zeros(m, 1)
        return made

    return build
