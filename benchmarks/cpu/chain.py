"""Programs of several operations whose last value is the result."""

from __future__ import annotations

from typing import Any

import qmlir
from conformance.program import Array, Program, reference


class Chain(Program):
    """A program under construction. Arguments, constants and results of ops are referred to by name."""

    def op(self, name: str, operands: dict[str, str | None], count: int = 1, **attributes: Any) -> tuple[str, ...]:
        """Adds an op of `qmlir.ops` or a primitive. Returns the names of its results."""
        results = tuple(f"value{len(self.steps)}_{i}" for i in range(count))
        self.step(name, results, operands, returned=False, **attributes)
        return results

    def built(self, result: str, target: str = "cpu") -> tuple[qmlir.Artifact, list[Array]]:
        """The compiled program that returns `result`, and its arguments."""
        return self.compile(target, [result]), [self.arrays[n] for n in self.arguments()]

    def evaluate(self, result: str) -> Array:
        """The value of `result`, computed by `qmlir.reference`."""
        values = {**self.arrays, **self.constants}
        for s in self.steps:
            values.update(zip(s.results, reference(s, values), strict=False))
        return values[result]
