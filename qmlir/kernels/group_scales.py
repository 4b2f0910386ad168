"""The scale tensors of a product in groups along K."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..core.mlir import ir
from ..ir.affine import axis_loops, indexing_maps
from .computes import scales_groups

if TYPE_CHECKING:
    from ..core.mlir import OpLike


class GroupScales(NamedTuple):
    """The op that sums the groups of a product, and its scales `[M, G]` and `[N, G]`."""

    total: OpLike
    lhs: ir.Value
    rhs: ir.Value

    @property
    def elements(self) -> tuple[str, str]:
        """The element types of the scales."""
        return str(self.lhs.type.element_type), str(self.rhs.type.element_type)


def group_scales(op: OpLike) -> GroupScales | str:
    """The scales of the groups of the contraction `op`, if the sum over groups only scales the groups' partial sums;
    otherwise the reason why not."""
    users = [use.owner.operation for use in op.results[0].uses]
    if len(users) != 1 or users[0].name != "linalg.generic" or len(users[0].operands) != 4:
        return "the groups are not summed with two scales"
    total = users[0]
    if not scales_groups(total):
        return "the sum over groups does more than to scale"
    maps = [axis_loops(m) for m in indexing_maps(total)]
    if total.operands[0] != op.results[0] or maps[3] != maps[0][1:] or len(maps[0]) != 3:
        return "the groups are not summed in their order"
    g, m, n = maps[0]
    if maps[1:3] != [[m, g], [n, g]]:
        return "a scale is not one per row and group"
    return GroupScales(total, total.operands[1], total.operands[2])
