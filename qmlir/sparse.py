"""SparseWeight: a weight in CSR, COO, block (BSR) or 2:4 form, for `qmlir.ops.sparse_matmul`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .core.spelling import did_you_mean
from .dialect.arrays import to_numpy
from .dialect.dtypes import DTYPES, Array, dtype_name, from_numpy, stored_codes
from .dialect.enums import PACKING, SPARSE_FORMAT, SPARSE_VALUES
from .dialect.packing import pack, packed_length, unpack
from .dialect.shapes import show
from .dialect.sparse_formats import compress, densify, entries, row_pointers, structure_problem
from .errors import UsageError
from .spec import TensorSpec

if TYPE_CHECKING:
    import torch
    from scipy.sparse import sparray, spmatrix


@dataclass(frozen=True)
class SparseSpec:
    """The form of a sparse weight whose contents are known at run time only.

    `stored` is the number of stored entries: of blocks for `bsr`, unused for `2:4`.
    """

    format: str
    shape: tuple[int, int]
    dtype: str
    stored: int = 0
    block: tuple[int, int] | None = None
    rhs_transposed: bool = False
    packing: str = "none"
    index_dtype: str = "i32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        object.__setattr__(self, "index_dtype", dtype_name(self.index_dtype))
        _check_form(self)
        if self.stored < 0:
            raise UsageError(f"stored={self.stored} must not be negative")
        if self.index_dtype not in ("i32", "i64"):
            raise UsageError(f"index_dtype={self.index_dtype!r} must be 'i32' or 'i64'")

    def operands(self) -> dict[str, TensorSpec]:
        """The specs of `values`, `indices` and, where the format has it, `indptr`."""
        rows = self.shape[0]
        d = DTYPES[self.dtype]
        storage = "u8" if self.packing != "none" else d.name if d.bits >= 8 else from_numpy(d.numpy)
        outer, length = _values_shape(self, self.stored)
        values = TensorSpec((*outer, packed_length(length, d, self.packing)), storage)
        if self.format == "2:4":
            return {"values": values, "indices": TensorSpec((rows, -(-self.shape[1] // 8)), "u8")}
        if self.format == "coo":
            return {"values": values, "indices": TensorSpec((2, self.stored), self.index_dtype)}
        pointers = rows // (self.block[0] if self.block else 1) + 1
        return {
            "values": values,
            "indices": TensorSpec((self.stored,), self.index_dtype),
            "indptr": TensorSpec((pointers,), self.index_dtype),
        }


@dataclass(frozen=True, eq=False)
class SparseWeight:
    """A sparse matrix of codes or floats. Immutable; checked when it is made.

    | format | `values` | `indices` | `indptr` |
    |---|---|---|---|
    | `csr` | `[E]` | column of each entry, `[E]` | `[rows + 1]` |
    | `coo` | `[E]` | row and column of each entry, `[2, E]` | - |
    | `bsr` | `[E, r, c]` | block column of each block, `[E]` | `[rows / r + 1]` |
    | `2:4` | `[N, K/2]` | two 2-bit positions per group of four, low bits first, in bytes `[N, ceil(K/8)]` | - |

    `shape` is the dense shape: `[K, N]`, or `[N, K]` with `rhs_transposed`, as for `scaled_matmul`; `2:4` groups run
    along K, so that format is always `[N, K]`. Entries are sorted by row and column and stored once; all others
    have the real value 0. Sub-byte codes may be packed along the last axis of `values`.

    Raises:
        UsageError: a structure that breaks these rules, with the place.
    """

    format: str
    shape: tuple[int, int]
    values: Array
    indices: Array
    indptr: Array | None = None
    block: tuple[int, int] | None = None
    rhs_transposed: bool = False
    dtype: str = ""  # of the codes; "" reads it off `values`
    packing: str = "none"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(s) for s in self.shape))
        object.__setattr__(self, "dtype", dtype_name(self.dtype) if self.dtype else _dtype_of(self.values))
        object.__setattr__(self, "values", _frozen(stored_codes(np.asarray(self.values))))
        if self.block is not None:
            object.__setattr__(self, "block", tuple(int(b) for b in self.block))
        _check_form(self)
        _check_storage(self)
        object.__setattr__(self, "indices", _frozen(_indices(self.indices, "indices", self.format)))
        if (self.indptr is not None) != (self.format in ("csr", "bsr")):
            raise UsageError(
                f"format {self.format!r} {'has no' if self.indptr is not None else 'needs'} 'indptr', which belongs to "
                "csr and bsr"
            )
        if self.indptr is not None:
            object.__setattr__(self, "indptr", _frozen(_indices(self.indptr, "indptr", self.format)))
        self._check_lengths()
        problem = structure_problem(self.format, self.shape, self.stored, self.indices, self.indptr, self.block)
        if problem:
            raise UsageError(f"sparse weight: {problem}")

    def _check_lengths(self) -> None:
        """Shapes of the arrays fit each other and the weight."""
        rows, columns = self.shape
        wanted: tuple[int, ...]
        if self.format == "2:4":
            stored, wanted = rows, (rows, -(-columns // 8))
        else:
            stored = self.indices.shape[-1] if self.indices.ndim else 0
            wanted = (2, stored) if self.format == "coo" else (stored,)
        if self.indices.shape != wanted:
            raise UsageError(
                f"'indices' has shape {show(self.indices.shape)}, but format {self.format!r} takes {show(wanted)}"
            )
        outer, length = _values_shape(self, stored)
        expected = (*outer, packed_length(length, DTYPES[self.dtype], self.packing))
        if self.values.shape != expected:
            raise UsageError(
                f"'values' has shape {show(self.values.shape)}, but the indices and the shape {show(self.shape)} give "
                f"{show(expected)}"
            )
        if self.indptr is not None:
            pointers = rows // (self.block[0] if self.block else 1) + 1
            if self.indptr.shape != (pointers,):
                raise UsageError(f"'indptr' has shape {show(self.indptr.shape)}, but {pointers - 1} rows need "
                                 f"[{pointers}]")  # fmt: skip

    # ---- contents

    @property
    def stored(self) -> int:
        """Number of entries of `indices`: stored elements, or blocks for `bsr`."""
        return int(self.indices.shape[-1]) if self.format != "2:4" else self.nnz

    @property
    def nnz(self) -> int:
        """Number of stored elements, explicit zeros included."""
        outer, length = _values_shape(self, self.indices.shape[-1])
        return int(np.prod(outer, dtype=np.int64)) * length

    @property
    def density(self) -> float:
        """Fraction of the elements that are stored; 0 for an empty matrix."""
        size = self.shape[0] * self.shape[1]
        return self.nnz / size if size else 0.0

    @property
    def codes(self) -> Array:
        """The stored codes, one per array element: unpacked, 1-bit codes as -1 and 1."""
        d = DTYPES[self.dtype]
        _, length = _values_shape(self, self.indices.shape[-1])
        codes = unpack(self.values, d.name, self.packing, length) if d.bits < 8 else self.values
        return 2 * (codes.astype(np.int8) & 1) - 1 if d.name == "i1" else codes

    @property
    def spec(self) -> SparseSpec:
        """The spec for a program that takes weights of this form at run time."""
        index = "u8" if self.format == "2:4" else from_numpy(self.indices.dtype)
        stored = 0 if self.format == "2:4" else self.stored
        return SparseSpec(self.format, self.shape, self.dtype, stored, self.block, self.rhs_transposed, self.packing,
                          "i32" if index == "u8" else index)  # fmt: skip

    def to_dense(self) -> Array:
        """The dense matrix of codes `shape`, one per array element; entries that are not stored are 0."""
        return densify(self.format, self.shape, self.codes, self.indices, self.indptr, self.block)

    def operands(self) -> dict[str, Array]:
        """The arrays by the names of the op's operands."""
        found = {"values": self.values, "indices": self.indices}
        return found if self.indptr is None else {**found, "indptr": self.indptr}

    # ---- conversions

    @classmethod
    def from_scipy(cls, matrix: sparray | spmatrix, *, rhs_transposed: bool = False, dtype: str = "") -> SparseWeight:
        """From a scipy.sparse matrix or array in csr, csc, coo or bsr form. A csc matrix is stored as the csr form of
        its transpose. Entries are sorted; repeated ones, which scipy would add up, are refused, because the sum of two
        8-bit codes need not be an 8-bit code: call `matrix.sum_duplicates()` first if the sum is intended.
        """
        form = getattr(matrix, "format", None)
        if form not in ("csr", "csc", "coo", "bsr") or not hasattr(matrix, "data"):
            known = f"of format {form!r}" if form is not None else f"a {type(matrix).__name__}"
            raise UsageError(f"the matrix is {known}; a scipy matrix in csr, csc, coo or bsr form is needed: "
                             "matrix.tocsr() converts it")  # fmt: skip
        if len(matrix.shape) != 2:
            raise UsageError(f"the matrix has {len(matrix.shape)} axes, but a weight has two")
        if form == "csc":
            matrix, form, rhs_transposed = matrix.T, "csr", not rhs_transposed
        shape = (int(matrix.shape[0]), int(matrix.shape[1]))
        if form == "coo":
            return cls._sorted_coo(shape, matrix.data, matrix.row, matrix.col, rhs_transposed, dtype)
        block = (int(matrix.blocksize[0]), int(matrix.blocksize[1])) if form == "bsr" else None
        return cls._sorted_rows(shape, matrix.data, matrix.indices, matrix.indptr, block, rhs_transposed, dtype)

    @classmethod
    def from_torch(cls, tensor: torch.Tensor, *, rhs_transposed: bool = False, dtype: str = "") -> SparseWeight:
        """From a torch sparse tensor of layout sparse_csr, sparse_csc, sparse_coo or sparse_bsr. An uncoalesced COO
        tensor with repeated entries is refused: `tensor.coalesce()` adds them up."""
        layout = str(getattr(tensor, "layout", type(tensor).__name__)).removeprefix("torch.")
        if layout not in ("sparse_csr", "sparse_csc", "sparse_coo", "sparse_bsr"):
            raise UsageError(f"the tensor has layout {layout}; sparse_csr, sparse_csc, sparse_coo or sparse_bsr is "
                             "needed: convert it with tensor.to_sparse_csr()")  # fmt: skip
        if len(tensor.shape) != 2:
            raise UsageError(f"the tensor has {len(tensor.shape)} axes, but a weight has two")
        shape = (int(tensor.shape[0]), int(tensor.shape[1]))
        tensor = tensor.detach()
        if layout == "sparse_coo":
            row, column = to_numpy(tensor._indices(), "indices")
            return cls._sorted_coo(shape, to_numpy(tensor._values(), "values"), row, column, rhs_transposed, dtype)
        values = to_numpy(tensor.values(), "values")
        if layout == "sparse_csc":
            rows, pointers = tensor.row_indices(), tensor.ccol_indices()
            return cls._sorted_rows(shape[::-1], values, to_numpy(rows, "indices"), to_numpy(pointers, "indptr"), None,
                                    not rhs_transposed, dtype)  # fmt: skip
        indices, pointers = to_numpy(tensor.col_indices(), "indices"), to_numpy(tensor.crow_indices(), "indptr")
        block = (int(values.shape[1]), int(values.shape[2])) if layout == "sparse_bsr" else None
        return cls._sorted_rows(shape, values, indices, pointers, block, rhs_transposed, dtype)

    @classmethod
    def from_dense(
        cls,
        array: Array,
        format: str = "csr",
        *,
        block: tuple[int, int] | None = None,
        rhs_transposed: bool = False,
        dtype: str = "",
        packing: str | None = None,
    ) -> SparseWeight:
        """The non-zero elements of a dense `[K, N]` (or `[N, K]`) array of codes or floats.

        Args:
            block: rows and columns of a block, for `bsr`.
            dtype: of sub-byte codes that are given one per byte, such as `i4`.
            packing: of sub-byte codes; default `low_first`.

        Raises:
            UsageError: a group of four with more than two non-zeros (`2:4`), with its row and number.
        """
        array = np.asarray(array)
        if array.ndim != 2:
            raise UsageError(f"the array has {array.ndim} axes, but a weight has two")
        _known(format, SPARSE_FORMAT, "format")
        dtype = dtype_name(dtype) if dtype else _dtype_of(array)
        _known(dtype, SPARSE_VALUES, "dtype")
        d = DTYPES[dtype]
        if dtype == "i1":
            raise UsageError("dtype 'i1' has the values -1 and 1 and no 0, so a dense array cannot show which "
                             "entries are absent; give the entries to SparseWeight(...)")  # fmt: skip
        if d.is_int and array.size and (array.min() < d.lo or array.max() > d.hi):
            raise UsageError(f"the array has codes outside the range [{d.lo}, {d.hi}] of {dtype}")
        if format == "2:4" and not rhs_transposed:
            array, rhs_transposed = array.T, True
        array = np.ascontiguousarray(array)
        shape = (int(array.shape[0]), int(array.shape[1]))
        packing = packing if packing is not None else "low_first" if d.bits < 8 else "none"
        _known(packing, PACKING, "packing")
        # e2m1 has two zeros, and floats have -0.0: elements that compare equal to 0, or are code 0, are absent.
        present = array != 0
        indptr = None
        if format == "2:4":
            values, indices = compress(array, present)
        elif format == "bsr":
            if block is None:
                raise UsageError("format 'bsr' needs block=(rows, columns)")
            r, c = _fitting_block(block, shape)
            tiles = array.reshape(shape[0] // r, r, shape[1] // c, c).swapaxes(1, 2)
            row, indices = np.nonzero(present.reshape(shape[0] // r, r, shape[1] // c, c).any((1, 3)))
            values, indptr = tiles[row, indices], row_pointers(row, shape[0] // r)
        else:
            row, column = np.nonzero(present)
            values = array[row, column]
            indices = np.stack([row, column]) if format == "coo" else column
            indptr = None if format == "coo" else row_pointers(row, shape[0])
        if format != "2:4":
            indices = indices.astype(np.int32)
        if format != "bsr" and block is not None:
            raise UsageError(f"block={block} belongs to format 'bsr', not {format!r}")
        if d.bits < 8:
            values = values.astype(d.numpy)
        return cls(format, shape, pack(values, dtype, packing) if d.bits < 8 else values, indices, indptr, block,
                   rhs_transposed, dtype, packing)  # fmt: skip

    @classmethod
    def _sorted_coo(
        cls, shape: tuple[int, int], values: Array, row: Array, column: Array, rhs_transposed: bool, dtype: str
    ) -> SparseWeight:
        order = np.lexsort((column, row))
        return cls(
            "coo", shape, values[order], np.stack([row[order], column[order]]), None, None, rhs_transposed, dtype
        )

    @classmethod
    def _sorted_rows(
        cls, shape: tuple[int, int], values: Array, indices: Array, indptr: Array, block: tuple[int, int] | None,
        rhs_transposed: bool, dtype: str,
    ) -> SparseWeight:  # fmt: skip
        """Entries of each row sorted by column."""
        indices, indptr = np.asarray(indices), np.asarray(indptr)
        if (np.diff(indptr) >= 0).all() and indptr[-1] == indices.size:
            row, column = entries("csr", indices, indptr)
            order = np.lexsort((column, row))
            indices, values = indices[order], values[order]
        return cls("bsr" if block is not None else "csr", shape, values, indices, indptr, block, rhs_transposed, dtype)


def _known(value: str, choices: tuple[str, ...], name: str) -> None:
    if value not in choices:
        raise UsageError(f"{name}={value!r} is not known{did_you_mean(str(value), choices)}")


def _check_form(weight: SparseWeight | SparseSpec) -> None:
    """Format, dtype, packing, shape and block fit each other."""
    _known(weight.format, SPARSE_FORMAT, "format")
    _known(weight.dtype, SPARSE_VALUES, "dtype")
    _known(weight.packing, PACKING, "packing")
    if len(weight.shape) != 2 or min(weight.shape) < 0:
        raise UsageError(f"shape={weight.shape} must be two sizes, the dense shape of the weight")
    if weight.packing != "none" and DTYPES[weight.dtype].bits >= 8:
        raise UsageError(f"packing={weight.packing!r}, but {weight.dtype} values fill whole bytes; use packing='none'")
    if (weight.format == "bsr") != (weight.block is not None):
        raise UsageError("format 'bsr' and block=(rows, columns) go together")
    if weight.block is not None:
        _fitting_block(weight.block, weight.shape)
    if weight.format == "2:4":
        if not weight.rhs_transposed:
            raise UsageError("format '2:4' has its groups along K, the last axis: the weight is [N, K], "
                             "rhs_transposed=True")  # fmt: skip
        if weight.shape[1] % 4:
            raise UsageError(f"K = {weight.shape[1]} is not a multiple of 4, which format '2:4' needs")


def _fitting_block(block: tuple[int, int], shape: tuple[int, int]) -> tuple[int, int]:
    if len(block) != 2 or min(block) < 1 or shape[0] % block[0] or shape[1] % block[1]:
        raise UsageError(f"block={tuple(block)} does not divide the shape {show(shape)}")
    return block[0], block[1]


def _check_storage(weight: SparseWeight) -> None:
    d = DTYPES[weight.dtype]
    found = _dtype_of(weight.values)
    wanted = ("u8",) if weight.packing != "none" else ("i8", "u8") if d.bits < 8 else (d.name,)
    if found not in wanted:
        raise UsageError(f"'values' is {found}, but {d.name} codes with packing {weight.packing!r} are held in "
                         f"{' or '.join(wanted)}")  # fmt: skip


def _values_shape(weight: SparseWeight | SparseSpec, stored: int) -> tuple[tuple[int, ...], int]:
    """Outer axes and length of the last one of `values`, in codes."""
    if weight.format == "2:4":
        return (weight.shape[0],), weight.shape[1] // 2
    if weight.block is not None:
        return (stored, weight.block[0]), weight.block[1]
    return (), stored


def _dtype_of(values: Array) -> str:
    try:
        name = from_numpy(np.asarray(values).dtype)
    except KeyError:
        name = ""
    if name not in SPARSE_VALUES:
        raise UsageError(f"values of dtype {np.asarray(values).dtype} are not accepted by a product; convert them "
                         "to int8, uint8, float32, float16 or bfloat16")  # fmt: skip
    return name


def _indices(given: Array, name: str, format: str) -> Array:
    """Indices as i32 or i64 (2:4: bytes)."""
    array: Array = np.asarray(given)
    if format == "2:4":
        if array.dtype not in (np.uint8, np.int8):
            raise UsageError(f"'{name}' is {array.dtype}, but the metadata of format '2:4' is bytes (uint8)")
        return array.view(np.uint8)
    if array.dtype not in (np.int32, np.int64):
        raise UsageError(f"'{name}' is {array.dtype}, but must be int32 or int64")
    return array


def _frozen(array: Array) -> Array:
    """A read-only copy."""
    copy = np.array(array, order="C")
    copy.flags.writeable = False
    return copy
