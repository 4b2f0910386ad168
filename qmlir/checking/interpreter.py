"""Evaluates programs at level `import`, `qmlir` or `linalg` in numpy: dialect ops by `qmlir.reference`, other ops by
the rules of `scalars` and `tensors`. This is the oracle `reference` of `qmlir check`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..core.mlir import ir
from ..core.spelling import location_text
from ..dialect import reference
from ..dialect.constants import attribute_array
from ..dialect.dtypes import DTYPES, Array, from_numpy
from ..dialect.ods import OPS, Keywords, view_of
from ..dialect.ops.dequant import DequantOp
from ..dialect.ops.moe import MoeOp
from ..dialect.ops.product import ProductOp
from ..dialect.ops.sparse_matmul import SparseMatmulOp
from ..dialect.ops.unpack import UnpackOp
from ..dialect.reference import scalars
from ..dialect.sparse_formats import densified_dtype, densify
from ..errors import Diagnostic, DiagnosticsError, InputError
from . import tensors
from .resources import ModuleResources

if TYPE_CHECKING:
    from ..core.mlir import OpLike

# Called with each op and its results; returns the results to continue with.
Observer: TypeAlias = "Callable[[OpLike, list[Array]], list[Array]]"


class NotEvaluated(DiagnosticsError):
    """The interpreter does not support an op."""


def _refuse(op: OpLike, what: str) -> NotEvaluated:
    return NotEvaluated(
        [
            Diagnostic(
                f"{what}; '--against cpu:x86-64', or another target, compares without it", location_text(op.location)
            )
        ]
    )


class Interpreter:
    """Evaluates functions of a module, whose context must stay alive."""

    def __init__(self, module: ir.Module) -> None:
        self._functions: dict[str, OpLike] = {}
        self._globals: dict[str, OpLike] = {}
        self._state: dict[str, Array] = {}  # values of the globals that have been stored to
        self._resources = ModuleResources(module)
        for op in module.body.operations:
            operation = op.operation
            if operation.name == "func.func" and len(operation.regions[0].blocks):
                self._functions[operation.attributes["sym_name"].value] = operation
            elif operation.name == "util.global":
                self._globals[operation.attributes["sym_name"].value] = operation

    def call(self, name: str, arguments: Sequence[Array], observe: Observer | None = None) -> list[Array]:
        """The results of a function.

        Raises:
            NotEvaluated: an unsupported op, with its location. InputError: values that an op refuses.
        """
        f = self._functions[name]
        return self._block(f.regions[0].blocks[0], [_as_signed(x) for x in arguments], {}, observe)

    def _block(
        self, block: ir.Block, arguments: Sequence[Array], outer: Mapping[ir.Value, Array],
        observe: Observer | None = None, indices: list[Array] | None = None,
    ) -> list[Array]:  # fmt: skip
        values = dict(outer)
        values.update(zip(block.arguments, arguments, strict=True))
        for op in block.operations:
            operation = op.operation
            operands = [values[v] for v in operation.operands]
            if operation.name in (
                "func.return",
                "linalg.yield",
                "tensor.yield",
                "scf.yield",
                "util.return",
                "iree_linalg_ext.yield",
            ):
                return operands
            results = self._op(operation, operands, values, indices)
            if observe is not None:
                results = observe(operation, results)
            values.update(zip(operation.results, results, strict=True))
        return []

    def _op(
        self, op: OpLike, operands: list[Array], values: Mapping[ir.Value, Array], indices: list[Array] | None
    ) -> list[Array]:
        name = op.name

        def inner(block: ir.Block, arguments: Sequence[Array]) -> list[Array]:
            return self._block(block, arguments, values, None, indices)

        if name in OPS:
            return _dialect_op(op, operands)
        if name == "arith.constant":
            return [self._constant(op)]
        if name in scalars.NAMES:
            for t in (v.type for v in (*op.operands, *op.results)):
                if scalars.numpy_type(getattr(t, "element_type", t)) is None:
                    raise _refuse(op, f"numpy has no {t}, which '{name}' takes")
            return [scalars.evaluate(op, operands)]
        if name in tensors.RULES:
            return tensors.RULES[name](op, operands, inner)
        if name == "linalg.index" and indices is not None:
            return [indices[int(op.attributes["dim"].value)]]
        if tensors.is_structured(op):
            counters: list[Array] = []
            try:
                return tensors.structured(
                    op, operands, lambda block, xs: self._block(block, xs, values, None, counters), counters
                )
            except NotImplementedError as e:
                raise _refuse(op, f"'{name}' has {e}") from None
        if name == "func.call":
            callee = op.attributes["callee"].value
            if callee not in self._functions:
                raise _refuse(op, f"@{callee} has no body here")
            return self._block(self._functions[callee].regions[0].blocks[0], operands, {})
        if name == "util.global.load":
            return [self._global(op)]
        if name == "util.global.store":
            self._state[op.attributes["global"].value] = operands[0]
            return []
        if name == "cf.assert":
            if not np.all(operands[0]):  # in the body of a linalg op, the condition of all elements
                raise InputError(op.attributes["msg"].value)
            return []
        if name == "scf.if":
            return inner(op.regions[0 if bool(operands[0]) else 1].blocks[0], [])
        if name == "scf.for":
            carried = operands[3:]
            for i in range(int(operands[0]), int(operands[1]), int(operands[2])):
                carried = inner(op.regions[0].blocks[0], [np.asarray(np.int64(i)), *carried])
            return list(carried)
        raise _refuse(op, f"the reference does not know '{name}'")

    def _constant(self, op: OpLike) -> Array:
        attribute, t = op.attributes["value"], op.results[0].type
        if not isinstance(t, ir.RankedTensorType):
            element_dtype = scalars.numpy_type(t)
            if element_dtype is None:
                raise _refuse(op, f"numpy has no {t}")
            return np.asarray(attribute.value).astype(element_dtype)
        return self._array(op, attribute, t)

    def _array(self, op: OpLike, attribute: ir.Attribute, t: ir.Type) -> Array:
        element_dtype = scalars.numpy_type(t.element_type)
        if element_dtype is None:
            raise _refuse(op, f"numpy has no {t.element_type}")
        if 0 in t.shape:
            return np.zeros(t.shape, element_dtype)
        found = attribute_array(attribute)
        if found is None:
            found = self._resources.array(attribute, element_dtype)
        if found is None:
            raise _refuse(op, f"the elements of {str(attribute)[:40]!r} cannot be read back")
        return found.astype(element_dtype) if found.dtype != element_dtype else found

    def _global(self, op: OpLike) -> Array:
        name = op.attributes["global"].value
        if name in self._state:
            return self._state[name]
        attributes = self._globals[name].attributes
        if "initial_value" not in attributes or str(attributes["initial_value"]).startswith("#flow.parameter"):
            raise _refuse(op, f"@{name} is loaded at run time: give its file with --parameters")
        return self._array(op, attributes["initial_value"], ir.RankedTensorType(op.results[0].type))


def _as_signed(x: Array) -> Array:
    """Unsigned integers as signed ones with the same bits, the dtype of MLIR's signless integers here."""
    x = np.asarray(x)
    return x.view(f"i{x.dtype.itemsize}") if x.dtype.kind == "u" else x


# ----------------------------------------------------------------------------------------- ops of the dialect


def _dialect_op(op: OpLike, operands: list[Array]) -> list[Array]:
    """Evaluate a dialect op by its function in `qmlir.reference`, which takes operands and attributes by name."""
    view = view_of(op)
    position = {v: i for i, v in enumerate(op.operands)}
    arrays = {name: operands[position[v]] for name, v in view.operands_by_name().items()}
    keywords = {name: value for name, value in view.attributes_by_name().items() if value is not None}
    name = op.name.split(".", 1)[1]
    if isinstance(view, ProductOp):
        _product(view, arrays, keywords)
    elif isinstance(view, MoeOp):
        _moe(view, arrays, keywords)
    elif isinstance(view, (DequantOp, UnpackOp)):
        _codes(view, arrays, keywords)
    elif name == "quantize" and keywords["out_dtype"].startswith("u"):
        _as_unsigned(arrays, "zero_point")
    try:
        found: object
        if isinstance(view, SparseMatmulOp):
            found = _sparse(view, arrays, keywords)
        else:
            function = reference.BY_NAME[name]
            found = function(**arrays, **_accepted(function, keywords))
    except ValueError as e:
        place = location_text(op.location)
        raise InputError(f"{place + ': ' if place else ''}{op.name}: {e}") from None
    results = [x for x in (found if isinstance(found, tuple) else (found,)) if x is not None]
    return [_as_type(x, r.type) for x, r in zip(results, op.results, strict=True)]


def _accepted(function: Callable[..., object], keywords: Keywords) -> Keywords:
    """The keywords that the function takes. It does not take those that the arrays imply."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(keywords)
    names = {p.name for p in parameters}
    return {k: v for k, v in keywords.items() if k in names}


def _product(view: ProductOp, arrays: dict[str, Array], keywords: Keywords) -> None:
    """Make the dtypes explicit keywords and view unsigned codes as unsigned arrays."""
    for side, code in zip(view.SIDES, (view.lhs_code, view.rhs_code), strict=True):
        packed = keywords.get(side.packing, "none") != "none"
        if code.kind != "float" and (not code.signed or packed):
            _as_unsigned(arrays, side.operand)
        keywords[side.dtype] = code.name
        if code.name == "u8" or keywords.get(side.mode) == "packed_int":
            _as_unsigned(arrays, *side.zero_points)
    keywords["out_dtype"] = view.out_code.name
    if view.out_code.name == "u8":
        _as_unsigned(arrays, "out_zero_point")
    if "bias" not in arrays:
        keywords.pop("bias_stage")


def _moe(view: MoeOp, arrays: dict[str, Array], keywords: Keywords) -> None:
    keywords.setdefault("input_dtype", from_numpy(arrays["input"].dtype))
    keywords.setdefault("weight_dtype", from_numpy(arrays["w1"].dtype))
    keywords["out_dtype"] = view.out_code.name
    if keywords["input_dtype"] == "u8":
        _as_unsigned(arrays, "input", "input_zero_point")
    if keywords["weight_dtype"].startswith("u") or keywords["weight_packing"] != "none":
        _as_unsigned(arrays, "w1", "w2", "w1_zero_point", "w2_zero_point")
    if keywords["intermediate_dtype"] == "u8":
        _as_unsigned(arrays, "intermediate_zero_point")


def _codes(view: DequantOp | UnpackOp, arrays: dict[str, Array], keywords: Keywords) -> None:
    shape = [int(s) for s in ir.RankedTensorType(view.results[0].type).shape]
    packed = keywords["packing"] != "none"
    if packed and shape[-1] >= 0:
        keywords["length"] = shape[-1]
    if packed or keywords.get("dtype", "i8").startswith("u"):
        _as_unsigned(arrays, "input", "zero_point")
    if isinstance(view, DequantOp):
        keywords["out_dtype"] = _dtype_of(view.results[0].type)


def _sparse(view: SparseMatmulOp, arrays: dict[str, Array], keywords: Keywords) -> Array:
    """A sparse product, computed as the dense product with the densified weight."""
    d = view.rhs_code
    codes = arrays.pop("values")
    if d.bits < 8:
        codes = reference.unpack(codes, d.name, keywords["rhs_packing"], view.values_shape()[-1])
    if d.name == "i1":
        codes = (2 * (codes.astype(np.int8) & 1) - 1).astype(np.int8)
    block = keywords.pop("block", None)
    dense = densify(keywords.pop("format"), tuple(keywords.pop("rhs_shape")), codes, arrays.pop("indices"),
                    arrays.pop("indptr", None), block)  # fmt: skip
    if dense.dtype == np.int8 and not d.signed and d.is_int:
        dense = dense.view(np.uint8)
    keywords["rhs_packing"] = "none"
    keywords["rhs_dtype"] = densified_dtype(d.name)
    lhs = arrays.pop("lhs")
    given: Keywords = {**arrays, **keywords}
    return reference.scaled_matmul(lhs, dense, **given)


def _as_unsigned(arrays: dict[str, Array], *names: str) -> None:
    for name in names:
        if name in arrays and arrays[name].dtype == np.int8:
            arrays[name] = arrays[name].view(np.uint8)


def _dtype_of(t: ir.Type) -> str:
    element = str(ir.RankedTensorType(t).element_type)
    return next(d.name for d in DTYPES.values() if d.kind == "float" and d.mlir == element)


def _as_type(x: Array, t: ir.Type) -> Array:
    """A result of the reference in the dtype that the interpreter uses for `t`."""
    element_dtype = scalars.numpy_type(t.element_type)
    x = np.asarray(x)
    if x.dtype.kind == "u" and element_dtype is not None and element_dtype.itemsize == x.dtype.itemsize:
        return x.view(element_dtype)
    return x.astype(element_dtype)
