"""sparse_matmul to linalg, in one of three forms:

* dense: the weight is made dense (2:4 metadata decoded, entries or blocks scattered), and the rest is scaled_matmul;
* rows: entries `[N, W]`, each row of the weight padded to W entries; every product reads its lhs element by position.
  Long rows are cut into pieces, whose sums are added, so that one dense row does not pad all other rows;
* blocks: blocks `[N/r, r, L*c]`, padded likewise; the lhs columns that a row of blocks multiplies are gathered, and
  the products are a batched contraction for the target's matrix instructions.

`form_of` chooses by the share of entries, padding included.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....core.mlir import ir
from ....dialect.dtypes import DTYPES
from ....dialect.ops.sparse_matmul import SparseMatmulOp
from ....dialect.sparse_formats import entries
from ....ir.build import dense, dims
from .matmul import product
from .sparse_dense import densified
from .sparse_form import form_of
from .sparse_gathered import blocks_of, rows_of
from .unpacked import unpack_codes, unpacked_dtype
from .values import make_side


def lower_sparse_matmul(op: SparseMatmulOp) -> list[ir.Value]:
    """The lowering rule of the op."""
    lhs_shape = dims(op.lhs)
    nb = len(lhs_shape) - 2
    a = make_side("lhs", op.lhs, op.lhs_code, lhs_shape, nb, nb + 1, scale=op.lhs_scale, zero=op.lhs_zero_point,
                  mode=op.lhs_zero_mode, packing="none", global_scale=op.lhs_global_scale)  # fmt: skip
    batch, m = lhs_shape[:nb], lhs_shape[nb]
    k_axis = 1 if op.rhs_transposed else 0
    k, n = op.rhs_shape[k_axis], op.rhs_shape[1 - k_axis]
    codes = op.values
    if op.rhs_code.bits < 8:
        codes = unpack_codes(codes, op.rhs_code, op.rhs_packing, op.values_shape()[-1])
    form = form_of(op)
    if form == "dense":
        b = make_side("rhs", densified(op, codes), unpacked_dtype(op.rhs_code), op.rhs_shape, 1 - k_axis, k_axis,
                      scale=op.rhs_scale, zero=None, mode="none", packing="none",
                      global_scale=op.rhs_global_scale)  # fmt: skip
        return [product(op, a, b, batch, m, n, k)]
    gathered = blocks_of(op) if form == "blocks" else rows_of(op, codes)
    b = gathered.side
    if a.int_zero:
        known = _constant_sums(op)
        b = replace(b, sum=gathered.sums() if known is None else known)
    # The accumulator holds sums of the true codes, without the offset of the stored ones.
    b = replace(b, offset=0, d=DTYPES["i8"] if b.d.name == "u8" else b.d)
    return [product(op, a, b, batch, m, n, k, gathered.contraction(batch, m))]


def _constant_sums(op: SparseMatmulOp) -> ir.Value | None:
    """Sums along K of the codes of a constant weight, i32 `[N]`; None if they are not known here."""
    weight = op.constant()
    if weight is None or op.format == "2:4" or not op.rhs_transposed:
        return None
    row, _ = entries(op.format, weight.indices, weight.indptr)
    per_entry = weight.codes.sum(2, dtype=np.int32) if op.block else weight.codes.astype(np.int32)
    sums = np.zeros((op.rows_columns[0], *per_entry.shape[1:]), np.int32)
    np.add.at(sums, row, per_entry)
    return dense(sums.reshape(-1))
