"""qmlir-bound-unit-sums: restore the bound of a size of one that is hidden from IREE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.walk import collect, producer
from ....targets.row_masks import UNIT_SUM
from ...base import Pass, State, error_at, fail

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "MLIR folds a mask whose leading size is one and loses the bounds of its other axes, so that a padded tile "
        "loads rows beyond the end. Where that size of one is hidden, a bound has to be stated.",
        canary="mask_of_rows",
    ),
)


_CONFIGURED = "compilation_info"
_LOAD = "iree_tensor_ext.dispatch.tensor.load"


@dataclass(frozen=True)
class BoundUnitSumsPass(Pass):
    """State that a hidden size of one is at most 1 (`util.assume.int`). Runs on the executables that IREE forms
    (`Target.source_passes`).

    `targets/row_masks.py` adds a sum of one term, whose size is hidden from IREE, to padded products with a batch,
    because IREE 3.13 otherwise drops the masks of their rows. IREE's padding needs a bound of that size. IREE infers
    the bound itself, except after a branch, which `qmlir-guard-empty` inserts.
    """

    name: ClassVar[str] = "qmlir-bound-unit-sums"
    summary: ClassVar[str] = "restore the bound of a hidden size of one, which keeps the masks of a product (GPUs)"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, "linalg.generic", where=_has_unit_sum):
            for operand in list(op.operands)[:2]:
                load = producer(operand)
                if load is None or load.name != _LOAD:
                    fail(self.name, [error_at(op, "a padded product does not read its operand from memory, so that the "
                                                  "bound of its size is not known")])  # fmt: skip
                assert load is not None
                _bound(list(load.operands)[1 + _count(load, 1) + _count(load, 2)], op)


def _has_unit_sum(op: OpLike) -> bool:
    return _CONFIGURED in op.attributes and UNIT_SUM in str(op.attributes[_CONFIGURED])


def _count(load: OpLike, group: int) -> int:
    """The number of operands in a segment: tensor, its sizes, then offsets, sizes and strides of the loaded slice."""
    return int(list(ir.DenseI32ArrayAttr(load.attributes["operandSegmentSizes"]))[group])


def _bound(size: ir.Value, op: OpLike) -> None:
    made = producer(size)
    assert made is not None
    assumption = "[[#util.int.assumption<umin = 0, umax = 1>]]"
    with op.location, ir.InsertionPoint.after(made):
        assumed = ir.Operation.create(
            "util.assume.int", results=[size.type], operands=[size],
            attributes={"assumptions": ir.Attribute.parse(assumption)},
        )  # fmt: skip
    size.replace_all_uses_except(assumed.results[0], assumed)
