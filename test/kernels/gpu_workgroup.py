"""One workgroup of a GPU kernel in numpy: all of its threads together, and the memory that they access."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from qmlir.core.mlir import ir

Array = NDArray[Any]
Effect = Callable[["Workgroup", Any, Array], None]
Pure = Callable[..., Any]
# The implementations of ops with and without side effects, by op name: `gpu_effects.py` and `gpu_pure.py` fill these.
EFFECTS: dict[str, Effect] = {}
PURE: dict[str, Pure] = {}


class KernelError(AssertionError):
    """A kernel did something that is not allowed."""


_FLOATS = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip


def dtype_of(t: Any) -> Any:
    text = str(t)
    if text == "index":
        return np.int64
    if text in _FLOATS:
        return _FLOATS[text]
    return {"i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}[text]


def element(t: Any) -> tuple[Any, int]:
    """The dtype and the number of lanes (0: not a vector) of a type."""
    if isinstance(t, ir.VectorType):
        assert len(t.shape) == 1
        return dtype_of(t.element_type), int(t.shape[0])
    return dtype_of(t), 0


class Memory:
    """A buffer accessed through a memref's type; accesses to shared memory are checked for races."""

    def __init__(self, array: Array, lanes: int, shared: bool = False) -> None:
        self.array, self.lanes, self.shared = array, lanes, shared
        self.shape = array.shape[: array.ndim - bool(lanes)]
        if shared:
            self.written = np.full(self.shape, -1)
            self.read = np.full(self.shape, -1)

    def at(self, where: Sequence[Array], mask: Array, what: str) -> tuple[Array, ...]:
        """The indices of the active threads, checked against the bounds."""
        chosen = tuple(w[mask] for w in where)
        for axis, (index, size) in enumerate(zip(chosen, self.shape, strict=True)):
            if index.size and (index.min() < 0 or index.max() >= size):
                raise KernelError(f"{what} at {index.min()}..{index.max()} of axis {axis}, which has {size}")
        return chosen

    def barrier(self) -> None:
        self.written[...] = self.read[...] = -1


class Workgroup:
    """The threads of one workgroup."""

    def __init__(
        self, block: tuple[int, int, int], threads: int, subgroup: int, buffers: Sequence[Memory],
        sizes: Sequence[int],
    ) -> None:  # fmt: skip
        self.block, self.threads, self.subgroup = block, threads, subgroup
        self.buffers, self.sizes = buffers, sizes
        self.values: dict[Any, Any] = {}
        self.shared: list[Memory] = []
        self.counts: dict[str, int] = {}
        self.everyone = np.ones(threads, bool)

    # ---- values

    def get(self, value: Any) -> Any:
        return self.values[value]

    def full(self, t: Any, value: Any) -> Array:
        dtype, lanes = element(t)
        return np.full((self.threads, lanes) if lanes else self.threads, value, dtype)

    # ---- regions

    def run(self, block: Any, mask: Array) -> list[Any]:
        """Run a block, and return the values that its terminator yields."""
        for op in block.operations:
            op = op.operation
            if op.name in ("scf.yield", "func.return"):
                return [self.get(v) for v in op.operands]
            self.counts[op.name] = self.counts.get(op.name, 0) + 1
            self.one(op, mask)
        return []

    def one(self, op: Any, mask: Array) -> None:
        if op.name == "scf.for":
            self._for(op, mask)
        elif op.name == "scf.if":
            self._if(op, mask)
        elif op.name in EFFECTS:
            EFFECTS[op.name](self, op, mask)
        elif op.name in PURE:
            result = PURE[op.name](self, op, *[self.get(v) for v in op.operands])
            dtype, _ = element(op.results[0].type)
            self.values[op.results[0]] = np.asarray(result).astype(dtype, copy=False)
        else:
            raise KernelError(f"the interpreter does not know {op.name}")

    def _if(self, op: Any, mask: Array) -> None:
        test = self.get(op.operands[0])
        made = [self.full(result.type, 0) for result in op.results]
        for region, taken in zip(op.regions, (mask & test, mask & ~test), strict=False):
            if taken.any() and list(region.blocks):
                found = self.run(region.blocks[0], taken)
                made = [where(taken, new, old) for new, old in zip(found, made, strict=True)]
        for result, value in zip(op.results, made, strict=True):
            self.values[result] = value

    def _for(self, op: Any, mask: Array) -> None:
        start, stop, step, *carried = [self.get(v) for v in op.operands]
        body = op.regions[0].blocks[0]
        index = start.copy()
        values = list(carried)
        while (active := mask & (index < stop)).any():
            self.values[body.arguments[0]] = index.copy()
            for argument, value in zip(list(body.arguments)[1:], values, strict=True):
                self.values[argument] = value
            following = self.run(body, active)
            values = [where(active, new, old) for new, old in zip(following, values, strict=True)]
            index = np.where(active, index + step, index)
        for result, value in zip(op.results, values, strict=True):
            self.values[result] = value


def where(mask: Array, new: Array, old: Array) -> Array:
    if new.ndim == 3:  # cooperative matrices, which belong to whole subgroups
        return new
    return np.where(mask[:, None] if new.ndim == 2 else mask, new, old)
