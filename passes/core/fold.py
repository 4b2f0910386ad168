"""qmlir-fold: evaluate operations on constant weights, scales and zero points in numpy.

* packed or sub-byte constant weights become one signed code per byte (the stock route multiplies bytes);
* constant convolution weights are transposed to FHWC;
* unsigned constant codes become signed codes, with a shifted zero point;
* constant sparse weights are transposed to `[N, K]`, or become dense where gathering is slower;
* a constant per-tensor lhs scale and a constant rhs scale become one (their f32 product, as in docs/semantics.md).

Folding runs before the lowering, on the dialect's own ops, so that its effect is visible in the IR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...core.mlir import ir
from ...dialect.constants import constant_array
from ...dialect.dtypes import DTYPES, Array
from ...dialect.ods import views_of
from ...dialect.ops.common import shape_of
from ...dialect.ops.conv2d_q import FILTER_AXES, Conv2dQOp
from ...dialect.ops.product import ProductOp
from ...dialect.ops.scaled_matmul import ScaledMatmulOp
from ...dialect.ops.sparse_matmul import SparseMatmulOp
from ...dialect.packing import signed_codes
from ...dialect.reference.conv import filter_parameter
from ...dialect.sparse_formats import densified_dtype, densify, entries
from ...ir.build import dense, dense_like, transpose
from ..base import Pass, State
from .lower.sparse_form import form_of
from .lower.values import full_rank


@dataclass(frozen=True)
class FoldPass(Pass):
    """Applies each folding step to each product op. Every step is bit-exact."""

    name: ClassVar[str] = "qmlir-fold"
    summary: ClassVar[str] = "fold constant weights and scales"

    unpack_weights: bool = True

    def run(self, module: ir.Module, state: State) -> None:
        for view in views_of(module, ProductOp):
            for step in self._steps():
                with ir.InsertionPoint(view.operation), view.location:
                    view = step(view)

    def _steps(self) -> list[Callable[[ProductOp], ProductOp]]:
        steps = [fold_filter_layout]
        if self.unpack_weights:
            steps.append(fold_packing)
        return [*steps, fold_sparse, fold_densify, fold_unsigned, fold_scales]


def rebuilt(view: ProductOp, **changes: object) -> ProductOp:
    """Replace an op with a copy in which some operands and attributes are changed, given by name or role."""
    return rebuilt_as(type(view), view, changes)


def rebuilt_as(cls: type[ProductOp], view: ProductOp, changes: Mapping[str, object]) -> ProductOp:
    """As `rebuilt`, as an op of type `cls`, which keeps the operands and attributes that it has too."""
    changed = {view.ROLES.get(name, name): value for name, value in changes.items()}
    values: Mapping[str, object] = {**view.operands_by_name(), **view.attributes_by_name(), **changed}
    known = {f.name for f in cls.FIELDS}
    given = {k: v for k, v in values.items() if k in known and v is not None}
    new = cls.build(given, results=[r.type for r in view.operation.results], loc=view.operation.location)
    for old, fresh in zip(view.operation.results, new.operation.results, strict=True):
        old.replace_all_uses_with(fresh)
    view.operation.erase()
    return new


def _weight_name(view: ProductOp) -> str:
    return view.SIDES[1].operand


def fold_filter_layout(view: ProductOp) -> ProductOp:
    """Transpose a constant filter in HWCF or FCHW to FHWC, with its scale and zero point."""
    if not isinstance(view, Conv2dQOp) or view.weight_layout == "FHWC" or view.rhs_packing != "none":
        return view
    weight = constant_array(view.weight)
    if weight is None:
        return view
    order = FILTER_AXES[view.weight_layout]
    changes: dict[str, object] = {"weight_layout": "FHWC"}
    for name in ("rhs_scale", "rhs_zero_point"):
        value = getattr(view, name)
        if value is None or len(shape_of(value)) == 0:
            continue
        array = constant_array(value)
        if array is None:
            return view
        array = filter_parameter(array, view.weight_layout)
        assert array is not None
        if array.ndim == 4:
            array = np.transpose(array, order)
        changes[name] = dense_like(array, value)
    changes["weight"] = dense_like(np.transpose(weight, order), view.weight)
    return rebuilt(view, **changes)


def fold_packing(view: ProductOp) -> ProductOp:
    """Unpack packed or sub-byte constant codes to one code per byte, read as i8. Table codes remain 4-bit codes."""
    d = view.rhs_code
    weight = constant_array(getattr(view, _weight_name(view)))
    if weight is None or d.bits == 8 or d.kind == "float" or (not d.is_int and view.rhs_packing == "none"):
        return view
    if view.rhs_zero_mode == "packed_int":
        return view
    shape = view.filter_codes_shape() if isinstance(view, Conv2dQOp) else view.rhs_codes_shape()
    codes = signed_codes(weight, d.name, view.rhs_packing, shape[-1])
    changes: dict[str, object] = {_weight_name(view): dense(codes), "rhs_packing": "none"}
    if d.is_int and not view.rhs_zero_mode.startswith("offset"):
        # A sub-byte dtype stays, because it bounds the codes; 1-bit codes are now the values -1 and 1, of dtype i8.
        changes["rhs_dtype"] = "i8" if d.name == "i1" else d.name
    return rebuilt(view, **changes)


def fold_sparse(view: ProductOp) -> ProductOp:
    """Convert a constant sparse weight to `[N, K]`, as csr or bsr, with its scale."""
    if not isinstance(view, SparseMatmulOp) or view.rhs_packing != "none":
        return view
    weight = view.constant()
    if weight is None or view.format == "2:4":
        return view
    row, column = entries(view.format, weight.indices, weight.indptr)
    codes, changes = weight.codes, dict[str, object]()
    shape, block = view.rhs_shape, view.block
    if not view.rhs_transposed:
        order = np.lexsort((row, column))
        row, column, codes = column[order], row[order], codes[order]
        shape, block = shape[::-1], None if block is None else block[::-1]
        codes = codes if block is None else np.ascontiguousarray(codes.swapaxes(1, 2))
        if view.rhs_scale is not None:
            changes["rhs_scale"] = _transposed_scale(view.rhs_scale)
    rows = shape[0] // (block[0] if block is not None else 1)
    pointers = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))])
    return rebuilt(view, **changes, format="csr" if block is None else "bsr", values=dense_like(codes, view.values),
                   indices=dense(column.astype(np.int32)), indptr=dense(pointers.astype(np.int32)),
                   rhs_shape=shape, block=block, rhs_transposed=True,
                   rhs_dtype=densified_dtype(view.rhs_dtype) if view.rhs_dtype else None)  # fmt: skip


def _transposed_scale(scale: ir.Value) -> ir.Value:
    """A scale of `[K, N]` as one of `[N, K]`."""
    if len(shape_of(scale)) == 0:
        return scale
    known = constant_array(scale)
    if known is not None:
        return dense_like(np.atleast_2d(known).T, scale)
    return transpose(full_rank(scale, 2), [1, 0])


def fold_densify(view: ProductOp) -> ProductOp:
    """Make a constant sparse weight dense if `form_of` chooses that form."""
    if not isinstance(view, SparseMatmulOp) or view.rhs_packing != "none":
        return view
    weight = view.constant()
    if weight is None or form_of(view) != "dense":
        return view
    array = densify(view.format, view.rhs_shape, weight.codes, weight.indices, weight.indptr, view.block)
    dtype = densified_dtype(view.rhs_code.name)
    return rebuilt_as(ScaledMatmulOp, view, {"rhs": dense_like(array, view.values), "rhs_dtype": dtype})


def fold_unsigned(view: ProductOp) -> ProductOp:
    """Convert constant u8 codes to i8 codes less 128, and subtract 128 from the zero point (a constant, or absent)."""
    if isinstance(view, SparseMatmulOp):
        return view
    if view.rhs_code.name != "u8" or view.rhs_zero_mode not in ("none", "int") or view.rhs_plain:
        return view
    weight = constant_array(getattr(view, _weight_name(view)))
    zero = None if view.rhs_zero_point is None else constant_array(view.rhs_zero_point)
    if weight is None or (view.rhs_zero_point is not None and zero is None):
        return view
    if zero is not None and zero.dtype == np.int8:
        zero = zero.view(np.uint8)
    moved = np.asarray(-128, np.int32) if zero is None else (zero.astype(np.int32) - 128)
    changes: dict[str, object] = {_weight_name(view): dense((weight.view(np.uint8) ^ 0x80).view(np.int8))}
    return rebuilt(view, **changes, rhs_dtype="i8", rhs_zero_point=dense(moved), rhs_zero_mode="int")


def fold_scales(view: ProductOp) -> ProductOp:
    """Fold two constant scales into `s_a * s_b`, if both sides are quantised and the lhs has one scale."""
    if view.lhs_scale is None or view.rhs_scale is None or view.rhs_plain:
        return view
    if view.lhs_code.name in ("f32", "f16", "bf16"):
        return view  # without its scale the lhs would be plain, and the rhs would be dequantised before the product
    lhs, rhs = constant_array(view.lhs_scale), constant_array(view.rhs_scale)
    if lhs is None or rhs is None or lhs.size != 1 or view.rhs_zero_mode in ("offset_float", "rescale"):
        return view
    with np.errstate(over="ignore", under="ignore"):
        product = lhs.reshape(()).astype(np.float32) * rhs.astype(np.float32)
    return rebuilt(view, lhs_scale=None, rhs_scale=dense(np.asarray(product, np.float32), "f32"))


def constant_codes(value: ir.Value, dtype: str) -> Array | None:
    """Constant codes with the signedness of `dtype`."""
    array = constant_array(value)
    return array.view(DTYPES[dtype].numpy) if array is not None else None
