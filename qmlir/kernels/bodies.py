"""Scalar regions of linalg ops, cloned at register width."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ..core.mlir import arith, ir
from ..ir.walk import behind, defining_op, made_by

if TYPE_CHECKING:
    from ..core.mlir import OpLike

# A target's better form of one op: from the cloner, the op and its vector operands to the result, or None to clone the
# op unchanged.
Rule: TypeAlias = "Callable[[BodyCloner, OpLike, list[ir.Value]], ir.Value | None]"

_DIALECTS = ("arith.", "math.")


def unclonable(block: ir.Block, small_floats: bool = False) -> str:
    """Why a body cannot be cloned onto vectors, "" if it can. `small_floats`: the body may read one-byte floats if it
    only extends them to f32."""
    local = set(block.arguments)
    for op in block.operations:
        operation = op.operation
        if operation.name != "linalg.yield" and (not operation.name.startswith(_DIALECTS) or len(operation.regions)):
            return f"its body holds {operation.name}"
        for value in operation.operands:
            if value not in local and scalar_constant(value) is None:
                return "its body reads a value from outside"
        for result in operation.results:
            if not computable(result.type):
                return f"its body computes with {result.type}"
        local.update(operation.results)
    unread = (a for a in block.arguments if not computable(a.type) and not (small_floats and _only_extended(a)))
    return next((f"it reads {a.type}" for a in unread), "")


def is_small_float(t: ir.Type) -> bool:
    """Whether a type is a one-byte float; the exponent-only type of scales is one."""
    return isinstance(t, ir.FloatType) and t.width == 8


def _only_extended(argument: ir.Value) -> bool:
    users = [use.owner.operation for use in argument.uses]
    extended = all(u.name == "arith.extf" and isinstance(u.results[0].type, ir.F32Type) for u in users)
    return is_small_float(argument.type) and extended


def computable(t: ir.Type) -> bool:
    """Whether a type is an integer or a float that vector units convert."""
    if isinstance(t, ir.IntegerType):
        return t.width in (1, 8, 16, 32, 64)
    return isinstance(t, (ir.F16Type, ir.BF16Type, ir.F32Type, ir.F64Type))


def scalar_constant(value: ir.Value) -> ir.Attribute | None:
    """The attribute of a scalar constant, also behind an optimisation barrier; None for any other value.

    The lowering hides a zero behind a barrier to keep LLVM from contracting products and sums
    (`ir/scalars.py: no_contract`); a kernel prevents this by its rules instead.
    """
    op = made_by(behind(value, "util.optimization_barrier"), "arith.constant")
    return None if op is None or isinstance(value.type, ir.ShapedType) else op.attributes["value"]


class BodyCloner:
    """Clones bodies onto vectors of `lanes` elements; `bound` gives rules the largest magnitude of a value of a body
    (kernels/ranges.py), None if unknown."""

    def __init__(
        self, lanes: int, rules: Mapping[str, Rule], bound: Callable[[ir.Value], float | None] = lambda value: None
    ) -> None:
        self.lanes, self.rules, self.bound = lanes, rules, bound
        self.known: dict[
            ir.Value, ir.Value
        ] = {}  # cloned values of the current body, for rules that inspect the producers of operands

    def widen(self, t: ir.Type) -> ir.Type:
        return ir.VectorType.get([self.lanes], t)

    def splat(self, attribute: ir.Attribute) -> ir.Value:
        t = self.widen(attribute.type)
        return arith.constant(t, ir.DenseElementsAttr.get_splat(t, attribute))

    def clone(self, block: ir.Block, arguments: Sequence[ir.Value]) -> ir.Value:
        """Clone a body and return its first yielded value; `arguments` replace the first arguments of the block."""
        known = dict(zip(block.arguments, arguments, strict=False))
        for op in block.operations:
            operation = op.operation
            if operation.name == "linalg.yield":
                return self.value(operation.operands[0], known)
            self.value(operation.results[0], known)
        raise AssertionError("a body without a yield")

    def value(self, value: ir.Value, known: dict[ir.Value, ir.Value]) -> ir.Value:
        """Clone one value of a body with its producers. `known` maps the block's arguments, and is extended."""
        self.known = known
        if value in known:
            return known[value]
        attribute = scalar_constant(value)
        known[value] = self.splat(attribute) if attribute is not None else self._made(defining_op(value), known)
        return known[value]

    def _made(self, operation: OpLike, known: dict[ir.Value, ir.Value]) -> ir.Value:
        operands = [self.value(operand, known) for operand in operation.operands]
        rule = self.rules.get(operation.name)
        made = rule(self, operation, operands) if rule else None
        return self._same(operation, operands) if made is None else made

    def _same(self, op: OpLike, operands: list[ir.Value]) -> ir.Value:
        """The same op on vectors."""
        names = [a if isinstance(a, str) else a.name for a in op.attributes]
        return ir.Operation.create(
            op.name,
            results=[self.widen(op.results[0].type)],
            operands=operands,
            attributes={name: op.attributes[name] for name in names},
        ).results[0]
