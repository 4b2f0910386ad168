"""What a case says, in the words of the system that it comes from, as a program of qmlir ops.

`variants(case)` gives the programs: a field that lists alternatives (`f16|bf16`, `none|relu`) makes several, each
alternative in at least one of them. Every field is read through `Case`, which knows whether one was left unread, and
every word through a table, so that a case with a field or a word that is not known here is an `UnknownField`, and is
never run as something else.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import qmlir
from qmlir.dialect.dtypes import DTYPES
from qmlir.dialect.shapes import conv_extent, transposed_extent

from .program import Program
from .stream import Stream

R = qmlir.reference
F = np.float32
# Cases above CUT multiply-adds are cut in M and N to at most SMALL.
CUT, SMALL = 2**31, 2**28


_MANY = 2**24 + 43  # no multiple of any axis, so that what is repeated is shifted


class UnknownField(ValueError):
    """A field or a word of a case that has no meaning here."""


class Refused(Exception):
    """A case that qmlir has no form for; the text is the reason."""


@dataclass
class Case:
    """The fields of a case; which were read, and which of the alternatives of a field is meant this time."""

    fields: dict[str, Any]
    index: int = 0
    count: int = 1
    _read: set[str] = field(default_factory=set)
    _picks: int = 0

    # What a result does not depend on: names, and how upstream compared.
    _SILENT = ("id", "system", "source", "op", "perf_only", "tolerance")

    @property
    def id(self) -> str:
        return str(self.fields["id"])

    def take(self, name: str, default: Any = None) -> Any:
        """The value of a field, as the case has it."""
        self._read.add(name)
        return self.fields.get(name, default)

    def word(self, name: str, table: dict[Any, Any]) -> Any:
        """What the table says of the field's value (None where absent)."""
        value = self.take(name)
        if isinstance(value, (list, dict)) or value not in table:
            raise UnknownField(f"{self.id}: {name} = {value!r} has no meaning here; known: "
                               f"{', '.join(map(str, table))}")  # fmt: skip
        return table[value]

    def pick(self, *options: Any) -> Any:
        """One of several alternatives: over all variants each is met."""
        n = len(options)
        self.count = max(self.count, n)
        at = (self.index + self._picks * (self.index // n)) % n
        self._picks += n > 1
        return options[at]

    def done(self) -> None:
        """Every field has been read."""
        left = set(self.fields) - self._read - set(self._SILENT)
        if left:
            name = sorted(left)[0]
            raise UnknownField(f"{self.id}: field {name!r} = {self.fields[name]!r} is not known for op "
                               f"{self.fields['op']!r}")  # fmt: skip


@dataclass
class Variant:
    """One program of a case. `cut` is what was made smaller, such as `{"M": [3840, 64]}`."""

    program: Program
    cut: dict[str, list[int]]
    multiply_adds: int


class Draw:
    """Random operands from one seeded stream."""

    def __init__(self, seed: str) -> None:
        self.rng = np.random.default_rng(zlib.crc32(seed.encode()))

    def ints(self, shape: tuple[int, ...], lo: int, hi: int, dtype: Any = np.int8) -> Any:
        """Integers in `[lo, hi)`."""
        return self.rng.integers(lo, hi, shape, dtype=dtype)

    def codes(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Any code of a dtype; small floats are normal numbers, or where there are many all codes below 2."""
        d = DTYPES[dtype]
        if d.kind == "float":
            if np.prod(shape) <= _MANY:
                return self.normal(shape).astype(d.numpy)
            # Six bits of magnitude and the sign; no negative zero, which is NaN in the FNUZ forms.
            byte = self.ints(shape, 1, 127, np.uint8)
            byte += byte == 64
            byte += byte & 64
            return byte.view(d.numpy)
        if d.kind == "table":
            return self.ints(shape, 0, 16)
        lo, hi = (0, 1) if d.name == "i1" else (d.lo, d.hi)
        return self.ints(shape, lo, hi + 1, np.uint8 if lo >= 0 and d.name != "i1" else np.int8)

    def uniform(self, shape: tuple[int, ...], lo: float, hi: float, dtype: Any = F) -> Any:
        x = np.asarray(self.rng.random(shape if np.prod(shape) <= _MANY else _MANY, F))
        x *= F(hi - lo)
        x += F(lo)
        # Weights of many experts: one long draw, repeated.
        return np.resize(x.astype(dtype, copy=False), shape)

    def normal(self, shape: tuple[int, ...], dtype: Any = F) -> Any:
        return self.rng.standard_normal(shape, F).astype(dtype)


def variants(case: dict[str, Any], cut: bool = True) -> Iterator[Variant]:
    """The programs of a case. Raises UnknownField and Refused."""
    op = case["op"]
    if op not in _OPS:
        raise UnknownField(f"{case['id']}: op {op!r} has no meaning here; known: {', '.join(sorted(_OPS))}")
    index, count = 0, 1
    while index < count:
        c = Case(case, index)
        made = _OPS[op](c, Draw(f"{c.id}/{index}"))
        c.done()
        yield made
        index, count = index + 1, c.count


# ------------------------------------------------------------------------------------------------------- sizes


def _smaller(size: int) -> int:
    """About half, with the same remainder modulo 16: a ragged size stays ragged."""
    return max((size // 2) // 16 * 16 + size % 16, min(size, 16 + size % 16))


def fit(m: int, n: int, per: int) -> tuple[int, int, dict[str, list[int]]]:
    """M and N of a case with `per` multiply-adds an element of the result; above CUT, the larger of the two is halved
    until at most SMALL are left or both are below 32."""
    first = (m, n)
    if m * n * per > CUT:
        while m * n * per > SMALL and max(m, n) >= 32:
            m, n = (_smaller(m), n) if m >= n else (m, _smaller(n))
    return m, n, {k: [a, b] for k, a, b in (("M", first[0], m), ("N", first[1], n)) if a != b}


# ------------------------------------------------------------------------------------------------- vocabulary

_FLOAT = {"f32": "f32", "f16": "f16", "bf16": "bf16", "float32": "f32"}
_OUT = {**_FLOAT, "i32": "i32", "i8": "i8", "int8": "i8"}
_ROUNDING = {
    None: "half_even",
    "half_even": "half_even",
    "half_away": "half_away",
    "trunc": "trunc",
    "half_away (std::round)": "half_away",
    # The reference on the host is what the case is judged by upstream.
    "half_away (CPU ref); GLSL round impl-defined": "half_away",
}
_PACKING = {
    None: "low_first",
    "even k = LOW nibble": "low_first",
    "even k = HIGH nibble": "high_first",
    "even k = HIGH nibble, [N,K/2] bytes": "high_first",
    "even k = high nibble, odd k = low nibble": "high_first",
    "low nibble first": "low_first",
    "low nibble first, LOP3 interleave": "interleaved",
}
# An accumulator in f16 is upstream's speed-up; ours is f32 (docs/semantics.md, section 4).
_ACC = {
    None: None, "i32": None, "f32": None, "f16": None, "f16|f32": None, "f16|i32": None, "i32 per group": None,
    "i32 per group, f32 across": None,
}  # fmt: skip
_FP8 = {"fp8": ("e4m3", "e4m3fnuz"), "fp8_e4m3": ("e4m3",), "fp8_e5m2": ("e5m2",)}
_ACTIVATION = {"none": "none", "relu": "relu", "gelu": "gelu", "tanh": "tanh"}
# Notes that say how upstream runs or checks a case, and change nothing in its result.
_NOTES = {
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
    # How the sum over K is split is the target's choice; integer sums do not change, float ones are judged as sums.
    "split_k=2",
    "split_k=4",
    "split_k=8",
    "M tokens, K model_dim, N inter_dim",
    "wanted API surface; shapes from the doc's examples (2-D example sizes reused where the doc gives none)",
}


def _common(c: Case) -> None:
    """Fields that every case may have and that select nothing."""
    c.word("acc_dtype", _ACC)
    note = c.take("notes")
    if note not in _NOTES:
        raise UnknownField(f"{c.id}: notes = {note!r} may say something that a result depends on")


def _mnk(c: Case) -> tuple[int, int, int]:
    return c.take("M"), c.take("N"), c.take("K")


def _same(c: Case, name: str, *allowed: Any) -> Any:
    """A field that must have one of the values that a translation is written for."""
    return c.word(name, {a: a for a in allowed})


def _zero_is_none(c: Case, *names: str) -> None:
    for name in names:
        _same(c, name, None, 0)


def _one(m: int, n: int, k: int, batch: int = 1) -> tuple[int, int, dict[str, list[int]], int]:
    m, n, cut = fit(m, n, batch * k)
    return m, n, cut, batch * m * n * k


# ---------------------------------------------------------------------------- CK: requantised products and convolutions

# What "derived" cases leave to the recipe of their published results: the range of the codes, and scales.
_DERIVED: dict[str, dict[str, Any]] = {
    "qmlir14_gemm_scale2e-4": {"range": (-128, 127)},
    "qmlir14_gemm_bias_relu_scale2e-4": {"range": (-128, 127)},
    "qmlir14_gemm_scale2e-4_half_even": {"range": (-128, 127)},
    "qmlir14_gemm_scale2e-4_half_away": {"range": (-128, 127)},
    "qmlir14_gemm_dl_half_even": {"range": (-5, 5)},
    "qmlir14_gemm_dl_half_away": {"range": (-5, 5)},
    "qmlir40_perlayer_scale0.1": {"range": (-5, 5), "multiplier": 0.1},
    "qmlir40_bias_tanh_perlayer": {"range": (-128, 127), "scale_acc": 2.0**-18, "multiplier": 127.0},
    "qmlir40_relu_perchannel": {"range": (-128, 127), "multiplier": "channel"},
    "qmlir40_bias_relu_perchannel": {"range": (-128, 127), "multiplier": "channel"},
    "qmlir40_bias_tanh_perchannel": {"range": (-128, 127), "scale_acc": "channel before tanh", "multiplier": 127.0},
}
_GEMM_LAYOUTS = {
    "A row-major MxK, B col-major KxN (= NxK rows), E row-major": (False, True),
    "A col-major, B row-major, E row-major": (True, False),
    "A MxK, B KxN logical": (False, False),
    "mk_kn_mn": (False, False),
    "mk_nk_mn": (False, True),
    "km_kn_mn": (True, False),
    "km_nk_mn": (True, True),
}


def _range(data: Any, key: str, default: tuple[int, int] | None) -> tuple[int, int]:
    if data is None and default is not None:
        return default
    lo, hi = data[key]
    return lo, hi


def _known_generator(c: Case, data: Any) -> None:
    if data is not None and data.get("gen") not in (None, "glibc rand seed 1", "glibc rand seed 1, rand%(hi-lo)+lo"):
        raise UnknownField(f"{c.id}: data generator {data['gen']!r} has no meaning here")
    left = set(data or ()) - {"gen", "A", "B", "x", "w", "bias"}
    if left:
        raise UnknownField(f"{c.id}: data has {sorted(left)}, which has no meaning here")


def _ck_gemm(c: Case, d: Draw) -> Variant:
    _common(c)
    m, n, k = _mnk(c)
    lhs_t, rhs_t = c.word("layout", _GEMM_LAYOUTS)
    for side in ("a", "w"):
        _same(c, f"{side}_dtype", "i8")
        _same(c, f"{side}_granularity", "per_tensor")
    _zero_is_none(c, "a_zero_point", "w_zero_point")
    data, derived = c.take("data"), _DERIVED.get(c.id, {}).get("range", (-5, 5))
    _known_generator(c, data)
    s = Stream()
    a = s((m, k), *_range(data, "A", derived)).astype(np.int8)
    b = s((k, n), *_range(data, "B", derived)).astype(np.int8)
    i32_bias = {None: False, "i32[N]": True, "i32[N] added to the i32 accumulator": True}
    bias = s((n,), *_range(data, "bias", derived)).astype(np.int32) if c.word("bias", i32_bias) else None
    p = Program()
    p.step("scaled_matmul", ("y",), {"lhs": a.T if lhs_t else a, "rhs": b.T if rhs_t else b, "bias": bias,
                                     "out_multiplier": F(_scales(c, "requant")["requant"])},
           lhs_transposed=lhs_t, rhs_transposed=rhs_t, bias_stage="acc" if bias is not None else None,
           activation=c.word("activation", _ACTIVATION), out_dtype=_same(c, "out_dtype", "i8"),
           rounding=c.word("rounding", _ROUNDING), clamp=tuple(c.take("saturation")))  # fmt: skip
    return Variant(p, {}, m * n * k)


def _scales(c: Case, *known: str) -> dict[str, Any]:
    scales = c.take("scales") or {}
    left = set(scales) - set(known)
    if left:
        raise UnknownField(f"{c.id}: scales {sorted(left)} have no meaning here; known: {', '.join(known)}")
    return dict(scales)


def _geometry(c: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sizes, and the attributes of conv2d_q."""
    v = dict(c.take("conv"))
    left = set(v) - {"N", "C", "H", "W", "K", "R", "S", "stride", "pad", "dil", "groups", "Ho", "Wo", "transposed",
                     "output_padding"}  # fmt: skip
    if left:
        raise UnknownField(f"{c.id}: conv has {sorted(left)}, which has no meaning here")
    top, side = v["pad"]
    attributes = {"strides": tuple(v["stride"]), "dilations": tuple(v["dil"]), "padding": (top, side, top, side),
                  "groups": v["groups"]}  # fmt: skip
    if v.get("transposed"):
        attributes |= {"transposed": True, "output_padding": tuple(v["output_padding"])}
    _check_extent(c, v)
    pixels = v["H"] * v["W"] if v.get("transposed") else v["Ho"] * v["Wo"]
    v["work"] = v["N"] * pixels * v["K"] * (v["C"] // v["groups"]) * v["R"] * v["S"]
    return v, attributes


def _check_extent(c: Case, v: dict[str, Any]) -> None:
    """The case states the result's height and width."""
    for size, kernel, out, axis in ((v["H"], v["R"], v["Ho"], 0), (v["W"], v["S"], v["Wo"], 1)):
        stride, pad, dilation = v["stride"][axis], v["pad"][axis], v["dil"][axis]
        if v.get("transposed"):
            given = transposed_extent(size, kernel, stride, dilation, pad, pad, v["output_padding"][axis])
        else:
            given = conv_extent(size, kernel, stride, dilation, pad, pad)
        if given != out:
            raise UnknownField(f"{c.id}: the geometry gives an extent of {given}, but the case says {out}")


def _ck_conv(c: Case, d: Draw) -> Variant:
    _common(c)
    v, attributes = _geometry(c)
    _same(c, "layout", "x NHWGC, w KYXGC, out NHWGK", "x NHWGC, w KYXGC, out NHWGK; golden hashed [G,N,K,Ho,Wo]")
    for side in ("a", "w"):
        _same(c, f"{side}_dtype", "i8")
    _same(c, "a_granularity", "per_tensor")
    per_channel = _same(c, "w_granularity", "per_tensor", "per_channel") == "per_channel"
    _zero_is_none(c, "a_zero_point", "w_zero_point")
    data, derived = c.take("data"), _DERIVED.get(c.id, {})
    _known_generator(c, data)
    s = Stream()
    # The draws are in the logical order of the axes, [N, C, H, W] and [K, C, Y, X].
    x = s((v["N"], v["C"], v["H"], v["W"]), *_range(data, "x", derived.get("range"))).astype(np.int8)
    w = s((v["K"], v["C"] // v["groups"], v["R"], v["S"]), *_range(data, "w", derived.get("range"))).astype(np.int8)
    bias = None
    if c.word("bias", {None: False, "i32[K]": True}):
        bias = s((v["K"],), *_range(data, "bias", derived.get("range"))).astype(np.int32)
    scales = _scales(c, "requant", "requant[k]", "scale_acc", "scale_acc[k]", "scale_z_inv")
    activation = c.word("activation", _ACTIVATION)
    if scales:
        stated = (scales.get("scale_acc", scales.get("scale_acc[k]")),
                  scales.get("requant", scales.get("requant[k]", scales.get("scale_z_inv"))))  # fmt: skip
    else:
        stated = derived.get("scale_acc"), derived["multiplier"]
    channel = ((1 + np.arange(v["K"]) / v["K"]) * 2.0**-12).astype(F)
    # Upstream draws integers in [0, 1) for its scales: all are 0. Before a tanh the sums are brought to about 1.
    named = {"drawn in [0,1) -> 0": np.zeros(v["K"], F), "channel": channel, "channel before tanh": channel / 64}
    before, after = (named[z] if isinstance(z, str) else z for z in stated)
    if per_channel != any(np.ndim(z) == 1 for z in (before, after) if z is not None):
        raise UnknownField(f"{c.id}: w_granularity does not fit the scales")
    p = Program()
    p.step("conv2d_q", ("y",), {"input": np.transpose(x, (0, 2, 3, 1)), "weight": np.transpose(w, (0, 2, 3, 1)),
                                "bias": bias, "rhs_scale": None if before is None else np.asarray(before, F),
                                "out_multiplier": np.asarray(after, F)},
           **attributes, bias_stage="acc" if bias is not None else None, activation=activation,
           out_dtype=_same(c, "out_dtype", "i8"), rounding=c.word("rounding", _ROUNDING),
           clamp=tuple(c.take("saturation")))  # fmt: skip
    return Variant(p, {}, v["work"])


def _ck_group(c: Case, d: Draw) -> Variant:
    """One of the 16 groups of different sizes: a grouped product with one group."""
    _common(c)
    m, n, k = _mnk(c)
    _same(c, "G", 16)
    dtype = c.word("a_dtype", {"f16 / i8 variants": ("f16", "i8")})
    _same(c, "w_dtype", "same")
    _same(c, "bias", None)
    dtype = c.pick(*dtype)
    lo, hi = c.take("data")
    m, n, cut, work = _one(m, n, k)
    kind = DTYPES[dtype].numpy
    p = Program()
    p.step("grouped_matmul", ("y",), {"lhs": d.ints((m, k), lo, hi).astype(kind),
                                      "rhs": d.ints((1, k, n), lo, hi).astype(kind),
                                      "group_sizes": np.array([m], np.int32)},
           out_dtype="i32" if dtype == "i8" else "f16", activation=c.word("activation", _ACTIVATION))  # fmt: skip
    return Variant(p, cut, work)


# ---------------------------------------------------------------------------------------------------- products


@dataclass
class Rhs:
    """A weight `[N, K]` as the operands and attributes of a product."""

    operands: dict[str, Any]
    attributes: dict[str, Any]


_NIBBLE8 = ("u4 (nibble-8)", "i4 (nibble-8)")
_WEIGHT = {
    "i8": "i8", "i8 [-127,127]": "i8", "i4 [-8,7]": "i4", "i4": "i4", "int4": "i4", "int2": "i2", "int1": "i1",
    "u4": "u4", "u2": "u2", "i2": "i2", "u4 (nibble-8)": "u4", "i4 (nibble-8)": "u4", "u4 (GPTQ)": "u4",
    "nf4 (16-entry LUT)": "nf4", "f16": "f16", "fp8_e4m3": "e4m3", "fp8_e5m2": "e5m2",
}  # fmt: skip


def _weight(c: Case, d: Draw, n: int, k: int, kind: Any = F, scaled: bool | None = None) -> Rhs:
    """Codes, scales and zero points of a dense weight. `kind` is the scale's type."""
    stated = c.take("w_dtype")
    if stated not in _WEIGHT:
        raise UnknownField(f"{c.id}: w_dtype = {stated!r} has no meaning here; known: {', '.join(_WEIGHT)}")
    dtype = _WEIGHT[stated]
    spread = {"per_channel": k, "per_group": None, "per_tensor": k, None: k}
    granularity = _same(c, "w_granularity", *spread)
    group = c.take("group_size")
    block = group if granularity == "per_group" or (group not in (None, -1)) else k
    if block is None or block < 1 or k % block:
        raise UnknownField(f"{c.id}: group_size = {group!r} does not fit w_granularity = {granularity!r} and K = {k}")
    zero_form = c.word("w_zero_point", {
        None: None, 0: None, "original": "int", "rescale": "rescale", "quantized": "packed_int",
        "quantized, stored value 7 (+1 in GPTQ)": "packed_int",
        "float additive z[g,n]: w=(q-8)*s+z": "offset_float",
        "i32[g,n] in [-128,128): w=((nib-8)-z)*s": "offset_int",
    })  # fmt: skip
    # A granularity or a group is what says that there are scales; only where neither is stated the caller knows.
    has_scale = granularity is not None or group not in (None, -1) if scaled is None else scaled
    codes = _weight_codes(c, d, (n, k), dtype, stated)
    attributes: dict[str, Any] = {"rhs_transposed": True, "rhs_dtype": dtype}
    operands: dict[str, Any] = {"rhs": codes}
    packing = c.word("packing", _PACKING)
    if DTYPES[dtype].bits < 8:
        attributes["packing"] = packing
        operands["rhs"] = R.pack(codes, dtype, packing)
    shape = () if granularity == "per_tensor" else (n, k // block)
    if has_scale:
        operands["rhs_scale"] = _weight_scale(c, d, shape, kind)
    if stated in _NIBBLE8 and zero_form is None:
        attributes["zero_mode"] = "offset_int"
    if zero_form is not None:
        attributes["zero_mode"] = zero_form
        operands["rhs_zero_point"] = _weight_zero(c, d, shape, dtype, zero_form, packing, operands.get("rhs_scale"))
    return Rhs(operands, attributes)


def _weight_codes(c: Case, d: Draw, shape: tuple[int, int], dtype: str, stated: str) -> Any:
    data = c.take("data")
    ranges = {
        "torch.manual_seed(0); A=rand-.5; W randint(0,8) (uint); zeros const 8; scale rand": (0, 8),
        "act = .5+.125*(i%8); nibbles 9..14 (exact-friendly)": (1, 7),
        "A randint(0,4), W randint(0,2 or 4)": (0, 2 if dtype == "i2" else 4),
        "A,W randint(0,7)": (0, 7),
        "randint(-20,20); scales rand+1e-6": (-20, 20),
        "randint(-127,127) (hi exclusive); scales randn(1): may be negative": (-127, 127),
    }
    plain = (None, "mt19937 seed 42+; act U[-1,1), nibbles 0..15", "manual_seed(0)", "randn, pertoken_quant")
    if data in ranges:
        return d.ints(shape, *ranges[data], np.uint8 if dtype[0] == "u" else np.int8)
    if data not in plain:
        raise UnknownField(f"{c.id}: data = {data!r} has no meaning here")
    if stated == "i8 [-127,127]":
        return d.ints(shape, -127, 128)
    return d.codes(shape, dtype)


_RANGE = re.compile(r"U\[([-\d.]+),([-\d.]+)\)")


def _uniform(c: Case, d: Draw, text: Any, shape: tuple[int, ...]) -> Any:
    """`U[lo,hi)`, or a number for all."""
    if isinstance(text, (int, float)):
        return np.full(shape, text, F)
    found = _RANGE.fullmatch(text)
    if not found:
        raise UnknownField(f"{c.id}: a scale {text!r} has no meaning here")
    lo, hi = map(float, found.groups())
    # A scale of 0 (drawn with U[0, 1)) is legal and stays so.
    return d.uniform(shape, lo, hi)


def _weight_scale(c: Case, d: Draw, shape: tuple[int, ...], kind: Any) -> Any:
    stated = (c.take("scales") or {}).get("w")
    if stated == "f16 [4096,1]":
        return d.uniform(shape, 0.005, 0.015, np.float16)
    scale = _uniform(c, d, stated, shape) if stated is not None else d.uniform(shape, 0.005, 0.015)
    return scale.astype(kind)


def _weight_zero(
    c: Case, d: Draw, shape: tuple[int, ...], dtype: str, form: str, packing: str, scale: Any
) -> Any:  # fmt: skip
    stated = c.take("w_zero_point")
    if form == "offset_float":
        return d.uniform(shape, -1.0, 1.0)
    if form == "offset_int":
        return d.ints(shape, -128, 128, np.int32)
    constant = 8 if DTYPES[dtype].bits == 4 else 2
    if stated.startswith("quantized, stored value 7"):
        # Repacking from GPTQ adds its 1 when the weights are loaded.
        constant = 7 + 1
    if form == "int":
        return np.full(shape, constant, np.int32)
    if form == "rescale":
        return (np.float32(constant) * scale.astype(F)).astype(scale.dtype)
    return R.pack(np.full(shape, constant, np.uint8), dtype, packing)


def _activations(c: Case, d: Draw, shape: tuple[int, ...], dtype: str) -> Any:
    """Float activations in the range that the case states."""
    data, kind = c.take("data"), DTYPES[dtype].numpy
    if data == "act = .5+.125*(i%8); nibbles 9..14 (exact-friendly)":
        return (0.5 + 0.125 * (np.arange(np.prod(shape)).reshape(shape) % 8)).astype(kind)
    if data == "torch.manual_seed(0); A=rand-.5; W randint(0,8) (uint); zeros const 8; scale rand":
        return d.uniform(shape, -0.5, 0.5, kind)
    if data not in (None, "mt19937 seed 42+; act U[-1,1), nibbles 0..15"):
        raise UnknownField(f"{c.id}: data = {data!r} has no meaning for activations")
    return d.uniform(shape, -1.0, 1.0, kind)


def _batch(c: Case) -> tuple[int, ...]:
    """`B` of one is a batch axis of one."""
    return tuple(() if c.take("B") is None else (c.take("B"),))


def _bias(c: Case, d: Draw, n: int, out: str) -> tuple[Any, str | None]:
    """The bias and its stage."""
    form = c.word("bias", {
        None: None, "float[N]": ("scaled", F), "f16[N]": ("scaled", np.float16),
        "f16[N], added after the cast to out dtype": ("out", np.float16), "out dtype [1,N], rand*10": ("out", None),
    })  # fmt: skip
    if form is None:
        return None, None
    stage, kind = form
    if c.fields["bias"] == "out dtype [1,N], rand*10":
        return d.uniform((1, n), 0, 10, DTYPES[out].numpy), stage
    return d.uniform((n,), -1, 1, kind), stage


def _dequant_matmul(c: Case, d: Draw) -> Variant:
    """Float activations, quantised weights."""
    _common(c)
    m, n, k = _mnk(c)
    lhs = c.pick(*c.word("a_dtype", {"f32": ("f32",), "f16": ("f16",), "bf16": ("bf16",), "f32|f16": ("f32", "f16"),
                                     "f16|i8": ("f16", "i8")}))  # fmt: skip
    out = c.word("out_dtype", {"f32": "f32", "f16": "f16", "same": lhs, "f16|i32": "f16" if lhs == "f16" else "i32"})
    # The rounding stated for a weight-only product is that of its output, or of the quantiser of its sibling.
    c.word("rounding", {**_ROUNDING, "half_even (choose_qparams nearbyint); round() for q": None})
    _same_saturation(c)
    known = _derived_bitblas(c, d)
    if known is not None:
        return known
    m, n, cut, work = _one(m, n, k)
    _same(c, "a_granularity", None)
    scaled = _says_scaled(c)
    kind = DTYPES[lhs].numpy if lhs in ("f16", "bf16") else F
    b = _weight(c, d, n, k, kind, scaled)
    if lhs == "i8":
        a = d.codes((m, k), "i8")
        # A scaled product is no raw i32: the alternative `i32` is the one without scales.
        out = "f16" if "rhs_scale" in b.operands else "i32"
    else:
        a = _activations(c, d, (m, k), lhs)
    bias, stage = _bias(c, d, n, out)
    p = Program()
    p.step("scaled_matmul", ("y",), {"lhs": a, **b.operands, "bias": bias}, **b.attributes, bias_stage=stage,
           activation=c.word("activation", _ACTIVATION), out_dtype=out)  # fmt: skip
    return Variant(p, cut, work)


def _same_saturation(c: Case) -> None:
    if c.take("saturation") not in (None, [-128, 127]):
        raise UnknownField(f"{c.id}: saturation = {c.fields['saturation']!r} has no meaning here")


# BitBLAS's names say whether there is a scale where no field does.
_SCALED_BY_NAME = re.compile(r"_(s1|scale|scale_zeros_original)(_|$)")


def _says_scaled(c: Case) -> bool | None:
    if c.fields["system"] != "BitBLAS":
        return None
    if c.fields.get("w_granularity") is not None or c.fields.get("group_size") not in (None, -1):
        return True
    return bool(_SCALED_BY_NAME.search(c.id)) or c.fields.get("w_zero_point") is not None


def _derived_bitblas(c: Case, d: Draw) -> Variant | None:
    """The recipe of the published results: all scales are powers of two."""
    if c.fields["system"] != "qmlir_variant_of_BitBLAS":
        return None
    m, n, k = _mnk(c)
    group = c.take("group_size")
    _same(c, "w_dtype", "u4")
    _same(c, "bias", None)
    _same(c, "activation", "none")
    s = Stream()
    a, q = (s((m, k), -4, 5) / 8).astype(np.float16), s((n, k), 0, 16).astype(np.uint8)
    g, row = np.arange(k // group)[None], np.arange(n)[:, None]
    scale = (2.0 ** -(3 + (row + g) % 3)).astype(np.float16)
    zero = ((3 * row + 5 * g) % 16).astype(np.int32)
    form = c.id.removeprefix("qmlir_bitblas_w4a16_g128_")
    extra: dict[str, Any] = {
        "original": {"rhs_scale": scale, "rhs_zero_point": zero},
        "rescale": {"rhs_scale": scale, "rhs_zero_point": (zero / 8).astype(np.float16)},
        "plain_uint4": {},
        "plain_int4": {},
    }[form]
    p = Program()
    p.step("scaled_matmul", ("y",), {"lhs": a, "rhs": q, **extra}, rhs_transposed=True, rhs_dtype="u4",
           zero_mode={"original": "int", "rescale": "rescale", "plain_int4": "offset_int"}.get(form),
           out_dtype="f16")  # fmt: skip
    return Variant(p, {}, m * n * k)


def _matmul(c: Case, d: Draw) -> Variant:
    """Codes times codes, without scales."""
    _common(c)
    m, n, k = _mnk(c)
    lhs = c.word("a_dtype", {"i8": "i8", "i4": "i4", "fp8_e4m3": "e4m3", "fp8_e5m2": "e5m2"})
    c.word("rounding", _ROUNDING)
    _same(c, "a_granularity", None)
    m, n, cut, work = _one(m, n, k)
    stream = c.fields["system"] == "qmlir_variant_of_BitBLAS"
    b = _weight(c, d, n, k)
    a = d.ints((m, k), 0, 4) if c.take("data") == "A randint(0,4), W randint(0,2 or 4)" else d.codes((m, k), lhs)
    if stream:
        bits = DTYPES[b.attributes["rhs_dtype"]].bits
        s = Stream()
        a = s((m, k), -128, 128).astype(np.int8)
        for width in (4, 2, 1):
            w = s((n, k), 0, 1 << width)
            if width == bits:
                break
        # A 1-bit code is stored as it is and means 2q - 1.
        q = (w if bits == 1 else w - (1 << (bits - 1))).astype(np.int8)
        b.operands["rhs"] = R.pack(q, b.attributes["rhs_dtype"], b.attributes["packing"])
    _same(c, "bias", None)
    p = Program()
    p.step("scaled_matmul", ("y",), {"lhs": a, **b.operands}, **b.attributes, lhs_dtype=lhs,
           activation=c.word("activation", _ACTIVATION), out_dtype=c.word("out_dtype", _OUT))  # fmt: skip
    return Variant(p, cut, work)


def _scaled_matmul(c: Case, d: Draw) -> Variant:
    """Codes times codes with scales; activations may be quantised in the program."""
    system = c.fields["system"]
    if system == "AITER":
        return _aiter_product(c, d)
    if system in ("qmlir_variant_of_AITER", "qmlir_variant_of_ETVK"):
        return _derived_product(c, d)
    _common(c)
    m, n, k = _mnk(c)
    batch = _batch(c)
    m, n, cut, work = _one(m, n, k, int(np.prod(batch, initial=1)))
    out = c.word("out_dtype", _OUT)
    b = _weight(c, d, n, k, F)
    bias, stage = _bias(c, d, n, out)
    p = Program()
    operands, extra = _quantised_activations(c, d, p, (*batch, m, k))
    scales = dict(c.take("scales") or {})
    left = set(scales) - {"a", "w", "out", "D0", "D1", "epilogue"}
    if left:
        raise UnknownField(f"{c.id}: scales {sorted(left)} have no meaning here")
    if "epilogue" in scales and scales["epilogue"] != "f16(c)*d0*d1":
        raise UnknownField(f"{c.id}: epilogue {scales['epilogue']!r} has no meaning here")
    if scales.get("out") is not None:
        if scales["out"] != "per token U[.1,.2), out zp [-10,10)":
            raise UnknownField(f"{c.id}: the output's scale {scales['out']!r} has no meaning here")
        operands |= {"out_scale": d.uniform((*batch, m, 1), 0.1, 0.2),
                     "out_zero_point": d.ints((*batch, m, 1), -10, 10, np.int32)}  # fmt: skip
        extra |= {"rounding": c.word("rounding", _ROUNDING), "clamp": tuple(c.take("saturation"))}
    _same_saturation(c)
    p.step("scaled_matmul", ("y",), {**operands, **b.operands, "bias": bias}, **b.attributes, **extra, bias_stage=stage,
           activation=c.word("activation", _ACTIVATION), out_dtype=out)  # fmt: skip
    return Variant(p, cut, work)


_QUANTISER_ROUNDING = {
    **_ROUNDING,
    # choose_qparams rounds the zero point half to even, which its recipe does; codes are rounded by round().
    "half_even (choose_qparams nearbyint); round() for q": "half_away",
}


def _quantised_activations(
    c: Case, d: Draw, p: Program, shape: tuple[int, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`lhs` with its scale and zero point; what has to be quantised is, by a step of the program."""
    form = c.take("a_dtype")
    granularity = c.take("a_granularity")
    zero = c.take("a_zero_point")
    scales = c.take("scales") or {}
    data = c.take("data")
    rows = (*shape[:-1], 1)
    if form == "i8" and granularity in ("per_token", None):
        lhs = d.ints(shape, 0, 7) if data == "A,W randint(0,7)" else d.codes(shape, "i8")
        if granularity is None:
            return {"lhs": lhs}, {}
        scale = d.uniform(rows, 0.005, 0.015) if "a" not in scales else _uniform(c, d, scales["a"], rows)
        if zero is None:
            return {"lhs": lhs, "lhs_scale": scale}, {}
        if zero not in ("per token in [-10,10)", "per token [-10,10)"):
            raise UnknownField(f"{c.id}: a_zero_point = {zero!r} has no meaning here")
        return {"lhs": lhs, "lhs_scale": scale, "lhs_zero_point": d.ints(rows, -10, 10, np.int32)}, {}
    if granularity == "per_token dynamic":
        source = {"f32 -> dynamic i8": "f32", "f16 -> dynamic i8": "f16", "i8": "f16"}.get(form)
        if source is None or zero not in ("asymmetric per token", None):
            raise UnknownField(f"{c.id}: a_dtype = {form!r} with a_zero_point = {zero!r} has no meaning here")
        x = _activations(c, d, shape, source)
        symmetric = zero is None
        names = ("q", "q_scale") if symmetric else ("q", "q_scale", "q_zero_point")
        p.step("dynamic_quantize", names, {"input": x}, symmetric=symmetric, granularity="token",
               recipe="amax" if symmetric else "fbgemm", rounding=c.word("rounding", _QUANTISER_ROUNDING))  # fmt: skip
        return dict(zip(("lhs", "lhs_scale", "lhs_zero_point"), names, strict=False)), {}
    if form == "f32 -> static i8" and granularity == "per_tensor":
        x, scale, code = _activations(c, d, shape, "f32"), np.asarray(scales["a"], F), np.asarray(zero, np.int32)
        p.step("quantize", ("q",), {"input": x, "scale": p.value("x_scale", scale),
                                    "zero_point": p.value("x_zero_point", code)},
               rounding=c.word("rounding", _ROUNDING))  # fmt: skip
        return {"lhs": "q", "lhs_scale": "x_scale", "lhs_zero_point": "x_zero_point"}, {}
    raise UnknownField(f"{c.id}: a_dtype = {form!r} with a_granularity = {granularity!r} has no meaning here")


def _requantised(c: Case, d: Draw) -> Variant:
    """Static activations in and out: quantize, product with requantisation, dequant."""
    _common(c)
    m, n, k = _mnk(c)
    m, n, cut, work = _one(m, n, k)
    b = _weight(c, d, n, k)
    p = Program()
    operands, _ = _quantised_activations(c, d, p, (m, k))
    bias, stage = _bias(c, d, n, "i8")
    activation = c.pick(*c.word("activation", {"none|relu": ("none", "relu"), "none": ("none",)}))
    _same(c, "out_dtype", "i8 (then dequantised to f32 for comparison)")
    _step_and_dequant(c, p, "scaled_matmul", {**operands, **b.operands, "bias": bias},
                      {**b.attributes, "bias_stage": stage, "activation": activation})  # fmt: skip
    return Variant(p, cut, work)


def _step_and_dequant(c: Case, p: Program, op: str, operands: dict[str, Any], attributes: dict[str, Any]) -> None:
    scales = _scales(c, "a", "w", "out", "out_zp")
    p.value("y_scale", np.asarray(scales["out"], F))
    p.value("y_zero_point", np.asarray(scales["out_zp"], np.int32))
    p.step(op, ("y",), {**operands, "out_scale": "y_scale", "out_zero_point": "y_zero_point"}, **attributes,
           out_dtype="i8", rounding=c.word("rounding", _ROUNDING), clamp=tuple(c.take("saturation")))  # fmt: skip
    p.step("dequant", ("real",), {"input": "y", "scale": "y_scale", "zero_point": "y_zero_point"}, dtype="i8",
           zero_mode="int")  # fmt: skip


def _coopmat(c: Case, d: Draw) -> Variant:
    """The same weights with f16 activations and with quantised ones."""
    _common(c)
    m, n, k = _mnk(c)
    form = c.pick(*c.word("a_dtype", {"f16 / dynamic i8": ("f16", "i8")}))
    b = _weight(c, d, n, k, np.float16 if form == "f16" else F)
    x = _activations(c, d, (m, k), form if form == "f16" else "f32")
    scale = np.full((m, 1), _scales(c, "a")["a"], F)
    _same(c, "bias", None)
    activation = c.word("activation", _ACTIVATION)
    p = Program()
    if form == "f16":
        p.step("scaled_matmul", ("y",), {"lhs": x, **b.operands}, **b.attributes, activation=activation,
               out_dtype="f16")  # fmt: skip
    else:
        p.step("quantize", ("q",), {"input": x, "scale": p.value("x_scale", scale)})
        p.step("scaled_matmul", ("y",), {"lhs": "q", "lhs_scale": "x_scale", **b.operands}, **b.attributes,
               activation=activation, out_dtype="f32")  # fmt: skip
    return Variant(p, {}, m * n * k)


def _choose_qparams(c: Case, d: Draw) -> Variant:
    _common(c)
    _same(c, "a_dtype", "f32")
    _same(c, "a_granularity", "per_token")
    _same(c, "bias", None)
    _same(c, "activation", "none")
    _same(c, "out_dtype", "f32 scale, i8 zp")
    c.word("rounding", {"half_even": "half_even"})
    _same_saturation(c)
    if c.take("notes") is None:
        raise UnknownField(f"{c.id}: nothing says how the parameters are chosen")
    m, k = c.take("M"), c.take("K")
    _same(c, "N", None)
    p = Program()
    p.step("dynamic_quantize", ("q", "scale", "zero_point"), {"input": d.uniform((m, k), -1, 1)}, granularity="token",
           symmetric=False, recipe="fbgemm")  # fmt: skip
    return Variant(p, {}, m * k)


def _choose_and_quantize(c: Case, d: Draw) -> Variant:
    _common(c)
    m, k = c.take("M"), c.take("K")
    _same(c, "a_dtype", "f32")
    _same(c, "a_granularity", "per_token")
    _same(c, "bias", None)
    _same(c, "activation", "none")
    _same(c, "out_dtype", "i8")
    s = Stream()
    s((16, 256), 0, 2)
    s((64, 256), 0, 2)
    x = (s((m, k), -1000, 1000) / 512).astype(F)
    symmetric = "_sym_" in c.id
    p = Program()
    p.step("dynamic_quantize", ("q", "scale") if symmetric else ("q", "scale", "zero_point"), {"input": x},
           granularity="token", symmetric=symmetric, recipe="amax" if symmetric else "torchao",
           rounding=c.word("rounding", _ROUNDING))  # fmt: skip
    return Variant(p, {}, m * k)


def _derived_product(c: Case, d: Draw) -> Variant:
    """The recipes of the published results: all scales are powers of two, or their sums are exact."""
    _common(c)
    m, n, k = _mnk(c)
    s = Stream()
    out = c.word("out_dtype", _OUT)
    rounding = c.word("rounding", _ROUNDING)
    activation = c.word("activation", _ACTIVATION)
    _same(c, "a_dtype", "i8")
    p = Program()
    if c.id.startswith("qmlir_q8ta_linear"):
        _same(c, "w_dtype", "i8")
        _same(c, "a_granularity", "per_tensor")
        _same(c, "w_granularity", "per_channel")
        _same(c, "bias", "float[N]")
        a, w = s((m, k), -128, 128).astype(np.int8), s((n, k), -127, 128).astype(np.int8)
        bias = (s((n,), -64, 64) / 64).astype(F)
        scale = ((1 + np.arange(n) / n) * 2**-7).astype(F)[:, None]
        p.step("scaled_matmul", ("y",), {"lhs": a, "rhs": w, "lhs_scale": F(2**-7), "rhs_scale": scale, "bias": bias,
                                         "lhs_zero_point": np.int32(c.take("a_zero_point")), "out_scale": F(1 / 16),
                                         "out_zero_point": np.int32(-1)},
               rhs_transposed=True, bias_stage="scaled", activation=activation, rounding=rounding,
               out_dtype=out)  # fmt: skip
    elif c.id.startswith("qmlir_w4a8"):
        group = c.take("group_size")
        _same(c, "w_dtype", "u4")
        _same(c, "a_granularity", "per_token")
        _same(c, "w_granularity", "per_group")
        _same(c, "bias", None)
        a, q = s((m, k), -128, 128).astype(np.int8), s((n, k), 0, 16).astype(np.uint8)
        i, g, j = np.arange(m)[:, None], np.arange(k // group)[None, :], np.arange(n)[:, None]
        zero = ((3 * g + 5 * j) % 16).astype(np.int32)
        form = c.id.removeprefix("qmlir_w4a8_g32_")
        mode, zeros = {"sym": ("offset_int", None), "int_zp": ("int", zero), "int_zp_int8_out": ("int", zero),
                       "float_zp": ("offset_float", (zero / 8).astype(F))}[form]  # fmt: skip
        out_scale = F(1) if out == "i8" else None
        p.step("scaled_matmul", ("y",), {"lhs": a, "rhs": q, "lhs_scale": (2.0 ** -(5 + i % 3)).astype(F),
                                         "lhs_zero_point": ((7 * i) % 21 - 10).astype(np.int32),
                                         "rhs_scale": (2.0 ** -(4 + (g + j) % 4)).astype(F), "rhs_zero_point": zeros,
                                         "out_scale": out_scale},
               rhs_dtype="u4", rhs_transposed=True, zero_mode=mode, activation=activation, out_dtype=out,
               rounding=rounding if out == "i8" else None)  # fmt: skip
    else:
        _same(c, "w_dtype", "i8")
        _same(c, "a_granularity", "per_token")
        _same(c, "w_granularity", "per_channel")
        _same(c, "bias", None)  # what the bias is the name says
        a, w = s((m, k), -128, 128).astype(np.int8), s((n, k), -127, 128).astype(np.int8)
        b = (s((n,), -64, 64)).astype(F)
        stage = {"once": "scaled", "twice": "out"}.get(c.id.rsplit("_", 1)[-1])
        i, j = np.arange(m)[:, None], np.arange(n)[:, None]
        bias = None if stage is None else b.astype(DTYPES[out].numpy) if stage == "out" else b
        p.step("scaled_matmul", ("y",), {"lhs": a, "rhs": w, "lhs_scale": (2.0 ** -(6 + i % 3)).astype(F),
                                         "rhs_scale": (2.0 ** -(7 + j % 3)).astype(F), "bias": bias},
               rhs_transposed=True, bias_stage=stage, activation=activation, out_dtype=out)  # fmt: skip
    return Variant(p, {}, m * n * k)


# ------------------------------------------------------------------------------------------------ convolutions


def _etvk_conv(c: Case, d: Draw) -> Variant:
    _common(c)
    v, attributes = _geometry(c)
    layout = c.word("layout", {
        "x NCHW logical; weight [OC, KH*KW*IC/g] IC innermost": "FHWC",
        "x NCHW logical; weight [OC, KH*KW*IC/g] IC innermost ; dw [KH,KW,OC]": "HWCF",
    })  # fmt: skip
    _same(c, "a_dtype", "f32 -> static i8")
    _same(c, "a_granularity", "per_tensor")
    _same(c, "w_dtype", "i8 [-127,127]")
    _same(c, "w_granularity", "per_channel")
    _zero_is_none(c, "w_zero_point")
    scales = _scales(c, "a", "w", "out", "out_zp")
    w = d.ints((v["K"], v["R"], v["S"], v["C"] // v["groups"]), -127, 128)
    w = np.transpose(w, (1, 2, 3, 0)) if layout == "HWCF" else w
    p = Program()
    p.step("quantize", ("q",), {"input": d.uniform((v["N"], v["C"], v["H"], v["W"]), -1, 1),
                                "scale": p.value("x_scale", np.asarray(scales["a"], F)),
                                "zero_point": p.value("x_zero_point", np.asarray(c.take("a_zero_point"), np.int32))},
           rounding=c.word("rounding", _ROUNDING))  # fmt: skip
    # Upstream's zero biases would hide a bias that is left out: here all are random.
    c.word("bias", {"float[OC] (upstream values: zeros in general/pw, random in dw)": None, "float[OC]": None})
    operands = {"input": "q", "weight": w, "lhs_scale": "x_scale", "lhs_zero_point": "x_zero_point",
                "rhs_scale": _uniform(c, d, scales["w"], (v["K"],)), "bias": d.uniform((v["K"],), -1, 1)}  # fmt: skip
    attributes |= {"input_layout": "NCHW", "filter_layout": layout, "bias_stage": "scaled",
                   "activation": c.word("activation", _ACTIVATION)}  # fmt: skip
    if c.word("out_dtype", {"f32": False, "i8 (dequantised for comparison)": True}):
        _step_and_dequant(c, p, "conv2d_q", operands, attributes)
    else:
        _same_saturation(c)
        p.step("conv2d_q", ("y",), operands, **attributes, out_dtype="f32")
    return Variant(p, {}, v["work"])


def _aiter_conv(c: Case, d: Draw) -> Variant:
    _common(c)
    v, attributes = _geometry(c)
    dtype = c.pick(*c.word("a_dtype", {"f16|bf16": ("f16", "bf16")}))
    layout = c.pick(*c.word("layout", {"NCHW|NHWC": ("NCHW", "NHWC")}))
    activation = c.pick(*c.word("activation", {"none|relu|relu6|gelu": ("none", "relu", "relu6", "gelu")}))
    has_bias = c.pick(*c.word("bias", {"optional": (True, False)}))
    _same(c, "w_dtype", "same")
    _same(c, "out_dtype", "same")
    kind = DTYPES[dtype].numpy
    x, w = d.normal((v["N"], v["C"], v["H"], v["W"]), kind), d.normal((v["K"], v["C"] // v["groups"], v["R"], v["S"]))
    w = (w / np.sqrt(w[0].size)).astype(kind)
    if layout == "NHWC":
        x, w = np.transpose(x, (0, 2, 3, 1)), np.transpose(w, (0, 2, 3, 1))
    p = Program()
    p.step("conv2d_q", ("y",), {"input": x, "weight": w, "bias": d.normal((v["K"],), kind) if has_bias else None},
           **attributes, input_layout=layout, filter_layout="FCHW" if layout == "NCHW" else "FHWC",
           activation=activation, out_dtype=dtype)  # fmt: skip
    return Variant(p, {}, v["work"])


# ------------------------------------------------------------------------------------------------------- AITER


def _pertoken(d: Draw, shape: tuple[int, ...], dtype: str, rounding: str = "half_even") -> tuple[Any, Any]:
    """Normal numbers, quantised by row as `pertoken_quant` does: `amax / largest code`."""
    x = d.normal(shape)
    if dtype == "i8":
        q, s, _ = R.dynamic_quantize(x, recipe="amax", rounding=rounding)
        return q, s
    kind = DTYPES[dtype].numpy
    s = (np.abs(x).max(-1, keepdims=True) / F(ml_dtypes.finfo(kind).max)).astype(F)
    return (x / s).astype(kind), s


def _aiter_product(c: Case, d: Draw) -> Variant:
    _common(c)
    m, n, k = _mnk(c)
    batch = _batch(c)
    a = c.pick(*c.word("a_dtype", {"i8": ("i8",), "i8|fp8": ("i8", "e4m3", "e4m3fnuz"), "fp8": _FP8["fp8"]}))
    c.word("w_dtype", {"i8": None, "fp8": None, "same": None})
    _same(c, "a_granularity", "per_token", None)
    _same(c, "w_granularity", "per_channel", None)
    _zero_is_none(c, "a_zero_point", "w_zero_point")
    out = c.pick(*c.word("out_dtype", {"bf16|f16": ("bf16", "f16"), "bf16": ("bf16",), "f16": ("f16",),
                                       "f32": ("f32",), "i32": ("i32",)}))  # fmt: skip
    # The first letter is that of x, `T` row-major [M, K]; the second that of w, `N` row-major [N, K].
    lhs_t, rhs_t = c.word("layout", {None: (False, True), "TN": (False, True), "TT": (False, False),
                                     "NN": (True, True), "NT": (True, False)})  # fmt: skip
    # The rounding is that of the quantiser that made the codes.
    rounding = c.word("rounding", {None: "half_even", "trunc (activation quantiser)": "trunc"})
    data = c.word("data", {None: "quant", "randn, pertoken_quant": "quant", "manual_seed(0)": "quant",
                           "randint(-20,20); scales rand+1e-6": "small"})  # fmt: skip
    m, n, cut, work = _one(m, n, k, int(np.prod(batch, initial=1)))
    if data == "small":
        x, w = d.ints((*batch, m, k), -20, 20), d.ints((*batch, n, k), -20, 20)
        xs, ws = d.uniform((*batch, m, 1), 1e-6, 1 + 1e-6), d.uniform((*batch, n, 1), 1e-6, 1 + 1e-6)
    else:
        (x, xs), (w, ws) = _pertoken(d, (*batch, m, k), a, rounding), _pertoken(d, (*batch, n, k), a)
    bias, stage = _bias(c, d, n, out)
    real = "f32" if out == "i32" else out
    p = Program()
    p.step("scaled_matmul", ("y",), {
        "lhs": np.swapaxes(x, -1, -2) if lhs_t else x, "lhs_scale": np.swapaxes(xs, -1, -2) if lhs_t else xs,
        "rhs": w if rhs_t else np.swapaxes(w, -1, -2), "rhs_scale": ws if rhs_t else np.swapaxes(ws, -1, -2),
        "bias": bias,
    }, lhs_transposed=lhs_t, rhs_transposed=rhs_t, bias_stage=stage, activation=c.word("activation", _ACTIVATION),
        returned=out != "i32", out_dtype=real)  # fmt: skip
    if out == "i32":
        # Upstream scales in f32 and converts to i32; a qmlir result i32 is the raw accumulator.
        p.step("fptosi", ("codes",), {"input": "y"})
    return Variant(p, cut, work)


def _blockscale(c: Case, d: Draw) -> Variant:
    _common(c)
    m, n, k = _mnk(c)
    dtype = c.pick(*c.word("a_dtype", {"fp8": _FP8["fp8"]}))
    _same(c, "w_dtype", "fp8")
    _same(c, "a_granularity", "1x128")
    _same(c, "w_granularity", "128x128")
    _same(c, "group_size", None, 128)
    _same(c, "bias", None)
    m, n, cut, work = _one(m, n, k)
    kind = DTYPES[dtype].numpy
    scale = d.uniform((-(-n // 128), k // 128), 0.005, 0.015)
    p = Program()
    if n % 128:
        # A block must divide its axis (section 1): the same scales, one a row.
        scale = np.repeat(scale, 128, 0)[:n]
        p.notes.append(f"128 does not divide N = {n}: the 128x128 scales are given as 1x128")
    p.step("scaled_matmul", ("y",), {"lhs": d.normal((m, k)).astype(kind), "rhs": d.normal((n, k)).astype(kind),
                                     "lhs_scale": d.uniform((m, k // 128), 0.005, 0.015), "rhs_scale": scale},
           rhs_transposed=True, activation=c.word("activation", _ACTIVATION),
           out_dtype=c.word("out_dtype", _OUT))  # fmt: skip
    return Variant(p, cut, work)


def _gather_scatter(c: Case, d: Draw) -> Variant:
    """Routed products of int8 codes; with `none` the weighted sum over experts, with `swiglu` a row an expert."""
    _common(c)
    m, n, k = _mnk(c)
    experts, topk = c.take("E"), c.take("topk")
    _same(c, "a_dtype", "i8 smoothquant")
    _same(c, "w_dtype", "i8")
    _same(c, "a_granularity", "per_token")
    _same(c, "w_granularity", "per_channel per expert")
    _same(c, "bias", "f32[E,N]")
    rounding, of_weights = c.word("rounding", {"half_away (activation), half_even (weights)":
                                               ("half_away", "half_even")})  # fmt: skip
    activation = c.pick(*c.word("activation", {"none|swiglu (interleaved a[::2] gate, a[1::2] linear)":
                                               ("none", "swiglu")}))  # fmt: skip
    m, n, cut = fit(m, n, topk * k)
    # The codes of a symmetric quantiser, whose rounding is of no matter for codes drawn as such.
    assert of_weights == "half_even"
    w, ws = d.ints((experts, n, k), -127, 128), d.uniform((experts, n, 1), 0.5, 1.5) * F(k**-0.5 / 127)
    smooth = d.uniform((k,), 0.5, 1.5)
    p = Program()
    p.step("dynamic_quantize", ("q", "q_scale"), {"input": d.normal((m, k)) * smooth}, recipe="amax",
           rounding=rounding)  # fmt: skip
    gated = activation == "swiglu"
    p.step("grouped_matmul", ("y",), {
        "lhs": "q", "lhs_scale": "q_scale", "rhs": w, "rhs_scale": ws, "bias": d.normal((experts, n)),
        "expert_ids": _routing(d, m, topk, experts),
        "routing_weights": None if gated else d.uniform((m, topk), 0, 1),
    }, rhs_transposed=True, bias_stage="scaled", activation=activation,
        gate_layout="interleaved" if gated else None, out_dtype=c.word("out_dtype", _OUT))  # fmt: skip
    return Variant(p, cut, m * n * k * topk)


def _routing(d: Draw, tokens: int, topk: int, experts: int) -> Any:
    """Different experts for each token."""
    return np.argsort(d.rng.random((tokens, experts)), 1)[:, :topk].astype(np.int32)


def _gmm(c: Case, d: Draw) -> Variant:
    _common(c)
    m, n, k = _mnk(c)
    groups = c.take("G")
    form = c.pick(*c.word("layout", {"rhs (G,K,N) row / col major; also transposed lhs (tgmm)":
                                     ("row", "col", "tgmm")}))  # fmt: skip
    dtype = c.pick(*c.word("a_dtype", {"f16|bf16": ("f16", "bf16")}))
    _same(c, "w_dtype", "same")
    _same(c, "out_dtype", "same")
    _same(c, "bias", None)
    _same(c, "activation", "none")
    _same(c, "data", "seed 77; random group sizes incl. empty groups")
    kind = DTYPES[dtype].numpy
    cuts = np.sort(d.rng.integers(0, m + 1, groups - 2))
    sizes = np.diff([0, *cuts, m]).astype(np.int32)
    sizes = np.insert(sizes, 1, 0)  # one empty group at least
    p = Program()
    lhs = d.normal((m, k), kind)
    if form == "tgmm":
        # One product a group: its rows, transposed, times the same rows of the other side.
        rhs, at = d.normal((m, n), kind), np.concatenate([[0], np.cumsum(sizes)])
        for g in range(groups):
            rows = slice(at[g], at[g + 1])
            p.step("scaled_matmul", (f"y{g}",), {"lhs": lhs[rows], "rhs": rhs[rows]}, lhs_transposed=True,
                   out_dtype=dtype)  # fmt: skip
    else:
        rhs = d.normal((groups, k, n), kind)
        p.step("grouped_matmul", ("y",), {"lhs": lhs, "rhs": np.swapaxes(rhs, 1, 2) if form == "col" else rhs,
                                          "group_sizes": sizes},
               rhs_transposed=form == "col", out_dtype=dtype)  # fmt: skip
    return Variant(p, {}, m * n * k)


@dataclass(frozen=True)
class _Experts:
    """How the two products of a mixture of experts are quantised."""

    codes: str  # of the activations: "i8", "bf16", ...
    weights: str
    smooth: bool = False


_MOE = {
    "none": (_Experts("bf16", "bf16"),),
    "int8 per-token": (_Experts("i8", "i8"),),
    "fp8 per-token": (_Experts("e4m3", "e4m3"), _Experts("e4m3fnuz", "e4m3fnuz")),
    "int8 smoothquant": (_Experts("i8", "i8", True),),
    "fp8 smoothquant": (_Experts("e4m3", "e4m3", True), _Experts("e4m3fnuz", "e4m3fnuz", True)),
    "w int4, a fp8 smoothquant": (_Experts("e4m3", "i4", True), _Experts("e4m3fnuz", "i4", True)),
    "bf16|fp8|i8|mxfp4": (_Experts("bf16", "bf16"), _Experts("e4m3", "e4m3"), _Experts("e4m3", "i4"),
                          _Experts("i8", "i8"), _Experts("bf16", "e2m1")),
}  # fmt: skip


def _fused_moe(c: Case, d: Draw) -> Variant:
    """Two routed products: x -> W1 -> activation -> W2, weighted over the experts."""
    _common(c)
    m, n, k = _mnk(c)
    experts, topk = c.take("E"), c.take("topk")
    scheme = c.pick(*c.word("a_dtype", _MOE))
    _same(c, "w_dtype", *(set(_MOE) - {"bf16|fp8|i8|mxfp4"}), "same|int4")
    _same(c, "bias", None)
    activation = c.pick(*c.word("activation", {
        "none": ("none",),
        "silu|gelu gated (gate first half, up second) or ungated gelu": ("swiglu", "geglu", "gelu"),
    }))  # fmt: skip
    m, n, cut = fit(m, n, 3 * topk * k)
    p = Program()
    _moe(p, d, scheme, activation, (m, n, k, experts, topk), "bf16")
    return Variant(p, cut, 3 * m * n * k * topk)


def _moe(
    p: Program, d: Draw, scheme: _Experts, activation: str, sizes: tuple[int, int, int, int, int], dtype: str
) -> None:  # fmt: skip
    tokens, inner, outer, experts, topk = sizes
    gated = activation in ("swiglu", "geglu")
    ids = p.value("expert_ids", _routing(d, tokens, topk, experts))
    routing = d.uniform((tokens, topk), 0, 1)
    first = {**_rows(p, d, scheme, "x", tokens, outer, ids), **_expert_weight(d, scheme, experts, inner * (1 + gated),
                                                                             outer)}  # fmt: skip
    smooth = d.uniform((tokens, topk, inner), 0.5, 1.5) if scheme.smooth else None
    quantised = scheme.codes not in ("bf16", "f16")
    p.step("grouped_matmul", ("h",), {**first, "expert_ids": ids, "act_scale": smooth}, rhs_transposed=True,
           activation=activation, out_dtype="f32" if quantised else dtype, **_weight_attributes(scheme))  # fmt: skip
    second = _quantised_rows(p, scheme, "h") if quantised else {"lhs": "h"}
    p.step("grouped_matmul", ("y",), {**second, **_expert_weight(d, scheme, experts, outer, inner), "expert_ids": ids,
                                      "routing_weights": routing},
           rhs_transposed=True, out_dtype=dtype, **_weight_attributes(scheme))  # fmt: skip


def _rows(p: Program, d: Draw, scheme: _Experts, name: str, tokens: int, width: int, ids: str) -> dict[str, Any]:
    """The activations of the first product, quantised by a step of the program."""
    x = d.normal((tokens, width))
    if scheme.codes in ("bf16", "f16"):
        return {"lhs": x.astype(DTYPES[scheme.codes].numpy)}
    if scheme.smooth:
        # The smoothing factors are an expert's own: a row of x for each of its experts.
        factors = d.uniform((int(p.arrays[ids].max()) + 1, width), 0.5, 1.5)[p.arrays[ids]]
        p.step("mulf", (name,), {"input": np.repeat(x[:, None], p.arrays[ids].shape[1], 1), "factor": factors})
    else:
        p.value(name, x)
    return _quantised_rows(p, scheme, name)


def _quantised_rows(p: Program, scheme: _Experts, name: str) -> dict[str, Any]:
    p.step("dynamic_quantize", (f"{name}_q", f"{name}_scale"), {"input": name}, granularity="token", recipe="amax",
           out_dtype=scheme.codes)  # fmt: skip
    return {"lhs": f"{name}_q", "lhs_scale": f"{name}_scale"}


def _weight_attributes(scheme: _Experts) -> dict[str, Any]:
    if DTYPES[scheme.weights].bits < 8:
        return {"rhs_dtype": scheme.weights, "packing": "low_first"}
    return {}


def _expert_weight(d: Draw, scheme: _Experts, experts: int, n: int, k: int) -> dict[str, Any]:
    """`[E, N, K]`, with a scale a channel, or one in 32 (MX) for fp4."""
    shape, t = (experts, n, k), DTYPES[scheme.weights]
    if scheme.weights in ("bf16", "f16"):
        return {"rhs": d.uniform(shape, -(k**-0.5), k**-0.5, t.numpy)}
    # Any byte is a pair of 4-bit codes.
    codes = d.ints((experts, n, k // t.per_byte), 0, 256, np.uint8) if t.bits < 8 else d.codes(shape, scheme.weights)
    if scheme.weights == "e2m1":
        e8m0 = DTYPES["e8m0"].numpy
        return {
            "rhs": codes,
            "rhs_scale": (2.0 ** d.ints((experts, n, k // 32), -9, -5, np.int64)).astype(F).astype(e8m0),
        }
    return {"rhs": codes, "rhs_scale": d.uniform((experts, n, 1), 0.5, 1.5) * F(k**-0.5 / (t.hi or 3))}


def _grouped(c: Case, d: Draw) -> Variant:
    """The recipe of a published result."""
    if c.fields["system"] != "qmlir_variant_of_AITER":
        return _gmm(c, d)
    _common(c)
    m, n, k = _mnk(c)
    groups = _same(c, "G", 4)
    for side in ("a", "w"):
        _same(c, f"{side}_dtype", "i8")
    _same(c, "bias", None)
    _same(c, "activation", "none")
    _same(c, "rounding", "half_even")
    s = Stream()
    a, w = s((m, k), -128, 128).astype(np.int8), s((groups, n, k), -127, 128).astype(np.int8)
    p = Program()
    p.step("grouped_matmul", ("y",), {"lhs": a, "rhs": w, "group_sizes": np.array([5, 0, 17, 10], np.int32),
                                      "rhs_scale": (2.0 ** -(8 + np.arange(4))).astype(F).reshape(4, 1, 1)},
           rhs_transposed=True, out_dtype=c.word("out_dtype", _OUT))  # fmt: skip
    return Variant(p, {}, m * n * k)


def _derived_moe(c: Case, d: Draw) -> Variant:
    """int8 weights, relu between, f32 out; the second product takes the f32 of the first."""
    _common(c)
    m, n, k = _mnk(c)
    experts, topk = c.take("E"), c.take("topk")
    for side in ("a", "w"):
        _same(c, f"{side}_dtype", "i8")
    _same(c, "bias", None)
    _same(c, "rounding", "half_even")
    p = Program()
    ids = p.value("expert_ids", _routing(d, m, topk, experts))
    p.step("grouped_matmul", ("h",), {"lhs": d.codes((m, k), "i8"), "rhs": d.codes((experts, n, k), "i8"),
                                      "lhs_scale": F(2**-7), "rhs_scale": F(2**-7), "expert_ids": ids},
           rhs_transposed=True, activation=c.word("activation", _ACTIVATION), out_dtype="f32")  # fmt: skip
    p.step("grouped_matmul", ("y",), {"lhs": "h", "rhs": d.codes((experts, k, n), "i8"), "rhs_scale": F(2**-7),
                                      "expert_ids": ids, "routing_weights": d.uniform((m, topk), 0, 1)},
           rhs_transposed=True, out_dtype=c.word("out_dtype", _OUT))  # fmt: skip
    return Variant(p, {}, 2 * m * n * k * topk)


# -------------------------------------------------------------------------------------- AITER's documented functions

# The documentation's two-dimensional example: where it gives no shape for a function, this one is taken.
_DOC = {"M": 1024, "N": 2048, "K": 512}
_DOC_BATCH, _DOC_EXPERTS, _DOC_TOPK = 2, 8, 2


def _doc_sizes(c: Case) -> tuple[int, int, int]:
    return tuple(c.take(name, size) for name, size in _DOC.items())


def _doc_gemm(c: Case, d: Draw) -> Variant:
    _common(c)
    m, n, k = _doc_sizes(c)
    for side in ("a", "w"):
        _same(c, f"{side}_dtype", "f16")
    batch = (_DOC_BATCH,) if c.fields["op"] == "batched_gemm" else ()
    m, n, cut, work = _one(m, n, k, int(np.prod(batch, initial=1)))
    out = c.word("out_dtype", _OUT)
    bias, stage = _bias(c, d, n, out)
    epilogue = _same(c, "epilogue", None, "alpha*A@B+beta*C")
    p = Program()
    p.step("scaled_matmul", ("y",), {
        "lhs": d.uniform((*batch, m, k), -1, 1, np.float16), "rhs": d.uniform((*batch, k, n), -1, 1, np.float16),
        "bias": bias, "c": None if epilogue is None else d.uniform((m, n), -1, 1, np.float16),
    }, bias_stage=stage, alpha=None if epilogue is None else 0.75, beta=None if epilogue is None else -1.25,
        activation=c.word("activation", _ACTIVATION), out_dtype=out)  # fmt: skip
    return Variant(p, cut, work)


def _doc_int8(c: Case, d: Draw) -> Variant:
    _common(c)
    m, n, k = _doc_sizes(c)
    for side in ("a", "w"):
        _same(c, f"{side}_dtype", "i8")
        _same(c, f"{side}_granularity", "per_tensor")
    _same(c, "bias", None)
    _same(c, "data", "randint(-127,127) (hi exclusive); scales randn(1): may be negative")
    p = Program()
    p.step("scaled_matmul", ("y",), {"lhs": d.ints((m, k), -127, 127), "rhs": d.ints((k, n), -127, 127),
                                     "lhs_scale": F(-0.011), "rhs_scale": F(abs(d.normal(())) * 0.01)},
           activation=c.word("activation", _ACTIVATION), out_dtype=c.word("out_dtype", _OUT))  # fmt: skip
    return Variant(p, {}, m * n * k)


def _doc_grouped(c: Case, d: Draw) -> Variant:
    _common(c)
    m, n, k = _doc_sizes(c)
    experts, topk = c.take("E", _DOC_EXPERTS), c.take("topk", _DOC_TOPK)
    for side in ("a", "w"):
        _same(c, f"{side}_dtype", "f16")
    _same(c, "bias", None)
    m, n, cut = fit(m, n, topk * k)
    p = Program()
    p.step("grouped_matmul", ("y",), {"lhs": d.uniform((m, k), -1, 1, np.float16),
                                      "rhs": d.uniform((experts, k, n), -1, 1, np.float16),
                                      "expert_ids": _routing(d, m, topk, experts)},
           activation=c.word("activation", _ACTIVATION), out_dtype=c.word("out_dtype", _OUT))  # fmt: skip
    return Variant(p, cut, m * n * k * topk)


def _doc_moe(c: Case, d: Draw) -> Variant:
    _common(c)
    m, n, k = _doc_sizes(c)
    for side in ("a", "w"):
        _same(c, f"{side}_dtype", "f16")
    _same(c, "bias", None)
    _same(c, "out_dtype", "f16")
    experts, topk = _DOC_EXPERTS, _DOC_TOPK
    m, n, cut = fit(m, n, 2 * topk * k)
    p = Program()
    _moe(p, d, _Experts("f16", "f16"), c.word("activation", _ACTIVATION), (m, n, k, experts, topk), "f16")
    return Variant(p, cut, 2 * m * n * k * topk)


def _doc_sparse(c: Case, d: Draw) -> Variant:
    raise Refused("the dialect has no sparse_matmul yet")


_OPS: dict[str, Callable[[Case, Draw], Variant]] = {
    "gemm_requant": _ck_gemm,
    "conv2d_requant": _ck_conv,
    "grouped_matmul (one of 16 groups)": _ck_group,
    "scaled_matmul": _scaled_matmul,
    "scaled_matmul split-K": _aiter_product,
    "batched scaled_matmul": _aiter_product,
    "scaled_matmul blockscale": _blockscale,
    "scaled_matmul_requant": _requantised,
    "scaled_matmul / dequant_matmul": _coopmat,
    "dequant_matmul": _dequant_matmul,
    "matmul": _matmul,
    "choose_qparams_dynamic": _choose_qparams,
    "choose_qparams+quantize": _choose_and_quantize,
    "conv2d_q": _etvk_conv,
    "conv2d_q depthwise": _etvk_conv,
    "conv2d_q pointwise": _etvk_conv,
    "conv2d_q transposed": _etvk_conv,
    "conv2d (float upstream; run as conv2d_q)": _aiter_conv,
    "fused_moe": _fused_moe,
    "moe": _derived_moe,
    "grouped_matmul with gather/scatter": _gather_scatter,
    "grouped_matmul": _grouped,
    "gemm_bias": _doc_gemm,
    "gemm_gelu": _doc_gemm,
    "gemm_relu": _doc_gemm,
    "cutlass_gemm alpha/beta": _doc_gemm,
    "batched_gemm": _doc_gemm,
    "int8_gemm": _doc_int8,
    "grouped_gemm": _doc_grouped,
    "moe_layer_example": _doc_moe,
    "sparse_gemm": _doc_sparse,
}
