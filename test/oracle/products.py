"""Contractions and their epilogue (docs/semantics.md, section 4), one element at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from typing import Any

from .interval import F32, Arithmetic, Interval, point
from .rounding import FORMATS, ZERO, add, div, mul, wrap32
from .tensor import Index, Tensor, block_index, blockwise, broadcast, exact, fill, read
from .values import code, code_range, codes_of, dequantised, is_integer, offset_of, value_of, zero_tensor

PLAIN = ("f32", "f16", "bf16")
GATES = {"swiglu": "silu", "geglu": "gelu"}
ONE = Fraction(1)


@dataclass
class Side:
    """An operand of a contraction."""

    codes: Tensor
    dtype: str
    scale: Tensor | None
    zero: Tensor | None
    mode: str
    book: Tensor | None
    whole: Fraction  # the scale of the whole tensor
    known: dict[Any, Any] = field(default_factory=dict)  # cached results, by kind and index

    def _once(self, key: Any, compute: Callable[[], Any]) -> Any:
        if key not in self.known:
            self.known[key] = compute()
        return self.known[key]

    @property
    def plain(self) -> bool:
        return self.dtype in PLAIN and self.scale is None

    @property
    def integer(self) -> bool:
        return is_integer(self.dtype)

    @property
    def float_zero(self) -> bool:
        return self.mode in ("offset_float", "rescale") and self.zero is not None

    def code(self, i: Index) -> int:
        """The integer that is multiplied: the code minus the offset and the integer zero point."""
        return int(self._once(("code", i), lambda: self._code(i)))

    def _code(self, i: Index) -> int:
        zero = 0 if self.float_zero else int(blockwise(self.zero, i, self.codes.shape, 0))
        return wrap32(int(value_of(self.codes[i], self.dtype)) - offset_of(self.dtype, self.mode) - zero)

    def factor(self, i: Index) -> Fraction:
        """The scale of an element, multiplied by that of the whole tensor."""
        return exact(self._once(("factor", i), lambda: self._factor(i)))

    def _factor(self, i: Index) -> Fraction:
        return exact(mul(blockwise(self.scale, i, self.codes.shape, ONE), self.whole))

    def added(self, i: Index) -> Fraction:
        """The amount that a float zero point adds to the real value."""
        zero = exact(blockwise(self.zero, i, self.codes.shape, ZERO)) if self.float_zero else ZERO
        return zero if self.mode == "offset_float" else -zero

    def block(self, i: Index) -> tuple[Any, ...]:
        """The indices of an element's scale and zero point."""
        return tuple(t and block_index(i, self.codes.shape, t.shape) for t in (self.scale, self.zero))

    def real(self, i: Index, to: str | None) -> Fraction:
        """The real value of an element. With `to`: dequantised in f32 and rounded to that type (weight only)."""
        return exact(self._once((to, i), lambda: self._real(i, to)))

    def _real(self, i: Index, to: str | None) -> Fraction:
        value = value_of(self.codes[i], self.dtype, self.book)
        if self.plain and self.whole == 1:
            return exact(FORMATS[to].round(value) if to else value)
        if to is None and not (self.integer or self.plain):
            return exact(value) * self.factor(i)
        zero = blockwise(self.zero, i, self.codes.shape, ZERO)
        offset = offset_of(self.dtype, self.mode)
        x = dequantised(value, self.mode, blockwise(self.scale, i, self.codes.shape, ONE), zero, offset)
        return exact(FORMATS[to or (self.dtype if self.plain else "f32")].round(mul(x, self.whole)))


def side(array: Any, dtype: str, kw: Mapping[str, Any], name: str, packing: str = "none", length: int | None = None,
         codes: Tensor | None = None) -> Side:  # fmt: skip
    """The operand `name`, "lhs" or "rhs", with its scale and zero point from `kw`."""
    mode = kw.get(f"{name}_zero_mode", "none")
    given = kw.get(f"{name}_scale"), kw.get(f"{name}_zero_point"), kw.get(f"{name}_global_scale")
    scale = None if given[0] is None else read(given[0])
    book = kw.get("codebook") if name == "rhs" else None
    return Side(
        codes_of(array, dtype, packing, length) if codes is None else codes,
        dtype,
        scale,
        zero_tensor(given[1], mode, dtype, packing, scale),
        mode,
        None if book is None else read(book),
        ONE if given[2] is None else exact(read(given[2]).data[0]),
    )


Pairs = Iterable[tuple[Index, Index]]


@dataclass(frozen=True)
class Contraction:
    """`sum_k a * b` for one element of the result."""

    lhs: Side
    rhs: Side
    arithmetic: Arithmetic
    compute: str | None = None

    def total(self, pairs: Pairs, at: tuple[Index, Index], bias: int | None, grouped: bool) -> Interval | int:
        """The scaled sum in f32, or the integer sum if there is no scale at all. `at`: the indices at which scales that
        are constant along K are read, also for an empty sum. `bias` is added to the accumulator."""
        a, b, f = self.lhs, self.rhs, self.arithmetic
        pairs = list(pairs)
        if not (a.integer and b.integer):
            return self._float(pairs)
        if b.float_zero:
            return self._float_zero(pairs, at, bias)
        if not grouped:
            acc = wrap32(sum(a.code(i) * b.code(j) for i, j in pairs) + (bias or 0))
            i, j = at
            if a.scale is None and b.scale is None and a.whole == b.whole == 1:
                return acc
            return f.mul(point(F32.round(Fraction(acc))), point(mul(a.factor(i), b.factor(j))))
        total = point(ZERO)
        for _, group in groupby(pairs, lambda p: (a.block(p[0]), b.block(p[1]))):
            members = list(group)
            acc = wrap32(sum(a.code(i) * b.code(j) for i, j in members))
            i, j = members[0]
            total = f.add(total, f.mul(point(F32.round(Fraction(acc))), point(mul(a.factor(i), b.factor(j)))))
        return total

    def _float(self, pairs: list[tuple[Index, Index]]) -> Interval:
        a, b = self.lhs, self.rhs
        to: tuple[str | None, str | None] = (self.compute, self.compute)
        if not self.compute:
            to = (b.dtype if b.plain and not a.plain else None, a.dtype if a.plain else None)
        products = [a.real(i, to[0]) * b.real(j, to[1]) for i, j in pairs]
        return self.arithmetic.about(sum(products, ZERO), sum(map(abs, products), ZERO), len(pairs))

    def _float_zero(self, pairs: list[tuple[Index, Index]], at: tuple[Index, Index], bias: int | None) -> Interval:
        a, b = self.lhs, self.rhs
        value = Fraction(bias or 0) * a.factor(at[0]) * b.factor(at[1])
        terms = abs(value)
        for _, group in groupby(pairs, lambda p: (a.block(p[0]), b.block(p[1]))):
            members = list(group)
            i, j = members[0]
            acc = wrap32(sum(a.code(i) * b.code(j) for i, j in members)) * a.factor(i) * b.factor(j)
            row = wrap32(sum(a.code(i) for i, _ in members)) * a.factor(i) * b.added(j) * b.whole
            value += acc + row
            terms += sum(abs(a.code(i) * a.factor(i)) * (abs(b.code(j) * b.factor(j)) + abs(b.added(j) * b.whole))
                         for i, j in members)  # fmt: skip
        return self.arithmetic.about(value, terms, len(pairs))


def along(side: Side, axis: int) -> bool:
    """Whether a scale or a zero point of the side varies along an axis (counted from the end) of its codes."""
    return any(t is not None and len(t.shape) >= -axis and t.shape[axis] != 1 for t in (side.scale, side.zero))


@dataclass
class Epilogue:
    """Everything after the contraction. `look` reads an operand that broadcasts, `block` one whose axes divide the
    result's."""

    kw: Mapping[str, Any]
    shape: tuple[int, ...]  # before a gated activation
    result: tuple[int, ...]
    arithmetic: Arithmetic

    def __post_init__(self) -> None:
        names = ("bias", "c", "act_scale", "out_scale", "out_multiplier", "out_zero_point")
        self.operands = {n: read(self.kw[n]) for n in names if self.kw.get(n) is not None}
        self.out = self.kw.get("out_dtype", "f32")
        self.activation = self.kw.get("activation", "none")
        self.stage = self.kw.get("bias_stage", "scaled")

    def look(self, name: str, i: Index) -> Any:
        """An operand that broadcasts."""
        return broadcast(self.operands[name], i)

    def block(self, name: str, i: Index, default: Any) -> Any:
        return blockwise(self.operands.get(name), i, self.result, default)

    def acc_bias(self, i: Index) -> int | None:
        return int(self.look("bias", i)) if "bias" in self.operands and self.stage == "acc" else None

    def before_gate(self, y: Interval | int, i: Index) -> Interval:
        """The rest of step 2 (an unscaled sum becomes f32), and steps 3 and 4."""
        f = self.arithmetic
        x = point(F32.round(Fraction(y))) if isinstance(y, int) else y
        if "bias" in self.operands and self.stage == "scaled":
            x = f.add(x, point(F32.round(exact(self.look("bias", i)))))
        if self.kw.get("alpha", 1.0) != 1.0:
            x = f.mul(point(F32.round(Fraction(self.kw["alpha"]))), x)
        if "c" in self.operands:
            x = f.add(x, f.mul(point(F32.round(Fraction(self.kw["beta"]))), point(F32.round(exact(self.look("c", i))))))
        return x

    def activated(self, x: Callable[[Index], Interval], i: Index) -> Interval:
        """Step 5 and act_scale, for the result's element `i`."""
        f = self.arithmetic
        if self.activation in GATES:
            half = self.result[-1]
            halves = self.kw.get("gate_layout", "halves") == "halves"
            gate, up = (i[-1], i[-1] + half) if halves else (2 * i[-1], 2 * i[-1] + 1)
            y = f.mul(f.function(GATES[self.activation], x((*i[:-1], gate))), x((*i[:-1], up)))
        elif self.activation == "clamp":
            lo, hi = (Fraction(b) for b in self.kw["act_clamp"])
            y = x(i).through(lambda v: min(max(v, lo), hi))
        else:
            y = f.function(self.activation, x(i))
        if "act_scale" in self.operands:
            y = f.mul(y, point(self.block("act_scale", i, ONE)))
        return y

    def output(self, y: Interval, i: Index) -> Interval:
        """Steps 6 and 7."""
        if self.out in ("i8", "u8"):
            return self._codes(y, i)
        to = FORMATS[self.out]
        y = y.through(to.round)
        if "bias" in self.operands and self.stage == "out":
            bias = to.round(exact(self.look("bias", i)))
            y = y.through(lambda v: add(v, bias, self.out))
        return y

    def _codes(self, y: Interval, i: Index) -> Interval:
        lo, hi = self.kw.get("clamp") or code_range(self.out)
        zero, mode = int(self.block("out_zero_point", i, 0)), self.kw.get("rounding", "half_even")
        multiplier = self.block("out_multiplier", i, None)
        if multiplier is None:
            multiplier = div(ONE, self.block("out_scale", i, ONE))
        return self.arithmetic.mul(y, point(multiplier)).through(lambda v: code(F32.round(v), zero, lo, hi, mode))

    def run(self, total: Callable[[Index], Interval | int]) -> Tensor:
        """The whole result; `total(i)` is the contraction of element `i` of `shape`."""
        if self.out == "i32":
            return fill(self.result, lambda i: point(wrap32(self._raw(total(i), i))))
        return fill(self.result, lambda i: self.output(self.activated(lambda j: self.before_gate(total(j), j), i), i))

    def _raw(self, acc: Any, i: Index) -> int:
        """Raw i32; a bias after the cast is added in the output's type, i32."""
        return int(acc) + (int(self.look("bias", i)) if "bias" in self.operands and self.stage == "out" else 0)


def gated(n: int, kw: Mapping[str, Any]) -> int:
    return n // 2 if kw.get("activation") in GATES else n


def scaled_matmul(lhs: Any, rhs: Any, *, fused: bool = False, **kw: Any) -> Tensor:
    """`qmlir.scaled_matmul`."""
    transposed, lhs_transposed = kw.get("rhs_transposed", False), kw.get("lhs_transposed", False)
    a = side(lhs, kw["lhs_dtype"], kw, "lhs")
    packing = kw.get("rhs_packing", "none")
    k = a.codes.shape[-2 if lhs_transposed else -1]
    b = side(rhs, kw["rhs_dtype"], kw, "rhs", packing, k if transposed and packing != "none" else None)
    return dense(a, b, kw, fused, lhs_transposed, transposed)


def dense(a: Side, b: Side, kw: Mapping[str, Any], fused: bool, lhs_transposed: bool, transposed: bool) -> Tensor:
    """The product of two sides that may have batch axes."""
    f = Arithmetic(fused)
    m, k = a.codes.shape[-2:][:: -1 if lhs_transposed else 1]
    n = b.codes.shape[-2 if transposed else -1]
    batch_a, batch_b = a.codes.shape[:-2], b.codes.shape[:-2]
    batch = batch_a if len(batch_a) > len(batch_b) else batch_b
    batch = tuple(max(s, t) for s, t in zip((1,) * (len(batch) - len(batch_a)) + batch_a,
                                            (1,) * (len(batch) - len(batch_b)) + batch_b, strict=True))  # fmt: skip
    shape = (*batch, m, n)
    epilogue = Epilogue(kw, shape, (*batch, m, gated(n, kw)), f)
    contraction = Contraction(a, b, f, kw.get("compute_dtype"))
    grouped = along(a, -2 if lhs_transposed else -1) or along(b, -1 if transposed else -2)

    def own(index: Index, sizes: tuple[int, ...]) -> Index:
        tail = index[len(index) - len(sizes) :] if sizes else ()
        return tuple(0 if s == 1 else i for i, s in zip(tail, sizes, strict=True))

    def total(i: Index) -> Interval | int:
        x, y = own(i[:-2], batch_a), own(i[:-2], batch_b)

        def pair(q: int) -> tuple[Index, Index]:
            return ((*x, q, i[-2]) if lhs_transposed else (*x, i[-2], q),
                    (*y, i[-1], q) if transposed else (*y, q, i[-1]))  # fmt: skip

        return contraction.total(map(pair, range(k)), pair(0), epilogue.acc_bias(i), grouped)

    return epilogue.run(total)
