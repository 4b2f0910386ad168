"""qmlir-index-sums: read the running index of a sum from a constant, for GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ....core.faults import Fault
from ....core.mlir import arith, ir, linalg
from ....ir.affine import indexing_maps, loop_sizes
from ....ir.attributes import loop_kinds
from ....ir.walk import collect, operations_of
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike


FAULTS = (
    Fault(
        "A sum across lanes that reads its running index keeps values of type `index` in shared memory, which SPIR-V "
        "does not support.",
        canary="index_sum",
    ),
)


@dataclass(frozen=True)
class IndexSumsPass(Pass):
    """`linalg.index` of a static reduction loop becomes an operand `[0, 1, ..]`.

    IREE 3.13 reduces such a sum across lanes. On Vulkan it keeps the indices in shared memory as values of type
    `index`, which it cannot legalise (`memref.alloc` of `256xindex`); on CUDA it does not distribute them.
    """

    name: ClassVar[str] = "qmlir-index-sums"
    summary: ClassVar[str] = "replace the running index in a sum by an operand"

    def run(self, module: ir.Module, state: State) -> None:
        found = collect(module, "linalg.generic", where=lambda op: _summed_indices(op))
        for op in found:
            with ir.InsertionPoint(op), op.location:
                _rewrite(op)


def _summed_indices(op: OpLike) -> list[OpLike]:
    """The `linalg.index` ops of the body that read the index of a static reduction loop."""
    kinds = [kind == "reduction" for kind in loop_kinds(op)]
    sizes = loop_sizes(op.operands, indexing_maps(op))
    asked = [o for o in operations_of(op.regions[0].blocks[0]) if o.name == "linalg.index"]
    return [o for o in asked if kinds[(d := ir.IntegerAttr(o.attributes["dim"]).value)] and d in sizes]


def _rewrite(op: OpLike) -> None:
    indices, sizes = _summed_indices(op), loop_sizes(op.operands, indexing_maps(op))
    loops = sorted({ir.IntegerAttr(o.attributes["dim"]).value for o in indices})
    maps = indexing_maps(op)
    count = len(op.results)
    inputs, inits = list(op.operands)[:-count], list(op.operands)[-count:]
    i32 = ir.IntegerType.get_signless(32)
    for loop in loops:
        t = ir.RankedTensorType.get([sizes[loop]], i32)
        inputs.append(arith.constant(t, ir.DenseElementsAttr.get(np.arange(sizes[loop], dtype=np.int32), type=t)))
        maps.insert(-count, ir.AffineMap.get(maps[0].n_dims, 0, [ir.AffineDimExpr.get(loop)]))
    attributes = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
    new = linalg.GenericOp([v.type for v in inits], inputs, inits, attributes, op.attributes["iterator_types"])
    block = op.regions[0].blocks[0]
    block.append_to(new.regions[0])
    # The accumulators have to be the last arguments, behind the new ones.
    old = list(block.arguments)[-count:]
    here = {loop: block.add_argument(i32, op.location) for loop in loops}
    for argument in old:
        argument.replace_all_uses_with(block.add_argument(argument.type, op.location))
    for _ in old:
        block.erase_argument(len(inputs) - len(loops))
    for o in indices:
        with ir.InsertionPoint(o):
            running = here[ir.IntegerAttr(o.attributes["dim"]).value]
            o.results[0].replace_all_uses_with(arith.index_cast(ir.IndexType.get(), running))
        o.erase()
    for result, replaced in zip(op.results, new.results, strict=True):
        result.replace_all_uses_with(replaced)
    op.erase()
