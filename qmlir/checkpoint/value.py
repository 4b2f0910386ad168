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


# A product refuses shorter groups along K as a likely mistake, unless `group_size` states them.
_SHORT_GROUP = 8


@dataclass(frozen=True)
class Activations:
    """How the input of a layer is to be quantised, according to the checkpoint.

    Attributes:
        dtype: the dtype of the codes, such as `i8` or `e4m3`.
        granularity: `tensor`, `token` or `group` (`group_size` along K).
        dynamic: scales are computed from the data; otherwise the checkpoint has `scale` and `zero_point`.
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
        zero_point: of the shape of `scale`; `zero_mode` states its meaning.
        global_scale: one f32 for the whole tensor, in addition to `scale` (NVFP4).
        order: `[K]`, for activation order: column j of the codes belongs to input `order[j]`.
        activations: how the checkpoint quantises the layer's input; None: it does not.
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
        """The number of inputs that share a scale; None if the scale is constant along K."""
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
        """The arguments of a product that represent this weight; the product's inputs must be in its `order`."""
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
        inputs must be reordered too: `scaled_matmul(**weight.product(x))`."""
        if self.order is not None:
            raise UsageError(
                f"{self.name!r} is in activation order: its inputs are reordered too. Write "
                "scaled_matmul(**weight.product(x)) instead of scaled_matmul(x, **weight)"
            )
        return iter(self.operands())

    def __getitem__(self, key: str) -> object:
        return self.operands()[key]

    def product(self, lhs: Array | torch.Tensor) -> dict[str, object]:
        """The arguments of the product of `lhs [.., M, K]` with this weight, with `lhs` in the weight's order."""
        return {"lhs": lhs if self.order is None else lhs[..., self.order], **self.operands()}

    def dequantize(self) -> Array:
        """The real weight, f32 `[.., N, K]`, by `qmlir.reference.dequantize`."""
        n, k = self.shape[-2:]
        d = DTYPES[self.dtype]
        if d.kind == "float":  # the codes of one-byte floats are an array of that type
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
        """The real values of some rows `[.., N, K] -> [len(index), K]`, for embeddings; only these rows are decoded."""
        if not self.transposed or self.order is not None or len(self.shape) != 2:
            return np.asarray(self.dequantize()[index])

        def some(array: Array) -> Array:
            """The rows of an array that has one per row or block of rows; an array shared by all rows unchanged."""
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
    """The permutation that makes the inputs of each group contiguous; None if they already are.

    Args:
        groups: `[K]`, the group of each input (GPTQ's `g_idx`).
        count, size: the number and the size of the groups; the last group may be smaller.

    Raises:
        ValueError: a group has another size or does not exist; the message has its number.
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
    """Expand the scales of groups of `size` along an axis of `length`, whose last group is shorter, to scales of the
    largest smaller groups that divide both."""
    if values.shape[axis] <= 1 or length % size == 0:
        return values
    small = int(np.gcd(length, size))
    return np.take(values, np.arange(length // small) * small // size, axis=axis)
