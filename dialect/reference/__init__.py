"""qmlir.reference: every operation in numpy; the oracle of all tests.

The functions take the keyword arguments of `qmlir.ops.*` and follow docs/semantics.md bit for bit. Integer
sums are exact; f32 steps are single f32 operations in the stated order; float contractions are evaluated in
float64 on the dequantised operands and rounded once to f32.
"""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

from ..dtypes import dtype_name, from_numpy, is_sub_byte, stored_codes
from ..ods import Op
from ..ops import Conv2dQOp, DequantOp, GroupedMatmulOp, MoeOp, ScaledMatmulOp, SparseMatmulOp
from ..renamed import current_names
from . import conv, dynamic, grouped, matmul, moe as _moe, packing, sparse, values

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _public(function: Callable[_P, _R], definition: type[Op] = Op) -> Callable[_P, _R]:
    """Wrap a function so that it also accepts arrays of sub-byte ml_dtypes types (one code per element), dtypes in any
    form that `dtype_name` takes, and old names of arguments. `definition` says which argument is the dtype of an
    operand: for a sub-byte array it is set from the array's type."""
    dtypes = {side.operand: side.dtype for side in definition.SIDES}
    signature = inspect.signature(function)
    names = list(signature.parameters)

    @functools.wraps(function)
    def call(*args: _P.args, **kw: _P.kwargs) -> _R:
        given: dict[str, object] = {**dict(zip(names, args, strict=False)), **current_names(function.__name__, kw)}
        for name, value in list(given.items()):
            if isinstance(value, np.ndarray) and is_sub_byte(value.dtype):
                given[name] = stored_codes(value)
                if name in dtypes:
                    given.setdefault(dtypes[name], from_numpy(value.dtype))
            elif name.endswith("dtype") and value is not None:
                given[name] = dtype_name(value)
        return function(**given)  # type: ignore[arg-type, call-arg]

    return call


conv2d_q = _public(conv.conv2d_q, Conv2dQOp)
dequantize = _public(values.dequant, DequantOp)
dynamic_quantize = _public(dynamic.dynamic_quantize)
grouped_matmul = _public(grouped.grouped_matmul, GroupedMatmulOp)
moe = _public(_moe.moe, MoeOp)
moe_align_block_size = _moe.moe_align_block_size
pack = _public(packing.pack)
quantize = _public(values.quantize)
route = _moe.route
scaled_matmul = _public(matmul.scaled_matmul, ScaledMatmulOp)
sparse_matmul = _public(sparse.sparse_matmul, SparseMatmulOp)
unpack = _public(packing.unpack)

__all__ = [
    "conv2d_q",
    "dequantize",
    "dynamic_quantize",
    "grouped_matmul",
    "moe",
    "moe_align_block_size",
    "pack",
    "quantize",
    "route",
    "scaled_matmul",
    "sparse_matmul",
    "unpack",
]
# By op name in the dialect.
BY_NAME: dict[str, Callable[..., object]] = {**{name: globals()[name] for name in __all__}, "dequant": dequantize}


def __getattr__(name: str) -> object:
    if name == "dequant":
        warnings.warn("qmlir.reference.dequant is deprecated: use dequantize", DeprecationWarning, stacklevel=2)
        return dequantize
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
