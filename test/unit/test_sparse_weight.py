"""SparseWeight and SparseSpec: their contents, compared with scipy and torch, and every refusal."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from qmlir import SparseSpec, SparseWeight
from qmlir.dialect.dtypes import DTYPES
from qmlir.dialect.sparse_formats import metadata_positions, pack_metadata
from qmlir.errors import UsageError

sparse = pytest.importorskip("scipy.sparse")
RNG = np.random.default_rng(7)


def _matrix(rows: int, columns: int, dtype: Any = np.int8, density: float = 0.3) -> Any:
    values = RNG.integers(1, 100, (rows, columns)).astype(dtype)
    return np.where(RNG.random((rows, columns)) < density, values, values.dtype.type(0))


def _of_scipy(dense: Any, layout: str) -> Any:
    if layout == "bsr":
        return sparse.bsr_matrix(dense, blocksize=(2, 3))
    return sparse.csr_array(dense).asformat(layout)


def _assert_equal(weight: SparseWeight, other: SparseWeight) -> None:
    """The same structure and contents; torch's indices are 64-bit integers, scipy's 32-bit ones."""
    for name in ("format", "shape", "block", "rhs_transposed", "dtype", "packing"):
        assert getattr(weight, name) == getattr(other, name), name
    for name in ("values", "indices", "indptr"):
        assert np.array_equal(getattr(weight, name), getattr(other, name)), name


# Contents


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float32])
def test_from_scipy(form: str, dtype: Any) -> None:
    dense = _matrix(8, 12, dtype)
    matrix = _of_scipy(dense, form)
    weight = SparseWeight.from_scipy(matrix)
    if form == "csc":
        # The csr form of the transpose.
        assert (weight.format, weight.shape, weight.rhs_transposed) == ("csr", (12, 8), True)
        assert np.array_equal(weight.to_dense().T, dense)
    else:
        assert (weight.format, weight.shape, weight.rhs_transposed) == (form, (8, 12), False)
        assert np.array_equal(weight.to_dense(), dense)
    assert weight.to_dense().dtype == dtype
    assert weight.nnz == (matrix.nnz if form != "bsr" else matrix.data.size)
    assert weight.density == pytest.approx(weight.nnz / 96)


def test_from_scipy_sorts() -> None:
    coo = sparse.coo_matrix((np.array([1, 2, 3], np.int8), ([2, 0, 2], [1, 3, 0])), (3, 4))
    assert np.array_equal(SparseWeight.from_scipy(coo).to_dense(), coo.toarray())
    csr = sparse.csr_matrix((np.array([1, 2, 3], np.int8), [3, 0, 1], [0, 2, 2, 3]), (3, 4))
    weight = SparseWeight.from_scipy(csr)
    assert weight.indices.tolist() == [0, 3, 1]
    assert np.array_equal(weight.to_dense(), csr.toarray())


def test_repeated_entries_are_refused_until_they_are_summed() -> None:
    matrix = sparse.coo_matrix((np.array([100, 100], np.int8), ([1, 1], [2, 2])), (3, 4))
    with pytest.raises(UsageError, match=r"repeats \(1, 2\); an entry may be stored once"):
        SparseWeight.from_scipy(matrix)
    matrix.sum_duplicates()
    assert SparseWeight.from_scipy(matrix).nnz == 1


@pytest.mark.parametrize("dtype", [np.int8, np.float32])
@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr"])
def test_from_torch(layout: str, dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    dense = torch.from_numpy(_matrix(8, 12, dtype))
    tensor = {"csr": dense.to_sparse_csr, "csc": dense.to_sparse_csc, "coo": dense.to_sparse,
              "bsr": lambda: dense.to_sparse_bsr((2, 3))}[layout]()  # fmt: skip
    weight = SparseWeight.from_torch(tensor, rhs_transposed=True)
    _assert_equal(weight, SparseWeight.from_scipy(_of_scipy(dense.numpy(), layout), rhs_transposed=True))
    with pytest.raises(UsageError, match="layout strided; sparse_csr"):
        SparseWeight.from_torch(dense)


class _Tensor:
    """The part of a torch tensor that `from_torch` reads."""

    def __init__(self, layout: str, shape: tuple[int, ...], **arrays: Any) -> None:
        self.layout, self.shape, self._arrays = f"torch.{layout}", shape, arrays

    def detach(self) -> _Tensor:
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda: self._arrays[name]


def test_from_what_looks_like_torch() -> None:
    dense = _matrix(4, 6)
    csr, csc, coo, bsr = (_of_scipy(dense, layout) for layout in ("csr", "csc", "coo", "bsr"))
    given = {
        "sparse_csr": {"values": csr.data, "col_indices": csr.indices, "crow_indices": csr.indptr},
        "sparse_coo": {"_values": coo.data, "_indices": np.stack([coo.row, coo.col])},
        "sparse_bsr": {"values": bsr.data, "col_indices": bsr.indices, "crow_indices": bsr.indptr},
        "sparse_csc": {"values": csc.data, "row_indices": csc.indices, "ccol_indices": csc.indptr},
    }
    for layout, arrays in given.items():
        weight = SparseWeight.from_torch(_Tensor(layout, (4, 6), **arrays))
        assert np.array_equal(weight.to_dense(), dense.T if layout == "sparse_csc" else dense)
        _assert_equal(weight, SparseWeight.from_scipy(_of_scipy(dense, layout.removeprefix("sparse_"))))


@pytest.mark.parametrize("dtype", ["i8", "u8", "i4", "u4", "i2", "f32", "f16", "bf16"])
@pytest.mark.parametrize("format", ["csr", "coo", "bsr", "2:4"])
def test_from_dense_and_back(format: str, dtype: str) -> None:
    d = DTYPES[dtype]
    dense = RNG.integers(d.lo, d.hi + 1, (8, 12)).astype(d.numpy) if d.is_int else _matrix(8, 12, d.numpy)
    if format == "2:4":
        dense = dense.reshape(8, 3, 4)
        dense[..., 1] = dense[..., 2] = 0
        dense = dense.reshape(8, 12)
    weight = SparseWeight.from_dense(dense, format, block=(2, 3) if format == "bsr" else None, dtype=dtype,
                                     rhs_transposed=True)  # fmt: skip
    assert np.array_equal(weight.to_dense(), dense)
    assert weight.packing == ("low_first" if d.bits < 8 else "none")
    if format in ("csr", "coo"):
        assert weight.nnz == np.count_nonzero(dense)
    if format == "2:4":
        assert weight.density == 0.5
        assert weight.values.shape[1] == -(-6 * d.bits // 8) if d.bits < 8 else 6


def test_two_of_four_of_k_by_n_is_transposed() -> None:
    dense = np.zeros((8, 3), np.int8)
    dense[[1, 3, 6], [0, 0, 2]] = 5, -6, 7
    weight = SparseWeight.from_dense(dense, "2:4")
    assert (weight.shape, weight.rhs_transposed) == ((3, 8), True)
    assert np.array_equal(weight.to_dense(), dense.T)


def test_metadata_is_two_bits_a_position() -> None:
    weight = SparseWeight.from_dense(np.array([[0, 5, 0, 6, 7, 8, 0, 0]], np.int8), "2:4", rhs_transposed=True)
    # Group 0 holds positions 1 and 3, group 1 positions 0 and 1: 0b0100_1101.
    assert weight.indices.tolist() == [[0b01001101]]
    assert weight.values.tolist() == [[5, 6, 7, 8]]
    positions = metadata_positions(weight.indices, 2)
    assert positions.tolist() == [[[1, 3], [0, 1]]]
    assert np.array_equal(pack_metadata(positions), weight.indices)


def test_an_odd_number_of_groups() -> None:
    dense = np.array([[0, 1, 2, 0, 3, 0, 0, 4, 0, 0, 5, 6]], np.int8)
    weight = SparseWeight.from_dense(dense, "2:4", rhs_transposed=True)
    assert weight.indices.shape == (1, 2)
    assert np.array_equal(weight.to_dense(), dense)


def test_it_is_immutable() -> None:
    values = np.array([1], np.int8)
    weight = SparseWeight("coo", (2, 2), values, np.array([[0], [1]]))
    values[0] = 9
    assert weight.values[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        weight.values[0] = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        weight.format = "csr"  # type: ignore[misc]


def test_empty() -> None:
    weight = SparseWeight.from_dense(np.zeros((0, 4), np.float32))
    assert (weight.nnz, weight.density, weight.to_dense().shape) == (0, 0.0, (0, 4))


def test_spec() -> None:
    weight = SparseWeight.from_dense(_matrix(8, 12), "bsr", block=(2, 3))
    spec = weight.spec
    assert spec == SparseSpec("bsr", (8, 12), "i8", weight.stored, (2, 3))
    for name, array in weight.operands().items():
        assert spec.operands()[name].accepts(array.shape)
    two = SparseWeight.from_dense(np.zeros((4, 12), np.int8), "2:4", rhs_transposed=True, dtype="i4")
    shapes = {n: s.shape for n, s in two.spec.operands().items()}
    assert shapes == {"values": (4, 3), "indices": (4, 2)}


# Refusals

CSR: dict[str, Any] = {"format": "csr", "shape": (2, 3), "values": np.array([1, 2], np.int8),
                       "indices": np.array([0, 2]), "indptr": np.array([0, 1, 2])}  # fmt: skip
COO = {**CSR, "format": "coo", "indices": np.array([[0, 1], [2, 0]]), "indptr": None}
TWO = {"format": "2:4", "shape": (1, 4), "values": np.ones((1, 2), np.int8), "indices": np.array([[4]], np.uint8),
       "rhs_transposed": True}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**CSR, "format": "crs"}, "format='crs' is not known; did you mean 'csr'?"),
        ({**CSR, "dtype": "nf4"}, "dtype='nf4' is not known"),
        ({**CSR, "packing": "low"}, "packing='low' is not known"),
        ({**CSR, "packing": "low_first"}, "i8 values fill whole bytes; use packing='none'"),
        ({**CSR, "shape": (2, 3, 4)}, "must be two sizes"),
        ({**CSR, "shape": (-2, 3)}, "must be two sizes"),
        ({**CSR, "values": np.array([1.0, 2.0])}, "values of dtype float64 are not accepted by a product"),
        ({**CSR, "values": np.array([1, 2])}, "values of dtype int64 are not accepted"),
        ({**CSR, "dtype": "u8"}, "'values' is i8, but u8 codes with packing 'none' are held in u8"),
        (
            {**CSR, "dtype": "i4", "packing": "low_first"},
            "'values' is i8, but i4 codes with packing 'low_first'",
        ),
        ({**CSR, "block": (1, 1)}, "format 'bsr' and block=(rows, columns) go together"),
        ({**CSR, "format": "bsr"}, "format 'bsr' and block=(rows, columns) go together"),
        ({**CSR, "format": "bsr", "block": (2, 2)}, "block=(2, 2) does not divide the shape [2, 3]"),
        ({**CSR, "indptr": None}, "format 'csr' needs 'indptr'"),
        ({**COO, "indptr": np.array([0, 1, 2])}, "format 'coo' has no 'indptr'"),
        ({**CSR, "indices": np.array([0.0, 2.0])}, "'indices' is float64, but must be int32 or int64"),
        ({**TWO, "indices": np.array([[4]])}, "'indices' is int64, but the metadata of format '2:4' is bytes (uint8)"),
        ({**CSR, "indices": np.array([[0, 2]])}, "'indices' has shape [1, 2], but format 'csr' takes [2]"),
        ({**CSR, "indices": np.array(0)}, "'indices' has shape [], but format 'csr' takes [0]"),
        (
            {**CSR, "values": np.array([1], np.int8)},
            "'values' has shape [1], but the indices and the",
        ),
        ({**CSR, "indptr": np.array([0, 2])}, "'indptr' has shape [2], but 2 rows need [3]"),
        ({**CSR, "indptr": np.array([0, 1, 3])}, "'indptr' must start at 0 and end at the 2 stored entries"),
        ({**CSR, "shape": (3, 3), "indptr": np.array([0, 2, 1, 2])}, "'indptr' decreases after row 1: 2, 1"),
        ({**CSR, "indices": np.array([0, 3])}, "entry 1 of 'indices' names column 3, which is outside [0, 3)"),
        ({**COO, "indices": np.array([[0, -1], [2, 0]])}, "entry 1 of 'indices' names row -1, which is outside [0, 2)"),
        (
            {**COO, "indices": np.array([[1, 0], [2, 0]])},
            "entry 1 of 'indices', (0, 0), comes after (1, 2); sort",
        ),
        ({**CSR, "indices": np.array([1, 1]), "indptr": np.array([0, 2, 2])}, "entry 1 of 'indices' repeats (0, 1)"),
        ({**TWO, "rhs_transposed": False}, "format '2:4' has its groups along K, the last axis"),
        ({**TWO, "shape": (1, 6)}, "K = 6 is not a multiple of 4, which format '2:4' needs"),
        ({**TWO, "indices": np.array([[6]], np.uint8)}, "the metadata of row 0, group 0 names positions 2 and 1"),
    ],
    ids=str,
)
def test_refusals(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        SparseWeight(**given)


def test_refusals_of_dense_arrays() -> None:
    bad = np.zeros((3, 8), np.int8)
    bad[1, 4:7] = 1
    with pytest.raises(UsageError, match=re.escape("row 1, group 1 (columns 4 to 7) has 3 non-zeros")):
        SparseWeight.from_dense(bad, "2:4", rhs_transposed=True)
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (bad[:, :6], {"format": "2:4", "rhs_transposed": True}, "K = 6 is not a multiple of 4"),
        (bad[0], {}, "the array has 1 axes"),
        (bad, {"format": "csc"}, "format='csc' is not known"),
        (bad, {"format": "bsr"}, "format 'bsr' needs block=(rows, columns)"),
        (bad, {"format": "bsr", "block": (2, 2)}, "block=(2, 2) does not divide"),
        (bad, {"block": (1, 1)}, "block=(1, 1) belongs to format 'bsr', not 'csr'"),
        (bad * 9, {"dtype": "i4"}, "codes outside the range [-8, 7] of i4"),
        (bad, {"dtype": "i1"}, "a dense array cannot show which entries are absent"),
        (bad, {"dtype": "nf4"}, "dtype='nf4' is not known"),
        (bad, {"dtype": "i4", "packing": "up"}, "packing='up' is not known"),
        (bad.astype(np.int64), {}, "values of dtype int64 are not accepted"),
    ]
    for array, kw, message in cases:
        with pytest.raises(UsageError, match=re.escape(message)):
            SparseWeight.from_dense(array, **kw)


def test_refusals_of_other_things() -> None:
    with pytest.raises(UsageError, match="the matrix is of format 'dia'; a scipy matrix in csr"):
        SparseWeight.from_scipy(sparse.eye(3, format="dia"))
    with pytest.raises(UsageError, match="the matrix is a ndarray"):
        SparseWeight.from_scipy(np.eye(3))
    with pytest.raises(UsageError, match="values of dtype float64"):
        SparseWeight.from_scipy(sparse.eye(3, format="csr"))
    with pytest.raises(UsageError, match="the tensor has layout ndarray"):
        SparseWeight.from_torch(np.eye(3))
    with pytest.raises(UsageError, match="the tensor has 3 axes"):
        SparseWeight.from_torch(_Tensor("sparse_coo", (2, 3, 4)))
    with pytest.raises(UsageError, match="stored=-1 must not be negative"):
        SparseSpec("csr", (2, 2), "i8", -1)
    with pytest.raises(UsageError, match="index_dtype='i16' must be 'i32' or 'i64'"):
        SparseSpec("csr", (2, 2), "i8", 1, index_dtype="i16")


def test_small_floats() -> None:
    weight = SparseWeight.from_dense(np.array([[0, 1.5], [-2, 0]], ml_dtypes.float8_e4m3fn))
    assert weight.dtype == "e4m3"
    assert weight.nnz == 2


@pytest.mark.parametrize("transposed", [False, True])
def test_two_of_four_of_no_rows(transposed: bool) -> None:
    weight = SparseWeight.from_dense(np.zeros((0, 32), np.int8), "2:4", rhs_transposed=transposed)
    assert weight.to_dense().shape == weight.shape
