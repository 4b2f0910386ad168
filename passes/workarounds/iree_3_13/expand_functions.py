"""qmlir-expand-functions: expand elementary functions to formulas that are accurate on their whole domain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir, math
from ....ir.affine import indexing_maps
from ....ir.walk import collect, made_by, producer, read_by, sources
from ...base import Diagnostic, Pass, State, error_at, fail
from .formulas import DOUBLE, FUNCTIONS, erfc, exp, truncated
from .formulas.scalars import constant_of

if TYPE_CHECKING:
    from ....core.mlir import OpLike


FAULTS = (
    Fault(
        "`log10` on CPUs becomes a library call that is never linked; other functions are approximated inaccurately.",
        canary="log10",
        upstream="https://github.com/iree-org/iree/issues/20165",
    ),
    Fault(
        "`trunc` on x86-64 CPUs without SSE4.1 becomes a library call that is never linked.",
        canary="truncation",
        upstream="https://github.com/iree-org/iree/issues/20165",
    ),
    Fault(
        "Functions of f64 become those of SPIR-V's GLSL.std.450 instructions, which support f32 and f16 only: the "
        "results are arbitrary.",
        canary="exponential_of_f64",
    ),
    Fault(
        "A function that branches on the undefined padding of a product's tile has undefined behaviour, and LLVM "
        "removes the kernel.",
        canary="branch_on_a_tile",
    ),
    Fault(
        "`arith.mului_extended` of vectors with several axes is not legalised for CPUs: a sine of values that are "
        "repeated along an axis did not compile.",
        canary="extended_product",
    ),
)


@dataclass(frozen=True)
class ExpandFunctionsPass(Pass):
    """Expands each function of `FUNCTIONS` in the bodies of linalg ops, in f32, for all front ends.

    The expansions of IREE 3.13 and MLIR are inaccurate or do not compile: `sinh` and `asinh` near 0 and `atanh` lose
    all digits, `asinh` and `acosh` are infinite from 2e19, `sin` and `cos` are infinite for large numbers, `atan` is
    off by 4e-6, `powf` by 1e-5, `remf` on Vulkan by a whole divisor, and `log10` on CPUs calls a library that is not
    linked. The formulas here are within 1e-6 of the result, and `remf` is exact (test/frontends/test_elementwise.py).
    Two compositions are recognised across ops: `exp(x) - 1` as `expm1`, and `1 - erf(x)` as `erfc`.

    The formulas have no branches, unlike the functions of AMD's and NVIDIA's libraries: the padding of a product's tile
    is undefined, so a branch on it is undefined, and LLVM removes the whole kernel (`tanh` of a product and another
    tensor, on ROCm). No formula depends on whether a product and a sum are rounded once or twice, nor on `(a + b) - a`,
    which Vulkan drivers simplify.

    `keep`: functions that the target computes accurately. `exp`: expand the exponential too; that of a GPU, `exp2(x *
    log2(e))`, has the rounding error of that product. `trunc`: expand truncation too. `wide`: compute the extended
    product of 32-bit words by a 64-bit product, which CPUs support for vectors of any shape, and Vulkan devices may not
    have. `double=false`: refuse functions of f64, which the target (SPIR-V) does not have, and for which IREE generates
    code with arbitrary results.
    """

    name: ClassVar[str] = "qmlir-expand-functions"
    summary: ClassVar[str] = "expand functions that IREE approximates badly"
    keep: str = ""  # names without the dialect, separated by `|`
    exp: bool = False
    trunc: bool = False
    wide: bool = False
    double: bool = True

    def run(self, module: ir.Module, state: State) -> None:
        kept = self.keep.split("|")
        for op in collect(module, "arith.subf", where=_in_linalg):
            _compose(op)
        for op in collect(module, *FUNCTIONS, where=_in_linalg):
            if op.name.partition(".")[2] not in kept:
                _replace(op, FUNCTIONS[op.name])
        for op in collect(module, *DOUBLE, where=_of_f64):
            _replace(op, DOUBLE[op.name])
        for asked, name, formula in ((self.exp, "math.exp", exp), (self.trunc, "math.trunc", truncated)):
            for op in collect(module, name, where=_in_linalg) if asked else ():
                _replace(op, formula)
        if not self.double:
            found = collect(module, where=_is_double_function)
            fail(self.name, [_lacks_double(op) for op in found if not _is_known(_whole(op))])
        if self.wide:
            for op in collect(module, "arith.mului_extended"):
                _widen(op)


# Functions that SPIR-V has for f64, and those that are expanded without a function of the driver.
_EXACT = ("absf", "ceil", "copysign", "floor", "fma", "round", "roundeven", "rsqrt", "sqrt", "trunc", "fpowi", "isnan",
          "isinf", "isfinite", "isnormal", "clampf")  # fmt: skip


def _in_linalg(op: OpLike) -> bool:
    t = op.results[0].type
    if not isinstance(t, ir.FloatType) or t.width > 32:
        return False
    return bool(op.parent.operation.name.startswith("linalg."))


def _of_f64(op: OpLike) -> bool:
    return isinstance(op.results[0].type, ir.F64Type)


def _is_double_function(op: OpLike) -> bool:
    name = op.name.partition(".")
    return name[0] == "math" and name[2] not in _EXACT and any(map(_is_f64, op.results))


def _whole(op: OpLike) -> OpLike:
    """The linalg op whose body contains an op, or the op itself."""
    parent = op.parent.operation
    return parent if parent.name.startswith("linalg.") else op


def _is_known(op: OpLike) -> bool:
    """Whether an op is computed from constants only: IREE computes it on the host."""
    return all(producer(value) is not None for value in sources(read_by(op)))


def _is_f64(value: ir.Value) -> bool:
    t = value.type
    return isinstance(t.element_type if isinstance(t, ir.ShapedType) else t, ir.F64Type)


def _lacks_double(op: OpLike) -> Diagnostic:
    what = op.name.partition(".")[2]
    return error_at(op, f"{what} of f64: SPIR-V has it of f32 and f16 alone; convert the operand to f32")


def _replace(op: OpLike, formula: Callable[..., ir.Value | None]) -> None:
    """Replace an op by a formula, in f64 for an f64 and in f32 otherwise. The op stays if the formula returns None."""
    t = op.results[0].type
    wide = t if t.width >= 32 else ir.F32Type.get()
    with ir.InsertionPoint(op), op.location:
        result = formula(*(arith.extf(wide, x) if x.type == t != wide else x for x in op.operands))
        if result is None:
            return
        op.results[0].replace_all_uses_with(result if t == wide else arith.truncf(t, result))
    op.erase()


def _widen(op: OpLike) -> None:
    """Compute the low and the high word of a product by a 64-bit product, if the words are scalars of 32 bits."""
    word = op.results[0].type
    if not isinstance(word, ir.IntegerType) or word.width != 32:
        return
    with ir.InsertionPoint(op), op.location:
        i64 = ir.IntegerType.get_signless(64)
        product = arith.muli(*(arith.extui(i64, x) for x in op.operands))
        high = arith.shrui(product, arith.constant(i64, 32))
        for result, made in zip(op.results, (product, high), strict=True):
            result.replace_all_uses_with(arith.trunci(word, made))
    op.erase()


# ---------------------------------------------------------------------------------------------- compositions


def _compose(op: OpLike) -> None:
    """Replace `exp(x) - 1` by `expm1(x)` and `1 - erf(x)` by `erfc(x)`. The inner function is in the same body, or in
    the body of an elementwise op that produces an operand."""
    a, b = op.operands
    for inner, one, name in ((a, b, "math.exp"), (b, a, "math.erf")):
        if constant_of(one) == 1.0:
            x = _argument_of(inner, name, op)
            if x is not None:
                with ir.InsertionPoint(op), op.location:
                    made = math.expm1(x) if name == "math.exp" else _in_f32(erfc, x)
                op.results[0].replace_all_uses_with(made)
                op.erase()
                return


def _in_f32(formula: Callable[[ir.Value], ir.Value], x: ir.Value) -> ir.Value:
    t = x.type
    return formula(x) if isinstance(t, ir.F32Type) else arith.truncf(t, formula(arith.extf(ir.F32Type.get(), x)))


def _argument_of(value: ir.Value, name: str, reader: OpLike) -> ir.Value | None:
    """The argument of the function `name`, as a value in the reader's body, if `value` is its result; None otherwise.
    If a separate elementwise op applies the function, the reader gets the operand of that op in place of its result."""
    op = producer(value)
    if op is not None:
        return op.operands[0] if op.name == name else None
    owner = reader.parent.operation
    block = owner.regions[0].blocks[0]
    if owner.name != "linalg.generic" or value.owner != block or value.arg_number >= len(owner.operands):
        return None
    if len(list(value.uses)) != 1 or value.arg_number >= len(owner.operands) - len(owner.results):
        return None
    applied = made_by(owner.operands[value.arg_number], "linalg.generic")
    if applied is None or len(applied.operands) != 2 or len(applied.results) != 1:
        return None
    body = list(applied.regions[0].blocks[0].operations)
    maps = indexing_maps(applied)
    if (
        len(body) != 2
        or body[0].operation.name != name
        or body[0].operation.operands[0] != applied.regions[0].blocks[0].arguments[0]
        or any(m != ir.AffineMap.get_identity(m.n_dims) for m in maps)
        or applied.operands[0].type != applied.results[0].type
    ):
        return None
    owner.operands[value.arg_number] = applied.operands[0]
    return value
