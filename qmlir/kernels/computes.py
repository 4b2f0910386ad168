"""What one elementwise op or sum computes: from the fact that it carries (`ir/facts.py`), else from its body.

Programs that qmlir's passes did not make have no facts: each question can be answered from the body too, by matching
its ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..core.mlir import ir
from ..dialect.constants import is_zero_fill
from ..ir import facts
from ..ir.affine import indexing_maps
from ..ir.attributes import is_elementwise
from ..ir.walk import BARRIERS, behind, made_by, operations_of, terminator_of
from .axes import dims_of, size_of
from .bodies import scalar_constant
from .scaled import decodes_e2m1

if TYPE_CHECKING:
    from ..core.mlir import OpLike

_EXTENSIONS = ("arith.extsi", "arith.extui", "arith.extf", "arith.sitofp", "arith.uitofp")
_PRODUCTS = {"arith.addi": "arith.muli", "arith.addf": "arith.mulf"}


class MultiplyAdd(NamedTuple):
    """A body `acc + lhs * rhs`: the names of the addition and of the op that extends each factor ("" for none)."""

    addition: str
    extensions: tuple[str, str]


def multiply_add(op: OpLike) -> MultiplyAdd | None:
    """Match the body of a contraction as a multiply-add, with the operands of addition and multiplication in any order;
    None if it does something else."""
    arguments = _arguments(op)
    added = made_by(_yielded(op), *_PRODUCTS) if len(arguments) == 3 else None
    if added is None or arguments[2] not in list(added.operands):
        return None
    first, second = added.operands
    product = made_by(second if first == arguments[2] else first, _PRODUCTS[added.name])
    if product is None:
        return None
    extended = {}
    for factor in product.operands:
        by = made_by(factor, *_EXTENSIONS)
        extended[factor if by is None else by.operands[0]] = "" if by is None else str(by.name)
    if set(extended) != set(arguments[:2]):
        return None
    return MultiplyAdd(str(added.name), (extended[arguments[0]], extended[arguments[1]]))


def signed_from(value: ir.Value) -> ir.Value | None:
    """The u8 codes that an elementwise op converts to `value`, i8 codes that are less by 128 (`x ^ 0x80`)."""
    op = _unary_generic(value)
    if op is None:
        return None
    if facts.known(op, facts.SIGNED_CODES) is None:
        flip = made_by(_yielded(op), "arith.xori")
        if flip is None or flip.operands[0] != _arguments(op)[0] or _integer(flip.operands[1]) != -128:
            return None
    return op.operands[0]


def widened_from(value: ir.Value) -> ir.Value:
    """The tensor of a shorter float type that an elementwise op widens to `value`, else `value`."""
    op = _unary_generic(value, identity=False)
    if op is None or len(set(indexing_maps(op))) > 1:
        return value
    if facts.known(op, facts.WIDENS) is None:
        extended = made_by(_yielded(op), "arith.extf")
        if extended is None or extended.operands[0] != _arguments(op)[0]:
            return value
    return op.operands[0]


def e2m1_codes(value: ir.Value) -> ir.Value | None:
    """The e2m1 codes that an elementwise op decodes to `value`."""
    op = _unary_generic(value)
    if op is None:
        return None
    return op.operands[0] if facts.known(op, facts.DECODES) == "e2m1" or decodes_e2m1(op) else None


def unclamped(value: ir.Value, size: int) -> ir.Value:
    """The operand of an elementwise op that only clamps an index `[B]` to `[0, size)`; `value` if there is no such
    op."""
    op = _unary_generic(value)
    if op is None or ir.RankedTensorType(value.type).rank != 1:
        return value
    if facts.known(op, facts.CLAMPS) == (0, size - 1):
        return op.operands[0]
    bounds: list[tuple[str, int]] = []
    inner = _yielded(op)
    while (bound := made_by(inner, "arith.minsi", "arith.maxsi")) is not None:
        limit = _integer(bound.operands[1])
        if limit is None:
            return value
        bounds.append((bound.name, limit))
        inner = bound.operands[0]
    same = inner == _arguments(op)[0] and sorted(bounds) == [("arith.maxsi", 0), ("arith.minsi", size - 1)]
    return op.operands[0] if same else value


def is_within(value: ir.Value, lo: int, hi: int) -> bool:
    """Whether the op that makes integers limits them to `[lo, hi]`, as dynamic quantisation does with its zero points:
    by clamping floats and then converting them."""
    op = made_by(behind(value, "tensor.expand_shape", "tensor.collapse_shape"), "linalg.generic")
    if op is None:
        return False
    known = facts.known(op, facts.WITHIN)
    if isinstance(known, tuple) and len(known) == 2 and lo <= known[0] and known[1] <= hi:
        return True
    converted = made_by(_yielded(op), "arith.fptosi")
    below = None if converted is None else made_by(converted.operands[0], "arith.minimumf")
    above = None if below is None else made_by(below.operands[0], "arith.maximumf")
    if below is None or above is None:
        return False
    limits = [scalar_constant(bound.operands[1]) for bound in (below, above)]
    return all(limit is not None and lo <= limit.value <= hi for limit in limits)


def gathered_from(value: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """The source `[R, ..]` and the index `[..]` (i32) of a tensor that gathers rows of the source: its first axes are
    those of the index, its last ones all other axes of the source."""
    op = _unary_generic(behind(value, *BARRIERS), identity=False)
    if op is None:
        return None
    if facts.known(op, facts.GATHER) is not None:
        reads = [o for o in operations_of(op.regions[0].blocks[0]) if o.name == "tensor.extract"]
        return reads[0].operands[0], op.operands[0]
    source = _gathered_by_body(op)
    return None if source is None else (source, op.operands[0])


def _gathered_by_body(op: OpLike) -> ir.Value | None:
    """The tensor whose rows the body gathers: it reads at its argument, and at the loops of the other axes."""
    of_index, out = indexing_maps(op)
    if out != ir.AffineMap.get_identity(out.n_dims):
        return None
    depth = len(list(of_index.results))
    if dims_of(of_index) != list(range(depth)):
        return None
    read = made_by(_yielded(op), "tensor.extract")
    if read is None:
        return None
    source, row, *rest = read.operands
    if behind(row, "arith.index_cast") != _arguments(op)[0] or len(rest) != out.n_dims - depth:
        return None
    for axis, at in zip(range(depth, out.n_dims), rest, strict=True):
        loop = made_by(behind(at, "arith.index_cast"), "linalg.index")
        here = loop is not None and int(loop.attributes["dim"].value) == axis
        # The index of an axis of one element is a constant.
        if not here and not (size_of(op.results[0], axis) == 1 and _integer(at) == 0):
            return None
    return source


def repeated_from(value: ir.Value) -> tuple[ir.Value, int]:
    """Rows `[T, ..]`, and how many consecutive copies of each `value` holds; `value` itself and 1 if no op repeats
    rows."""
    view = made_by(value, "tensor.collapse_shape")
    copy = None if view is None else _unary_generic(view.operands[0], identity=False)
    # `[T, X, K]`, which holds each row of `[T, K]` X times.
    if view is None or copy is None or [len(list(g)) for g in view.attributes["reassociation"]] != [2, 1]:
        return value, 1
    known = facts.known(copy, facts.REPEATS)
    copies = _yielded(copy) == _arguments(copy)[0] and dims_of(indexing_maps(copy)[0]) == [0, 2]
    times = size_of(copy.results[0], 1)
    if times is None or not (known == (0, times) or copies):
        return value, 1
    return copy.operands[0], times


def row_sums_of(value: ir.Value) -> tuple[ir.Value, list[int]] | None:
    """The tensor whose signed codes an op sums along the last axis, and for each axis of the sums the tensor's axis
    that it is."""
    op = made_by(behind(value, *BARRIERS), "linalg.generic")
    if op is None or len(op.operands) != 2 or not is_zero_fill(op.operands[1]):
        return None
    source, out = (dims_of(m) for m in indexing_maps(op))
    if source is None or out is None or sorted(out) != sorted(source[:-1]):
        return None
    if facts.known(op, facts.ROW_SUMS) is None and not _adds_signed(op):
        return None
    return op.operands[0], [source.index(d) for d in out]


def _adds_signed(op: OpLike) -> bool:
    """Whether the body is `sum + extsi(code)`."""
    code, total = _arguments(op)
    added = made_by(_yielded(op), "arith.addi")
    if added is None or total not in list(added.operands):
        return False
    first, second = added.operands
    extended = made_by(second if first == total else first, "arith.extsi")
    return extended is not None and extended.operands[0] == code


def scales_groups(op: OpLike) -> bool:
    """Whether the body of a sum over groups is `sum + part * (scale * scale)`, and nothing else. Its operands are the
    groups' partial sums and both scales; its sum starts at zero."""
    if len(op.operands) != 4 or not is_zero_fill(op.operands[3]):
        return False
    if facts.known(op, facts.SCALES_GROUPS) is not None:
        return True
    part, lhs, rhs, total = _arguments(op)
    added = made_by(_yielded(op), "arith.addf")
    if added is None or total not in list(added.operands):
        return False
    first, second = added.operands
    product = made_by(_without_barrier(second if first == total else first), "arith.mulf")
    if product is None or part not in list(product.operands):
        return False
    first, second = product.operands
    scale = made_by(second if first == part else first, "arith.mulf")
    return scale is not None and {behind(v, "arith.extf") for v in scale.operands} == {lhs, rhs}


def _without_barrier(value: ir.Value) -> ir.Value:
    """The product behind the ops that keep compilers from contracting it with a sum (`ir/scalars.py: no_contract`)."""
    cast = made_by(value, "arith.bitcast")
    same = None if cast is None else made_by(cast.operands[0], "arith.xori")
    bits = None if same is None or _integer(same.operands[1]) != 0 else made_by(same.operands[0], "arith.bitcast")
    return value if bits is None else bits.operands[0]


def _unary_generic(value: ir.Value, identity: bool = True) -> OpLike | None:
    """The elementwise generic with one input that makes a tensor; with `identity`, all of its maps are the identity."""
    op = made_by(value, "linalg.generic")
    if op is None or len(op.operands) != 2 or len(op.results) != 1 or not is_elementwise(op):
        return None
    if identity and any(m != ir.AffineMap.get_identity(m.n_dims) for m in indexing_maps(op)):
        return None
    return op


def _arguments(op: OpLike) -> list[ir.Value]:
    return list(op.regions[0].blocks[0].arguments)


def _yielded(op: OpLike) -> ir.Value:
    """The first value that the body yields."""
    value: ir.Value = terminator_of(op.regions[0].blocks[0]).operands[0]
    return value


def _integer(value: ir.Value) -> int | None:
    """A constant integer, None for any other value."""
    attribute = scalar_constant(value)
    return int(attribute.value) if isinstance(attribute, ir.IntegerAttr) else None
