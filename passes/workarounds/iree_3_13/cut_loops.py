"""qmlir-cut-loops: split reductions that are longer than the device's loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isqrt, prod
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.affine import indexing_maps
from ....ir.attributes import axis_of
from ....ir.barriers import Reason, fusion_barrier
from ....ir.build import crop, dims
from ....ir.checks import assert_at_most, assert_short_sum
from ....ir.walk import collect
from ...base import Diagnostic, Pass, State, error_at, fail
from ...core.contractions import find_contractions

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "Mesa's llvmpipe ends a shader's loop after 65535 iterations, so that longer sums are incomplete.",
        canary="long_sum",
    ),
)

# Ops that run along an axis: the name of the op in messages, and a function from a number of loop steps to the longest
# axis that needs no more steps. A sort compares all pairs.
_AXIS_OPS: Mapping[str, tuple[str, Callable[[int], int]]] = {
    "iree_linalg_ext.arg_compare": ("search", lambda steps: steps),
    "iree_linalg_ext.scan": ("scan", lambda steps: steps),
    "iree_linalg_ext.sort": ("sort", lambda steps: (1 + isqrt(1 + 4 * steps)) // 2),
}


# A reduction of more pieces than this is refused, because each piece is a separate op.
MOST_PIECES = 64


@dataclass(frozen=True)
class CutLoopsPass(Pass):
    """Split a reduction of more than `longest` elements into pieces; each starts from the sum of the previous one.

    Mesa's llvmpipe, which lavapipe uses, ends a shader's loop after 65535 iterations (LP_MAX_TGSI_LOOP_ITERATIONS), so
    that a longer sum is silently incomplete. It counts the iterations of all loops of a shader together, so each piece
    needs a dispatch of its own; contractions get one without a fusion barrier. Contractions that a strategy has tiled
    have several short loops, and are unchanged.

    Scans and sorts are not split: if one is too long, the program is refused. If the length of a scan, a sort or a sum
    is dynamic, the program checks it at run time and refuses the call.
    """

    name: ClassVar[str] = "qmlir-cut-loops"
    summary: ClassVar[str] = "split reductions that are longer than the device's loops"
    longest: int = 65535

    def run(self, module: ir.Module, state: State) -> None:
        contractions = [c.op for c in find_contractions(module)]
        found: list[Diagnostic] = []
        long: list[tuple[OpLike, int]] = []

        for op in collect(module, *_AXIS_OPS):
            found += self._check_axis(op)
        for op in collect(module, where=_has_loops):
            if op not in contractions:
                self._check_sum(op)
            sizes = list(_reduced(op).values())
            length = prod(sizes) if op not in contractions else max(sizes, default=1)
            if length > self.longest:
                long.append((op, length))
        for op, length in long:
            pieces = self._pieces(op, op in contractions)
            if pieces is None:
                found.append(
                    error_at(
                        op,
                        f"a reduction over {length} elements is longer than the loops of this device, which stop after "
                        f"{self.longest}; reduce rows or groups instead of the whole tensor",
                    )
                )
            else:
                _cut(op, *pieces, separate=op not in contractions)
        fail(self.name, found)

    def _check_axis(self, op: OpLike) -> list[Diagnostic]:
        """Report a scan or sort that is too long; if its length is dynamic, insert a check at run time."""
        what, most_of = _AXIS_OPS[op.name]
        axis, most = axis_of(op), most_of(self.longest)
        t = ir.RankedTensorType(op.operands[0].type)
        limit = f"loops of this device stop after {self.longest} steps, and a {what} takes at most {most} elements"
        if t.is_dynamic_dim(axis):
            with ir.InsertionPoint(op), op.location:
                size = dims(op.operands[0])[axis]
                assert_at_most([size], most, f"a {what} along axis {axis}: {limit}")
        elif t.get_dim_size(axis) > most:
            return [error_at(op, f"a {what} of {t.get_dim_size(axis)} elements: {limit}")]
        return []

    def _check_sum(self, op: OpLike) -> None:
        """Insert a check at run time of the length of a sum of dynamic size."""
        places = _reductions(op).values()
        if any(v.type.is_dynamic_dim(axis) for v, axis in places):
            with ir.InsertionPoint(op), op.location:
                sizes = [dims(v)[axis] for v, axis in places]
                assert_short_sum(sizes, self.longest)

    def _pieces(self, op: OpLike, contraction: bool) -> tuple[int, int, int] | None:
        """The loop to cut, its size and the size of a piece; None if the op cannot be cut."""
        sizes = _reduced(op)
        loop = max(sizes, key=lambda d: sizes[d])
        others = 1 if contraction else prod(sizes.values()) // sizes[loop]
        piece = self.longest // others
        if piece == 0 or -(-sizes[loop] // piece) > MOST_PIECES or not _is_plain(op, loop):
            return None
        return loop, sizes[loop], piece


def _has_loops(op: OpLike) -> bool:
    return op.name.startswith("linalg.") and bool(op.regions)


def _maps(op: OpLike) -> Iterator[tuple[ir.Value, list[ir.AffineExpr]]]:
    """Each operand with the expressions of its axes."""
    for operand, indexing in zip(op.operands, indexing_maps(op), strict=True):
        yield operand, list(indexing.results)


def _reductions(op: OpLike) -> dict[int, tuple[ir.Value, int]]:
    """For each reduction loop, an operand and the axis that the loop runs along."""
    maps = list(_maps(op))
    kept = {e.position for e in maps[-1][1] if isinstance(e, ir.AffineDimExpr)}
    return {
        e.position: (operand, axis)
        for operand, expressions in maps
        for axis, e in enumerate(expressions)
        if isinstance(e, ir.AffineDimExpr) and e.position not in kept
    }


def _reduced(op: OpLike) -> dict[int, int]:
    """The static sizes of the reduction loops."""
    places = _reductions(op).items()
    return {loop: v.type.get_dim_size(axis) for loop, (v, axis) in places if not v.type.is_dynamic_dim(axis)}


def _is_plain(op: OpLike, loop: int) -> bool:
    """Whether the loop runs along whole axes of the operands and the body does not read its index."""
    dim = ir.AffineDimExpr.get(loop)
    for _, expressions in _maps(op):
        for e in expressions:
            if e != dim and e.compose(_without(loop, op)) != e:
                return False
    body = op.regions[0].blocks[0].operations
    return not any(o.name == "linalg.index" and ir.IntegerAttr(o.attributes["dim"]).value == loop for o in body)


def _without(loop: int, op: OpLike) -> ir.AffineMap:
    """The map that sends the loop to zero and the others to themselves."""
    count = indexing_maps(op)[0].n_dims
    results = [ir.AffineConstantExpr.get(0) if d == loop else ir.AffineDimExpr.get(d) for d in range(count)]
    return ir.AffineMap.get(count, 0, results)


def _cut(op: OpLike, loop: int, size: int, piece: int, separate: bool) -> None:
    dim = ir.AffineDimExpr.get(loop)
    outs = len(op.results)
    running = list(op.operands)[-outs:]
    with ir.InsertionPoint(op), op.location:
        for start in range(0, size, piece):
            length = min(piece, size - start)
            operands = [*list(op.operands)[:-outs], *running]
            for i, (operand, expressions) in enumerate(list(_maps(op))[:-outs]):
                axes = [axis for axis, e in enumerate(expressions) if e == dim]
                if axes:
                    low = [start if axis in axes else 0 for axis in range(len(expressions))]
                    sizes = [length if axis in axes else s for axis, s in enumerate(dims(operand))]
                    operands[i] = crop(operand, low, sizes)
            part = op.clone()
            for i, operand in enumerate(operands):
                part.operands[i] = operand
            running = list(part.results)
            if separate and start + length < size:
                running = [fusion_barrier(value, Reason.LONG_SUM) for value in running]
    for old, new in zip(op.results, running, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
