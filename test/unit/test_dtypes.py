"""Dtypes by numpy's, torch's and ml_dtypes' names, and the deprecated names of functions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import qmlir
from qmlir.dialect.dtypes import DTYPES, dtype_name
from qmlir.errors import UsageError


class TorchLike:
    """Prints as torch's dtypes do; torch itself costs seconds to import."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


@pytest.mark.parametrize(
    ("given", "name"),
    [("i8", "i8"), ("int8", "i8"), (np.int8, "i8"), (np.dtype("int8"), "i8"), (TorchLike("int8"), "i8"),
     ("uint8", "u8"), ("float32", "f32"), (np.float16, "f16"), (TorchLike("bfloat16"), "bf16"), ("int4", "i4"),
     (ml_dtypes.int4, "i4"), (ml_dtypes.bfloat16, "bf16"), (np.dtype(ml_dtypes.float8_e4m3fn), "e4m3"),
     (TorchLike("float8_e5m2"), "e5m2"), (ml_dtypes.float4_e2m1fn, "e2m1"), ("nf4", "nf4"), (np.bool_, "bool")],
)  # fmt: skip
def test_spec_takes_dtypes_of_others(given: object, name: str) -> None:
    spec = qmlir.TensorSpec(("M", 4), given)
    assert spec == qmlir.TensorSpec(("M", 4), name)
    assert spec.dtype == name


def test_short_names_are_kept() -> None:
    assert [dtype_name(name) for name in DTYPES] == list(DTYPES)


@pytest.mark.parametrize("given", [np.complex64, "complex64", "int3", TorchLike("complex64")])
def test_unknown_dtypes_are_refused(given: object) -> None:
    with pytest.raises(UsageError, match=r"unknown dtype '(complex64|int3)'"):
        qmlir.TensorSpec((4,), given)
    with pytest.raises(UsageError, match=r"out_dtype=.* is not known"):
        qmlir.ops.quantize(np.zeros(4, np.float32), np.float32(1), out_dtype=given)


def test_reference_takes_them_too() -> None:
    codes = np.array([[0x21]], np.uint8)
    for given in ("i4", "int4", ml_dtypes.int4):
        assert qmlir.reference.unpack(codes, dtype=given, packing="low_first").tolist() == [[1, 2]]


@pytest.mark.parametrize("given", ["i4", "int4", ml_dtypes.int4, TorchLike("int4")])
def test_pack_takes_them_too(given: object) -> None:
    codes = np.array([[1, -8]], np.int8)
    assert qmlir.reference.pack(codes, given, "low_first").tolist() == [[0x81]]
    assert qmlir.reference.pack(codes.astype(ml_dtypes.int4), dtype=given, packing="high_first").tolist() == [[0x18]]


@pytest.mark.slow
@pytest.mark.sweep(slow=60)
@pytest.mark.parametrize("given", ["i8", "int8", np.int8, TorchLike("int8")])
def test_every_dtype_argument_takes_them(given: object) -> None:
    """The functions on arrays, the reference's functions, and sparse weights."""
    x, codes = np.ones((4, 16), np.float32), np.ones((4, 16), np.int8)
    weight = qmlir.SparseWeight.from_dense(np.eye(16, dtype=np.int8), dtype=given)  # type: ignore[arg-type]
    assert weight.dtype == qmlir.SparseSpec("csr", (16, 16), given, 16).dtype == "i8"  # type: ignore[arg-type]
    for api in (qmlir.ops, qmlir.reference):
        assert api.quantize(x, np.float32(1), out_dtype=given).dtype == np.int8
        assert api.dynamic_quantize(x, out_dtype=given)[0].dtype == np.int8
        assert api.dequantize(codes, np.float32(1), dtype=given).dtype == np.float32
        found = api.scaled_matmul(codes, codes.T, lhs_dtype=given, rhs_dtype=given, out_dtype=np.int32)
        assert found.dtype == np.int32
        assert api.sparse_matmul(codes, weight, lhs_dtype=given).shape == (4, 16)


@pytest.mark.parametrize("given", ["i8", "int8", "torch.int8"])
def test_torch_operators_take_them(given: str) -> None:
    """Also when a program is traced. Regression: the dtype of a result was looked up by the name as given."""
    torch = pytest.importorskip("torch")
    import qmlir.frontends.torch.custom_ops as custom

    custom.register()
    x, scale = torch.ones(4, 16), torch.tensor(1.0)
    for device in ("cpu", "meta"):
        codes = torch.ops.qmlir.quantize(x.to(device), scale.to(device), out_dtype=given)
        assert codes.dtype == torch.int8


@pytest.mark.parametrize("module", [qmlir.ops, qmlir.reference])
def test_dequant_is_deprecated(module: object) -> None:
    with pytest.warns(DeprecationWarning, match="dequant is deprecated: use dequantize"):
        assert module.dequant is module.dequantize  # type: ignore[attr-defined]
