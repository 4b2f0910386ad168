"""sparse_matmul to linalg, in one of three forms:

* dense: the weight is made dense (2:4 metadata decoded, entries or blocks scattered), and the rest is scaled_matmul;
* rows: entries `[N, W]`, each row of the weight padded to W of them; every product reads its lhs element by position.
  Long rows are cut into pieces, whose sums are added, so that one dense row does not pad all others;
* blocks: blocks `[N/r, L*c]`, padded likewise; the columns of lhs that a block row meets are gathered, and the products
  are a batched contraction for the target's matrix instructions.

`form_of` chooses by the share of entries, padding counted.
"""

from __future__ import annotations

from dataclasses import replace

from ....core.mlir import ir
from ....dialect.dtypes import DTYPES
from ....dialect.ops.sparse_matmul import SparseMatmulOp
from ....ir.build import (
    dims,
)
from .matmul import product
from .sparse_dense import densified
from .sparse_form import form_of
from .sparse_gathered import blocks_of, rows_of
from .unpacked import unpack_codes, unpacked_dtype
from .values import known_sums, make_side


def lower_sparse_matmul(op: SparseMatmulOp) -> list[ir.Value]:
    """The rule of the op."""
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
                      scale=op.rhs_scale, zero=None, mode="none", packing="none", sum_=known_sums(op),
                      global_scale=op.rhs_global_scale)  # fmt: skip
        return [product(op, a, b, batch, m, n, k)]
    gathered = blocks_of(op) if form == "blocks" else rows_of(op, codes)
    b = gathered.side
    if a.int_zero:
        b = replace(b, sum=gathered.sums() if op.rhs_sum is None else known_sums(op))
    # What stands in the accumulator is the sum of the true codes.
    b = replace(b, offset=0, d=DTYPES["i8"] if b.d.name == "u8" else b.d)
    return [product(op, a, b, batch, m, n, k, gathered.contraction(batch, m))]
