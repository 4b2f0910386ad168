"""sparse_matmul against the reference, which densifies the weight, on every target that runs here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import qmlir
from qmlir import InputError, SparseSpec, SparseWeight, TensorSpec
from qmlir.dialect.dtypes import DTYPES
from qmlir.errors import UsageError, VerifyError

pytestmark = pytest.mark.sweep(fast=6, slow=40)

R = qmlir.reference
FORMATS = ("csr", "coo", "bsr", "2:4")
SCHEMES = ("s8", "u8", "s4", "f16", "f32", "w4f16", "s8_asymmetric")
ROWS = (0, 1, 3, 17, 128)
# The pairs of the fast tier; the others are slow.
FAST = {("csr", "s8"), ("coo", "u8"), ("bsr", "s4"), ("2:4", "s8_asymmetric"), ("csr", "f16"), ("2:4", "w4f16")}


def _dense(rng: Any, n: int, k: int, dtype: str, density: float, format: str, block: tuple[int, int]) -> Any:
    """A weight [N, K] in which about the share `density` is not zero; for `bsr` whole blocks, for `2:4` two of four."""
    d = DTYPES[dtype]
    if d.is_int:
        w = rng.integers(d.lo, d.hi + 1, (n, k)).astype(d.numpy)
    else:
        w = rng.standard_normal((n, k)).astype(d.numpy)
    if format == "2:4":
        keep = np.argsort(rng.random((n, k // 4, 4)), -1).reshape(n, k) < 2
    elif format == "bsr":
        r, c = block
        keep = np.kron(rng.random((n // r, k // c)) < density, np.ones((r, c), bool))
    else:
        keep = rng.random((n, k)) < density
    return np.where(keep, w, w.dtype.type(0))


def _weight(rng: Any, format: str, n: int, k: int, dtype: str, density: float, transposed: bool = True) -> Any:
    block = (4, 8) if format == "bsr" else None
    dense = _dense(rng, n, k, dtype, density, format, block or (1, 1))
    if block is not None and not transposed:
        block = block[::-1]
    return SparseWeight.from_dense(dense if transposed else dense.T, format, block=block, rhs_transposed=transposed,
                                   dtype=dtype)  # fmt: skip


def _scheme(name: str, d: Any, format: str, n: int, k: int, density: float = 0.3, transposed: bool = True) -> Any:
    """Weight and keyword arguments."""
    dtype = {"u8": "u8", "s4": "i4", "f16": "f16", "f32": "f32", "w4f16": "i4"}.get(name, "i8")
    weight = _weight(d.rng, format, n, k, dtype, density, transposed)
    channel = (n, 1) if weight.rhs_transposed else (1, n)
    kw: dict[str, Any] = {}
    if name in ("s8", "u8", "s4"):
        kw = {"out_dtype": "i32"}
    elif name == "s8_asymmetric":
        kw = {"lhs_scale": np.float32(0.5), "rhs_scale": 2.0 ** -d.rng.integers(1, 5, channel), "bias": d.floats(n),
              "lhs_zero_point": np.int32(-7), "activation": "relu", "out_dtype": "i8", "out_scale": np.float32(64),
              "out_zero_point": np.int32(3)}  # fmt: skip
        kw["rhs_scale"] = kw["rhs_scale"].astype(np.float32)
    elif name == "w4f16":
        kw = {"rhs_scale": d.scales(*channel), "out_dtype": "f16"}
    return weight, kw


def _lhs(name: str, d: Any, *shape: int) -> Any:
    if name in ("f16", "w4f16"):
        return d.floats(*shape).astype(np.float16)
    return d.floats(*shape) if name == "f32" else d.codes(*shape)


def _compare(actual: Any, x: Any, weight: Any, kw: dict[str, Any], same: Any, near: Any, terms: Any) -> None:
    expected = R.sparse_matmul(x, weight, **kw)
    if x.dtype.kind != "f":
        same(actual, expected)
        return
    weight_kw = {"rhs_dtype": weight.dtype, "rhs_transposed": weight.rhs_transposed, "rhs_scale": kw.get("rhs_scale")}
    near(actual, R.sparse_matmul(x, weight, **{**kw, "out_dtype": "f32"}), terms(x, weight.to_dense(), weight_kw))


CASES = [
    pytest.param(f, s, marks=() if (f, s) in FAST else pytest.mark.slow, id=f"{f}-{s}")
    for f in FORMATS
    for s in SCHEMES
]


@pytest.mark.parametrize(("format", "scheme"), CASES)
def test_a_constant_weight(format: str, scheme: str, data: Any, same: Any, near: Any, terms: Any) -> None:
    weight, kw = _scheme(scheme, data, format, 24, 64)
    kind = {"f16": "f16", "w4f16": "f16", "f32": "f32"}.get(scheme, "i8")
    function = qmlir.load(qmlir.ops.sparse_matmul.compile(TensorSpec((None, 64), kind), weight, **kw)).main
    for rows in ROWS:
        x = _lhs(scheme, data, rows, 64)
        _compare(function(x), x, weight, kw, same, near, terms)


@pytest.mark.parametrize(("format", "scheme"), CASES)
def test_a_weight_at_run_time(format: str, scheme: str, data: Any, same: Any, near: Any, terms: Any) -> None:
    weight, kw = _scheme(scheme, data, format, 24, 64, transposed=format in ("csr", "2:4"))
    x = _lhs(scheme, data, 5, 64)
    _compare(qmlir.ops.sparse_matmul(x, weight, **kw), x, weight, kw, same, near, terms)


@pytest.mark.parametrize(
    ("format", "scheme"),
    [(f, s) if (f, s) in (("csr", "s8"), ("2:4", "w4f16")) else pytest.param(f, s, marks=pytest.mark.slow)
     for f in FORMATS for s in SCHEMES],
)  # fmt: skip
def test_on_vulkan(format: str, scheme: str, lavapipe: str, data: Any, same: Any, near: Any, terms: Any) -> None:
    weight, kw = _scheme(scheme, data, format, 24, 64)
    x = _lhs(scheme, data, 17, 64)
    _compare(qmlir.ops.sparse_matmul(x, weight, **kw, target=lavapipe), x, weight, kw, same, near, terms)
    spec = TensorSpec(x.shape, {"float16": "f16", "float32": "f32"}.get(x.dtype.name, "i8"))
    function = qmlir.load(qmlir.ops.sparse_matmul.compile(spec, weight, **kw, target=lavapipe)).main
    _compare(function(x), x, weight, kw, same, near, terms)


# Few entries: the gathered form, which reads lhs by position.


def _few(d: Any, dtype: str, transposed: bool = True, block: tuple[int, int] | None = None) -> Any:
    n, k = 96, 1024
    dense = _dense(d.rng, n, k, dtype, 0.04 if block else 0.001, "bsr" if block else "csr", block or (1, 1))
    dense[: n // 4] = 0  # empty rows
    if not transposed:
        dense, block = dense.T, block and block[::-1]
    return SparseWeight.from_dense(
        dense, "bsr" if block else "csr", block=block, rhs_transposed=transposed, dtype=dtype
    )


@pytest.mark.parametrize(
    ("dtype", "transposed", "block"),
    [
        ("i8", True, None),
        ("u8", False, None),
        pytest.param("f32", True, None, marks=pytest.mark.slow),
        ("i4", True, None),
        ("i8", False, (16, 32)),
        pytest.param("f32", True, (8, 8), marks=pytest.mark.slow),
        pytest.param("i4", True, (32, 16), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_few_entries_are_gathered(
    dtype: str, transposed: bool, block: Any, data: Any, same: Any, near: Any, terms: Any
) -> None:
    weight = _few(data, dtype, transposed, block)
    float_ = dtype == "f32"
    n = 96
    kw: dict[str, Any] = {} if float_ else {"lhs_zero_point": np.int32(5), "bias": np.arange(n, dtype=np.int32),
                                           "rhs_scale": data.scales(*((n, 1) if transposed else (1, n)))}  # fmt: skip
    artifact = qmlir.ops.sparse_matmul.compile(TensorSpec((None, 1024), "f32" if float_ else "i8"), weight, **kw)
    assert "tensor.extract %" in artifact.source("linalg")
    function = qmlir.load(artifact).main
    for rows in (0, 1, 33):
        x = data.floats(rows, 1024) if float_ else data.codes(rows, 1024)
        _compare(function(x), x, weight, kw, same, near, terms)


@pytest.mark.parametrize("format", ["csr", pytest.param("coo", marks=pytest.mark.slow)])
def test_few_entries_at_run_time(format: str, data: Any, same: Any) -> None:
    weight = _few(data, "i8")
    if format == "coo":
        weight = SparseWeight.from_dense(weight.to_dense(), "coo", rhs_transposed=True)
    spec = SparseSpec(format, weight.shape, "i8", weight.stored, rhs_transposed=True)
    assert spec == weight.spec
    artifact = qmlir.ops.sparse_matmul.compile(TensorSpec((3, 1024), "i8"), spec, lhs_zero_point=TensorSpec((), "i32"))
    x = data.codes(3, 1024)
    actual = qmlir.load(artifact).main(x, *weight.operands().values(), np.asarray(4, np.int32))
    same(actual, R.sparse_matmul(x, weight, lhs_zero_point=np.int32(4)))


@pytest.mark.parametrize("block", [pytest.param(None, marks=pytest.mark.slow), (16, 32)], ids=str)
def test_few_entries_on_vulkan(block: Any, lavapipe: str, data: Any, same: Any) -> None:
    weight = _few(data, "i8", True, block)
    x = data.codes(17, 1024)
    spec = TensorSpec((17, 1024), "i8")
    for given_weight in (weight,) if block else (weight, weight.spec):
        artifact = qmlir.ops.sparse_matmul.compile(spec, given_weight, out_dtype="i32", target=lavapipe)
        arguments = () if given_weight is weight else weight.operands().values()
        same(qmlir.load(artifact).main(x, *arguments), R.sparse_matmul(x, weight, out_dtype="i32"))


@pytest.mark.slow
def test_one_dense_row_is_cut_into_pieces(data: Any, same: Any) -> None:
    dense = _dense(data.rng, 2000, 4096, "i8", 0.0003, "csr", (1, 1))
    dense[1234] = data.codes(4096)
    weight = SparseWeight.from_dense(dense, "csr", rhs_transposed=True)
    scale = data.scales(2000, 1)
    artifact = qmlir.ops.sparse_matmul.compile(TensorSpec((2, 4096), "i8"), weight, rhs_scale=scale)
    text = artifact.source("linalg")
    assert "tensor.extract %" in text
    assert "tensor<2000x4096" not in text
    x = data.codes(2, 4096)
    same(qmlir.load(artifact).main(x), R.sparse_matmul(x, weight, rhs_scale=scale))


@pytest.mark.slow
def test_weight_only_pieces(data: Any, near: Any, terms: Any, same: Any) -> None:
    dense = _dense(data.rng, 1000, 2048, "i8", 0.0005, "csr", (1, 1))
    dense[123] = data.codes(2048)
    weight = SparseWeight.from_dense(dense, "csr", rhs_transposed=True)
    kw = {"rhs_scale": data.scales(1000, 1)}
    artifact = qmlir.ops.sparse_matmul.compile(TensorSpec((2, 2048), "f32"), weight, **kw)
    x = data.floats(2, 2048)
    _compare(qmlir.load(artifact).main(x), x, weight, kw, same, near, terms)


# Edges


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(6, 8), (0, 8), (6, 0)], ids=str)
def test_nothing_is_stored(shape: tuple[int, int], data: Any, same: Any) -> None:
    weight = SparseWeight.from_dense(np.zeros(shape, np.int8), "csr", rhs_transposed=True)
    x = data.codes(3, shape[1])
    bias = data.floats(shape[0])
    expected = R.sparse_matmul(x, weight, bias=bias)
    same(qmlir.ops.sparse_matmul(x, weight, bias=bias), expected)
    spec = TensorSpec((None, shape[1]), "i8")
    same(qmlir.load(qmlir.ops.sparse_matmul.compile(spec, weight, bias=bias)).main(x), expected)


def test_batches_and_a_gated_epilogue(data: Any, near: Any, terms: Any) -> None:
    weight, _ = _scheme("s8", data, "coo", 16, 32)
    kw = {"lhs_scale": data.scales(2, 1, 5, 1), "rhs_scale": data.scales(16, 1), "activation": "swiglu"}
    x = data.codes(2, 3, 5, 32)
    actual = qmlir.ops.sparse_matmul(x, weight, **kw)
    np.testing.assert_allclose(actual, R.sparse_matmul(x, weight, **kw), rtol=1e-5, atol=1e-6)


def test_two_of_four_with_groups_along_k(data: Any, same: Any) -> None:
    weight, _ = _scheme("s4", data, "2:4", 16, 64)
    kw = {"lhs_scale": np.float32(0.5), "rhs_scale": data.scales(16, 4)}
    x = data.codes(5, 64)
    function = qmlir.load(qmlir.ops.sparse_matmul.compile(TensorSpec((None, 64), "i8"), weight, **kw)).main
    same(function(x), R.sparse_matmul(x, weight, **kw))


@pytest.mark.slow
def test_one_bit_entries(data: Any, same: Any) -> None:
    row, column = np.nonzero(data.rng.random((8, 32)) < 0.3)
    codes = data.rng.integers(0, 2, row.size).astype(np.int8)
    weight = SparseWeight("coo", (8, 32), R.pack(codes, "i1"), np.stack([row, column]), rhs_transposed=True, dtype="i1",
                          packing="low_first")  # fmt: skip
    assert set(np.unique(weight.to_dense())) == {-1, 0, 1}
    x = data.codes(5, 32)
    expected = x.astype(np.int32) @ weight.to_dense().T
    same(qmlir.ops.sparse_matmul(x, weight, out_dtype="i32"), expected)
    artifact = qmlir.ops.sparse_matmul.compile(TensorSpec((5, 32), "i8"), weight, out_dtype="i32")
    same(qmlir.load(artifact).main(x), expected)


def test_against_scipy(data: Any) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.random(64, 48, 0.1, format="csc", dtype=np.float32, rng=np.random.default_rng(3))
    x = data.floats(7, 64)
    actual = qmlir.ops.sparse_matmul(x, SparseWeight.from_scipy(matrix))
    np.testing.assert_allclose(actual, (matrix.T @ x.T).T, rtol=1e-5, atol=1e-5)


# Refusals


def _spoiled(weight: SparseWeight, **arrays: list[int]) -> list[Any]:
    given_arrays = {**weight.operands(), **{n: np.asarray(a, weight.operands()[n].dtype) for n, a in arrays.items()}}
    return list(given_arrays.values())


@pytest.mark.parametrize("transposed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_bad_structure_at_run_time(transposed: bool, data: Any) -> None:
    weight = SparseWeight(
        "csr", (4, 6), data.codes(4), np.array([0, 2, 1, 5]), np.array([0, 2, 2, 3, 4]), None, transposed
    )
    k = 6 if transposed else 4
    artifact = qmlir.ops.sparse_matmul.compile(TensorSpec((2, k), "i8"), weight.spec, out_dtype="i32")
    main = qmlir.load(artifact).main
    x = data.codes(2, k)
    assert np.array_equal(main(x, *_spoiled(weight)), R.sparse_matmul(x, weight, out_dtype="i32"))
    ends = "'indptr' of the sparse weight must start at 0, not decrease, and end at 4"
    for indptr in ([1, 2, 2, 3, 4], [0, 3, 2, 3, 4], [0, 2, 2, 3, 5], [0, 2, 2, 3, 2**40]):
        with pytest.raises(InputError, match=ends):
            main(x, *_spoiled(weight, indptr=indptr))
    for indices in ([0, 6, 1, 5], [-1, 2, 1, 5], [0, 2, 1, 2**32]):
        with pytest.raises(
            InputError, match=r"an entry of 'indices' of the sparse weight is outside \[0, 4\) x \[0, 6\)"
        ):
            main(x, *_spoiled(weight, indices=indices))
    for indices in ([2, 0, 1, 5], [2, 2, 1, 5]):
        with pytest.raises(InputError, match="must be sorted by row and column, none twice"):
            main(x, *_spoiled(weight, indices=indices))


@pytest.mark.slow
def test_a_bad_structure_of_other_formats(data: Any) -> None:
    x = data.codes(2, 8)
    coo = SparseWeight("coo", (8, 4), data.codes(2), np.array([[0, 3], [1, 2]]))
    main = qmlir.load(qmlir.ops.sparse_matmul.compile(TensorSpec((2, 8), "i8"), coo.spec, out_dtype="i32")).main
    with pytest.raises(InputError, match="outside"):
        main(x, coo.values, np.array([[0, 8], [1, 2]]))
    with pytest.raises(InputError, match="sorted"):
        main(x, coo.values, np.array([[3, 0], [1, 2]]))
    two = _weight(data.rng, "2:4", 4, 8, "i8", 1.0)
    main = qmlir.load(qmlir.ops.sparse_matmul.compile(TensorSpec((2, 8), "i8"), two.spec, out_dtype="i32")).main
    with pytest.raises(InputError, match="does not name two positions in ascending order"):
        main(x, two.values, np.zeros((4, 1), np.uint8))


def test_refusals(data: Any) -> None:
    weight, _ = _scheme("s8", data, "csr", 8, 16)
    x = data.codes(2, 16)
    with pytest.raises(VerifyError, match="a sparse weight takes no zero point"):
        qmlir.ops.sparse_matmul(x, weight, rhs_zero_point=np.int32(1))
    with pytest.raises(UsageError, match="is a ndarray, but must be a SparseWeight"):
        qmlir.ops.sparse_matmul(x, x)
    with pytest.raises(UsageError, match="must be a SparseWeight or a SparseSpec"):
        qmlir.ops.sparse_matmul.compile(x, x)
    with pytest.raises(UsageError, match="needs the argument 'weight'"):
        qmlir.ops.sparse_matmul(x)
    with pytest.raises(UsageError, match="takes 2 positional arguments: lhs, weight"):
        qmlir.ops.sparse_matmul(x, weight, x)
    with pytest.raises(UsageError, match="has no argument 'rhs_transposed': the weight says it"):
        qmlir.ops.sparse_matmul(x, weight, rhs_transposed=True)
    with pytest.raises(VerifyError, match="K differs: 'lhs'"):
        qmlir.ops.sparse_matmul(data.codes(2, 8), weight)
    with pytest.raises(ValueError, match="a sparse weight has no zero point"):
        R.sparse_matmul(x, weight, rhs_zero_point=np.int32(1))


def test_a_weight_too_large_to_be_made_dense() -> None:
    spec = SparseSpec("coo", (1 << 20, 1 << 20), "i8", 10)
    with pytest.raises(qmlir.QmlirError, match="is too large to be made dense"):
        qmlir.ops.sparse_matmul.compile(TensorSpec((2, 1 << 20), "i8"), spec)


def test_a_huge_weight_is_never_dense(data: Any, same: Any) -> None:
    k = n = 1 << 16
    rows = np.sort(data.rng.choice(n, 500, replace=False))
    columns = data.rng.integers(0, k, 500)
    weight = SparseWeight("coo", (n, k), data.codes(500), np.stack([rows, columns]), rhs_transposed=True)
    x = data.codes(1, k)
    expected = np.zeros((1, n), np.int32)
    expected[0, rows] = x[0, columns].astype(np.int32) * weight.values
    artifact = qmlir.ops.sparse_matmul.compile(TensorSpec((1, k), "i8"), weight, out_dtype="i32")
    same(qmlir.load(artifact).main(x), expected)


# Sparse equals dense in every format.


@st.composite
def products(draw: Any) -> tuple[Any, Any, dict[str, Any], bool]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    format = draw(st.sampled_from(FORMATS))
    dtype = draw(st.sampled_from(("i8", "u8", "i4", "u4", "i2")))
    transposed = draw(st.booleans())
    n, k = 4 * draw(st.integers(0, 12)), 8 * draw(st.integers(0, 40))
    density = draw(st.sampled_from((0.0, 0.002, 0.02, 0.3, 1.0)))
    weight = _weight(rng, format, n, k, dtype, density, transposed)
    m = draw(st.integers(0, 20))
    kw: dict[str, Any] = {"lhs_scale": 2.0 ** rng.integers(-8, 0, (m, 1)), "rhs_scale": np.float32(2.0**-3)}
    if draw(st.booleans()):
        shape = (n, 1) if weight.rhs_transposed else (1, n)
        kw["rhs_scale"] = (2.0 ** rng.integers(-8, 0, shape)).astype(np.float32)
    if draw(st.booleans()):
        kw["lhs_zero_point"] = rng.integers(-40, 40, (m, 1)).astype(np.int32)
    if draw(st.booleans()):
        kw |= {"out_dtype": "i8", "out_scale": np.float32(8.0)}
    kw["lhs_scale"] = kw["lhs_scale"].astype(np.float32)
    return rng.integers(-128, 128, (m, k)).astype(np.int8), weight, kw, draw(st.booleans())


def _sparse_equals_dense(case: tuple[Any, Any, dict[str, Any], bool], same: Any) -> None:
    x, weight, kw, constant = case
    expected = R.scaled_matmul(x, weight.to_dense(), rhs_dtype=weight.dtype, rhs_transposed=weight.rhs_transposed, **kw)
    if constant:
        same(qmlir.load(qmlir.ops.sparse_matmul.compile(TensorSpec(x.shape, "i8"), weight, **kw)).main(x), expected)
    else:
        same(qmlir.ops.sparse_matmul(x, weight, **kw), expected)


@given(case=products())
@settings(max_examples=4)
def test_sparse_equals_dense(case: tuple[Any, Any, dict[str, Any], bool], same: Any) -> None:
    _sparse_equals_dense(case, same)


@pytest.mark.slow
@pytest.mark.long
@given(case=products())
@settings(max_examples=250, derandomize=False)
def test_many_sparse_equal_dense(case: tuple[Any, Any, dict[str, Any], bool], same: Any) -> None:
    _sparse_equals_dense(case, same)
