"""A sparse weight made dense: 2:4 metadata decoded, entries or blocks scattered."""

from __future__ import annotations

from ....core.mlir import arith, ir, tensor
from ....dialect.dtypes import DTYPES
from ....dialect.ops.sparse_matmul import SparseMatmulOp
from ....ir.build import (
    Arg,
    collapse,
    crop,
    dims,
    elementwise,
    expand,
    filled,
    scalar,
    static,
    transpose,
)
from ....ir.checks import refuse
from ....ir.scalars import i32, to_i32
from .blocks import bounded, constant, loop_i32
from .sparse_positions import positions_of
from .unpacked import unpack_codes

_EQ, _SGE = (getattr(arith.CmpIPredicate, n) for n in ("eq", "sge"))


def densified(op: SparseMatmulOp, codes: ir.Value) -> ir.Value:
    """The dense codes of shape `rhs_shape`."""
    rows, columns = op.rhs_shape
    t = codes.type.element_type
    if op.format == "2:4":
        made: ir.Value = decompressed(op, codes)
        return made
    row, column = positions_of(op)
    if not rows * columns or not op.stored:
        return filled([rows, columns], scalar(0, t))
    block_rows, block_columns = op.rows_columns
    flat = elementwise(
        [Arg(row, (0,)), Arg(column, (0,))], [op.stored], i32(),
        lambda r, c: arith.addi(arith.muli(bounded(r, block_rows), constant(block_columns)),
                                bounded(c, block_columns)),
    )  # fmt: skip
    out = _scattered(codes, flat, block_rows * block_columns)
    if op.block is None:
        return expand(out, [[rows, columns]])
    tiles = expand(out, [[block_rows, block_columns], [op.block[0]], [op.block[1]]])
    return collapse(transpose(tiles, [0, 2, 1, 3]), [[0, 1], [2, 3]])


def decompressed(op: SparseMatmulOp, codes: ir.Value) -> ir.Value:
    """2:4: each group of four has two stored codes, at the positions that four bits of metadata name."""
    rows, k = op.rhs_shape
    groups = k // 4
    if not rows * groups:
        return filled([rows, k], scalar(0, codes.type.element_type))
    # A group's metadata is one unsigned 4-bit code.
    fields = unpack_codes(op.indices, DTYPES["u4"], "low_first", groups)

    def position(field: ir.Value, which: int) -> ir.Value:
        return arith.andi(arith.shrui(to_i32(field), constant(2 * which)), constant(3))

    refuse([Arg(fields, (0, 1))], 2, lambda f: arith.cmpi(_SGE, position(f, 0), position(f, 1)),
            "a group of the 2:4 metadata of 'indices' does not name two positions in ascending order")  # fmt: skip
    pairs = expand(codes, [[rows], [groups, 2]])
    first, second = (collapse(crop(pairs, [0, 0, i], [rows, groups, 1]), [[0], [1, 2]]) for i in (0, 1))

    def body(x: ir.Value, y: ir.Value, field: ir.Value) -> ir.Value:
        def here(which: int) -> ir.Value:
            return arith.cmpi(_EQ, position(field, which), loop_i32(2))

        return arith.select(here(0), x, arith.select(here(1), y, scalar(0, x.type)))

    args = [Arg(v, (0, 1)) for v in (first, second, fields)]
    return collapse(elementwise(args, [rows, groups, 4], codes.type.element_type, body), [[0], [1, 2]])


def _scattered(values: ir.Value, at: ir.Value, size: int) -> ir.Value:
    """Zeros `[size, ...]` with `values [E, ...]` at the rows `at [E]`, which are distinct."""
    t = values.type.element_type
    bits = ir.IntegerType.get_signless(t.width) if isinstance(t, ir.FloatType) else t
    sizes = static(dims(values))
    if bits != t:
        values = tensor.bitcast(ir.RankedTensorType.get(sizes, bits), values)
    init = filled([size, *sizes[1:]], scalar(0, bits))
    op = ir.Operation.create(
        "iree_linalg_ext.scatter",
        results=[init.type],
        operands=[values, expand(at, [[sizes[0], 1]]), init],
        attributes={"dimension_map": ir.DenseI64ArrayAttr.get([0]), "unique_indices": ir.BoolAttr.get(True)},
        regions=1,
    )
    block = op.regions[0].blocks.append(bits, bits)
    with ir.InsertionPoint(block):
        ir.Operation.create("iree_linalg_ext.yield", operands=[block.arguments[0]])
    out = op.results[0]
    return out if bits == t else tensor.bitcast(ir.RankedTensorType.get([size, *sizes[1:]], t), out)
