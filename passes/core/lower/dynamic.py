"""dynamic_quantize to linalg: reductions, scales, codes (docs/semantics.md, section 4)."""

from __future__ import annotations

from collections.abc import Callable

from ....core.mlir import arith, ir, math
from ....dialect.dtypes import DTYPES, DType
from ....dialect.enums import DIVIDING_RECIPES, SYMMETRIC_RECIPES
from ....dialect.ods import FieldView
from ....dialect.ops.dynamic_quantize import DynamicQuantizeOp
from ....ir.build import Arg, Extent, collapse, dims, element, elementwise, expand, filled, generics, scalar
from ....ir.facts import PRESENT, ROWS, WITHIN, FactValue
from ....ir.scalars import clamp, const, f32, i32, maximum, requantize, to_f32, to_small_float
from .values import full_rank


def lower_dynamic_quantize(op: DynamicQuantizeOp | FieldView) -> list[ir.Value]:
    """The lowering rule of the op. A row is what shares one scale: the whole tensor, a token, or a group."""
    sizes = dims(op.input)
    rank = len(sizes)
    d = DTYPES[op.out_dtype]
    lo, hi = op.clamp if op.clamp is not None else (d.lo, d.hi)
    code_type = element(d.name if d.kind == "float" else "i8")
    x, wide, kept = op.input, sizes, list(range(rank - 1))
    if op.granularity == "tensor":
        kept = []
    elif op.granularity == "group":
        k = sizes[-1]
        assert isinstance(k, int)
        assert op.group_size is not None
        wide = [*sizes[:-1], k // op.group_size, op.group_size]
        x = expand(op.input, [[s] for s in sizes[:-1]] + [wide[-2:]])
        kept = list(range(rank))
    rows: list[Extent] = [wide[i] for i in kept]
    loops = len(wide)

    def largest(*bodies: Callable[..., ir.Value]) -> list[ir.Value]:
        """For each body, the maximum of its results over each row, at least 0, as the bits of an f32.

        The bits of positive floats order like integers, NaN above all; those of negative floats are negative integers.
        An integer maximum is one instruction everywhere, while a reduction by maximumf loses NaN on some devices (see
        passes/workarounds/iree_3_13/keep_nan.py).
        """
        inits = [filled(rows, scalar(0, i32())) for _ in bodies]

        def step(v: ir.Value, *accs: ir.Value) -> list[ir.Value]:
            return [arith.maxsi(acc, arith.bitcast(i32(), body(to_f32(v))))
                    for body, acc in zip(bodies, accs, strict=True)]  # fmt: skip

        return generics([Arg(x, tuple(range(loops)))], inits, kept, loops, step, facts={ROWS: PRESENT})

    def on_rows(values: list[ir.Value], t: ir.Type, body: Callable[..., ir.Value]) -> ir.Value:
        args = [Arg(v, tuple(range(len(rows)))) for v in values]
        facts: dict[str, FactValue] = {ROWS: PRESENT} if t == f32() else {ROWS: PRESENT, WITHIN: (lo, hi)}
        return elementwise(args, rows, t, body, facts=facts)

    zero = None
    if op.symmetric:
        (amax,) = largest(math.absf)
        scale = on_rows([amax], f32(), lambda m: _symmetric(_as_float(m), op.recipe, d, lo, hi, op.eps))
    else:
        # The range contains 0, because both maxima start there. A NaN of either sign is in one of the two.
        below, above = largest(arith.negf, lambda v: v)

        def affine(b: ir.Value, a: ir.Value) -> tuple[ir.Value, ir.Value]:
            return _affine(arith.negf(_as_float(b)), _as_float(a), op.recipe, lo, hi, op.eps)

        scale = on_rows([below, above], f32(), lambda *ends: affine(*ends)[0])
        zero = on_rows([below, above], i32(), lambda *ends: affine(*ends)[1])
    args = [Arg(x, tuple(range(loops))), Arg(scale, tuple(kept))]
    if zero is not None:
        args.append(Arg(zero, tuple(kept)))

    def code(v: ir.Value, s: ir.Value, *z: ir.Value) -> ir.Value:
        # Some recipes divide, the others multiply by the reciprocal: the last bit differs.
        t = (
            arith.divf(to_f32(v), s)
            if op.recipe in DIVIDING_RECIPES
            else arith.mulf(to_f32(v), arith.divf(const(1.0), s))
        )
        if d.kind == "float":
            made: ir.Value = to_small_float(t, d)
            return made
        return requantize(t, None, to_f32(z[0]) if z else None, op.rounding, lo, hi, code_type)

    codes = elementwise(args, wide, code_type, code, facts={ROWS: PRESENT})
    if op.granularity == "group":
        codes = collapse(codes, [[i] for i in range(rank - 1)] + [[rank - 1, rank]])
    results = [codes, _keep_axis(scale, op, rows)]
    if zero is not None:
        results.append(_keep_axis(zero, op, rows))
    return results


def _as_float(bits: ir.Value) -> ir.Value:
    return arith.bitcast(f32(), bits)


def _keep_axis(value: ir.Value, op: DynamicQuantizeOp | FieldView, rows: list[Extent]) -> ir.Value:
    """Per token, the scale keeps an axis of size one."""
    if op.granularity != "token":
        return value
    if not rows:
        return full_rank(value, 1)
    return expand(value, [[r] for r in rows[:-1]] + [[rows[-1], 1]])


def _symmetric(amax: ir.Value, recipe: str, d: DType, lo: int, hi: int, eps: float) -> ir.Value:
    if recipe in SYMMETRIC_RECIPES:
        s = arith.divf(amax, const(d.largest if d.kind == "float" else float(hi)))
        empty = arith.cmpf(arith.CmpFPredicate.OEQ, amax, const(0.0))
        return arith.select(empty, const(1.0), s)
    s = arith.divf(amax, const(d.largest if d.kind == "float" else (hi - lo) / 2))
    return maximum(s, const(eps)) if eps else s


def _affine(low: ir.Value, high: ir.Value, recipe: str, lo: int, hi: int, eps: float) -> tuple[ir.Value, ir.Value]:
    """Scale (f32) and zero point (i32) of a range that holds 0."""
    if recipe == "fbgemm":
        return _fbgemm(low, high, lo, hi)
    s = arith.divf(arith.subf(high, low), const(float(hi - lo)))
    eq = arith.CmpFPredicate.OEQ
    if recipe == "onnx":
        s = arith.select(arith.cmpf(eq, s, const(0.0)), const(1.0), s)
        z = math.roundeven(arith.subf(const(float(lo)), arith.divf(low, s)))
    else:
        s = maximum(s, const(eps)) if eps else s
        z = arith.subf(const(float(lo)), math.roundeven(arith.divf(low, s)))
    return s, arith.fptosi(i32(), clamp(_unless_nan(z, const(float(lo))), lo, hi))


def _unless_nan(value: ir.Value, otherwise: ir.Value) -> ir.Value:
    """`value`, or `otherwise` if it is NaN, whose conversion to an integer is undefined."""
    return arith.select(arith.cmpf(arith.CmpFPredicate.UNO, value, value), otherwise, value)


def _fbgemm(low: ir.Value, high: ir.Value, lo: int, hi: int) -> tuple[ir.Value, ir.Value]:
    """fbgemm's ChooseQuantizationParams, in f64."""
    f64 = ir.F64Type.get()

    def c(value: float) -> ir.Value:
        return scalar(value, f64)

    m, x = arith.extf(f64, low), arith.extf(f64, high)
    s = arith.divf(arith.subf(x, m), c(hi - lo))
    s = arith.select(arith.cmpf(arith.CmpFPredicate.OEQ, s, c(0.0)), c(0.1), s)
    at_min, at_max = arith.divf(m, s), arith.divf(x, s)
    from_min, from_max = arith.subf(c(lo), at_min), arith.subf(c(hi), at_max)
    err_min = arith.addf(c(abs(lo)), math.absf(at_min))
    err_max = arith.addf(c(abs(hi)), math.absf(at_max))
    z = arith.select(arith.cmpf(arith.CmpFPredicate.OLT, err_min, err_max), from_min, from_max)
    z = arith.minimumf(arith.maximumf(_unless_nan(math.roundeven(z), c(lo)), c(lo)), c(hi))
    return arith.truncf(f32(), s), arith.fptosi(i32(), z)
