"""Writes one page per scheme: the stored codes and their values, a picture of the layout, and an example that runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .layouts import Grid, picture

MADE = "*This page is written by `python docs/generate.py`.*"


@dataclass(frozen=True)
class Scheme:
    """A scheme's page."""

    name: str
    title: str
    text: str
    rows: Sequence[tuple[str, str]]
    grids: Sequence[Grid]
    words: Sequence[tuple[str, Sequence[tuple[str, int]]]]
    example: str
    notes: Sequence[str] = field(default=())

    def svg(self) -> str:
        return picture(self.grids, self.words, self.notes)

    def page(self) -> str:
        table = "\n".join(f"| {a} | {b} |" for a, b in self.rows)
        return f"""\
# {self.title}

{MADE}

{self.text}

| | |
|---|---|
{table}

![Layout of codes and scales: cells of one colour share a scale]({self.name}.svg)

Cells of one colour share a scale; bits are drawn with the highest on the left. The [numerics contract](../semantics.md)
states the arithmetic, the [support matrix](../support.md) the instructions that each target uses.

```python
{self.example.strip()}
```
"""


LHS = Grid("activations [M, K], per-token scale", 4, 8, (1, 0), ("M", "K"))
SETUP = """\
import numpy as np
import qmlir

rng = np.random.default_rng(0)
x = rng.integers(-128, 128, (4, 64), dtype=np.int8)
x_scale = np.full((4, 1), 0.02, np.float32)
"""


def byte(*names: str) -> list[tuple[str, int]]:
    return [(name, 8) for name in names]


def nibbles(*names: str) -> list[tuple[str, int]]:
    return [(name, 4) for name in names]


SCHEMES = (
    Scheme(
        "w8a8",
        "W8A8: int8 by int8, per-channel scale",
        "Activations and weights are int8. Activations have one scale, or one per row (token); "
        "weights one, or one per column\n"
        "of the result (channel). Sums are exact in i32 and scaled once at the end.",
        [
            ("codes", "i8 (u8 activations too)"),
            ("scales", "`[M, 1]` or scalar; `[1, N]` or scalar"),
            ("zero points", "either side, folded into a correction of the sums"),
            ("also known as", "W8A8, int8 dynamic, QLinearMatMul"),
        ],
        [LHS, Grid("weights [K, N], per-channel scale", 8, 6, (0, 1), ("K", "N"))],
        [("a row of weights in memory", byte("w[k,n]", "w[k,n+1]", "w[k,n+2]", "w[k,n+3]"))],
        SETUP
        + """
w = rng.integers(-127, 128, (64, 8), dtype=np.int8)
w_scale = np.full((1, 8), 0.01, np.float32)
y = qmlir.ops.scaled_matmul(x, w, lhs_scale=x_scale, rhs_scale=w_scale)
assert np.array_equal(y, (x.astype(np.int32) @ w).astype(np.float32) * (x_scale * w_scale))
""",
    ),
    Scheme(
        "w8a8-block",
        "W8A8 in blocks: one scale per 128 x 128 tile",
        "As in DeepSeek-V3: activations have a scale for each 128 codes of a row, weights one for "
        "each 128 x 128 tile. Sums\n"
        "are exact within a block of K, and added over blocks in f32, in ascending order.",
        [
            ("codes", "i8, or fp8 on both sides"),
            ("scales", "`[M, K/128]` and `[K/128, N/128]`; any block that divides the axis"),
            ("also known as", "FP8_BLOCK, block-wise"),
        ],
        [Grid("activations [M, K]", 4, 8, (1, 4), ("M", "K")), Grid("weights [K, N]", 8, 8, (4, 4), ("K", "N"))],
        [("a row of weights in memory", byte("w[k,n]", "w[k,n+1]", "w[k,n+2]", "w[k,n+3]"))],
        SETUP
        + """
w = rng.integers(-127, 128, (64, 32), dtype=np.int8)
y = qmlir.reference.scaled_matmul(
    x, w, lhs_scale=np.full((4, 4), 0.02, np.float32), rhs_scale=np.full((4, 2), 0.01, np.float32)
)
assert y.shape == (4, 32)
""",
    ),
    Scheme(
        "w4a16-group",
        "W4A16: 4-bit weights in groups, float activations",
        "Weight only. Two codes share a byte; a group of codes along K shares a scale, and a zero "
        "point if the scheme has\n"
        "them. Weights are converted to floats as they are read; products and sums are computed in floats.",
        [
            ("codes", "i4 or u4, packed `low_first`, `high_first` or `interleaved`"),
            ("scales", "`[N, K/g]` for weights `[N, K]`; g divides K, and below 8 `group_size` must state it"),
            ("zero points", "integers, packed integers (GPTQ) or floats (HQQ)"),
            ("also known as", "W4A16, Q4_0, AWQ, GPTQ, MatMulNBits"),
        ],
        [
            Grid("activations [M, K], plain floats", 4, 8, None, ("M", "K")),
            Grid("weights [N, K], groups of 4", 4, 8, (1, 4), ("N", "K")),
        ],
        [
            ("low_first: a byte (IREE, ONNX, BitBLAS)", nibbles("w[n,k+1]", "w[n,k]")),
            ("high_first: a byte (Composable Kernel)", nibbles("w[n,k]", "w[n,k+1]")),
            (
                "interleaved: a word (fast decoding on GPUs)",
                nibbles("k+7", "k+5", "k+3", "k+1", "k+6", "k+4", "k+2", "k"),
            ),
        ],
        SETUP
        + """
codes = rng.integers(0, 16, (8, 64), dtype=np.uint8)
packed = codes[:, 0::2] | codes[:, 1::2] << 4  # low_first
f = x.astype(np.float32)
options = dict(rhs_scale=np.full((8, 2), 0.01, np.float32), rhs_transposed=True, rhs_dtype="i4")
y = qmlir.reference.scaled_matmul(f, packed, rhs_packing="low_first", **options)
signed = ((codes ^ 8).astype(np.int8) - 8).astype(np.float32)
assert np.allclose(y, f @ (signed * 0.01).T, rtol=1e-4, atol=1e-4)
""",
    ),
    Scheme(
        "w4a8",
        "W4A8: 4-bit weights, int8 activations",
        "The sums of a group are exact in i32; each group's sum is scaled and added in f32, in "
        "ascending order. With per-channel\n"
        "scales the whole sum is exact.",
        [
            ("codes", "i4 or u4 by i8"),
            ("scales", "`[M, 1]`; `[N, K/g]` or `[1, N]`"),
            ("also known as", "W4A8, 8da4w, linear_q4gsw"),
        ],
        [LHS, Grid("weights [N, K], groups of 4", 4, 8, (1, 4), ("N", "K"))],
        [("low_first: a byte", nibbles("w[n,k+1]", "w[n,k]"))],
        SETUP
        + """
w = rng.integers(-8, 8, (8, 64), dtype=np.int8)
y = qmlir.ops.scaled_matmul(
    x, w, lhs_scale=x_scale, rhs_scale=np.full((8, 2), 0.5, np.float32), rhs_transposed=True, rhs_dtype="i4"
)
assert np.allclose(y, (x.astype(np.int32) @ w.T) * np.float32(0.02) * np.float32(0.5))
""",
    ),
    Scheme(
        "w2-w1",
        "2-bit and 1-bit weights",
        "Four or eight codes share a byte. A signed 1-bit code `q` means `2q - 1`: -1 or 1.",
        [
            ("codes", "i2, u2, i1, u1"),
            ("scales", "as for 4 bits"),
            ("also known as", "W2A8, BitNet, W_dtype `int2`, `int1`"),
        ],
        [LHS, Grid("weights [N, K], per-channel scale", 5, 8, (1, 0), ("N", "K"))],
        [
            ("2 bits, low_first: a byte", [("k+3", 2), ("k+2", 2), ("k+1", 2), ("k", 2)]),
            ("1 bit, low_first: a byte", [(f"+{i}", 1) for i in range(7, -1, -1)]),
        ],
        SETUP
        + """
w = rng.integers(-2, 2, (8, 64), dtype=np.int8)
y = qmlir.reference.scaled_matmul(x, w, rhs_transposed=True, rhs_dtype="i2", out_dtype="i32")
assert np.array_equal(y, x.astype(np.int32) @ w.T)
""",
    ),
    Scheme(
        "table",
        "Table codes: nf4, e2m1, any 16 values",
        "A 4-bit code is an index into 16 values. nf4 has the quantiles of a normal distribution "
        "(QLoRA), e2m1 the values of\n"
        "fp4. Weights are converted to floats by a look-up.",
        [
            ("codes", "nf4, e2m1, or a user-defined table"),
            ("scales", "in groups along K: 64 for bitsandbytes"),
            ("also known as", "NF4, FP4, W_dtype `nf4`"),
        ],
        [
            Grid("activations [M, K], plain floats", 4, 8, None, ("M", "K")),
            Grid("weights [N, K], groups of 4", 4, 8, (1, 4), ("N", "K")),
        ],
        [("a byte", nibbles("index k+1", "index k"))],
        """\
import numpy as np
import qmlir

codes = np.array([[0, 7, 15, 8]], np.uint8)  # [N, K]
y = qmlir.reference.scaled_matmul(
    np.eye(4, dtype=np.float32), codes, rhs_dtype="nf4", rhs_scale=np.full((1, 1), 2.0, np.float32), rhs_transposed=True
)
assert y[0, 0] == -2 and y[1, 0] == 0 and y[2, 0] == 2  # nf4's values are -1, ..., 0, ..., 1
""",
        ["value = table[index] x scale of the group"],
    ),
    Scheme(
        "fp8",
        "FP8: e4m3 and e5m2",
        "One-byte floats on both sides, or weights alone. Products and sums are f32. OCP formats "
        "(e4m3fn, e5m2) and AMD's\n"
        "older FNUZ formats are different codes; both are supported.",
        [
            ("codes", "e4m3fn, e5m2, e4m3fnuz, e5m2fnuz"),
            ("scales", "per tensor, token, channel, or in blocks"),
            ("also known as", "FP8, FP8_DYNAMIC, FP8_BLOCK"),
        ],
        [LHS, Grid("weights [K, N], per-channel scale", 8, 6, (0, 1), ("K", "N"))],
        [
            ("e4m3: a byte", [("s", 1), ("exponent", 4), ("fraction", 3)]),
            ("e5m2: a byte", [("s", 1), ("exponent", 5), ("fract.", 2)]),
        ],
        """\
import ml_dtypes
import numpy as np
import qmlir

x = np.ones((2, 16), ml_dtypes.float8_e4m3fn)
w = np.full((16, 4), 0.5, ml_dtypes.float8_e4m3fn)
y = qmlir.reference.scaled_matmul(x, w, lhs_scale=np.float32(2.0), rhs_scale=np.full((1, 4), 0.25, np.float32))
assert np.array_equal(y, np.full((2, 4), 4.0, np.float32))
""",
    ),
    Scheme(
        "mx-nvfp4",
        "MX and NVFP4: small floats with small scales",
        "MX shares an e8m0 scale (a power of two) among 32 codes along K; NVFP4 an e4m3 scale among "
        "16, and has one f32 scale\n"
        "for the tensor.",
        [
            ("codes", "MX: e4m3, e5m2, e2m1; NVFP4: e2m1"),
            ("scales", "e8m0 `[.., K/32]`; e4m3 `[.., K/16]` and a scalar"),
            ("also known as", "MXFP8, MXFP4, NVFP4"),
        ],
        [
            Grid("activations [M, K], groups along K", 4, 8, (1, 4), ("M", "K")),
            Grid("weights [N, K], groups along K", 4, 8, (1, 4), ("N", "K")),
        ],
        [
            ("e2m1: two codes per byte", [("s", 1), ("exp", 2), ("f", 1), ("s", 1), ("exp", 2), ("f", 1)]),
            ("e8m0: a scale", [("exponent: 2^(e - 127)", 8)]),
        ],
        """\
import ml_dtypes
import numpy as np
import qmlir

x = np.ones((2, 64), ml_dtypes.float8_e4m3fn)
w = np.full((8, 64), 0.5).astype(ml_dtypes.float8_e4m3fn)
x_scale, w_scale = (np.full((n, 2), 2.0).astype(ml_dtypes.float8_e8m0fnu) for n in (2, 8))
y = qmlir.reference.scaled_matmul(x, w, lhs_scale=x_scale, rhs_scale=w_scale, rhs_transposed=True)
assert np.array_equal(y, np.full((2, 8), 64 * 0.5 * 4, np.float32))
""",
    ),
    Scheme(
        "sparse-2-4",
        "2:4 sparse weights",
        "Of each four codes along K two are zero and not stored; the positions of the others take two "
        "bits each. The result is\n"
        "that of the dense weight, exactly for integers. The operation also takes CSR, COO and block (BSR) weights.",
        [
            ("codes", "those of the dense schemes"),
            ("positions", "two bits per stored code"),
            ("also known as", "semi-structured, 2:4"),
        ],
        [
            LHS,
            Grid(
                "weights [N, K]: white is not stored",
                5,
                8,
                (1, 0),
                ("N", "K"),
                tuple((i, j + 4 * g) for i in range(5) for g in range(2) for j in ((i + g) % 4, (i + g + 2) % 4)),
            ),
        ],
        [
            ("a row of K = 8: its four codes", byte("code 0", "code 1", "code 2", "code 3")),
            ("their positions within four: a byte", [("p3", 2), ("p2", 2), ("p1", 2), ("p0", 2)]),
        ],
        SETUP
        + """
dense = rng.integers(-127, 128, (64, 8), dtype=np.int8)
dense.reshape(16, 4, 8)[:, ::2] = 0  # two of four along K
w = qmlir.SparseWeight.from_dense(dense, "2:4")
y = qmlir.reference.sparse_matmul(x, w, out_dtype="i32")
assert np.array_equal(y, x.astype(np.int32) @ dense)
""",
    ),
    Scheme(
        "asymmetric",
        "Zero points: asymmetric codes",
        "The real value is `(q - z) * s`. Sums of codes are corrected: `sum (a-za)(b-zb) = sum ab - "
        "za sum b - zb sum a + K za\n"
        "zb`; sums of constant weights are folded when the program is compiled. There are six "
        "forms of zero points.",
        [
            ("`int`", "`(q - z) * s`: ONNX, torchao"),
            ("`offset_int`", "`((q - 2^(b-1)) - z) * s`: ExecuTorch"),
            ("`offset_float`", "`(q - 2^(b-1)) * s + z`: tinygemm, HQQ"),
            ("`rescale`", "`q * s - z`: BitBLAS"),
            ("`packed_int`", "`(q - unpack(z)) * s`: GPTQ, AWQ"),
        ],
        [
            Grid("activations [M, K], per-token z", 4, 8, (1, 0), ("M", "K")),
            Grid("weights [K, N], per-channel z", 8, 6, (0, 1), ("K", "N")),
        ],
        [("u8 codes around a zero point", byte("q[k]", "q[k+1]", "q[k+2]", "q[k+3]"))],
        SETUP
        + """
w = rng.integers(-127, 128, (64, 8), dtype=np.int8)
zero = np.full((4, 1), 3, np.int8)
y = qmlir.ops.scaled_matmul(
    x, w, lhs_scale=x_scale, lhs_zero_point=zero, lhs_zero_mode="int", rhs_scale=np.float32(0.5)
)
assert np.allclose(y, ((x.astype(np.int32) - 3) @ w) * np.float32(0.01))
""",
    ),
)


def pages() -> dict[str, str]:
    """The pages and their pictures: file name -> text."""
    found = {}
    for scheme in SCHEMES:
        found[f"schemes/{scheme.name}.md"] = scheme.page()
        found[f"schemes/{scheme.name}.svg"] = scheme.svg()
    listed = "\n".join(f"* [{s.title}]({s.name}.md)" for s in SCHEMES)
    found["schemes/index.md"] = f"# Quantisation schemes\n\n{MADE}\n\n{listed}\n"
    return found
