"""qmlir-bf16-as-bits: load and store bf16 tensors as i16 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir, linalg
from ....ir.build import bitcast, dims, empty
from ....ir.scalars import bf16_bits
from ....ir.walk import collect, made_by, terminator_of
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike


FAULTS = (
    Fault(
        "Drivers refuse the SPIR-V that IREE generates for conversions of codes to bf16.",
        canary="code_to_bf16",
    ),
)


@dataclass(frozen=True)
class Bf16AsBitsPass(Pass):
    """Make each `linalg.generic` that rounds to bf16 compute the bits as i16, and each one that extends bf16 to f32
    read them as i16. Bitcasts convert between the two tensor types. Rounding is to nearest, ties to even, on the bits
    of the f32; NaN stays NaN.

    IREE 3.13's SPIR-V path cannot legalise loads and stores of bf16 vectors (`vector.bitcast` of bf16 to f32).
    """

    name: ClassVar[str] = "qmlir-bf16-as-bits"
    summary: ClassVar[str] = "compute bf16 results as i16 bits"

    def run(self, module: ir.Module, state: State) -> None:
        found = collect(module, "linalg.generic", where=lambda op: len(op.results) == 1 and _rounding(op) is not None)
        for op in found:
            _rewrite(op)
        for op in collect(module, "linalg.generic"):
            _read_bits(op)


def _read_bits(op: OpLike) -> None:
    """Convert the bf16 operands that a generic only extends to f32 to i16 operands."""
    i16, i32 = ir.IntegerType.get_signless(16), ir.IntegerType.get_signless(32)
    block = op.regions[0].blocks[0]
    for i, value in enumerate(list(op.operands)[: len(block.arguments) - len(op.results)]):
        argument = block.arguments[i]
        users = [use.owner.operation for use in argument.uses]
        if str(argument.type) != "bf16" or not all(u.name == "arith.extf" for u in users):
            continue
        with ir.InsertionPoint(op), op.location:
            op.operands[i] = bitcast(value, dims(value), i16)
        argument.set_type(i16)
        for user in users:
            with ir.InsertionPoint(user), user.location:
                wide = arith.shli(arith.extui(i32, argument), arith.constant(i32, 16))
                user.results[0].replace_all_uses_with(arith.bitcast(user.results[0].type, wide))
            user.erase()


def _rounding(op: OpLike) -> OpLike | None:
    """The op of the body that converts the result to bf16, from f32 or from a code: MLIR canonicalises the cast of a
    code to f32 and then to bf16 to one op. None if there is none, or if the body reads the initial result."""
    if str(op.results[0].type.element_type) != "bf16":
        return None
    block = op.regions[0].blocks[0]
    sources = {"arith.truncf": ("f32",), "arith.sitofp": ("i8", "i16"), "arith.uitofp": ("i8", "i16")}
    made = made_by(terminator_of(block).operands[0], *sources)
    if made is None or list(block.arguments[len(block.arguments) - 1].uses):
        return None
    return made if str(made.operands[0].type) in sources[made.name] else None


def _rewrite(op: OpLike) -> None:
    i16 = ir.IntegerType.get_signless(16)
    old_type = op.results[0].type
    with ir.InsertionPoint(op), op.location:
        sizes = dims(op.operands[len(op.operands) - 1])
        init = empty(sizes, i16)
        inputs = list(op.operands)[:-1]
        new = linalg.GenericOp(
            [init.type], inputs, [init], op.attributes["indexing_maps"], op.attributes["iterator_types"]
        )
        source = op.regions[0].blocks[0]
        body = new.operation.regions[0].blocks.append(*[v.type.element_type for v in inputs], i16)
        rounding = _rounding(op)
        assert rounding is not None
        # The body is moved unchanged, except for its end.
        last = terminator_of(source)
        for old, fresh in zip(source.arguments, body.arguments, strict=True):
            if str(old.type) == str(fresh.type):
                old.replace_all_uses_with(fresh)
        value, kind = rounding.operands[0], rounding.name
        last.erase()
        rounding.erase()
        for inner in list(source.operations):
            body.append(inner)
        with ir.InsertionPoint(body):
            if kind != "arith.truncf":
                value = (arith.sitofp if kind == "arith.sitofp" else arith.uitofp)(ir.F32Type.get(), value)
            linalg.YieldOp([bf16_bits(value)])
        bits = new.operation.results[0]
        result = bitcast(bits, dims(bits), old_type.element_type)
    op.results[0].replace_all_uses_with(result)
    op.erase()
