"""The formats of sparse weights: positions of their entries, 2:4 metadata, conversions, and checks of indices."""

from __future__ import annotations

import numpy as np

from ..errors import UsageError
from .dtypes import Array

BlockShape = tuple[int, ...]
Position = tuple[Array, Array]  # row and column of each stored entry or block


def densified_dtype(name: str) -> str:
    """The dtype of a densified weight: i8 for i1, whose codes are -1 and 1 and cannot represent an absent entry, 0."""
    return "i8" if name == "i1" else name


def entries(format: str, indices: Array, indptr: Array | None) -> Position:
    """Row and column of each stored entry of `csr` and `coo`, of each block of `bsr`."""
    if format == "coo":
        return indices[0].astype(np.int64), indices[1].astype(np.int64)
    assert indptr is not None
    return np.repeat(np.arange(indptr.size - 1), np.diff(indptr)), indices.astype(np.int64)


def metadata_positions(metadata: Array, groups: int) -> Array:
    """The position of each stored code in its group of four, `[R, groups, 2]`, from bytes `[R, ceil(groups / 2)]`."""
    fields = metadata.view(np.uint8)[..., None] >> np.arange(0, 8, 2, dtype=np.uint8) & 3
    return fields.reshape(metadata.shape[0], metadata.shape[1] * 2, 2)[:, :groups]


def pack_metadata(positions: Array) -> Array:
    """The inverse of `metadata_positions`; a last odd group fills half a byte."""
    rows, groups, _ = positions.shape
    fields = np.zeros((rows, -(-groups // 2) * 2, 2), np.uint8)
    fields[:, :groups] = positions
    shifted = fields.reshape(rows, -(-groups // 2), 4) << np.arange(0, 8, 2, dtype=np.uint8)
    packed: Array = shifted.sum(-1).astype(np.uint8)
    return packed


def densify(
    format: str, shape: tuple[int, ...], values: Array, indices: Array, indptr: Array | None, block: BlockShape | None
) -> Array:
    """The dense codes, of shape `shape`; absent entries are 0. `values` are codes, one per element."""
    if format == "2:4":
        rows, groups = shape[0], shape[1] // 4
        out = np.zeros((rows, groups, 4), values.dtype)
        np.put_along_axis(out, metadata_positions(indices, groups).astype(np.int64), values.reshape(rows, groups, 2), 2)
        return out.reshape(shape)
    row, column = entries(format, indices, indptr)
    if format == "bsr":
        assert block is not None
        blocks = np.zeros((shape[0] // block[0], shape[1] // block[1], *block), values.dtype)
        blocks[row, column] = values
        return np.ascontiguousarray(blocks.swapaxes(1, 2)).reshape(shape)
    out = np.zeros(shape, values.dtype)
    out[row, column] = values
    return out


def structure_problem(
    format: str, shape: tuple[int, ...], stored: int, indices: Array, indptr: Array | None, block: BlockShape | None
) -> str:
    """The first error in indices and row pointers, "" if there is none. `stored`: number of entries (`bsr`: blocks)."""
    if format == "2:4":
        return _metadata_problem(indices, shape[1] // 4)
    rows, columns = (shape[0] // block[0], shape[1] // block[1]) if block is not None else shape
    what = "block row" if block is not None else "row"
    if indptr is not None:
        if indptr[0] != 0 or indptr[-1] != stored:
            return (
                f"'indptr' must start at 0 and end at the {stored} stored entries, "
                f"but goes from {indptr[0]} to {indptr[-1]}"
            )
        if (bad := np.flatnonzero(np.diff(indptr) < 0)).size:
            at = int(bad[0])
            return f"'indptr' decreases after {what} {at}: {indptr[at]}, {indptr[at + 1]}"
    row, column = entries(format, indices, indptr)
    for name, axis, size in (("row", row, rows), ("column", column, columns)):
        if (bad := np.flatnonzero((axis < 0) | (axis >= size))).size:
            at = int(bad[0])
            return f"entry {at} of 'indices' names {name} {axis[at]}, which is outside [0, {size})"
    key = row * max(columns, 1) + column
    if (bad := np.flatnonzero(np.diff(key) <= 0)).size:
        at = int(bad[0]) + 1
        where, before = (f"({row[i]}, {column[i]})" for i in (at, at - 1))
        if key[at] == key[at - 1]:
            return f"entry {at} of 'indices' repeats {where}; an entry may be stored once"
        return f"entry {at} of 'indices', {where}, comes after {before}; sort by row and column"
    return ""


def _metadata_problem(metadata: Array, groups: int) -> str:
    positions = metadata_positions(metadata, groups)
    if (bad := np.argwhere(positions[..., 0] >= positions[..., 1])).size:
        row, group = bad[0]
        first, second = positions[row, group]
        return (
            f"the metadata of row {row}, group {group} names positions {first} and {second}; it must name two "
            "positions in ascending order"
        )
    return ""


def row_pointers(row: Array, rows: int) -> Array:
    """The row pointers, from the sorted rows of all entries."""
    return np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))]).astype(np.int32)


def compress(array: Array, present: Array) -> tuple[Array, Array]:
    """Values `[N, K/2]` and metadata of a 2:4 array `[N, K]`. Raises UsageError if the array is not 2:4 sparse."""
    rows, k = array.shape
    if k % 4:
        raise UsageError(f"K = {k} is not a multiple of 4, which format '2:4' needs")
    groups = present.reshape(rows, k // 4, 4)
    if (bad := np.argwhere(groups.sum(-1) > 2)).size:
        row, group = bad[0]
        raise UsageError(
            f"row {row}, group {group} (columns {4 * group} to {4 * group + 3}) has {groups[row, group].sum()} "
            "non-zeros, but format '2:4' holds two of four"
        )
    # The two smallest positions by (absent, position): a group with fewer than two non-zeros stores zeros.
    positions = np.sort(np.argsort(~groups, axis=-1, kind="stable")[..., :2], -1)
    values = np.take_along_axis(array.reshape(rows, k // 4, 4), positions, 2)
    return values.reshape(rows, k // 2), pack_metadata(positions)
