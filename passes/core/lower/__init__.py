"""qmlir-lower-to-linalg: lower each op of the dialect to contractions and elementwise generics on tensors.

The linalg form is the same for every target. Rules build it with `build` and `scalars`; `values` is common code for
quantised operands, and each op or family of ops has one file with its rule. A new op is one line in `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from ....core.mlir import arith, ir, tensor
from ....dialect.ods import OPS, OpError, view_of
from ....dialect.shapes import ShapeError
from ....ir.barriers import opaque
from ....ir.scalars import OPAQUE_ZERO, i32
from ....ir.walk import collect
from ...base import Diagnostic, Pass, State, error_at, fail
from .conv import lower_conv2d_q
from .dynamic import lower_dynamic_quantize
from .elementwise import lower_dequant, lower_quantize, lower_unpack
from .grouped import lower_grouped_matmul
from .matmul import lower_scaled_matmul
from .moe import lower_moe, lower_moe_align_block_size, lower_route
from .sparse import lower_sparse_matmul

if TYPE_CHECKING:
    from ....core.mlir import OpLike

LoweringRule: TypeAlias = "Callable[[Any], list[ir.Value]]"  # the op's view -> its results' replacements

RULES: dict[str, LoweringRule] = {
    "qmlir.dequant": lower_dequant,
    "qmlir.quantize": lower_quantize,
    "qmlir.dynamic_quantize": lower_dynamic_quantize,
    "qmlir.unpack": lower_unpack,
    "qmlir.scaled_matmul": lower_scaled_matmul,
    "qmlir.conv2d_q": lower_conv2d_q,
    "qmlir.grouped_matmul": lower_grouped_matmul,
    "qmlir.route": lower_route,
    "qmlir.moe_align_block_size": lower_moe_align_block_size,
    "qmlir.moe": lower_moe,
    "qmlir.sparse_matmul": lower_sparse_matmul,
}


@dataclass(frozen=True)
class LowerToLinalgPass(Pass):
    """Rewrites every qmlir op. Raises PassError for ops that their rules refuse."""

    name: ClassVar[str] = "qmlir-lower-to-linalg"
    summary: ClassVar[str] = "lower qmlir ops to linalg, arith and tensor"

    def run(self, module: ir.Module, state: State) -> None:
        found: list[Diagnostic] = []
        targets = collect(module, where=lambda op: op.name in OPS)
        zeros = _OpaqueZeros()
        for op in targets:
            token = OPAQUE_ZERO.set(partial(zeros.of, op))
            try:
                with ir.InsertionPoint(op), op.location:
                    results = RULES[op.name](view_of(op))
            except (OpError, ShapeError) as e:
                found.append(error_at(op, f"'{op.name}' op {e}"))
                continue
            finally:
                OPAQUE_ZERO.reset(token)
            for old, new in zip(op.results, results, strict=True):
                old.replace_all_uses_with(_typed(new, old, op))
            op.erase()
        fail(self.name, found)


class _OpaqueZeros:
    """One `0 : i32` per function, behind a barrier, created at the function's start on first use."""

    def __init__(self) -> None:
        self._made: list[tuple[OpLike, ir.Value]] = []

    def of(self, op: OpLike) -> ir.Value:
        """The zero of the function that contains `op`."""
        holder = op.parent
        while holder.operation.name != "func.func":
            holder = holder.operation.parent
        function = holder.operation
        for known, zero in self._made:
            if known == function:
                return zero
        with ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]), function.location:
            zero = opaque(arith.constant(i32(), 0))
        self._made.append((function, zero))
        return zero


def _typed(new: ir.Value, old: ir.Value, op: OpLike) -> ir.Value:
    """`new` cast to the declared type: a static size that the rule derived becomes `?` if the op declares `?`, and
    the other way round."""
    if new.type == old.type:
        return new

    with ir.InsertionPoint(op), op.location:
        return tensor.cast(old.type, new)
