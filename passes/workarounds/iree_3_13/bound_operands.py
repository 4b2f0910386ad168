"""qmlir-bound-operands: split elementwise computations of many tensors into several dispatches, on CUDA and ROCm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir, linalg
from ....ir.affine import indexing_maps
from ....ir.barriers import Reason, fusion_barrier_behind
from ....ir.walk import VIEWS, collect, producer, read_by
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE fuses elementwise operations without a bound on the tensors that they read, and its drivers for CUDA and "
        "HIP load no program with a dispatch of more than 16 (`binding_flags count 17 exceeds maximum of 16`).",
        canary="many_operands",
    ),
)


@dataclass(frozen=True)
class BoundOperandsPass(Pass):
    """Put a fusion barrier into each tree of elementwise operations that may read more than `most` tensors, behind the
    operand that reads most of them: the interpolation of an image in three dimensions, for instance.

    If a value has several readers, both the value and the tensors that it is computed from are counted, because IREE
    may fuse it with one reader and store it for another. A value that is computed from constants only counts as one
    tensor, because it is computed once.
    """

    name: ClassVar[str] = "qmlir-bound-operands"
    summary: ClassVar[str] = "split elementwise computations of many tensors (CUDA, ROCm)"
    most: int = 14  # a dispatch may bind 16, some of which are results

    def run(self, module: ir.Module, state: State) -> None:
        trees = _Trees()
        for op in collect(module, where=lambda op: op.name in VIEWS or _is_elementwise(op)):
            while len(trees.read(op)) > self.most:
                value = max(op.operands, key=lambda operand: len(trees.of(operand)))
                if len(trees.of(value)) < 2:
                    break
                fusion_barrier_behind(value, Reason.MANY_OPERANDS)
            trees.add(op)


class _Trees:
    """The tensors in memory that each value may be computed from in one dispatch; `None` if from constants only."""

    def __init__(self) -> None:
        self._leaves: dict[ir.Value, frozenset[ir.Value] | None] = {}

    def of(self, value: ir.Value) -> frozenset[ir.Value]:
        """The tensors in memory that an operation may read if `value` is its operand."""
        op = producer(value)
        if op is not None and op.name in ("tensor.empty", "tensor.splat"):
            return frozenset()
        if op is not None and op.name == "arith.constant":
            dense = op.attributes["value"]
            is_scalar = isinstance(dense, ir.DenseElementsAttr) and dense.is_splat
            return frozenset() if is_scalar else frozenset((value,))
        leaves = self._leaves.get(value)
        itself = frozenset((value,))
        return itself if not leaves else leaves | itself if len(list(value.uses)) > 1 else leaves

    def read(self, op: OpLike) -> frozenset[ir.Value]:
        tensors = [value for value in read_by(op) if isinstance(value.type, ir.RankedTensorType)]
        return frozenset[ir.Value]().union(*map(self.of, tensors))

    def add(self, op: OpLike) -> None:
        computed = [v for v in read_by(op) if isinstance(v.type, ir.RankedTensorType) and not self._is_constant(v)]
        leaves = self.read(op) if computed else None
        self._leaves.update((result, leaves) for result in op.results)

    def _is_constant(self, value: ir.Value) -> bool:
        op = producer(value)
        known = op is not None and op.name in ("arith.constant", "tensor.empty", "tensor.splat")
        return known or (value in self._leaves and self._leaves[value] is None)


def _is_elementwise(op: OpLike) -> bool:
    """Whether an op is arithmetic on tensors, or a linalg op without a reduction."""
    if op.name.partition(".")[0] in ("arith", "math") and op.operands:
        return isinstance(op.results[0].type, ir.RankedTensorType)
    if not op.name.startswith("linalg.") or not op.results or linalg.get_indexing_maps(op) is None:
        return False
    result = indexing_maps(op)[-1]
    return bool(result.is_projected_permutation and len(result.results) == result.n_dims)
