"""qmlir-expand-functions: functions of one and two numbers by formulas that hold over all of their domain."""

from __future__ import annotations

import itertools
import math as numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.mlir import arith, ir, math
from ....ir.affine import indexing_maps
from ....ir.build import scalar
from ....ir.scalars import const as _c, i32 as _i32, polynomial
from ....ir.walk import collect, made_by, producer
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike


@dataclass(frozen=True)
class ExpandFunctionsPass(Pass):
    """Writes out each function of `FUNCTIONS` in the bodies of linalg ops, in f32, whatever front end it is from.

    What IREE 3.13 and MLIR expand these to is wrong by far more than a rounding, or does not compile: `sinh` and
    `asinh` near 0 and `atanh` lose all digits, `asinh` and `acosh` are infinite from 2e19, `sin` and `cos` are infinite
    for large numbers, `atan` is off by 4e-6, `powf` by 1e-5, `remf` on Vulkan by a whole divisor, and `log10` on CPUs
    is a call of a library that nothing links. The formulas here are within 1e-6 of the result, and `remf` is exact
    (test/frontends/test_elementwise.py). Two compositions are found as well, across ops: `exp(x) - 1` is `expm1`,
    `1 - erf(x)` is `erfc`.

    No formula has a branch either, which the functions of AMD's and NVIDIA's libraries have: a tile of a product is
    padded with values that are undefined, a branch on one of them is, and LLVM drops the whole kernel (`tanh` of a
    product and another tensor, on ROCm).

    No formula depends on a product and a sum being two roundings or one, nor on `(a + b) - a`, which drivers of Vulkan
    simplify. `keep`: what the target computes well itself. `exp`: the exponential is written out too; where a GPU's own
    is `exp2(x * log2(e))` it is off by the rounding of that product.
    """

    name: ClassVar[str] = "qmlir-expand-functions"
    summary: ClassVar[str] = "write out functions that IREE approximates badly"

    keep: str = ""  # names without the dialect, between bars
    exp: bool = False

    def run(self, module: ir.Module, state: State) -> None:
        kept = self.keep.split("|")
        for op in collect(module, "arith.subf", where=_in_linalg):
            _compose(op)
        for op in collect(module, *FUNCTIONS, where=_in_linalg):
            if op.name.partition(".")[2] not in kept:
                _replace(op, FUNCTIONS[op.name])
        if self.exp:
            for op in collect(module, "math.exp", where=_in_linalg):
                _replace(op, exp)


def _in_linalg(op: OpLike) -> bool:
    t = op.results[0].type
    if not isinstance(t, ir.FloatType) or (t.width > 32 and op.name != "math.log10"):
        return False
    return bool(op.parent.operation.name.startswith("linalg."))


def _replace(op: OpLike, formula: Callable[..., ir.Value | None]) -> None:
    """The formula in f32 (an f64 as it is) in the place of an op, where it gives one."""
    t = op.results[0].type
    wide = t if t.width >= 32 else ir.F32Type.get()
    with ir.InsertionPoint(op), op.location:
        result = formula(*(arith.extf(wide, x) if x.type == t != wide else x for x in op.operands))
        if result is None:
            return
        op.results[0].replace_all_uses_with(result if t == wide else arith.truncf(t, result))
    op.erase()


# ---------------------------------------------------------------------------------------------- compositions


def _compose(op: OpLike) -> None:
    """`exp(x) - 1` as `expm1(x)`, `1 - erf(x)` as `erfc(x)`, the function in the same body or in an elementwise op
    that makes an operand of the body."""
    a, b = op.operands
    for inner, one, name in ((a, b, "math.exp"), (b, a, "math.erf")):
        if _constant(one) == 1.0:
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


def _constant(value: ir.Value) -> float | None:
    op = made_by(value, "arith.constant")
    constant = None if op is None else op.attributes["value"]
    return constant.value if isinstance(constant, ir.FloatAttr) else None


def _argument_of(value: ir.Value, name: str, reader: OpLike) -> ir.Value | None:
    """What the function `name` was applied to where it makes `value`, in the reader's body; None where it is no such
    function. Where another op applies it, the reader is given that op's operand."""
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


# -------------------------------------------------------------------------------------------------- building


def _i(value: int) -> ir.Value:
    return scalar(value if value < 1 << 31 else value - (1 << 32), _i32())


def _is(predicate: str, a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.cmpf(getattr(arith.CmpFPredicate, predicate), a, b)


def _bits(x: ir.Value) -> ir.Value:
    return arith.bitcast(_i32(), x)


def _float(bits: ir.Value) -> ir.Value:
    return arith.bitcast(ir.F32Type.get(), bits)


def _add(a: ir.Value, *rest: ir.Value) -> ir.Value:
    for b in rest:
        a = arith.addf(a, b)
    return a


_sub, _mul, _div, _select = arith.subf, arith.mulf, arith.divf, arith.select


def _head(x: ir.Value) -> ir.Value:
    """`x` with 12 bits of its 24: products of two such numbers are exact."""
    return _float(arith.andi(_bits(x), _i(0xFFFFF000)))


def _signed(magnitude: ir.Value, sign: ir.Value) -> ir.Value:
    return math.copysign(magnitude, sign)


NAN = float("nan")
INF = float("inf")
LN2 = numbers.log(2)


# ----------------------------------------------------------------------------------- exponentials, logarithms


def _power_of_two(n: ir.Value) -> ir.Value:
    """`2^n` of an i32 in [-126, 127]."""
    return _float(arith.shli(arith.addi(n, _i(127)), _i(23)))


def _scaled(r: ir.Value, n: ir.Value) -> ir.Value:
    """`e^r * 2^n` for |r| <= 0.36 and a whole f32 `n`; no NaN. The polynomial is that of Cephes' expf."""
    n = _select(_is("OGT", n, _c(-250)), n, _c(-250))
    n = arith.fptosi(_i32(), _select(_is("OLT", n, _c(250)), n, _c(250)))
    tail = polynomial(r, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
                           5.0000001201e-1))  # fmt: skip
    value = _add(_c(1.0), _add(r, _mul(_mul(r, r), tail)))
    half = arith.shrsi(n, _i(1))  # two steps: 2^n alone may be no f32
    return _mul(_mul(value, _power_of_two(half)), _power_of_two(arith.subi(n, half)))


def exp(x: ir.Value) -> ir.Value:
    """Cody and Waite's reduction (Software Manual for the Elementary Functions, 1980): ln 2 in two parts, of which the
    first times a whole number is exact."""
    near = _between(x, -200.0, 200.0)
    n = math.roundeven(_mul(near, _c(1 / LN2)))
    r = _sub(_sub(near, _mul(n, _c(0.693359375))), _mul(n, _c(-2.12194440054691e-4)))
    return _select(_is("UNO", x, x), x, _scaled(r, n))


def _between(x: ir.Value, lo: float, hi: float) -> ir.Value:
    """`x` in bounds, NaN as the lower one."""
    x = _select(_is("OGT", x, _c(lo)), x, _c(lo))
    return _select(_is("OLT", x, _c(hi)), x, _c(hi))


def exp2(x: ir.Value) -> ir.Value:
    near = _between(x, -200.0, 200.0)
    n = math.roundeven(near)
    return _select(_is("UNO", x, x), x, _scaled(_mul(_sub(near, n), _c(LN2)), n))


def expm1(x: ir.Value) -> ir.Value:
    """Near 0 by Taylor's series."""
    small = _mul(x, polynomial(x, [1 / numbers.factorial(k) for k in range(9, 0, -1)]))
    return _select(_is("OLT", math.absf(x), _c(0.5)), small, _sub(math.exp(x), _c(1.0)))


def _atanh_series(s: ir.Value) -> ir.Value:
    """`atanh(s)` for |s| <= 0.26, by Taylor's series."""
    return _mul(s, polynomial(_mul(s, s), [1 / k for k in (13, 11, 9, 7, 5, 3, 1)]))


def log1p(x: ir.Value) -> ir.Value:
    """Near 0 by `2 atanh(x / (2 + x))`, whose series has every second power (Abramowitz and Stegun, 4.1.27)."""
    near = _is("OLT", math.absf(x), _c(0.4))
    inside = _select(near, x, _c(0.0))
    small = _mul(_c(2.0), _atanh_series(_div(inside, _add(_c(2.0), inside))))
    return _select(near, _select(_is("OEQ", x, _c(0.0)), x, small), math.log(_add(_c(1.0), x)))


def log10(x: ir.Value) -> ir.Value:
    return _mul(math.log(x), scalar(1 / numbers.log(10), x.type))


def power(x: ir.Value, y: ir.Value) -> ir.Value:
    """Roots and powers of 2 by what is made for them."""
    if _constant(y) in (0.5, -0.5):
        root = math.sqrt(x)
        return root if _constant(y) == 0.5 else _div(_c(1.0), root)
    return exp2(y) if _constant(x) == 2.0 else _power(x, y)


def integer_power(x: ir.Value, n: ir.Value) -> ir.Value | None:
    """Small ones that are constant stay as they are: IREE multiplies, and each product is rounded once."""
    constant = made_by(n, "arith.constant")
    if constant is not None and abs(ir.IntegerAttr(constant.attributes["value"]).value) <= 8:
        return None
    return _power(x, arith.sitofp(ir.F32Type.get(), n))


def _power(x: ir.Value, y: ir.Value) -> ir.Value:
    """`2^(y log2 |x|)`, the logarithm in two parts of which the first has few bits, so that the products that decide
    are exact; the way of fdlibm's e_pow (Sun Microsystems, 1993). The cases are those of C's pow (C11, F.10.4.4)."""
    a = math.absf(x)
    # |x| = 2^e m with m in [sqrt(1/2), sqrt(2))
    shifted = arith.subi(_bits(a), _i(0x3F3504F3))
    e = arith.sitofp(ir.F32Type.get(), arith.shrsi(shifted, _i(23)))
    m = _float(arith.addi(arith.andi(shifted, _i(0x007FFFFF)), _i(0x3F3504F3)))
    # s = (m - 1) / (m + 1) in two parts; log2(m) = 2 / ln 2 * atanh(s)
    above, below = _sub(m, _c(1.0)), _add(m, _c(1.0))
    s = _div(above, below)
    s_head, below_head = _head(s), _head(below)
    below_tail = _sub(m, _sub(below_head, _c(1.0)))
    s_tail = _div(_sub(_sub(above, _mul(s_head, below_head)), _mul(s_head, below_tail)), below)
    square = _mul(s, s)
    series = _mul(_mul(s, square), polynomial(square, [1 / k for k in (13, 11, 9, 7, 5, 3)]))
    factor = 2 / LN2
    factor_head = 2.884765625  # 12 bits
    high = _mul(s_head, _c(factor_head))
    low = _add(_mul(s_head, _c(factor - factor_head)), _mul(_c(factor), _add(s_tail, series)))
    # y (e + high + low) as whole numbers and a rest
    rough = _mul(y, _add(e, high))
    y_near = _select(_is("OLT", math.absf(rough), _c(300.0)), y, _c(0.0))
    y_head, high_head = _head(y_near), _head(high)
    y_tail = _sub(y_near, y_head)
    first, second = _mul(y_head, e), _mul(y_head, high_head)
    n1, n2 = math.roundeven(first), math.roundeven(second)
    rest = _add(_mul(y_tail, _add(e, high)), _mul(y_head, _sub(high, high_head)), _mul(y_near, low))
    rest = _add(_add(_sub(first, n1), _sub(second, n2)), rest)
    n3 = math.roundeven(rest)
    found = _scaled(_mul(_sub(rest, n3), _c(LN2)), _add(n1, n2, n3))
    zero, infinite = _c(0.0), _c(INF)
    found = _select(_is("OGE", rough, _c(300.0)), infinite, _select(_is("OLE", rough, _c(-300.0)), zero, found))
    # 0, infinities
    rises = _is("OGT", y, zero)
    end = _select(arith.xori(_is("OLT", a, _c(1.0)), rises), infinite, zero)
    size = math.absf(y)
    at_end = arith.ori(_is("OEQ", size, infinite), arith.ori(_is("OLT", a, _c(2.0**-126)), _is("OEQ", a, infinite)))
    found = _select(at_end, end, found)
    # a negative x
    whole = _is("OEQ", math.floor(y), y)
    half = _mul(y, _c(0.5))
    odd = arith.andi(arith.andi(whole, _is("ONE", math.floor(half), half)), _is("OLT", size, _c(2.0**24)))
    negative = arith.cmpi(arith.CmpIPredicate.slt, _bits(x), _i(0))
    found = _select(arith.andi(odd, negative), arith.negf(found), found)
    fraction = arith.andi(arith.xori(whole, scalar(1, ir.IntegerType.get_signless(1))), _is("OLT", size, infinite))
    finite = arith.andi(_is("OGE", a, _c(2.0**-126)), _is("OLT", a, infinite))
    found = _select(arith.andi(arith.andi(negative, fraction), finite), _c(NAN), found)
    found = _select(_is("UNO", x, y), _c(NAN), found)
    one = arith.ori(_is("OEQ", y, zero), _is("OEQ", x, _c(1.0)))
    one = arith.ori(one, arith.andi(_is("OEQ", a, _c(1.0)), _is("OEQ", size, infinite)))
    return _select(one, _c(1.0), found)


# ------------------------------------------------------------------------------------------------ hyperbolic


def _half_exp(a: ir.Value) -> ir.Value:
    """`e^a / 2`, also where `e^a` is no f32 any more: halving the argument is exact."""
    root = math.exp(_mul(a, _c(0.5)))
    return _mul(_mul(root, _c(0.5)), root)


def sinh(x: ir.Value) -> ir.Value:
    """Near 0 by Taylor's series."""
    square = _mul(x, x)
    small = _mul(x, polynomial(square, [1 / numbers.factorial(k) for k in (11, 9, 7, 5, 3, 1)]))
    half = _half_exp(math.absf(x))
    large = _signed(_sub(half, _div(_c(0.25), half)), x)
    return _select(_is("OLT", math.absf(x), _c(1.0)), small, large)


def cosh(x: ir.Value) -> ir.Value:
    half = _half_exp(math.absf(x))
    return _add(half, _div(_c(0.25), half))


def tanh(x: ir.Value) -> ir.Value:
    """`t / (t + 2)` of `t = e^2a - 1`; 1 where that is all that f32 has of it."""
    a = math.absf(x)
    t = expm1(_mul(_c(2.0), _select(_is("OGT", a, _c(10.0)), _c(10.0), a)))
    return _signed(_div(t, _add(t, _c(2.0))), x)


def asinh(x: ir.Value) -> ir.Value:
    """`log1p(a + a^2 / (1 + sqrt(1 + a^2)))` of a = |x| (Abramowitz and Stegun, 4.6.20, without its cancellation); far
    away `log(2 a)`."""
    a = math.absf(x)
    far = _is("OGT", a, _c(1e4))
    near = _select(far, _c(0.0), a)
    square = _mul(near, near)
    inner = log1p(_add(near, _div(square, _add(_c(1.0), math.sqrt(_add(_c(1.0), square))))))
    found = _select(_is("OLT", a, _c(1e-4)), a, inner)
    return _signed(_select(far, _add(math.log(a), _c(LN2)), found), x)


def acosh(x: ir.Value) -> ir.Value:
    """`log1p(t + sqrt(t (t + 2)))` of t = x - 1 (Abramowitz and Stegun, 4.6.21); far away `log(2 x)`."""
    far = _is("OGT", x, _c(1e4))
    t = _sub(_select(arith.ori(far, _is("OLT", x, _c(1.0))), _c(1.0), x), _c(1.0))
    inner = log1p(_add(t, math.sqrt(_mul(t, _add(t, _c(2.0))))))
    found = _select(far, _add(math.log(x), _c(LN2)), inner)
    return _select(_is("OLT", x, _c(1.0)), _c(NAN), found)


def atanh(x: ir.Value) -> ir.Value:
    """Near 0 by Taylor's series, elsewhere `log((1 + x) / (1 - x)) / 2` (Abramowitz and Stegun, 4.6.22)."""
    a = math.absf(x)
    large = _signed(_mul(_c(0.5), math.log(_div(_add(_c(1.0), a), _sub(_c(1.0), a)))), x)
    large = _select(_is("OGT", a, _c(1.0)), _c(NAN), large)
    return _select(_is("OLT", a, _c(0.25)), _atanh_series(x), large)


# ---------------------------------------------------------------------------------------------- trigonometric

# The bits of 2 / pi behind its point, in words (any table of them; here from pi to 300 digits), behind a word of zeros.
_TWO_OVER_PI = (0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)


def _unsigned_product(a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The low and the high word of a product."""
    op = ir.Operation.create("arith.mului_extended", results=[_i32(), _i32()], operands=[a, b])
    return op.results[0], op.results[1]


def _reduced(a: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """`(s, r, q)` of a >= 0: a is `q pi/2 + s r` with r in [0, pi/4] and q modulo 4; s is whether that is a difference.

    Payne and Hanek's reduction (Radian Reduction for Trigonometric Functions, SIGNUM 1983): of 2 / pi only the bits
    count that make a product below 4; 96 of them times the 24 of the number leave 62 behind the point.
    """
    bits = _bits(a)
    mantissa = arith.ori(arith.andi(bits, _i(0x007FFFFF)), _i(0x00800000))
    place = arith.subi(arith.shrui(bits, _i(23)), _i(120))  # of the first bit that counts
    word, shift = arith.shrui(place, _i(5)), arith.andi(place, _i(31))
    back = arith.subi(_i(31), shift)

    def table(k: int) -> ir.Value:
        """Word `word + k`."""
        found = _i(_TWO_OVER_PI[k])
        for w in range(1, 5):
            found = _select(arith.cmpi(arith.CmpIPredicate.eq, word, _i(w)), _i(_TWO_OVER_PI[w + k]), found)
        return found

    words = [table(k) for k in range(4)]
    parts = [
        arith.ori(arith.shli(x, shift), arith.shrui(arith.shrui(y, _i(1)), back)) for x, y in itertools.pairwise(words)
    ]
    low, high = _unsigned_product(mantissa, parts[1])
    _, carried = _unsigned_product(mantissa, parts[2])
    low = arith.addi(low, carried)
    carry = arith.extui(_i32(), arith.cmpi(arith.CmpIPredicate.ult, low, carried))
    high = arith.addi(arith.addi(arith.muli(mantissa, parts[0]), high), carry)
    # 2 bits before the point, 62 behind it; to the nearest whole number
    moved = arith.addi(high, _i(0x20000000))
    q = arith.shrui(moved, _i(30))
    high = arith.subi(arith.andi(moved, _i(0x3FFFFFFF)), _i(0x20000000))
    below = arith.cmpi(arith.CmpIPredicate.slt, high, _i(0))
    flip = _select(below, _i(0xFFFFFFFF), _i(0))
    high, low = arith.xori(high, flip), arith.xori(low, flip)
    f32 = ir.F32Type.get()
    # A conversion of the whole low word from an unsigned number is not to be had everywhere.
    top, bottom = arith.shrui(low, _i(16)), arith.andi(low, _i(0xFFFF))
    fraction = _add(_mul(arith.sitofp(f32, top), _c(2.0**-46)), _mul(arith.sitofp(f32, bottom), _c(2.0**-62)))
    r = _mul(_add(_mul(arith.sitofp(f32, high), _c(2.0**-30)), fraction), _c(numbers.pi / 2))
    small = _is("OLT", a, _c(0.78))
    q = _select(small, _i(0), q)
    r = _select(small, a, _select(_is("OLT", a, _c(INF)), r, _c(NAN)))
    no = scalar(0, ir.IntegerType.get_signless(1))
    return _select(small, no, below), r, q


def _sine_and_cosine(r: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Of r in [0, pi/4], by Taylor's series."""
    square = _mul(r, r)
    odd = [(-1) ** (k // 2) / numbers.factorial(k) for k in (9, 7, 5, 3, 1)]
    even = [(-1) ** (k // 2) / numbers.factorial(k) for k in (10, 8, 6, 4, 2, 0)]
    return _mul(r, polynomial(square, odd)), polynomial(square, even)


def _bit(q: ir.Value, n: int) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.ne, arith.andi(q, _i(1 << n)), _i(0))


def _negated(x: ir.Value, condition: ir.Value) -> ir.Value:
    return _select(condition, arith.negf(x), x)


def sine(x: ir.Value) -> ir.Value:
    below, r, q = _reduced(math.absf(x))
    s, c = _sine_and_cosine(r)
    found = _select(_bit(q, 0), c, _negated(s, below))
    negative = arith.cmpi(arith.CmpIPredicate.slt, _bits(x), _i(0))
    return _negated(found, arith.xori(_bit(q, 1), negative))


def cosine(x: ir.Value) -> ir.Value:
    below, r, q = _reduced(math.absf(x))
    s, c = _sine_and_cosine(r)
    found = _select(_bit(q, 0), arith.negf(_negated(s, below)), c)
    return _negated(found, _bit(q, 1))


def tangent(x: ir.Value) -> ir.Value:
    below, r, q = _reduced(math.absf(x))
    s, c = _sine_and_cosine(r)
    s = _negated(s, below)
    found = _select(_bit(q, 0), arith.negf(_div(c, s)), _div(s, c))
    return _negated(found, arith.cmpi(arith.CmpIPredicate.slt, _bits(x), _i(0)))


def _arctangent(a: ir.Value) -> ir.Value:
    """Of a >= 0: Cephes' atanf, reduced at tan(pi/8) and tan(3 pi/8)."""
    over, middle = _is("OGT", a, _c(2.414213562373095)), _is("OGT", a, _c(0.4142135623730950))
    top = _select(over, _c(-1.0), _select(middle, _sub(a, _c(1.0)), a))
    under = _select(over, a, _select(middle, _add(a, _c(1.0)), _c(1.0)))
    start = _select(over, _c(numbers.pi / 2), _select(middle, _c(numbers.pi / 4), _c(0.0)))
    t = _div(top, under)
    z = _mul(t, t)
    series = polynomial(z, (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1))
    return _add(start, _add(t, _mul(_mul(t, z), series)))


def arctangent(x: ir.Value) -> ir.Value:
    return _signed(_arctangent(math.absf(x)), x)


def arctangent2(y: ir.Value, x: ir.Value) -> ir.Value:
    """The angle of (x, y); the cases are those of C's atan2 (C11, F.10.1.4)."""
    a, b = math.absf(y), math.absf(x)
    steep = _is("OGT", a, b)
    less, more = _select(steep, b, a), _select(steep, a, b)
    ratio = _div(less, more)
    ratio = _select(_is("OEQ", more, _c(0.0)), _c(0.0), ratio)
    ratio = _select(_is("OEQ", less, _c(INF)), _c(1.0), ratio)
    angle = _arctangent(ratio)
    angle = _select(steep, _sub(_c(numbers.pi / 2), angle), angle)
    left = arith.cmpi(arith.CmpIPredicate.slt, _bits(x), _i(0))
    angle = _signed(_select(left, _sub(_c(numbers.pi), angle), angle), y)
    return _select(_is("UNO", x, y), _c(NAN), angle)


def _arcsine(a: ir.Value) -> ir.Value:
    """Of a in [0, 0.5], by the polynomial of Cephes' asinf."""
    z = _mul(a, a)
    series = polynomial(z, (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1))
    return _add(a, _mul(_mul(a, z), series))


def _arcsine_parts(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Whether |x| > 0.5, and the arcsine of |x|, or else half of the arccosine of |x|; NaN outside of the domain."""
    a = math.absf(x)
    large = _is("OGT", a, _c(0.5))
    inside = _select(_is("OLE", a, _c(1.0)), a, _c(1.0))
    near = _select(large, math.sqrt(_mul(_c(0.5), _sub(_c(1.0), inside))), a)
    return large, _select(_is("OLE", a, _c(1.0)), _arcsine(near), _c(NAN))


def arcsine(x: ir.Value) -> ir.Value:
    large, part = _arcsine_parts(x)
    return _signed(_select(large, _sub(_c(numbers.pi / 2), _mul(_c(2.0), part)), part), x)


def arccosine(x: ir.Value) -> ir.Value:
    large, part = _arcsine_parts(x)
    double = _mul(_c(2.0), part)
    left = _is("OLT", x, _c(0.0))
    near = _sub(_c(numbers.pi / 2), _signed(part, x))
    return _select(large, _select(left, _sub(_c(numbers.pi), double), double), near)


# -------------------------------------------------------------------------------------------------- remainder


def remainder(x: ir.Value, y: ir.Value) -> ir.Value:
    """C's fmod (C11, F.10.7.1) by long division of the mantissas, seven bits a step: integers, and exact.
    Floats only guess a digit, which may be off by one. IREE has no division of integers for one element a thread."""
    size_x, size_y = (arith.andi(_bits(v), _i(0x7FFFFFFF)) for v in (x, y))
    (exponent_x, rest), (exponent_y, divisor) = _parts(size_x), _parts(size_y)
    f32, zero = ir.F32Type.get(), _i(0)
    reciprocal = _div(_c(1.0), arith.sitofp(f32, divisor))

    def reduced(rest: ir.Value) -> ir.Value:
        """Of a rest in [-divisor, 2 divisor)."""
        rest = _select(arith.cmpi(arith.CmpIPredicate.slt, rest, zero), arith.addi(rest, divisor), rest)
        return _select(arith.cmpi(arith.CmpIPredicate.sge, rest, divisor), arith.subi(rest, divisor), rest)

    rest, left = reduced(rest), arith.subi(exponent_x, exponent_y)
    for _ in range(-(-(254 + 22) // 7)):
        step = arith.minsi(arith.maxsi(left, zero), _i(7))
        rest, left = arith.shli(rest, step), arith.subi(left, step)
        digit = arith.fptosi(_i32(), _mul(arith.sitofp(f32, rest), reciprocal))
        rest = reduced(arith.subi(rest, arith.muli(digit, divisor)))
    # rest * 2^(exponent_y - 150), by its bits
    near = _bits(arith.sitofp(f32, rest))
    scale = arith.subi(exponent_y, _i(150))
    normal = arith.cmpi(arith.CmpIPredicate.sgt, arith.addi(arith.shrui(near, _i(23)), scale), zero)
    normal = arith.andi(normal, arith.cmpi(arith.CmpIPredicate.ne, rest, zero))
    up = arith.subi(exponent_y, _i(1))
    small = arith.shli(rest, arith.minsi(arith.maxsi(up, zero), _i(24)))
    small = arith.shrui(small, arith.maxsi(arith.subi(zero, up), zero))
    found = _select(normal, arith.addi(near, arith.shli(scale, _i(23))), small)
    found = _select(arith.cmpi(arith.CmpIPredicate.ult, size_x, size_y), size_x, found)
    no_number = arith.cmpi(arith.CmpIPredicate.uge, size_x, _i(0x7F800000))
    no_number = arith.ori(no_number, arith.cmpi(arith.CmpIPredicate.ugt, size_y, _i(0x7F800000)))
    no_number = arith.ori(no_number, arith.cmpi(arith.CmpIPredicate.eq, size_y, zero))
    sign = arith.andi(_bits(x), _i(0x80000000))
    return _float(_select(no_number, _i(0x7FC00000), arith.ori(found, sign)))


def _parts(bits: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Exponent and mantissa, of 24 bits, of a number >= 0, as the bits of a float have them."""
    below = arith.cmpi(arith.CmpIPredicate.ult, bits, _i(0x00800000))
    bits = _select(below, _bits(arith.sitofp(ir.F32Type.get(), bits)), bits)  # in units of 2^-149
    exponent = arith.subi(arith.shrui(bits, _i(23)), _select(below, _i(149), _i(0)))
    return exponent, arith.ori(arith.andi(bits, _i(0x007FFFFF)), _i(0x00800000))


# ------------------------------------------------------------------------------------------------------- erfc


def erfc(x: ir.Value) -> ir.Value:
    """Chebyshev's fit of Numerical Recipes (erfcc, 2nd edition, 6.2: within 1.2e-7 of the result everywhere), its
    exponential in two parts: of the square of a number with 12 bits, which is exact, and of the rest."""
    z = math.absf(x)
    t = _div(_c(1.0), _add(_c(1.0), _mul(_c(0.5), z)))
    fit = polynomial(t, (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418,
                          0.37409196, 1.00002368, -1.26551223))  # fmt: skip
    near = _select(_is("OLT", z, _c(20.0)), z, _c(20.0))
    head = _head(near)
    rest = _sub(fit, _mul(_sub(near, head), _add(near, head)))
    tail = _mul(t, _mul(math.exp(_mul(head, arith.negf(head))), math.exp(rest)))
    tail = _select(_is("OLT", x, _c(0.0)), _sub(_c(2.0), tail), tail)
    small = _sub(_c(1.0), math.erf(x))
    return _select(_is("UGE", z, _c(0.5)), _select(_is("UNO", x, x), x, tail), small)


FUNCTIONS: dict[str, Callable[..., ir.Value | None]] = {
    "arith.remf": remainder,
    "math.acos": arccosine, "math.acosh": acosh, "math.asin": arcsine, "math.asinh": asinh, "math.atan": arctangent,
    "math.atan2": arctangent2, "math.atanh": atanh, "math.cos": cosine, "math.cosh": cosh, "math.erfc": erfc,
    "math.exp2": exp2, "math.expm1": expm1, "math.fpowi": integer_power, "math.log10": log10, "math.log1p": log1p,
    "math.powf": power, "math.sin": sine, "math.sinh": sinh, "math.tan": tangent, "math.tanh": tanh,
}  # fmt: skip
