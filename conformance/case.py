"""Reading a case: its fields and their alternatives, the words that all systems share, and random data."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qmlir.dialect.dtypes import DTYPES

from .program import Program

F = np.float32
# Cases of more than CUT multiply-adds are cut in M and N to at most SMALL multiply-adds.
CUT, SMALL = 2**31, 2**28
# Operands with more elements repeat a random piece of this length, no multiple of any axis, so repetitions are shifted.
MANY = 2**24 + 43


class UnknownField(ValueError):
    """A field or a word of a case that has no meaning here."""


class Refused(Exception):
    """A case that qmlir has no form for; the text is the reason."""


@dataclass
class Case:
    """The fields of a case. Records which were read; `index` selects one combination of the alternatives."""

    fields: dict[str, Any]
    index: int = 0
    count: int = 1
    _read: set[str] = field(default_factory=set)
    _picks: int = 0

    # Fields that do not affect the result: names, and how upstream compared.
    _SILENT = ("id", "system", "source", "op", "perf_only", "tolerance")

    @property
    def id(self) -> str:
        return str(self.fields["id"])

    def take(self, name: str, default: Any = None) -> Any:
        """The value of a field, unchanged."""
        self._read.add(name)
        return self.fields.get(name, default)

    def word(self, name: str, table: dict[Any, Any]) -> Any:
        """The entry of the table for the field's value (None if the field is absent)."""
        value = self.take(name)
        if isinstance(value, (list, dict)) or value not in table:
            raise UnknownField(f"{self.id}: {name} = {value!r} has no meaning here; known: "
                               f"{', '.join(map(str, table))}")  # fmt: skip
        return table[value]

    def pick(self, *options: Any) -> Any:
        """Selects one of several alternatives. Each is selected in at least one variant."""
        n = len(options)
        self.count = max(self.count, n)
        at = (self.index + self._picks * (self.index // n)) % n
        self._picks += n > 1
        return options[at]

    def done(self) -> None:
        """Raises UnknownField if a field was not read."""
        left = set(self.fields) - self._read - set(self._SILENT)
        if left:
            name = sorted(left)[0]
            raise UnknownField(f"{self.id}: field {name!r} = {self.fields[name]!r} is not known for op "
                               f"{self.fields['op']!r}")  # fmt: skip


@dataclass
class Variant:
    """One program of a case. `cut` lists the sizes that were reduced, such as `{"M": [3840, 64]}`."""

    program: Program
    cut: dict[str, list[int]]
    multiply_adds: int


def drawn(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to draw for an operand: all of it, or for more than MANY elements (weights of experts) one piece."""
    return shape if np.prod(shape) <= MANY else (MANY,)


def repeated(x: Any, shape: tuple[int, ...]) -> Any:
    """The operand: the drawn piece, repeated as often as needed. The length of the piece has no common factor with that
    of a row, so rows that a wrong index could confuse differ."""
    return x if x.shape == shape else np.resize(x, shape)


class Draw:
    """Random operands from one seeded stream."""

    def __init__(self, seed: str) -> None:
        self.rng = np.random.default_rng(zlib.crc32(seed.encode()))

    def ints(self, shape: tuple[int, ...], lo: int, hi: int, dtype: Any = np.int8) -> Any:
        """Integers in `[lo, hi)`."""
        return repeated(self.rng.integers(lo, hi, drawn(shape), dtype=dtype), shape)

    def codes(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Random codes of a dtype. 8-bit floats are normally distributed, or for large operands any value below 2."""
        d = DTYPES[dtype]
        if d.kind == "float":
            if np.prod(shape) <= MANY:
                return self.normal(shape).astype(d.numpy)
            # Six bits of magnitude and the sign. There is no negative zero, whose code is NaN in the FNUZ types.
            byte = self.rng.integers(1, 127, drawn(shape), np.uint8)
            byte += byte == 64
            byte += byte & 64
            return repeated(byte.view(d.numpy), shape)
        if d.kind == "table":
            return self.ints(shape, 0, 16)
        lo, hi = (0, 1) if d.name == "i1" else (d.lo, d.hi)
        return self.ints(shape, lo, hi + 1, np.uint8 if lo >= 0 and d.name != "i1" else np.int8)

    def uniform(self, shape: tuple[int, ...], lo: float, hi: float, dtype: Any = F) -> Any:
        x = np.asarray(self.rng.random(drawn(shape), F))
        x *= F(hi - lo)
        x += F(lo)
        return repeated(x.astype(dtype, copy=False), shape)

    def normal(self, shape: tuple[int, ...], dtype: Any = F) -> Any:
        return self.rng.standard_normal(shape, F).astype(dtype)


def smaller(size: int) -> int:
    """About half of a size, with the same remainder modulo 16, so that a ragged size stays ragged."""
    return max((size // 2) // 16 * 16 + size % 16, min(size, 16 + size % 16))


def fit(m: int, n: int, per: int) -> tuple[int, int, dict[str, list[int]]]:
    """M and N of a case with `per` multiply-adds per element of the result. If there are more than CUT, the larger of M
    and N is halved until at most SMALL are left or both are below 32. The third result lists the changed sizes."""
    first = (m, n)
    if m * n * per > CUT:
        while m * n * per > SMALL and max(m, n) >= 32:
            m, n = (smaller(m), n) if m >= n else (m, smaller(n))
    return m, n, {k: [a, b] for k, a, b in (("M", first[0], m), ("N", first[1], n)) if a != b}


FLOATS = {"f32": "f32", "f16": "f16", "bf16": "bf16", "float32": "f32"}


OUT_DTYPES = {**FLOATS, "i32": "i32", "i8": "i8", "int8": "i8"}


ROUNDINGS = {
    None: "half_even",
    "half_even": "half_even",
    "half_away": "half_away",
    "trunc": "trunc",
    "half_away (std::round)": "half_away",
    # Upstream compares with its reference on the host.
    "half_away (CPU ref); GLSL round impl-defined": "half_away",
}


PACKINGS = {
    None: "low_first",
    "even k = LOW nibble": "low_first",
    "even k = HIGH nibble": "high_first",
    "even k = HIGH nibble, [N,K/2] bytes": "high_first",
    "even k = high nibble, odd k = low nibble": "high_first",
    "low nibble first": "low_first",
    "low nibble first, LOP3 interleave": "interleaved",
}


# Upstream accumulates in f16 for speed; qmlir accumulates in f32 (docs/semantics.md, section 4).
ACCUMULATORS = {
    None: None, "i32": None, "f32": None, "f16": None, "f16|f32": None, "f16|i32": None, "i32 per group": None,
    "i32 per group, f32 across": None,
}  # fmt: skip


FP8 = {"fp8": ("e4m3", "e4m3fnuz"), "fp8_e4m3": ("e4m3",), "fp8_e5m2": ("e5m2",)}


ACTIVATIONS = {"none": "none", "relu": "relu", "gelu": "gelu", "tanh": "tanh"}


# Notes about how upstream runs or checks a case, which do not affect the result.
NOTES = {
    None,
    "golden is 98% saturated",
    "golden assumes the same logical draw order as the dl example",
    "library instance layouts, MNKPadding: any M,N,K; run the dl golden data in each layout",
    "meaningful replacement: output not saturated",
    "CK host reference casts acc to int8 before requant here: reference wrong on 84% of elements; golden is the "
    "intended math",
    "CK's own data gives an all-zero output; use the qmlir40_* variant",
    "needs a zero/valid verification of our own",
    "storage buffer and texture3d",
    "fbgemm algorithm in double: range extended to 0, s=(max-min)/255, zp from the side with smaller error, nearbyint, "
    "clamp",
    "upstream reference skipped when a dim >100",
    "q8ta: allow 1 LSB when the compiler contracts to fma",
    "upstream: code generation only",
    "segfault upstream (scale argument is not part of the native kernel)",
    "no scaling; acc<2^24 so f32 exact",
    "odd N: boundary handling",
    # The target decides how to split the sum over K. Integer sums do not change; float sums are judged with a bound.
    "split_k=2",
    "split_k=4",
    "split_k=8",
    "M tokens, K model_dim, N inter_dim",
    "wanted API surface; shapes from the doc's examples (2-D example sizes reused where the doc gives none)",
}


def read_common(c: Case) -> None:
    """Reads the fields that every case may have and that do not affect the program."""
    c.word("acc_dtype", ACCUMULATORS)
    note = c.take("notes")
    if note not in NOTES:
        raise UnknownField(f"{c.id}: notes = {note!r} may say something that a result depends on")


def read_mnk(c: Case) -> tuple[int, int, int]:
    return c.take("M"), c.take("N"), c.take("K")


def require(c: Case, name: str, *allowed: Any) -> Any:
    """The value of a field that must be one of `allowed`, the values that the translation supports."""
    return c.word(name, {a: a for a in allowed})


def require_no_zero(c: Case, *names: str) -> None:
    for name in names:
        require(c, name, None, 0)


def fit_product(m: int, n: int, k: int, batch: int = 1) -> tuple[int, int, dict[str, list[int]], int]:
    m, n, cut = fit(m, n, batch * k)
    return m, n, cut, batch * m * n * k


def read_scales(c: Case, *known: str) -> dict[str, Any]:
    scales = c.take("scales") or {}
    left = set(scales) - set(known)
    if left:
        raise UnknownField(f"{c.id}: scales {sorted(left)} have no meaning here; known: {', '.join(known)}")
    return dict(scales)


def require_saturation(c: Case) -> None:
    if c.take("saturation") not in (None, [-128, 127]):
        raise UnknownField(f"{c.id}: saturation = {c.fields['saturation']!r} has no meaning here")


def read_batch(c: Case) -> tuple[int, ...]:
    """The batch axes: none without `B`; `B` = 1 is a batch axis of size 1."""
    return tuple(() if c.take("B") is None else (c.take("B"),))
