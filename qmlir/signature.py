"""Signatures of a module's functions, with the signedness that MLIR's types do not carry."""

from __future__ import annotations

from typing import Any

from ._mlir import ir
from ._spelling import did_you_mean, location_text
from .artifact import Signature
from .dialect.dtypes import DTYPES
from .dialect.ods import OPS, OpError
from .dialect.ops.common import element_of, shape_of
from .dialect.ops.product import ProductOp
from .errors import Diagnostic, ParseError
from .spec import TensorSpec

# `func.func @f(%x: tensor<4xi8> {qmlir.dtype = "u8", qmlir.name = "image"})`
DTYPE, NAME = "qmlir.dtype", "qmlir.name"


def public_functions(module: Any) -> list[Any]:
    """The `func.func`s that a user can call; those whose names begin with `__qmlir_` are the runtime's."""
    found = []
    for op in module.body.operations:
        operation = op.operation
        if operation.name == "func.func" and not operation.regions[0].blocks:
            continue
        if operation.name == "func.func":
            visibility = (
                operation.attributes["sym_visibility"].value if "sym_visibility" in operation.attributes else ""
            )
            name = operation.attributes["sym_name"].value
            if visibility != "private" and not name.startswith("__qmlir_"):
                found.append(operation)
    return found


def function_signatures(module: Any) -> dict[str, Signature]:
    """Signatures by name. What our attributes on arguments and results leave unsaid is written out, because later
    levels no longer have the ops that tell it; `drop_attributes` removes them before IREE, which does not know them.

    Raises:
        ParseError: for a type or an attribute that a caller could not make sense of.
    """
    result: dict[str, Signature] = {}
    for f in public_functions(module):
        name = f.attributes["sym_name"].value
        t = ir.FunctionType(ir.TypeAttr(f.attributes["function_type"]).value)
        for v in (*t.inputs, *t.results):
            if not isinstance(v, ir.RankedTensorType):
                raise _error(f, f"has an argument or result {v}; ranked tensors only")
        args, results = (
            _attributes(f, "arg_attrs", len(t.inputs)),
            _attributes(f, "res_attrs", len(t.results)),
        )
        block = f.regions[0].blocks[0]
        inputs = []
        for i, (type_, attrs) in enumerate(zip(t.inputs, args, strict=True)):
            dtype = attrs.get(DTYPE) or _argument_dtype(block.arguments[i])
            inputs.append((attrs.get(NAME) or f"arg{i}", _spec(f, type_, dtype)))
        last = list(block.operations)[-1].operation
        if last.name != "func.return":
            raise _error(f, f"ends in '{last.name}', not in a return")
        returned = last.operands
        outputs = []
        for i, (type_, attrs) in enumerate(zip(t.results, results, strict=True)):
            outputs.append(_spec(f, type_, attrs.get(DTYPE) or _value_dtype(returned[i])))
        _write(f, "arg_attrs", [{NAME: n, DTYPE: s.dtype} for n, s in inputs], t.inputs)
        _write(f, "res_attrs", [{DTYPE: s.dtype} for s in outputs], t.results)
        result[name] = Signature(tuple(inputs), tuple(outputs))
    return result


def _error(f: Any, message: str) -> ParseError:
    name = f.attributes["sym_name"].value
    return ParseError([Diagnostic(f"function @{name} {message}", location_text(f.location))])


def _spec(f: Any, t: Any, dtype: str | None) -> TensorSpec:
    """The spec of an argument or result of type `t`, stated to be `dtype`."""
    try:
        element = element_of(t)
    except OpError as e:
        raise _error(f, f"has an argument or result {t}, which {e}") from None
    if dtype is not None and dtype not in DTYPES:
        raise _error(f, f"has attribute '{DTYPE}' = {dtype!r}, which is not known{did_you_mean(dtype, DTYPES)}")
    if dtype is not None and DTYPES[dtype].mlir != element.mlir:
        raise _error(f, f"says '{DTYPE}' = {dtype!r}, which is stored as {DTYPES[dtype].mlir}, but the type is {t}")
    return TensorSpec(shape_of(t), dtype or element.name)


def _attributes(f: Any, which: str, count: int) -> list[dict[str, str]]:
    """Our attributes of each argument or result."""
    if which not in f.attributes:
        return [{} for _ in range(count)]
    found: list[dict[str, str]] = []
    for d in f.attributes[which]:
        ours = {a.name: a.attr for a in d if a.name in (DTYPE, NAME)}
        for name, value in ours.items():
            if not isinstance(value, ir.StringAttr):
                raise _error(f, f"has attribute '{name}' = {value}, which must be a string")
        found.append({name: value.value for name, value in ours.items()})
    return found


def _write(f: Any, which: str, ours: list[dict[str, str]], types: Any) -> None:
    """Write our attributes where they say more than the type and the position."""
    if not ours:
        return
    old = f.attributes[which] if which in f.attributes else [{} for _ in ours]
    new = []
    for i, (theirs, values, t) in enumerate(zip(old, ours, types, strict=True)):
        known = {DTYPE: element_of(t).name, NAME: f"arg{i}"}
        kept = {a.name: a.attr for a in theirs if a.name not in (DTYPE, NAME)}
        said = {k: ir.StringAttr.get(v) for k, v in values.items() if v != known[k]}
        new.append(ir.DictAttr.get({**kept, **said}))
    f.attributes[which] = ir.ArrayAttr.get(new)


def drop_attributes(module: Any) -> None:
    """Remove our attributes from the arguments and results of every function."""
    for op in module.body.operations:
        for which in ("arg_attrs", "res_attrs"):
            if which in op.operation.attributes:
                kept = [{a.name: a.attr for a in d if a.name not in (DTYPE, NAME)}
                        for d in op.operation.attributes[which]]  # fmt: skip
                op.operation.attributes[which] = ir.ArrayAttr.get([ir.DictAttr.get(d) for d in kept])


def _argument_dtype(value: Any) -> str | None:
    """u8 when the ops that use an argument read it so."""
    for use in value.uses:
        view = use.owner.operation.opview
        if isinstance(view, ProductOp):
            lhs, rhs = view.sides
            for side, dtype in ((lhs, view.lhs_dtype), (rhs, view.rhs_dtype)):
                if side == value and dtype in ("u8", "u4", "u2", "u1", "e2m1", "nf4", "codebook"):
                    return "u8"
                if side == value and dtype is not None and view.packing != "none" and side == rhs:
                    return "u8"
            out_zero = view.out_zero_point
            if out_zero is not None and out_zero == value and view.out_dtype == "u8" and element_of(value).name == "i8":
                return "u8"
        elif use.owner.operation.name == "qmlir.unpack":
            return "u8"
        elif use.owner.operation.name == "qmlir.dequant" and view.input == value:
            return "u8" if view.packing != "none" or (view.dtype or "").startswith("u") else None
    return None


_SHAPE_OPS = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.cast", "tensor.extract_slice")


def _value_dtype(value: Any) -> str | None:
    """u8 when the op that makes a result says so."""
    owner = value.owner
    while getattr(owner, "operation", None) is not None and owner.operation.name in _SHAPE_OPS:
        owner = owner.operation.operands[0].owner
    operation = getattr(owner, "operation", None)
    if operation is None or operation.name not in OPS:
        return None
    view = operation.opview
    stated = getattr(view, "out_dtype", None) or (
        getattr(view, "dtype", None) if operation.name == "qmlir.unpack" else None
    )
    if stated in ("u8", "u4", "u2", "u1", "i1", "nf4", "e2m1", "codebook") and element_of(value).name == "i8":
        return "u8"
    return None


def schemes(module: Any) -> list[dict[str, Any]]:
    """What is quantised how: one row a product, for the manifest."""
    rows: list[dict[str, Any]] = []

    def visit(op: Any) -> Any:
        if op.name in OPS and isinstance(op.opview, ProductOp):
            view = op.opview
            rows.append({
                "op": op.name,
                "lhs": view.lhs_code.name,
                "rhs": view.rhs_code.name,
                "out": view.out_code.name,
                "lhs_scale": None if view.lhs_scale is None else list(shape_of(view.lhs_scale)),
                "rhs_scale": None if view.rhs_scale is None else list(shape_of(view.rhs_scale)),
                "zero_points": [n for n in ("lhs", "rhs") if getattr(view, f"{n}_zero_point") is not None],
                "activation": view.activation,
                "rounding": view.rounding,
            })  # fmt: skip
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return rows
