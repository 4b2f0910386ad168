"""TensorSpec: the shape and element type of an argument. Signature: the specs of a function's arguments and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

from .core.rows import LimitRow, RangeRow, SignatureRow, SpecRow
from .core.spelling import did_you_mean
from .dialect.dtypes import DTYPES, dtype_name
from .dialect.sizes import Size
from .errors import UsageError


@dataclass(frozen=True, init=False)
class TensorSpec:
    """`TensorSpec(("M", 4096), "int8")`: a shape and a dtype, such as `"int8"`, `"i8"`, `np.int8`, `torch.int8` or
    `ml_dtypes.int4`. A size is a number, a name if it is dynamic (all sizes with the same name are
    equal in a call), or `None` if it is dynamic and has no name.

    Attributes:
        shape: sizes, `None` where dynamic.
        dtype: short name of the element type, `"i8"`.
        symbols: for each axis the name of its size, or an expression of one, such as `(N + 1)//2`; `None` for others.

    Raises:
        UsageError: for an unknown dtype, a negative size or an invalid name.
    """

    shape: tuple[int | None, ...]
    dtype: str
    symbols: tuple[str | None, ...]

    def __init__(self, shape: Sequence[int | str | None], dtype: object) -> None:
        object.__setattr__(self, "shape", tuple(None if isinstance(s, str) else s for s in shape))
        object.__setattr__(self, "dtype", dtype_name(dtype))
        object.__setattr__(self, "symbols", tuple(s if isinstance(s, str) else None for s in shape))
        self._check()

    def _check(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"unknown dtype {self.dtype!r}{did_you_mean(self.dtype, DTYPES)}")
        if any(s is not None and (not isinstance(s, int) or s < 0) for s in self.shape):
            raise UsageError(f"the sizes of {self.shape} must be non-negative integers, or names or None where dynamic")
        for text in self.symbols:
            try:
                text is None or Size.parse(text)
            except ValueError:
                raise UsageError(
                    f"the size {text!r} is not a name: letters, digits and _, such as 'M' or 'batch'"
                ) from None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def sizes(self) -> tuple[int | str | None, ...]:
        """The sizes as given: numbers, names, `None`."""
        return tuple(n if s is None else s for s, n in zip(self.shape, self.symbols, strict=True))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join('?' if s is None else str(s) for s in self.sizes)}]"

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Whether a concrete shape fits."""
        return len(shape) == len(self.shape) and all(
            s is None or s == d for s, d in zip(self.shape, shape, strict=True)
        )

    def to_json(self) -> SpecRow:
        return {"shape": list(self.sizes), "dtype": self.dtype}

    @classmethod
    def from_json(cls, data: SpecRow) -> TensorSpec:
        return cls(tuple(data["shape"]), data["dtype"])


@dataclass(frozen=True)
class Agreement:
    """The size of `other_axis` of argument `other` is the expression `size` of the size of `axis` of `argument`."""

    argument: int
    axis: int
    other: int
    other_axis: int
    size: Size


Part: TypeAlias = "tuple[int, int] | None"  # from where to where along an axis; None for the whole axis


@dataclass(frozen=True)
class Range:
    """The elements of argument `argument` are in [least, most], because they are indices of a table. `part`, one for
    each axis, restricts this to some of the elements if it is not empty."""

    argument: int
    least: int
    most: int
    part: tuple[Part, ...] = ()

    @property
    def slices(self) -> tuple[slice, ...]:
        """The part as slices, to index an array with."""
        return tuple(slice(*(p or (None,))) for p in self.part)


@dataclass(frozen=True)
class Limit:
    """Axis `axis` of argument `argument` has from `least` to `most` elements; None if there is no upper limit."""

    argument: int
    axis: int
    least: int
    most: int | None

    def holds(self, size: int) -> bool:
        return self.nearest(size) == size

    def nearest(self, size: int) -> int:
        """The allowed size that is nearest to `size`."""
        size = max(self.least, size)
        return size if self.most is None else min(size, self.most)

    def __str__(self) -> str:
        if self.most is None:
            return f"at least {self.least}"
        return f"at most {self.most}" if self.least == 0 else f"{self.least} to {self.most}"


@dataclass(frozen=True)
class Signature:
    """Names and specs of a function's arguments and results. Sizes with the same name are equal in a call.

    Attributes:
        ranges: the ranges that integers in arguments have to be in.
        limits: the limits of dynamic sizes.
    """

    inputs: tuple[tuple[str, TensorSpec], ...]
    outputs: tuple[TensorSpec, ...]
    ranges: tuple[Range, ...] = ()
    limits: tuple[Limit, ...] = ()

    @property
    def agreements(self) -> tuple[Agreement, ...]:
        """The relations between the sizes of a call's arguments that have to hold, in addition to the static sizes."""
        places = [
            (i, axis, Size.parse(text))
            for i, (_, spec) in enumerate(self.inputs)
            for axis, text in enumerate(spec.symbols)
            if text is not None
        ]
        # Each is compared with the first axis whose size is the name alone or, without one, with the first of its size.
        first: dict[Size, tuple[int, int]] = {}
        for i, axis, size in reversed(places):
            first[size] = (i, axis)
        found = []
        for i, axis, size in places:
            plain = Size(size.name)
            at, to = (first[plain], size) if plain in first else (first[size], plain)
            if at != (i, axis):
                found.append(Agreement(*at, i, axis, to))
        return tuple(found)

    @property
    def multiples(self) -> tuple[tuple[int, int, Size], ...]:
        """The arguments' axes with a size such as `N*4`, which not every number is, each with that size."""
        return tuple(
            (i, axis, size)
            for i, (_, spec) in enumerate(self.inputs)
            for axis, size in ((a, Size.parse(text)) for a, text in enumerate(spec.symbols) if text is not None)
            if size.div == 1 and size.mul > 1
        )

    def __str__(self) -> str:
        inputs = ", ".join(f"{name}: {spec}" for name, spec in self.inputs)
        asked = [f"{self._axis(limit)} is {limit}" for limit in self.limits]
        asked += [f"{self.numbers(r)} are in [{r.least}, {r.most}]" for r in self.ranges]
        where = f" where {', '.join(asked)}" if asked else ""
        return f"({inputs}) -> ({', '.join(map(str, self.outputs))}){where}"

    def _axis(self, limit: Limit) -> str:
        name, spec = self.inputs[limit.argument]
        return spec.symbols[limit.axis] or f"axis {limit.axis} of {name}"

    def numbers(self, r: Range) -> str:
        """The argument, or the part of it, that a range is about: `ids[:, 0:1]`."""
        parts = [":" if p is None else f"{p[0]}:{p[1]}" for p in r.part]
        return self.inputs[r.argument][0] + (f"[{', '.join(parts)}]" if parts else "")

    def to_json(self) -> dict[str, object]:
        asked = {"ranges": [asdict(r) for r in self.ranges], "limits": [asdict(x) for x in self.limits]}
        return {
            "inputs": [{"name": name, **spec.to_json()} for name, spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            **{name: rows for name, rows in asked.items() if rows},
        }

    @classmethod
    def from_json(cls, data: SignatureRow) -> Signature:
        """The signature that `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: for anything else.
        """
        made = cls(
            tuple((i["name"], TensorSpec.from_json(i)) for i in data["inputs"]),
            tuple(TensorSpec.from_json(o) for o in data["outputs"]),
            tuple(_range(r) for r in data.get("ranges", ())),
            tuple(_limit(x) for x in data.get("limits", ())),
        )
        ranks = {i: spec.rank for i, (_, spec) in enumerate(made.inputs)}
        if not all(x.axis < ranks[x.argument] for x in made.limits):
            raise ValueError("a limit refers to an axis that its argument does not have")
        if not all(len(r.part) in (0, ranks[r.argument]) for r in made.ranges):
            raise ValueError("the number of axes of a range differs from that of its argument")
        return made


def _range(row: RangeRow) -> Range:
    part = tuple(None if p is None else (_number(p[0]), _number(p[1])) for p in row["part"])
    return Range(_place(row["argument"]), _number(row["least"]), _number(row["most"]), part)


def _limit(row: LimitRow) -> Limit:
    most = None if row["most"] is None else _number(row["most"])
    return Limit(_place(row["argument"]), _place(row["axis"]), _number(row["least"]), most)


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not an integer")
    return value


def _place(value: object) -> int:
    number = _number(value)
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number
