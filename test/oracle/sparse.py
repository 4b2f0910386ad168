"""Products with a sparse weight: dense products without the entries that are not stored (docs/semantics.md, section
4)."""

from __future__ import annotations

from typing import Any

from .interval import Arithmetic, Interval
from .products import Contraction, Epilogue, along, gated, side
from .tensor import Index, Tensor, read
from .values import codes_of


def _stored(kw: dict[str, Any]) -> tuple[dict[tuple[int, int], Any], Tensor]:
    """The stored entries by row and column."""
    form, (rows, columns) = kw["format"], kw["rhs_shape"]
    indices = read(kw["indices"])
    block = kw.get("block")
    lengths = {"2:4": columns // 2, "bsr": block[1] if block else None}
    last = lengths.get(form, indices.shape[-1])
    packing = kw.get("rhs_packing", "none")
    values = codes_of(kw["values"], kw["rhs_dtype"], packing, last if packing != "none" else None)
    found: dict[tuple[int, int], Any] = {}
    if form == "2:4":
        for r in range(rows):
            for j in range(columns // 2):
                group, which = divmod(j, 2)
                byte, half = divmod(group, 2)
                at = (indices[r, byte] & 255) >> (4 * half + 2 * which) & 3
                found[r, 4 * group + at] = values[r, j]
        return found, values
    if form == "coo":
        for e in range(indices.shape[1]):
            found[indices[0, e], indices[1, e]] = values[(e,)]
        return found, values
    starts = read(kw["indptr"]).data
    for r in range(len(starts) - 1):
        for e in range(starts[r], starts[r + 1]):
            if form == "csr":
                found[r, indices.data[e]] = values[(e,)]
                continue
            for y in range(block[0]):
                for x in range(block[1]):
                    found[r * block[0] + y, indices.data[e] * block[1] + x] = values[e, y, x]
    return found, values


def sparse_matmul(lhs: Any, *, fused: bool = False, **kw: Any) -> Tensor:
    """`qmlir.sparse_matmul`."""
    f = Arithmetic(fused)
    found, _ = _stored(kw)
    transposed, shape = kw.get("rhs_transposed", False), tuple(kw["rhs_shape"])
    a = side(lhs, kw["lhs_dtype"], kw, "lhs")
    dense = Tensor(shape, [found.get((i, j)) for i in range(shape[0]) for j in range(shape[1])])
    b = side(None, kw["rhs_dtype"], kw, "rhs", codes=dense)
    k, n = shape[::-1] if transposed else shape
    out = (*a.codes.shape[:-1], n)
    epilogue = Epilogue(kw, out, (*out[:-1], gated(n, kw)), f)
    contraction = Contraction(a, b, f, kw.get("compute_dtype"))
    grouped = along(a, -1) or along(b, -1 if transposed else -2)

    def total(i: Index) -> Interval | int:
        def pair(q: int) -> tuple[Index, Index]:
            return (*i[:-1], q), (i[-1], q) if transposed else (q, i[-1])

        stored = (p for p in map(pair, range(k)) if dense[p[1]] is not None)
        return contraction.total(stored, pair(0), epilogue.acc_bias(i), grouped)

    return epilogue.run(total)
