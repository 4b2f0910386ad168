"""QuantizedWeight: a weight in the value model of docs/semantics.md, sections 1 and 3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..dialect.dtypes import DTYPES, Array
from ..dialect.reference import dequantize
from ..dialect.reference.values import expand
from ..errors import UsageError

if TYPE_CHECKING:
    import torch


# Shorter groups along K have to be stated, or a product takes them for a mistake.
_SHORT_GROUP = 8


@dataclass(frozen=True)
class Activations:
    """How the checkpoint wants the input of a layer quantised.

    Attributes:
        dtype: of the codes, such as `i8` or `e4m3`.
        granularity: `tensor`, `token` or `group` (`group_size` along K).
        dynamic: scales come from the data; else `scale` and `zero_point` are the checkpoint's.
    """

    dtype: str
    granularity: str
    dynamic: bool
    symmetric: bool = True
    group_size: int | None = None
    scale: Array | None = None
    zero_point: Array | None = None


@dataclass(frozen=True, eq=False)
class QuantizedWeight:
    """A quantised weight of logical shape `[.., N, K]` (N outputs, K inputs).

    `**weight` gives the arguments of `qmlir.ops.scaled_matmul` and of `qmlir.reference.scaled_matmul`.

    Attributes:
        codes: `[.., N, K]`, or `[.., K, N]` when not `transposed`; packed along the last axis unless `packing` is none.
        scale: broadcasts in blocks against the codes; `[.., N, G]` for G groups along K.
        zero_point: shape of its scale, read by `zero_mode`.
        global_scale: one f32 for the whole tensor, besides `scale` (NVFP4).
        order: `[K]`, for activation order: column j of the codes belongs to input `order[j]`.
        activations: what the checkpoint says of the layer's input; None leaves it as it is.
    """

    name: str
    shape: tuple[int, ...]
    codes: Array
    scale: Array
    dtype: str
    zero_point: Array | None = None
    zero_mode: str = "none"
    packing: str = "none"
    transposed: bool = True
    codebook: Array | None = None
    global_scale: Array | None = None
    order: Array | None = None
    activations: Activations | None = None

    @property
    def group_size(self) -> int | None:
        """Inputs that share a scale; None where the scale does not change along K."""
        if self.scale.ndim < 2:
            return None
        groups = self.scale.shape[-1 if self.transposed else -2]
        return None if groups == 1 else self.shape[-1] // groups

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and zero points."""
        return sum(int(a.nbytes) for a in (self.codes, self.scale, self.zero_point) if a is not None)

    def __str__(self) -> str:
        parts = [self.dtype, "x".join(map(str, self.shape))]
        if self.group_size is not None:
            parts.append(f"groups of {self.group_size}")
        if self.zero_mode != "none":
            parts.append(f"zero mode {self.zero_mode}")
        if self.order is not None:
            parts.append("activation order")
        return ", ".join(parts)

    def operands(self) -> dict[str, object]:
        """The arguments of a product that stand for this weight, whose inputs come in its `order`."""
        said = {
            "rhs": self.codes, "rhs_scale": self.scale, "rhs_zero_point": self.zero_point,
            "rhs_global_scale": self.global_scale, "codebook": self.codebook, "rhs_dtype": self.dtype,
        }  # fmt: skip
        found: dict[str, object] = {name: value for name, value in said.items() if value is not None}
        if self.zero_mode != "none":
            found["rhs_zero_mode"] = self.zero_mode
        if self.packing != "none":
            found["rhs_packing"] = self.packing
        if self.group_size is not None and self.group_size < _SHORT_GROUP:
            found["group_size"] = self.group_size
        return {**found, "rhs_transposed": self.transposed}

    def keys(self) -> Iterator[str]:
        """Names of the arguments that `**weight` gives. Raises UsageError for a weight in activation order, whose
        inputs have to be reordered with it: `scaled_matmul(**weight.product(x))`."""
        if self.order is not None:
            raise UsageError(
                f"{self.name!r} is in activation order: its inputs are reordered too. Write "
                "scaled_matmul(**weight.product(x)) instead of scaled_matmul(x, **weight)"
            )
        return iter(self.operands())

    def __getitem__(self, key: str) -> object:
        return self.operands()[key]

    def product(self, lhs: Array | torch.Tensor) -> dict[str, object]:
        """The arguments of `lhs [.., M, K]` times this weight, `lhs` in the weight's order."""
        return {"lhs": lhs if self.order is None else lhs[..., self.order], **self.operands()}

    def dequantize(self) -> Array:
        """The real weight, f32 `[.., N, K]`, by `qmlir.reference.dequantize`."""
        n, k = self.shape[-2:]
        d = DTYPES[self.dtype]
        if d.kind == "float":  # one-byte floats have codes of their own type
            real = self.codes.astype(np.float32) * expand(self.scale.astype(np.float32), self.codes.shape, "scale",
                                                          self.name)  # fmt: skip
        else:
            real = dequantize(
                self.codes, self.scale, self.zero_point, dtype=self.dtype, zero_mode=self.zero_mode,
                packing=self.packing, length=k if self.transposed else n, codebook=self.codebook,
            )  # fmt: skip
        if self.global_scale is not None:
            real = real * self.global_scale.astype(np.float32)
        real = real if self.transposed else np.swapaxes(real, -1, -2)
        if self.order is None:
            return np.ascontiguousarray(real)
        placed = np.empty_like(real)
        placed[..., self.order] = real
        return placed

    def rows(self, index: Array) -> Array:
        """The real values of some rows `[.., N, K] -> [len(index), K]`, for embeddings; only they are decoded."""
        if not self.transposed or self.order is not None or len(self.shape) != 2:
            return np.asarray(self.dequantize()[index])

        def some(array: Array) -> Array:
            """The rows of an array whose first axis is the rows or blocks of them, or is shared by all."""
            if array.ndim != 2 or array.shape[0] in (0, 1):
                return array
            found: Array = array[index // (self.shape[0] // array.shape[0])]
            return found

        index = np.asarray(index)
        zero = None if self.zero_point is None else some(self.zero_point)
        small = QuantizedWeight(
            self.name, (len(index), self.shape[1]), some(self.codes), some(self.scale), self.dtype, zero,
            self.zero_mode, self.packing, True, self.codebook, self.global_scale,
        )  # fmt: skip
        return small.dequantize()


def group_order(groups: Array, count: int, size: int) -> Array | None:
    """The order that brings the inputs of a group together, None when they are together.

    Args:
        groups: `[K]`, the group of each input (GPTQ's `g_idx`).
        count, size: of the groups; the last may be smaller.

    Raises:
        ValueError: when a group has another size, with its number.
    """
    k = len(groups)
    if np.array_equal(groups, np.arange(k) // size):
        return None
    if k and (groups.min() < 0 or groups.max() >= count):
        raise ValueError(f"names group {int(groups.max() if groups.max() >= count else groups.min())} of {count}")
    sizes = np.bincount(groups, minlength=count)
    wanted = np.minimum(size, k - np.arange(count) * size)
    if not np.array_equal(sizes, wanted):
        bad = int(np.flatnonzero(sizes != wanted)[0])
        raise ValueError(f"puts {int(sizes[bad])} inputs into group {bad}, but the group size is {size}")
    return np.argsort(groups, kind="stable")


def even_groups(values: Array, length: int, size: int, axis: int = -1) -> Array:
    """Scales of groups of `size` along an axis of `length` that they do not divide, as scales of the largest groups
    that do: the last group is cut."""
    if values.shape[axis] <= 1 or length % size == 0:
        return values
    small = int(np.gcd(length, size))
    return np.take(values, np.arange(length // small) * small // size, axis=axis)
