"""qmlir-cut-loops: split reductions that are longer than the device's loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.affine import indexing_maps
from ....ir.barriers import Reason, fusion_barrier
from ....ir.build import crop, dims
from ....ir.walk import collect
from ...base import Diagnostic, Pass, State, error_at, fail
from ...core.contractions import find_contractions

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "Mesa's llvmpipe leaves a shader's loop after 65535 iterations: a longer sum lacks its rest.",
        canary="long_sum",
    ),
)


# More pieces than this are refused: each is an op of its own.
MOST_PIECES = 64


@dataclass(frozen=True)
class CutLoopsPass(Pass):
    """Splits a reduction of more than `longest` elements into parts; each starts from the sum of the previous one.

    Mesa's llvmpipe, which lavapipe uses, ends a shader's loop after 65535 iterations (LP_MAX_TGSI_LOOP_ITERATIONS), so
    that a longer sum is silently incomplete. It counts the iterations of all loops of a shader together, so that each
    part has a dispatch of its own; contractions have that without a barrier. Contractions that a strategy has tiled
    have several short loops, and are unchanged.
    """

    name: ClassVar[str] = "qmlir-cut-loops"
    summary: ClassVar[str] = "split reductions that are longer than the device's loops"
    longest: int = 65535

    def run(self, module: ir.Module, state: State) -> None:
        contractions = [c.op for c in find_contractions(module)]
        found: list[Diagnostic] = []
        long: list[tuple[OpLike, int]] = []

        for op in collect(module, "linalg.generic", "linalg.matmul", "linalg.batch_matmul"):
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

    def _pieces(self, op: OpLike, contraction: bool) -> tuple[int, int, int] | None:
        """The loop to cut, its size and that of a piece; None where there is no way."""
        sizes = _reduced(op)
        loop = max(sizes, key=lambda d: sizes[d])
        others = 1 if contraction else prod(sizes.values()) // sizes[loop]
        piece = self.longest // others
        if piece == 0 or -(-sizes[loop] // piece) > MOST_PIECES or not _is_plain(op, loop):
            return None
        return loop, sizes[loop], piece


def _maps(op: OpLike) -> Iterator[tuple[ir.Value, list[ir.AffineExpr]]]:
    """Each operand with the expressions of its axes."""
    for operand, indexing in zip(op.operands, indexing_maps(op), strict=True):
        yield operand, list(indexing.results)


def _reduced(op: OpLike) -> dict[int, int]:
    """The static sizes of the reduction loops."""
    kept = {ir.AffineDimExpr(e).position for e in list(_maps(op))[-1][1] if isinstance(e, ir.AffineDimExpr)}
    sizes: dict[int, int] = {}
    for operand, expressions in _maps(op):
        for axis, expression in enumerate(expressions):
            if isinstance(expression, ir.AffineDimExpr) and not operand.type.is_dynamic_dim(axis):
                sizes[expression.position] = operand.type.get_dim_size(axis)
    return {loop: size for loop, size in sizes.items() if loop not in kept}


def _is_plain(op: OpLike, loop: int) -> bool:
    """Whether the loop runs along whole axes of the operands and the body does not ask for its index."""
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
