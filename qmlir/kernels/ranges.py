"""Bounds on the values of a kernel's bodies that are known at compile time: sums of codes have a largest magnitude, and
scales are often constants."""

from __future__ import annotations

import math

import numpy as np

from ..core.mlir import ir
from ..ir.walk import producer, terminator_of
from .bodies import scalar_constant
from .description import Kernel, Literal, Operand, Previous, StageSource
from .weights import known

_ROUNDING = 1 + 2.0**-20  # more than one operation's rounding error


class Ranges:
    """Bounds on the magnitude of values in the stages of a kernel. A value with a bound is neither NaN nor infinite."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._arguments: dict[ir.Value, StageSource] = {
            argument: source
            for stage in kernel.stages
            for argument, source in zip(stage.body.arguments, stage.sources, strict=False)
        }
        self._found: dict[ir.Value, float | None] = {}

    def bound(self, value: ir.Value) -> float | None:
        """The largest magnitude of a value of a stage's body, None if unknown."""
        if value not in self._found:
            self._found[value] = self._of(value)
        return self._found[value]

    def _of(self, value: ir.Value) -> float | None:
        if value in self._arguments:
            return self._of_source(self._arguments[value])
        attribute = scalar_constant(value)
        if attribute is not None:
            number = abs(float(attribute.value))
            return number if math.isfinite(number) else None
        op = producer(value)
        if op is None:
            return None
        parts = [self.bound(operand) for operand in op.operands]
        return None if None in parts else self._of_op(op.name, [p for p in parts if p is not None])

    @staticmethod
    def _of_op(name: str, parts: list[float]) -> float | None:
        if name == "arith.mulf":
            return parts[0] * parts[1] * _ROUNDING
        if name in ("arith.addf", "arith.subf"):
            return (parts[0] + parts[1]) * _ROUNDING
        if name in ("arith.maximumf", "arith.minimumf"):
            return max(parts)
        if name in ("arith.sitofp", "arith.extf", "arith.extsi", "math.absf", "arith.negf"):
            return parts[0] * _ROUNDING
        return None

    def _of_source(self, source: StageSource) -> float | None:
        if isinstance(source, Literal):
            number = abs(float(source.value.value))
            return number if math.isfinite(number) else None
        if isinstance(source, Operand):
            array = known(source.value)
            if array is None or array.size == 0:
                return None
            largest = float(np.abs(array.astype(np.float64)).max())
            return largest if math.isfinite(largest) else None
        if isinstance(source, Previous) and source.half == 0:
            return self._of_previous(source.index)
        return None

    def _of_previous(self, index: int) -> float | None:
        kernel = self._kernel
        if index == 0:
            whole = isinstance(kernel.value_type, ir.IntegerType) and kernel.combine is None
            return float(128 * 128 * kernel.k) if whole else None
        if kernel.gate is not None and index >= kernel.gate.stages:
            return None
        return self.bound(terminator_of(kernel.stages[index - 1].body).operands[0])
