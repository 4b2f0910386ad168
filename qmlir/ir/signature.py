"""Signatures of a module's functions, with the signedness that MLIR's types do not carry."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..core.mlir import arith, ir, tensor
from ..core.rows import SchemeRow
from ..core.spelling import did_you_mean, location_text
from ..dialect.dtypes import DTYPES
from ..dialect.ods import OPS, OpError, view_of, views_of
from ..dialect.ops.common import element_of, shape_of
from ..dialect.ops.dequant import DequantOp
from ..dialect.ops.product import ProductOp
from ..dialect.ops.unpack import UnpackOp
from ..dialect.sizes import Size, Solver
from ..errors import Diagnostic, ParseError
from ..spec import Signature, TensorSpec
from . import build
from .checks import assert_equal, assert_that
from .lookups import Computed, Lookups, Walked
from .relations import Relations
from .walk import behind, operations_of, producer, terminator_of

if TYPE_CHECKING:
    from ..core.mlir import OpLike

# `func.func @f(%x: tensor<?x4xi8> {qmlir.dtype = "u8", qmlir.name = "image", qmlir.sizes = ["M", ""]})`
DTYPE, NAME, SIZES = _SIGNATURE_ATTRIBUTES = ("qmlir.dtype", "qmlir.name", "qmlir.sizes")


def public_functions(module: ir.Module) -> list[OpLike]:
    """The `func.func`s that a user can call; those whose names begin with `__qmlir_` are the runtime's."""
    found: list[OpLike] = []
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


def function_signatures(module: ir.Module) -> dict[str, Signature]:
    """The signatures of public functions, by name. Also writes what qmlir's attributes on arguments and results do not
    state yet, because later levels no longer have the ops that determine it. `drop_attributes` removes the attributes
    before IREE, which does not know them.

    Raises:
        ParseError: a type that is not supported, or an attribute that is not valid.
    """
    result: dict[str, Signature] = {}
    for f, inputs, outputs, lookups in _read(module):
        result[f.attributes["sym_name"].value] = Signature(inputs, outputs, lookups.ranges(), lookups.limits())
    return result


def unchecked_indices(module: ir.Module) -> tuple[list[Computed], list[Walked]]:
    """The indices in public functions that arguments do not determine: computed ones, and positions."""
    every = [lookups for _, _, _, lookups in _read(module)]
    return [c for lookups in every for c in lookups.computed], [w for lookups in every for w in lookups.walked]


def _read(
    module: ir.Module,
) -> Iterator[tuple[OpLike, tuple[tuple[str, TensorSpec], ...], tuple[TensorSpec, ...], Lookups]]:
    """Each public function with the specs of its arguments and results, which are also written to its attributes."""
    functions = _functions(module)
    for f in public_functions(module):
        t = ir.FunctionType(ir.TypeAttr(f.attributes["function_type"]).value)
        for v in (*t.inputs, *t.results):
            if not isinstance(v, ir.RankedTensorType):
                raise _error(f, f"has an argument or result {v}; ranked tensors only")
        args, results = (
            _attributes(f, "arg_attrs", len(t.inputs)),
            _attributes(f, "res_attrs", len(t.results)),
        )
        block = f.regions[0].blocks[0]
        last = terminator_of(block)
        if last.name != "func.return":
            raise _error(f, f"ends in '{last.name}', not in a return")
        returned = last.operands
        solver = Solver()
        relations = Relations(solver, functions)
        sizes = _sizes(f, solver, relations, [a.sizes for a in args], [r.sizes for r in results])
        inputs = []
        for i, (type_, attrs) in enumerate(zip(t.inputs, args, strict=True)):
            dtype = attrs.dtype or _argument_dtype(block.arguments[i])
            inputs.append((attrs.name or f"arg{i}", _spec(f, type_, dtype, sizes[i])))
        outputs = []
        for i, (type_, attrs) in enumerate(zip(t.results, results, strict=True)):
            dtype = attrs.dtype or _value_dtype(returned[i])
            outputs.append(_spec(f, type_, dtype, sizes[len(inputs) + i]))
        _write(f, "arg_attrs", inputs, t.inputs)
        _write(f, "res_attrs", [(None, s) for s in outputs], t.results)
        yield f, tuple(inputs), tuple(outputs), Lookups(f, [spec for _, spec in inputs], solver, relations)


def _error(f: OpLike, message: str) -> ParseError:
    name = f.attributes["sym_name"].value
    return ParseError([Diagnostic(f"function @{name} {message}", location_text(f.location))])


def _functions(module: ir.Module) -> dict[str, OpLike]:
    """Every function of a module with a body, by name."""
    operations = operations_of(module.body)
    return {op.attributes["sym_name"].value: op for op in operations
            if op.name == "func.func" and len(op.regions[0].blocks)}  # fmt: skip


def _sizes(
    f: OpLike, solver: Solver, relations: Relations,
    args: list[tuple[str, ...] | None], results: list[tuple[str, ...] | None],
) -> list[tuple[int | str | None, ...]]:  # fmt: skip
    """The sizes of arguments and results: numbers, and names where they are dynamic. `args` and `results` are the names
    that the function states."""
    arguments = list(f.regions[0].blocks[0].arguments)
    dims = [relations.dims(v) for v in arguments]
    _state(f, solver, dims, args)
    single = len(f.regions[0].blocks) == 1
    returned: Sequence[Sequence[Size | int | None]] = (
        relations.read(f) if single else [[None] * len(shape_of(v)) for v in _returned(f)]
    )
    if single:
        _state(f, solver, returned, results)
    every = [[d if d is None else solver.resolve(d) for d in value] for value in (*dims, *returned)]
    seen = [size for value in every for size in value if isinstance(size, Size)]
    counts = Counter(size.name for size in seen)
    names: dict[str, str] = {}
    taken = {name for name in counts if not solver.hint(name)}

    def shown(size: Size | int | None) -> int | str | None:
        if not isinstance(size, Size):
            return size
        hint = solver.hint(size.name)
        if hint and counts[size.name] < 2:
            return None  # no other axis has it
        if hint and size.name not in names:
            known = (hint if i < 2 else f"{hint}{i}" for i in itertools.count(1))
            names[size.name] = next(name for name in known if name not in taken)
            taken.add(names[size.name])
        return str(replace(size, name=names.get(size.name, size.name)))

    return [tuple(shown(size) for size in value) for value in every]


def _returned(f: OpLike) -> list[ir.Value]:
    return list(terminator_of(f.regions[0].blocks[0]).operands)


def _state(
    f: OpLike, solver: Solver, dims: Sequence[Sequence[Size | int | None]], stated: list[tuple[str, ...] | None]
) -> None:
    """Give the solver the names that a function states for sizes."""
    for value, names in zip(dims, stated, strict=True):
        if names is not None and len(names) != len(value):
            raise _error(f, f"has attribute '{SIZES}' with {len(names)} names for {len(value)} axes")
        for dim, text in zip(value, names or (), strict=False):
            if text:
                assert dim is not None
                try:
                    solver.same(Size.parse(text), dim)
                except ValueError as e:
                    raise _error(f, f"has attribute '{SIZES}', in which {e}; it is a name such as 'M'") from None


def _spec(f: OpLike, t: ir.Type, dtype: str | None, sizes: tuple[int | str | None, ...]) -> TensorSpec:
    """The spec of an argument or result of type `t` with these sizes, stated to be `dtype`."""
    try:
        element = element_of(t)
    except OpError as e:
        raise _error(f, f"has an argument or result {t}, which {e}") from None
    if dtype is not None and dtype not in DTYPES:
        raise _error(f, f"has attribute '{DTYPE}' = {dtype!r}, which is not known{did_you_mean(dtype, DTYPES)}")
    if dtype is not None and DTYPES[dtype].mlir != element.mlir:
        raise _error(f, f"says '{DTYPE}' = {dtype!r}, which is stored as {DTYPES[dtype].mlir}, but the type is {t}")
    return TensorSpec(sizes, dtype or element.name)


@dataclass
class _Stated:
    """What the attributes of an argument or result state."""

    dtype: str | None = None
    name: str | None = None
    sizes: tuple[str, ...] | None = None


def _attributes(f: OpLike, which: str, count: int) -> list[_Stated]:
    """What the attributes of each argument or result state."""
    if which not in f.attributes:
        return [_Stated() for _ in range(count)]
    found: list[_Stated] = []
    for d in f.attributes[which]:
        parsed = _Stated()
        for a in d:
            if a.name in (DTYPE, NAME):
                if not isinstance(a.attr, ir.StringAttr):
                    raise _error(f, f"has attribute '{a.name}' = {a.attr}, which must be a string")
                if a.name == DTYPE:
                    parsed.dtype = a.attr.value
                else:
                    parsed.name = a.attr.value
            elif a.name == SIZES:
                names = list(a.attr) if isinstance(a.attr, ir.ArrayAttr) else None
                if names is None or not all(isinstance(n, ir.StringAttr) for n in names):
                    raise _error(f, f"has attribute '{SIZES}' = {a.attr}, which must be a list of strings")
                parsed.sizes = tuple(n.value for n in names)
        found.append(parsed)
    return found


def state_signature(f: OpLike, inputs: Iterable[tuple[str, str, Sequence[str | None]]], outputs: Sequence[str]) -> None:
    """Write the names, dtypes and size names of the arguments, and the dtypes of the results, as attributes."""
    text = ir.StringAttr.get
    f.attributes["arg_attrs"] = ir.ArrayAttr.get([
        ir.DictAttr.get({NAME: text(n), DTYPE: text(d), SIZES: _sizes_attribute(s)}) for n, d, s in inputs
    ])  # fmt: skip
    f.attributes["res_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get({DTYPE: text(d)}) for d in outputs])


def _sizes_attribute(names: Sequence[str | None]) -> ir.Attribute:
    """The attribute that names the sizes of an argument, "" for those without a name."""
    return ir.ArrayAttr.get([ir.StringAttr.get(n or "") for n in names])


def _write(f: OpLike, which: str, specs: Sequence[tuple[str | None, TensorSpec]], types: Sequence[ir.Type]) -> None:
    """Write the attributes of arguments, or of results, which have no names, as far as they state more than the type
    and the position."""
    if not specs:
        return
    old = list(f.attributes[which]) if which in f.attributes else [ir.DictAttr.get({}) for _ in specs]
    new = []
    for i, (theirs, (name, spec), t) in enumerate(zip(old, specs, types, strict=True)):
        made = {a.name: a.attr for a in theirs if a.name not in _SIGNATURE_ATTRIBUTES}
        if name not in (None, f"arg{i}"):
            made[NAME] = ir.StringAttr.get(name)
        if spec.dtype != element_of(t).name:
            made[DTYPE] = ir.StringAttr.get(spec.dtype)
        if any(spec.symbols):
            made[SIZES] = _sizes_attribute(spec.symbols)
        new.append(ir.DictAttr.get(made))
    f.attributes[which] = ir.ArrayAttr.get(new)


def assert_sizes(module: ir.Module, signatures: dict[str, Signature]) -> None:
    """Make each public function check the sizes of its arguments first. The checks run on the host, in any runtime that
    loads the program."""
    for f in public_functions(module):
        signature = signatures[f.attributes["sym_name"].value]
        block = f.regions[0].blocks[0]
        with ir.InsertionPoint.at_block_begin(block), f.location:
            for i, (name, spec) in enumerate(signature.inputs):
                stated = shape_of(block.arguments[i])
                for axis, size in enumerate(spec.shape):
                    if size is not None and stated[axis] is None:
                        message = f"the size of axis {axis} of argument {i} ('{name}') must be {size}"
                        assert_equal(_dim(block, i, axis), build.index(size), message)
            for a in signature.agreements:
                one, other = (
                    f"axis {axis} of argument {i} ('{signature.inputs[i][0]}')"
                    for i, axis in ((a.argument, a.axis), (a.other, a.other_axis))
                )
                form = replace(a.size, name="s")
                text = "be the same as" if a.size.plain else f"be {form}, where s is"
                message = f"the size of {other} must {text} the size of {one}"
                assert_equal(_dim(block, a.other, a.other_axis), _made(_dim(block, a.argument, a.axis), form), message)
            for i, axis, form in signature.multiples:
                message = f"the size of axis {axis} of argument {i} ('{signature.inputs[i][0]}') must be {form}"
                over = arith.subi(_dim(block, i, axis), build.index(form.add))
                assert_equal(arith.remsi(over, build.index(form.mul)), build.index(0), message)
            for x in signature.limits:
                name = signature.inputs[x.argument][0]
                message = f"the size of axis {x.axis} of argument {x.argument} ('{name}') must be {x}"
                dim = _dim(block, x.argument, x.axis)
                if x.least:
                    assert_that(arith.cmpi(arith.CmpIPredicate.sge, dim, build.index(x.least)), message)
                if x.most is not None:
                    assert_that(arith.cmpi(arith.CmpIPredicate.sle, dim, build.index(x.most)), message)


def _dim(block: ir.Block, argument: int, axis: int) -> ir.Value:
    return tensor.dim(block.arguments[argument], build.index(axis))


def _made(value: ir.Value, size: Size) -> ir.Value:
    """The value of the expression `size` for the index `value`."""
    if size.mul != 1:
        value = arith.muli(value, build.index(size.mul))
    if size.add:
        value = arith.addi(value, build.index(size.add))
    return value if size.div == 1 else arith.floordivsi(value, build.index(size.div))


def drop_attributes(module: ir.Module) -> None:
    """Remove qmlir's attributes from the arguments and results of every function."""
    for op in module.body.operations:
        for which in ("arg_attrs", "res_attrs"):
            if which in op.operation.attributes:
                kept = [{a.name: a.attr for a in d if a.name not in _SIGNATURE_ATTRIBUTES}
                        for d in op.operation.attributes[which]]  # fmt: skip
                op.operation.attributes[which] = ir.ArrayAttr.get([ir.DictAttr.get(d) for d in kept])


def _argument_dtype(value: ir.Value) -> str | None:
    """u8 if the ops that use an argument read it as u8; otherwise None."""
    for use in value.uses:
        if use.owner.operation.name not in OPS:
            continue
        view = view_of(use.owner.operation)
        if isinstance(view, ProductOp):
            lhs, rhs = view.sides
            for side, dtype in ((lhs, view.lhs_dtype), (rhs, view.rhs_dtype)):
                if side == value and dtype in ("u8", "u4", "u2", "u1", "e2m1", "nf4", "codebook"):
                    return "u8"
                if side == value and dtype is not None and view.rhs_packing != "none" and side == rhs:
                    return "u8"
            out_zero = view.out_zero_point
            if out_zero is not None and out_zero == value and view.out_dtype == "u8" and element_of(value).name == "i8":
                return "u8"
        elif isinstance(view, UnpackOp):
            return "u8"
        elif isinstance(view, DequantOp) and view.input == value:
            return "u8" if view.packing != "none" or (view.dtype or "").startswith("u") else None
    return None


_SHAPE_OPS = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.cast", "tensor.extract_slice")


def _value_dtype(value: ir.Value) -> str | None:
    """u8 if the op that makes a result states it; otherwise None."""
    operation = producer(behind(value, *_SHAPE_OPS))
    if operation is None or operation.name not in OPS:
        return None
    view = view_of(operation)
    stated = getattr(view, "out_dtype", None) or (
        getattr(view, "dtype", None) if operation.name == "qmlir.unpack" else None
    )
    if stated in ("u8", "u4", "u2", "u1", "i1", "nf4", "e2m1", "codebook") and element_of(value).name == "i8":
        return "u8"
    return None


def schemes(module: ir.Module) -> list[SchemeRow]:
    """How each product is quantised: one row per product, for the manifest."""
    rows: list[SchemeRow] = []
    for view in views_of(module, ProductOp):
        rows.append({
            "op": view.OPERATION_NAME,
            "lhs": view.lhs_code.name,
            "rhs": view.rhs_code.name,
            "out": view.out_code.name,
            "lhs_scale": None if view.lhs_scale is None else list(shape_of(view.lhs_scale)),
            "rhs_scale": None if view.rhs_scale is None else list(shape_of(view.rhs_scale)),
            "zero_points": [n for n in ("lhs", "rhs") if getattr(view, f"{n}_zero_point") is not None],
            "activation": view.activation,
            "rounding": view.rounding,
        })  # fmt: skip
    return rows
