"""qmlir-fuse-rows: fuse a dynamic quantisation into one dispatch, with one pass over memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...core.mlir import ir
from ...ir.build import dims
from ...ir.facts import ROWS
from ...ir.walk import defining_op, operations_of, outside_kernels, producer
from ..base import Pass, State

if TYPE_CHECKING:
    from ...core.mlir import OpLike


@dataclass(frozen=True)
class FuseRowsPass(Pass):
    """Moves the reductions of a dynamic quantisation and the ops that read the same rows into one
    `flow.dispatch.region`.

    By default IREE forms one dispatch for the largest magnitude and one for the codes, and reads the data twice. With
    its flag that fuses such rows everywhere (`aggressive-fusion`), other programs compile for a minute or not at all.
    """

    name: ClassVar[str] = "qmlir-fuse-rows"
    summary: ClassVar[str] = "fuse a dynamic quantisation into one dispatch"

    def run(self, module: ir.Module, state: State) -> None:
        blocks: list[ir.Block] = []
        for op in outside_kernels(module, where=lambda op: ROWS in op.attributes):
            if op.block not in blocks:
                blocks.append(op.block)
        for block in blocks:
            for cluster in _clusters(block):
                _outline(block, cluster)


def _clusters(block: ir.Block) -> list[list[OpLike]]:
    """The operations of a block marked `ROWS`, in order, grouped by which of them read each other's results."""
    clusters: list[list[OpLike]] = []
    for op in operations_of(block):
        if ROWS not in op.attributes:
            continue
        sources = [made for made in map(producer, op.operands) if made is not None]
        mine = [c for c in clusters if any(s == member for s in sources for member in c)]
        clusters = [c for c in clusters if c not in mine]
        clusters.append([member for c in mine for member in c] + [op])
    return [c for c in clusters if len(c) > 1]


def _outline(block: ir.Block, cluster: list[OpLike]) -> None:
    """Move the operations into a dispatch region at the position of the last one."""
    order: dict[OpLike, int] = {op: i for i, op in enumerate(operations_of(block))}
    last = cluster[-1]
    leaving = []
    for op in cluster:
        for value in op.results:
            readers = [use.owner.operation for use in value.uses]
            outside = [r for r in readers if r not in cluster]
            if any(r in order and order[r] < order[last] for r in outside):
                return  # an op between them reads one of their results: not one region
            if outside:
                leaving.append((value, outside))
    with ir.InsertionPoint(last), last.location:
        # Sizes come from the destination of a linalg op: it has its result's shape and is defined outside the region.
        sizes = [s for value, _ in leaving for s in dims(_destination(value)) if not isinstance(s, int)]
        region = ir.Operation.create(
            "flow.dispatch.region", results=[v.type for v, _ in leaving], operands=sizes, regions=2,
            attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(sizes), 0])},
        )  # fmt: skip
        body = region.regions[0].blocks.append()
        for (value, readers), result in zip(leaving, region.results, strict=True):
            for reader in readers:
                for i, operand in enumerate(reader.operands):
                    if operand == value:
                        reader.operands[i] = result
        with ir.InsertionPoint(body):
            end = ir.Operation.create("flow.return", operands=[v for v, _ in leaving])
        for op in cluster:
            op.move_before(end)
            del op.attributes[ROWS]


def _destination(value: ir.Value) -> ir.Value:
    op = defining_op(value)
    inputs = len(op.operands) - len(op.results)
    made: ir.Value = op.operands[inputs + ir.OpResult(value).result_number]
    return made
