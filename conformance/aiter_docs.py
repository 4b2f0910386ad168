"""AITER: the functions of its documentation."""

from __future__ import annotations

import numpy as np

from qmlir import SparseWeight

from .aiter import draw_routing
from .case import ACTIVATIONS, OUT_DTYPES, Case, Draw, F, Variant, fit, fit_product, read_common, require
from .experts import Experts, add_experts
from .operands import draw_bias
from .program import Program

# The shape of the documentation's two-dimensional example, used if it gives none for a function.
_DOC = {"M": 1024, "N": 2048, "K": 512}


_DOC_BATCH, _DOC_EXPERTS, _DOC_TOPK = 2, 8, 2


def _doc_sizes(c: Case) -> tuple[int, int, int]:
    return tuple(c.take(name, size) for name, size in _DOC.items())


def _f16_sizes(c: Case, biased: bool = False) -> tuple[int, int, int]:
    """The sizes of an f16 x f16 product, which has no bias unless the caller reads it (`biased`)."""
    read_common(c)
    for side in ("a", "w"):
        require(c, f"{side}_dtype", "f16")
    if not biased:
        require(c, "bias", None)
    return _doc_sizes(c)


def doc_gemm(c: Case, d: Draw) -> Variant:
    m, n, k = _f16_sizes(c, biased=True)
    batch = (_DOC_BATCH,) if c.fields["op"] == "batched_gemm" else ()
    m, n, cut, work = fit_product(m, n, k, int(np.prod(batch, initial=1)))
    out = c.word("out_dtype", OUT_DTYPES)
    bias, stage = draw_bias(c, d, n, out)
    epilogue = require(c, "epilogue", None, "alpha*A@B+beta*C")
    p = Program()
    p.step("scaled_matmul", ("y",), {
        "lhs": d.uniform((*batch, m, k), -1, 1, np.float16), "rhs": d.uniform((*batch, k, n), -1, 1, np.float16),
        "bias": bias, "c": None if epilogue is None else d.uniform((m, n), -1, 1, np.float16),
    }, bias_stage=stage, alpha=None if epilogue is None else 0.75, beta=None if epilogue is None else -1.25,
        activation=c.word("activation", ACTIVATIONS), out_dtype=out)  # fmt: skip
    return Variant(p, cut, work)


def doc_int8(c: Case, d: Draw) -> Variant:
    read_common(c)
    m, n, k = _doc_sizes(c)
    for side in ("a", "w"):
        require(c, f"{side}_dtype", "i8")
        require(c, f"{side}_granularity", "per_tensor")
    require(c, "bias", None)
    require(c, "data", "randint(-127,127) (hi exclusive); scales randn(1): may be negative")
    p = Program()
    p.step("scaled_matmul", ("y",), {"lhs": d.ints((m, k), -127, 127), "rhs": d.ints((k, n), -127, 127),
                                     "lhs_scale": F(-0.011), "rhs_scale": F(abs(d.normal(())) * 0.01)},
           activation=c.word("activation", ACTIVATIONS), out_dtype=c.word("out_dtype", OUT_DTYPES))  # fmt: skip
    return Variant(p, {}, m * n * k)


def doc_grouped(c: Case, d: Draw) -> Variant:
    m, n, k = _f16_sizes(c)
    experts, topk = c.take("E", _DOC_EXPERTS), c.take("topk", _DOC_TOPK)
    m, n, cut = fit(m, n, topk * k)
    p = Program()
    p.step("grouped_matmul", ("y",), {"lhs": d.uniform((m, k), -1, 1, np.float16),
                                      "rhs": d.uniform((experts, k, n), -1, 1, np.float16),
                                      "expert_ids": draw_routing(d, m, topk, experts)},
           activation=c.word("activation", ACTIVATIONS), out_dtype=c.word("out_dtype", OUT_DTYPES))  # fmt: skip
    return Variant(p, cut, m * n * k * topk)


def doc_moe(c: Case, d: Draw) -> Variant:
    m, n, k = _f16_sizes(c)
    require(c, "out_dtype", "f16")
    experts, topk = _DOC_EXPERTS, _DOC_TOPK
    m, n, cut = fit(m, n, 2 * topk * k)
    p = Program()
    add_experts(p, d, Experts("f16", "f16"), c.word("activation", ACTIVATIONS), (m, n, k, experts, topk), "f16")
    return Variant(p, cut, 2 * m * n * k * topk)


def doc_sparse(c: Case, d: Draw) -> Variant:
    m, n, k = _f16_sizes(c)
    m, n, cut = fit(m, n, k)
    require(c, "layout", "csr|coo|block")
    form = c.pick("csr", "coo", "bsr")
    block = (16, 16) if form == "bsr" else None
    # The page states no density: a tenth of the elements or blocks is stored. Sums of small integers are exact.
    rows, columns = block or (1, 1)
    stored = d.ints((n // rows, k // columns), 0, 10) == 0
    dense = d.ints((n, k), -3, 4).astype(np.float16) * np.kron(stored, np.ones((rows, columns))).astype(np.float16)
    weight = SparseWeight.from_dense(dense, form, block=block, rhs_transposed=True)
    p = Program()
    p.step("sparse_matmul", ("y",), {
        "lhs": d.ints((m, k), -8, 9).astype(np.float16), "values": weight.values, "indices": weight.indices,
        "indptr": weight.indptr,
    }, format=form, rhs_shape=weight.shape, block=block, rhs_transposed=True, rhs_dtype="f16",
        activation=c.word("activation", ACTIVATIONS), out_dtype=c.word("out_dtype", OUT_DTYPES))  # fmt: skip
    return Variant(p, cut, m * n * k)
