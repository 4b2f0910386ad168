"""Find the contractions of a module and describe them without their IR.

A contraction is a linalg op that multiplies two operands and adds up: a `linalg.generic` with a reduction
whose body is `acc + ext(lhs) * ext(rhs)`, a named matmul, or one of the convolutions in `CONVOLUTIONS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from ...core.mlir import ir, linalg
from ...core.spelling import location_text
from ...ir.affine import indexing_maps, loops_of
from ...ir.facts import LHS_MAGNITUDE, RHS_MAGNITUDE
from ...ir.walk import VIEWS, behind, made_by, outside_kernels
from ...kernels.computes import multiply_add
from ...targets.strategy import Contraction

if TYPE_CHECKING:
    from ...core.mlir import OpLike

_UNSIGNED = ("arith.extui", "arith.uitofp")
_CONSTANTS = ("arith.constant", "flow.tensor.constant", "util.global.load")
# Ops that only move elements: the result is constant if the operand is.
_MOVES = (*VIEWS, "linalg.transpose", "tensor.pad")


@dataclass(frozen=True)
class ConvolutionForm:
    """The axes of filter and result that give the sizes of a named convolution."""

    kind: str
    batch: tuple[int, ...]  # of the result
    m: tuple[int, ...]  # of the result
    n: tuple[int, ...]  # of the filter
    k: tuple[int, ...]  # of the filter


CONVOLUTIONS = {
    "linalg.conv_2d_nhwc_fhwc": ConvolutionForm("conv2d", (), (0, 1, 2), (0,), (1, 2, 3)),
    "linalg.conv_2d_nhwc_hwcf": ConvolutionForm("conv2d", (), (0, 1, 2), (3,), (0, 1, 2)),
    "linalg.conv_2d_nhwgc_gfhwc": ConvolutionForm("conv2d", (3,), (0, 1, 2), (1,), (2, 3, 4)),
    "linalg.depthwise_conv_2d_nhwc_hwc": ConvolutionForm("depthwise_conv2d", (3,), (0, 1, 2), (), (0, 1)),
}


def find_contractions(module: ir.Module) -> list[Contraction]:
    """The contractions of `module`, in program order, each with its op."""
    return [c for op in outside_kernels(module) if (c := describe(op)) is not None]


def describe(op: OpLike) -> Contraction | None:
    """The description of one op; None if it is not a contraction."""
    if op.name in CONVOLUTIONS:
        return _describe_convolution(op, CONVOLUTIONS[op.name])
    if not op.name.startswith("linalg.") or len(op.operands) != 3 or len(op.results) != 1:
        return None
    if op.name == "linalg.generic":
        if multiply_add(op) is None:
            return None
    elif not linalg.isa_contraction_op(op):
        return None
    return _describe_matmul(op)


def is_product(op: OpLike) -> bool:
    """Whether an op is a matrix product or a convolution whose lowering IREE chooses (no `compilation_info`)."""
    if not op.name.startswith("linalg.") or len(op.operands) != 3 or len(op.results) != 1:
        return False
    return "compilation_info" not in op.attributes and multiply_add(op) is not None


class ProductAxes:
    """The loops that the axes of a product or a convolution follow, and the roles of these loops.

    Attributes:
        maps: the indexing maps of input, filter and result.
        input, filter, result: the loops of each axis; a windowed axis follows two.
        windows: the loops within a window, except those with a single step.
        summed_by_input, summed_by_filter: the summed loops in the operand's order, except those with a single step.
        rows: the loops of the result that the input follows. The result's other loops are columns (channels).
        still: the loops of a windowed input axis that has only one window: it is summed like channels.
    """

    def __init__(self, op: OpLike) -> None:
        self.maps = indexing_maps(op)
        self.input, self.filter, self.result = ([loops_of(e) for e in m.results] for m in self.maps)
        sizes = _shape(op.operands[1])
        single = {x for size, loops in zip(sizes, self.filter, strict=True) if size == 1 for x in loops}
        kept = {x for loops in self.result for x in loops}
        self.windows = {x for loops in self.input if len(loops) > 1 for x in loops} - kept - single
        self.summed_by_input = [x for loops in self.input for x in loops if x not in kept | single]
        self.summed_by_filter = [x for loops in self.filter for x in loops if x not in kept | single]
        self.rows = {x for loops in self.input for x in loops} & kept
        self._batch = {x for loops in self.filter for x in loops} & self.rows
        self._between = [x for loops in self.filter for x in loops if x not in single]
        once = {x for size, loops in zip(_shape(op.operands[2]), self.result, strict=True) if size == 1 for x in loops}
        self.still = {x for loops in self.input if len(loops) > 1 and set(loops) & once for x in loops} - single
        self._once = once | single

    @property
    def is_convolution(self) -> bool:
        return bool(self.windows) and set(self.summed_by_input) == set(self.summed_by_filter)

    @property
    def in_order(self) -> bool:
        """Whether the summed loops have the same order in both operands and are adjacent in the filter."""
        order, summed = self._between, self.summed_by_filter
        apart = bool(summed) and order.index(summed[-1]) - order.index(summed[0]) >= len(summed)
        return summed == self.summed_by_input and not apart

    @property
    def whole(self) -> list[int]:
        """The summed axes of the input along which no window moves."""
        summed, moving = set(self.summed_by_input), self.windows - self.still
        return [i for i, loops in enumerate(self.input) if summed & {*loops} and not moving & {*loops}]

    @property
    def groups_between(self) -> bool:
        """Whether only groups are between two `whole` axes of the input, while windows move along another axis."""
        known, between = self._batch | self._once, []
        for a, b in pairwise(self.whole):
            between.append({x for loops in self.input[a + 1 : b] for x in loops})
        return self.windows > self.still & self.windows and any(x <= known and x - self._once for x in between)

    @property
    def columns_lead(self) -> bool:
        """Whether a column axis of the result precedes a row axis."""
        order = [x in self.rows for loops in self.result for x in loops if x not in self._batch]
        return False in order and True in order[order.index(False) :]


def _positions(affine_map: ir.AffineMap) -> tuple[int, ...] | None:
    """The positions of the dims that are a map's results; None if a result is anything else (a window, a constant)."""
    if not all(isinstance(result, ir.AffineDimExpr) for result in affine_map.results):
        return None
    return tuple(result.position for result in affine_map.results)


def _describe_matmul(op: OpLike) -> Contraction | None:
    maps = [_positions(m) for m in indexing_maps(op)]
    if any(m is None for m in maps):
        return None
    lhs, rhs, out = (m for m in maps if m is not None)
    count = indexing_maps(op)[0].n_dims
    sizes: list[int | None] = [None] * count
    for positions, value in zip((lhs, rhs, out), op.operands, strict=True):
        for position, size in zip(positions, _shape(value), strict=True):
            sizes[position] = size if size is not None else sizes[position]
    letters = {
        (True, True, True): "b",
        (True, False, True): "m",
        (False, True, True): "n",
        (True, True, False): "k",
    }
    roles = [letters.get((d in lhs, d in rhs, d in out), "") for d in range(count)]
    if "" in roles or "k" not in roles:
        return None  # only one operand has the dim: a broadcast or a plain reduction

    def size_of(role: str) -> int | None:
        return _product(s for s, r in zip(sizes, roles, strict=True) if r == role)

    batch = tuple(s for s, r in zip(sizes, roles, strict=True) if r == "b")
    m, n, k = size_of("m"), size_of("n"), size_of("k")
    return _contraction(op, "matmul", batch, m, n, k, tuple(roles), tuple(sizes))


def _describe_convolution(op: OpLike, form: ConvolutionForm) -> Contraction:
    filter_shape, result_shape = _shape(op.operands[1]), _shape(op.results[0])
    return _contraction(
        op,
        form.kind,
        tuple(result_shape[d] for d in form.batch),
        _product(result_shape[d] for d in form.m),
        _product(filter_shape[d] for d in form.n),
        _product(filter_shape[d] for d in form.k),
    )


def _contraction(
    op: OpLike,
    kind: str,
    batch: tuple[int | None, ...],
    m: int | None,
    n: int | None,
    k: int | None,
    roles: tuple[str, ...] = (),
    sizes: tuple[int | None, ...] = (),
) -> Contraction:
    body = multiply_add(op)
    extensions = ("", "") if body is None else body.extensions
    lhs, rhs, acc = (
        ("u" if extension in _UNSIGNED else "") + str(_type(value).element_type)
        for value, extension in zip(op.operands, (*extensions, ""), strict=True)
    )
    return Contraction(
        kind=kind,
        batch=batch,
        m=m,
        n=n,
        k=k,
        lhs=lhs,
        rhs=rhs,
        acc=acc,
        roles=roles,
        sizes=sizes,
        rhs_constant=_is_constant(op.operands[1]),
        lhs_magnitude=_magnitude(op, LHS_MAGNITUDE, lhs),
        rhs_magnitude=_magnitude(op, RHS_MAGNITUDE, rhs),
        location=location_text(op.location),
        op=op,
    )


def _magnitude(op: OpLike, name: str, dtype: str) -> int:
    """The bound in the op's attribute `name`, else that of the type: 128 for i8, 255 for ui8 (extended as unsigned)."""
    if name in op.attributes:
        return int(op.attributes[name].value)
    bits = dtype.lstrip("ui")
    if not bits.isdigit():
        return 128
    return (1 << int(bits)) - 1 if dtype.startswith("u") else 1 << (int(bits) - 1)


def _type(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType(value.type)


def _shape(value: ir.Value) -> list[int | None]:
    kind = _type(value)
    return [None if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank)]


def _product(sizes: Iterable[int | None]) -> int | None:
    """The product of the sizes: 1 for no sizes, None if one is dynamic."""
    listed = list(sizes)
    known = [size for size in listed if size is not None]
    return prod(known) if len(known) == len(listed) else None


def _is_constant(value: ir.Value) -> bool:
    return made_by(behind(value, *_MOVES), *_CONSTANTS) is not None
