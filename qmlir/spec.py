"""TensorSpec: the shape and element type of an argument that is not known yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._spelling import did_you_mean
from .dialect.dtypes import DTYPES
from .errors import UsageError


@dataclass(frozen=True)
class TensorSpec:
    """`TensorSpec((None, 4096), "i8")`: shape with `None` where dynamic, and a dtype name.

    Raises:
        UsageError: for an unknown dtype or a negative size.
    """

    shape: tuple[int | None, ...]
    dtype: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if self.dtype not in DTYPES:
            raise UsageError(f"unknown dtype {self.dtype!r}{did_you_mean(self.dtype, DTYPES)}")
        if any(s is not None and (not isinstance(s, int) or s < 0) for s in self.shape):
            raise UsageError(f"the sizes of {self.shape} must be non-negative integers, or None where dynamic")

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return "x".join([*("?" if s is None else str(s) for s in self.shape), self.dtype])

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Whether a concrete shape fits."""
        return len(shape) == len(self.shape) and all(
            s is None or s == d for s, d in zip(self.shape, shape, strict=True)
        )

    def to_json(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "dtype": self.dtype}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TensorSpec:
        return cls(tuple(data["shape"]), data["dtype"])
