"""TensorSpec: the shape and element type of an argument that is not known yet. Signature: those of a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .core.spelling import did_you_mean
from .dialect.dtypes import DTYPES, dtype_name
from .dialect.sizes import Size
from .errors import UsageError


@dataclass(frozen=True, init=False)
class TensorSpec:
    """`TensorSpec(("M", 4096), "int8")`: a shape and a dtype, such as `"int8"`, `"i8"`, `np.int8`, `torch.int8` or
    `ml_dtypes.int4`. A size is a number, a name where it is dynamic
    (all sizes of one name are the same in a call), or `None` where it is dynamic and has no name.

    Attributes:
        shape: sizes, `None` where dynamic.
        dtype: short name of the element type, `"i8"`.
        symbols: for each axis the name of its size, or what follows from one, such as `(N + 1)//2`; `None` without.

    Raises:
        UsageError: for an unknown dtype, a negative size or what is not a name.
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
        """The sizes as they are given: numbers, names, `None`."""
        return tuple(n if s is None else s for s, n in zip(self.shape, self.symbols, strict=True))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join('?' if s is None else str(s) for s in self.sizes)}]"

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Whether a concrete shape fits."""
        return len(shape) == len(self.shape) and all(
            s is None or s == d for s, d in zip(self.shape, shape, strict=True)
        )

    def to_json(self) -> dict[str, object]:
        return {"shape": list(self.sizes), "dtype": self.dtype}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TensorSpec:
        return cls(tuple(data["shape"]), data["dtype"])


@dataclass(frozen=True)
class Agreement:
    """Axis `other_axis` of argument `other` has the size `size` of that of `axis` of `argument`."""

    argument: int
    axis: int
    other: int
    other_axis: int
    size: Size


@dataclass(frozen=True)
class Signature:
    """Names and specs of a function's arguments and results. Sizes of one name are the same in a call."""

    inputs: tuple[tuple[str, TensorSpec], ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def agreements(self) -> tuple[Agreement, ...]:
        """What has to hold of the sizes of a call's arguments, beyond the sizes that are numbers."""
        places = [
            (i, axis, Size.parse(text))
            for i, (_, spec) in enumerate(self.inputs)
            for axis, text in enumerate(spec.symbols)
            if text is not None
        ]
        # Each is compared with the first argument that has the very size; without one, with the first of its kind.
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

    def __str__(self) -> str:
        inputs = ", ".join(f"{name}: {spec}" for name, spec in self.inputs)
        return f"({inputs}) -> ({', '.join(map(str, self.outputs))})"

    def to_json(self) -> dict[str, object]:
        return {
            "inputs": [{"name": name, **spec.to_json()} for name, spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Signature:
        return cls(
            tuple((i["name"], TensorSpec.from_json(i)) for i in data["inputs"]),
            tuple(TensorSpec.from_json(o) for o in data["outputs"]),
        )
