"""grouped_matmul to linalg: rows are brought into blocks that belong to one group each, the blocks are a
batched product with the weight of their group, and the rows go back to their places.

The block-aligned form is the one of the MoE kernels of vLLM and AITER (`moe_align_block_size`): every block is
a dense tile for the target's matrix instructions. With R rows, G groups and blocks of B rows there are at most
`min(R, ceil(R/B) + G - 1)` blocks that hold a row, which bounds the (static) number of blocks.
"""

from __future__ import annotations

from typing import Any

from ..._mlir import arith, ir, tensor, util
from ...dialect.ods import OpError
from ...dialect.ops.common import shape_of
from ...dialect.ops.grouped_matmul import GroupedMatmulOp
from .build import (
    Arg,
    Size,
    as_index,
    collapse,
    dims,
    element,
    elementwise,
    expand,
    filled,
    generic,
    index,
    loop_index,
    repeat,
    scalar,
)
from .matmul import product
from .scalars import add, cast_f, const, f32, i32, to_f32, to_i32
from .values import make_side, unpack_codes

_SLT, _SLE, _EQ, _SGE = (getattr(arith.CmpIPredicate, n) for n in ("slt", "sle", "eq", "sge"))


def lower_grouped_matmul(op: GroupedMatmulOp) -> list[Any]:
    """The rule of the op."""
    groups = shape_of(op.rhs)[0]
    assert groups is not None
    if op.expert_ids is None:
        rows = dims(op.lhs)[0]
        sizes = _as_i32(op.group_sizes)
        _assert_sizes(sizes, rows)
        owner, position, first_row = _contiguous(sizes, rows, groups)
        blocks = _Blocks.of(rows, groups, owner, position, sizes, first_row)
        y = _blocked_product(op, blocks, op.lhs, _Rows(op, None))
        return [blocks.back(y, None)]
    return [_routed(op, groups)]


# ------------------------------------------------------------------------------------------------- small tools


def _as_i32(value: Any) -> Any:
    if value.type.element_type == i32():
        return value
    sizes = dims(value)
    return elementwise([Arg.aligned(value, sizes)], sizes, i32(), to_i32)


def _loop(i: int) -> Any:
    """The running index of loop `i`, i32."""
    return arith.index_cast(i32(), loop_index(i))


def _count(args: list[Arg], sizes: list[Size], out: list[int], body: Any) -> Any:
    """i32 sums over the loops that `out` leaves out; `sizes` are those of the loops. `body` gets a function from a
    loop to its running index, and the operands' scalars.

    The summed loops are the outer ones: as inner ones they become subgroup reductions on Vulkan, which IREE's SPIR-V
    route does not legalise for some sizes.
    """
    order = [i for i in range(len(sizes)) if i not in out] + out
    place = {loop: i for i, loop in enumerate(order)}
    moved = [Arg(a.value, tuple(None if x is None else place[x] for x in a.axes)) for a in args]
    init = filled([sizes[i] for i in out], scalar(0, i32()))
    return generic(moved, init, [place[i] for i in out], len(sizes),
                   lambda *xs: arith.addi(xs[-1], body(lambda i: _loop(place[i]), *xs[:-1])))  # fmt: skip


def _at(source: Any, *where: Any) -> Any:
    """Read one element at i32 positions, inside a body."""
    return tensor.extract(source, [arith.index_cast(ir.IndexType.get(), w) for w in where])


def gather(source: Any, rows: Any) -> Any:
    """`source [R, ...]` at `rows [..]` (i32) -> `[.., ...]`.

    A generic that reads: `iree_linalg_ext.gather` does not get a lowering configuration on Vulkan.
    """
    depth = rows.type.rank

    def body(row: Any) -> Any:
        at = arith.index_cast(ir.IndexType.get(), row)
        return tensor.extract(source, [at, *(loop_index(depth + i) for i in range(source.type.rank - 1))])

    sizes = [*dims(rows), *dims(source)[1:]]
    return elementwise([Arg(rows, tuple(range(depth)))], sizes, source.type.element_type, body)


def _assert(condition: Any, message: str) -> None:
    ir.Operation.create("cf.assert", operands=[condition], attributes={"msg": ir.StringAttr.get(message)})


# ------------------------------------------------------------------------------------------ owners and positions


def _assert_sizes(sizes: Any, rows: Size) -> None:
    """`group_sizes` are not negative and add up to the rows: anything else would leave rows without a result."""
    total = generic([Arg(sizes, (0,))], filled([], scalar(0, i32())), [], 1, lambda s, acc: arith.addi(acc, s))
    least = generic([Arg(sizes, (0,))], filled([], scalar(0, i32())), [], 1, lambda s, acc: arith.minsi(acc, s))
    expected = arith.index_cast(i32(), as_index(rows))
    fits = arith.cmpi(_EQ, tensor.extract(total, []), expected)
    positive = arith.cmpi(_EQ, tensor.extract(least, []), scalar(0, i32()))
    _assert(arith.andi(fits, positive), "group_sizes must be non-negative and add up to the rows of lhs")


def _before(sizes: Any, groups: int) -> Any:
    """Exclusive prefix sums, `[G]`."""
    return _count([Arg(sizes, (1,))], [groups, groups], [0],
                  lambda at, s: arith.select(arith.cmpi(_SLT, at(1), at(0)), s, scalar(0, i32())))  # fmt: skip


def _contiguous(sizes: Any, rows: Size, groups: int) -> tuple[Any, Any, Any]:
    """Owner and position in its group of each row, `[R]`, and the first row of each group, `[G]`."""
    start = _before(sizes, groups)
    # The owner is the number of groups that end at or before the row.
    owner = _count([Arg(start, (1,)), Arg(sizes, (1,))], [rows, groups], [0],
                   lambda at, s, n: arith.extui(i32(), arith.cmpi(_SLE, arith.addi(s, n), at(0))))  # fmt: skip
    position = elementwise([Arg(owner, (0,))], [rows], i32(),
                           lambda o: arith.subi(_loop(0), _at(start, _bounded(o, groups))))  # fmt: skip
    return owner, position, start


def _bounded(x: Any, count: int) -> Any:
    """An i32 clamped to `[0, count)`, so that a read stays inside."""
    return arith.maxsi(arith.minsi(x, scalar(count - 1, i32())), scalar(0, i32()))


def _names_a_group(owner: Any, groups: int) -> Any:
    """Whether an i32 lies in `[0, groups)`."""
    return arith.andi(arith.cmpi(_SGE, owner, scalar(0, i32())), arith.cmpi(_SLT, owner, scalar(groups, i32())))


def _ranked(owner: Any, rows: Size) -> Any:
    """Position of each row among the rows of the same owner, in their order."""

    def earlier(at: Any, mine: Any, other: Any) -> Any:
        same = arith.cmpi(_EQ, mine, other)
        return arith.extui(i32(), arith.andi(same, arith.cmpi(_SLT, at(1), at(0))))

    return _count([Arg(owner, (0,)), Arg(owner, (1,))], [rows, rows], [0], earlier)


# ------------------------------------------------------------------------------------------------------- blocks


class _Blocks:
    """Where rows live in blocks: `row_of [NB, B]` (row of each slot, any row where empty), `group_of [NB]`, and
    for the way back `block_of [R]`, `slot_of [R]`, with `owner [R]` outside `[0, G)` for skipped rows."""

    row_of: Any
    group_of: Any
    block_of: Any
    slot_of: Any
    owner: Any
    count: Size
    width: int
    rows: Size
    groups: int

    @classmethod
    def of(
        cls, rows: Size, groups: int, owner: Any, position: Any, sizes: Any, first_row: Any | None = None
    ) -> _Blocks:
        """From the owner and the position in its group of each row `[R]`; `first_row [G]` where rows are sorted."""
        self = cls()
        self.rows, self.groups, self.owner = rows, groups, owner
        self.width = width = _block_width(rows, groups)
        self.count = count = _block_count(rows, groups, width)
        per_group = elementwise([Arg(sizes, (0,))], [groups], i32(), lambda s: arith.ceildivsi(s, scalar(width, i32())))
        start = _before(per_group, groups)
        self.group_of = _count(
            [Arg(start, (1,)), Arg(per_group, (1,))], [count, groups], [0],
            lambda at, s, n: arith.extui(i32(), arith.cmpi(_SLE, arith.addi(s, n), at(0))),
        )  # fmt: skip
        self.group_of = elementwise([Arg(self.group_of, (0,))], [count], i32(), lambda g: _bounded(g, groups))
        self.block_of = elementwise(
            [Arg(owner, (0,)), Arg(position, (0,))], [rows], i32(),
            lambda o, p: arith.addi(_at(start, _bounded(o, groups)), arith.divsi(p, scalar(width, i32()))),
        )  # fmt: skip
        self.slot_of = elementwise([Arg(position, (0,))], [rows], i32(), lambda p: arith.remsi(p, scalar(width, i32())))

        if first_row is not None:
            # Sorted rows: a slot's row follows from where its block and its group start.
            def row(g: Any) -> Any:
                inside = arith.addi(arith.muli(arith.subi(_loop(0), _at(start, g)), scalar(width, i32())), _loop(1))
                last = arith.subi(arith.index_cast(i32(), as_index(rows)), scalar(1, i32()))
                return arith.maxsi(arith.minsi(arith.addi(_at(first_row, g), inside), last), scalar(0, i32()))

            self.row_of = elementwise([Arg(self.group_of, (0,))], [count, width], i32(), row)
            return self

        def mine(at: Any, block: Any, slot: Any, o: Any) -> Any:
            here = arith.andi(arith.cmpi(_EQ, block, at(0)), arith.cmpi(_EQ, slot, at(1)))
            return arith.select(arith.andi(here, _names_a_group(o, groups)), at(2), scalar(0, i32()))

        self.row_of = _count(
            [Arg(self.block_of, (2,)), Arg(self.slot_of, (2,)), Arg(owner, (2,))],
            [count, width, rows],
            [0, 1],
            mine,
        )
        return self

    def rows_of(self, value: Any) -> Any:
        """`[R, ...]` to `[NB, B, ...]`."""
        return gather(value, self.row_of)

    def weights_of(self, value: Any) -> Any:
        """`[G, ...]` to `[NB, ...]`."""
        return gather(value, self.group_of)

    def back(self, y: Any, skipped: Any | None) -> Any:
        """`[NB, B, N]` to `[R, N]`; rows without an owner get the scalar `skipped`."""
        n = dims(y)[2]
        groups = self.groups
        t = y.type.element_type

        def body(block: Any, slot: Any, owner: Any) -> Any:
            at = [arith.index_cast(ir.IndexType.get(), v) for v in (block, slot)]
            value = tensor.extract(y, [*at, loop_index(1)])
            if skipped is None:
                return value
            return arith.select(_names_a_group(owner, groups), value, skipped)

        args = [Arg(self.block_of, (0,)), Arg(self.slot_of, (0,)), Arg(self.owner, (0,))]
        return elementwise(args, [self.rows, n], t, body)


def _block_width(rows: Size, groups: int) -> int:
    """Rows of a block: the power of two near the mean group, from 8 to 64; 32 where the rows are dynamic."""
    if not isinstance(rows, int):
        return 32
    width = 8
    while width < 64 and width * groups < rows:
        width *= 2
    return width


def _block_count(rows: Size, groups: int, width: int) -> Size:
    if isinstance(rows, int):
        return min(rows, -(-rows // width) + groups - 1)
    bound = arith.addi(arith.ceildivsi(rows, index(width)), index(groups - 1))
    return arith.minsi(rows, bound)


# ----------------------------------------------------------------------------------------------------- products


class _Rows:
    """The op's parameters in block form. Behaves like the op for the product's epilogue, with every operand that
    has one row a token or a group already gathered."""

    def __init__(self, op: GroupedMatmulOp, out: str | None) -> None:
        self._op, self._out = op, out
        self._replaced: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name in self._replaced:
            return self._replaced[name]
        return getattr(self._op, name)

    @property
    def out_code(self) -> Any:
        from ...dialect.dtypes import DTYPES

        return DTYPES[self._out] if self._out else self._op.out_code

    def set(self, name: str, value: Any) -> None:
        self._replaced[name] = value


def _apart(value: Any) -> Any:
    """Keep a small gather out of the product's dispatch: fused into its epilogue, IREE's SPIR-V route vectorises it
    to widths that it cannot legalise."""
    sizes = [s for s in dims(value) if not isinstance(s, int)]
    hidden = util.OptimizationBarrierOp([value.type], [value]).results[0]
    if not sizes:
        return hidden
    # The sizes cannot be asked of what is behind a barrier, so they are tied to it.
    return ir.Operation.create("flow.tensor.tie_shape", results=[hidden.type], operands=[hidden, *sizes]).results[0]


def _row_parameter(blocks: _Blocks, value: Any | None) -> Any | None:
    """A per-token parameter `[R, X]` to `[NB, B, X]`; `[]` and `[1, X]` stay, right-aligned."""
    if value is None or value.type.rank == 0:
        return value
    s = shape_of(value)
    if len(s) == 1 or s[0] == 1:
        return value
    return _apart(blocks.rows_of(value))


def _group_parameter(blocks: _Blocks, value: Any | None) -> Any | None:
    """A per-group parameter `[G, X, Y]` to `[NB, X, Y]`; shared ones stay."""
    if value is None or value.type.rank < 3 or shape_of(value)[0] == 1:
        return value
    return _apart(blocks.weights_of(value))


def _blocked_product(op: GroupedMatmulOp, blocks: _Blocks, lhs: Any, view: _Rows) -> Any:
    """`[NB, B, N]`: the batched product of the blocks with the weights of their groups."""
    rhs_shape = dims(op.rhs)
    for i, s in enumerate(op.rhs_codes_shape()):
        if s is not None:
            rhs_shape[i] = s
    codes = op.rhs
    if op.packing != "none" or op.rhs_code.name == "i1":
        codes = unpack_codes(op.rhs, op.rhs_code, op.packing, rhs_shape[-1])
    gathered = blocks.weights_of(codes)
    k_b = 2 if op.rhs_transposed else 1
    x = blocks.rows_of(lhs)
    a = make_side("lhs", x, op.lhs_code, dims(x), 1, 2, scale=_row_parameter(blocks, view.lhs_scale),
                  zero=_row_parameter(blocks, view.lhs_zero_point), mode=op.lhs_zero_mode, packing="none",
                  global_scale=op.lhs_global_scale)  # fmt: skip
    zero = op.rhs_zero_point
    if zero is not None and op.zero_mode == "packed_int":
        raise OpError("zero_mode 'packed_int' is not supported by grouped_matmul; unpack the zero points")
    b = make_side("rhs", gathered, _loose(op.rhs_code), dims(gathered), 3 - k_b, k_b,
                  scale=_group_parameter(blocks, op.rhs_scale), zero=_group_parameter(blocks, zero), mode=op.zero_mode,
                  packing="none", sum_=None if op.rhs_sum is None else blocks.weights_of(op.rhs_sum),
                  codebook=op.codebook, global_scale=op.rhs_global_scale)  # fmt: skip
    if op.bias is not None and op.bias.type.rank == 2 and shape_of(op.bias)[0] != 1:
        per_block = _apart(blocks.weights_of(op.bias))
        n, width = dims(per_block)
        view.set("bias", expand(per_block, [[n], [1, width]]))
    for name in ("c", "out_scale", "out_multiplier", "out_zero_point", "act_scale"):
        view.set(name, _row_parameter(blocks, getattr(view, name)))
    n = rhs_shape[3 - k_b]
    return product(view, a, b, [blocks.count], blocks.width, n, rhs_shape[k_b])


def _loose(d: Any) -> Any:
    """Codes that have been unpacked already: 1-bit ones are -1 and 1 by now."""
    from ...dialect.dtypes import DTYPES

    return DTYPES["i2"] if d.name == "i1" else d


def _routed(op: GroupedMatmulOp, groups: int) -> Any:
    """Each token meets the experts that its ids name."""
    ids = _as_i32(op.expert_ids)
    tokens, topk = dims(ids)
    if not isinstance(topk, int):
        raise OpError("the second axis of 'expert_ids' (top-k) must be static")
    owner = collapse(ids, [[0, 1]])
    rows = dims(owner)[0]
    if not op.skip_invalid:
        _assert_ids(owner, groups)
    sizes = _count([Arg(owner, (1,))], [groups, rows], [0], lambda at, o: arith.extui(i32(), arith.cmpi(_EQ, o, at(0))))
    blocks = _Blocks.of(rows, groups, owner, _ranked(owner, rows), sizes)
    per_token = op.lhs.type.rank == 2

    def by_row(value: Any | None) -> Any | None:
        """A parameter of the tokens, `[T, X]` or `[T, topk, X]`, with one row a slot."""
        if value is None or value.type.rank < 2:
            return value
        if value.type.rank == 3:
            for axis, size in ((0, tokens), (1, topk)) if set(shape_of(value)[:2]) != {1} else ():
                if shape_of(value)[axis] == 1:
                    if not isinstance(size, int):
                        raise OpError("a parameter with one row for a dynamic number of tokens is not supported")
                    value = repeat(value, axis, size)
            return collapse(value, [[0, 1], [2]])
        if shape_of(value)[0] == 1:
            return value
        return repeat(value, 0, topk) if per_token else value

    lhs = repeat(op.lhs, 0, topk) if per_token else collapse(op.lhs, [[0, 1], [2]])
    weighted = op.routing_weights is not None
    view = _Rows(op, "f32" if weighted else None)
    for name in (
        "lhs_scale",
        "lhs_zero_point",
        "c",
        "out_scale",
        "out_multiplier",
        "out_zero_point",
        "act_scale",
    ):
        view.set(name, by_row(getattr(op, name)))
    y = _blocked_product(op, blocks, lhs, view)
    zero = scalar(0, y.type.element_type)
    flat = blocks.back(y, zero)
    n = dims(flat)[1]
    out = expand(flat, [[tokens, topk], [n]])
    if not weighted:
        return out
    init = filled([tokens, n], const(0.0))
    total = generic(
        [Arg(out, (1, 0, 2)), Arg(op.routing_weights, (1, 0))], init, [1, 2], 3,
        lambda v, w, acc: add(acc, arith.mulf(to_f32(w), v)),
    )  # fmt: skip
    t = element(op.out_code.name)
    if t == f32():
        return total
    return elementwise([Arg(total, (0, 1))], [tokens, n], t, lambda v: cast_f(v, t))


def _assert_ids(owner: Any, groups: int) -> None:
    """Every id names an expert."""

    def outside(_: Any, o: Any) -> Any:
        return arith.subi(scalar(1, i32()), arith.extui(i32(), _names_a_group(o, groups)))

    bad = _count([Arg(owner, (0,))], [dims(owner)[0]], [], outside)
    none = arith.cmpi(_EQ, tensor.extract(bad, []), scalar(0, i32()))
    _assert(none, f"an id of expert_ids is outside [0, {groups})")
