"""The definition layer: one Python class per operation gives the view that passes read it by, a typed builder, the
verifier, the Python function's signature (`qmlir.ops`) and the upstream IRDL text.

A class attribute declares each operand, attribute and result::

    class QuantizeOp(Op, name="quantize"):
        input = operand(FLOAT)
        scale = operand(SCALE)
        zero_point = operand(INT, optional=True)
        rounding = attr(Enum(ROUNDING), default="half_even")
        result = result(INT)

An op that has optional operands names those it is given, in their order::

    %0 = "qmlir.quantize"(%x, %s, %z) {operand_names = ["input", "scale", "zero_point"]} : ...

so that a definition may gain an operand and saved programs stay as they are. Where only the required operands are
given, in the order of the definition, the names may be left out.

Ops of an unregistered namespace get no C++ verifier: `verify_module` does that work and is run by the
`qmlir-verify` pass. `irdl_text` gives the same structure to `iree-opt --irdl-file`.
"""

from __future__ import annotations

import inspect
import operator
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NoReturn, TypeVar, overload

import numpy as np

from ..core.mlir import ir
from ..core.spelling import did_you_mean, location_text
from ..errors import Diagnostic
from .renamed import RENAMED
from .shapes import Shape
from .sizes import Size

if TYPE_CHECKING:
    from ..core.mlir import OpLike

NAMESPACE = "qmlir"
Axes = tuple[str | Size | int | None, ...]
Sizes = dict[str, Axes]
Spec = tuple[Shape, str]  # of a value, and its dtype
Operands = Mapping[str, Spec]
Attributes = Mapping[str, Any]
OPERAND_NAMES = "operand_names"
# How older text, and IRDL, say which optional operands are there: one count for each operand of the definition.
SEGMENTS = "operandSegmentSizes"
# `%0 = "name"(%operands)[successors] <{...}>`: MLIR keeps these attributes of an unregistered op where its bindings
# do not show them.
_PROPERTIES = re.compile(r'[^"]*"[^"]*"\([^)]*\)\s*(?:\[[^\]]*\])?\s*<\{')


class OpError(Exception):
    """A violated rule; the message names the operand or attribute."""


# --------------------------------------------------------------------------------------------- constraints


@dataclass(frozen=True)
class Constraint:
    """What a type or attribute must be. `irdl` is the nearest statement IRDL can make."""

    description: str
    irdl: str
    check: Callable[[Any], bool]


def tensor_of(description: str, element: Callable[[Any], bool]) -> Constraint:
    """A ranked tensor whose element type satisfies `element`."""
    return Constraint(
        f"a ranked tensor of {description}",
        'irdl.base "!builtin.tensor"',
        lambda t: isinstance(t, ir.RankedTensorType) and element(t.element_type),
    )


def _is_float(t: ir.Type) -> bool:
    return isinstance(t, ir.FloatType)


def _signless(*widths: int) -> Callable[[Any], bool]:
    return lambda t: isinstance(t, ir.IntegerType) and t.is_signless and t.width in widths


ANY = tensor_of("i8 codes or floats", lambda t: _signless(8)(t) or _is_float(t))
CODE = tensor_of("i8 codes (or bytes that hold packed codes)", _signless(8))
FLOAT = tensor_of("floats", _is_float)
INT = tensor_of("i8 or i32 integers", _signless(8, 32))
ZERO = tensor_of("i8 or i32 integers, or floats", lambda t: _signless(8, 32)(t) or _is_float(t))
NUMBER = tensor_of("i32 integers or floats", lambda t: _signless(32)(t) or _is_float(t))
INDEX = tensor_of("i32 or i64 integers", _signless(32, 64))
SPARSE_INDEX = tensor_of("i32 or i64 integers (2:4: i8 bytes)", _signless(8, 32, 64))
RESULT = tensor_of("i8, i32 or floats", lambda t: _signless(8, 32)(t) or _is_float(t))


T = TypeVar("T")


class AttrKind(Generic[T]):
    """How an attribute is checked, read and built. Its value is a `T`."""

    description: str
    irdl: str
    python: str  # type of the value

    def read(self, attribute: ir.Attribute) -> T:
        """The Python value. Raises OpError when the attribute is of another kind."""
        raise NotImplementedError

    def of(self, value: object) -> T:
        """The value, in its Python type. Raises OpError when it is of another kind: nothing is rounded or cut."""
        raise NotImplementedError

    def build(self, value: T) -> ir.Attribute:
        """The attribute of a value that `of` returned."""
        raise NotImplementedError


class Enum(AttrKind[str]):
    irdl, python = 'irdl.base "#builtin.string"', "str"

    def __init__(self, values: Sequence[str]) -> None:
        self.values = tuple(values)
        self.description = "one of " + ", ".join(repr(v) for v in values)

    def read(self, attribute: ir.Attribute) -> str:
        if not isinstance(attribute, ir.StringAttr):
            raise OpError(f"must be {self.description}, but got {attribute}")
        if attribute.value not in self.values:
            raise OpError(f"is {attribute.value!r}, which is not known{did_you_mean(attribute.value, self.values)}")
        return str(attribute.value)

    def of(self, value: object) -> str:
        if value not in self.values:
            raise OpError(f"is not known{did_you_mean(str(value), self.values)}")
        return str(value)

    def build(self, value: str) -> ir.Attribute:
        return ir.StringAttr.get(value)


def _bool(value: object) -> bool:
    if not isinstance(value, (bool, np.bool_)) and not (isinstance(value, int) and value in (0, 1)):
        raise TypeError
    return bool(value)


def _int(value: Any) -> int:
    number = operator.index(value)
    if isinstance(value, bool) or not -(2**63) <= number < 2**63:
        raise TypeError
    return number


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or np.iscomplexobj(value):
        raise TypeError
    return float(value)


_READ: dict[str, Callable[[Any], Any]] = {"bool": _bool, "int": _int, "float": _float}


class _Scalar(AttrKind[T]):
    """`kind` is the name of the attribute's class."""

    def __init__(self, description: str, python: str, irdl: str, kind: str, build: Callable[[T], ir.Attribute]) -> None:
        self.description, self.python, self.irdl, self._kind, self._build = description, python, irdl, kind, build

    def of(self, value: object) -> T:
        try:
            found: T = _READ[self.python](value)
            return found
        except (TypeError, OverflowError):
            raise OpError(f"must be {self.description}") from None

    def read(self, attribute: ir.Attribute) -> T:
        if not isinstance(attribute, getattr(ir, self._kind)):
            raise OpError(f"must be {self.description}, but got {attribute}")
        value: T = attribute.value
        return value

    def build(self, value: T) -> ir.Attribute:
        return self._build(value)


BOOL: AttrKind[bool] = _Scalar(
    "a bool", "bool", 'irdl.base "#builtin.integer"', "BoolAttr", lambda v: ir.BoolAttr.get(v)
)
I64: AttrKind[int] = _Scalar(
    "an integer",
    "int",
    'irdl.base "#builtin.integer"',
    "IntegerAttr",
    lambda v: ir.IntegerAttr.get(ir.IntegerType.get_signless(64), v),
)
F32: AttrKind[float] = _Scalar(
    "a float",
    "float",
    'irdl.base "#builtin.float"',
    "FloatAttr",
    lambda v: ir.FloatAttr.get(ir.F32Type.get(), v),
)


class _Array(AttrKind[tuple[T, ...]]):
    irdl = 'irdl.base "#builtin.dense_array"'

    def __init__(self, length: int, what: str, python: str, kind: str) -> None:
        self.length, self.python, self._kind, self._element = length, f"tuple[{python}, ...]", kind, _READ[python]
        self.description = f"an array of {length} {what}"

    def read(self, attribute: ir.Attribute) -> tuple[T, ...]:
        if not isinstance(attribute, getattr(ir, self._kind)) or len(attribute) != self.length:
            raise OpError(f"must be {self.description}, but got {attribute}")
        return tuple(attribute)

    def of(self, value: Any) -> tuple[T, ...]:
        found: tuple[T, ...]
        try:
            found = tuple(self._element(v) for v in value)
        except (TypeError, OverflowError):
            found = ()
        if len(found) != self.length:
            raise OpError(f"must be {self.description}")
        return found

    def build(self, value: tuple[T, ...]) -> ir.Attribute:
        made: ir.Attribute = getattr(ir, self._kind).get(list(value))
        return made


class _Dense(AttrKind["ir.Attribute"]):
    """Elements of a tensor; read as the attribute."""

    description, python = "elements of a tensor", "Any"
    irdl = 'irdl.base "#builtin.dense_intorfp_elements"'

    def read(self, attribute: ir.Attribute) -> ir.Attribute:
        if not isinstance(attribute, ir.DenseElementsAttr):
            raise OpError(f"must be {self.description}, but got {attribute}")
        return attribute

    def of(self, value: Any) -> ir.Attribute:
        found: ir.Attribute = value
        return found

    def build(self, value: ir.Attribute) -> ir.Attribute:
        return value


DENSE: AttrKind[ir.Attribute] = _Dense()


def I64s(length: int) -> AttrKind[tuple[int, ...]]:
    """`array<i64: ...>` of `length` integers."""
    return _Array(length, "i64 integers", "int", "DenseI64ArrayAttr")


def F64s(length: int) -> AttrKind[tuple[float, ...]]:
    """`array<f64: ...>` of `length` floats."""
    return _Array(length, "f64 floats", "float", "DenseF64ArrayAttr")


# -------------------------------------------------------------------------------------------------- fields


@dataclass
class Field:
    """One declared operand, attribute, result or parameter; `name` is filled in by the class, and `role` where a base
    class reads the field by another name (see `Op`)."""

    kind: str  # "operand" | "attr" | "result" | "parameter"
    constraint: Constraint | None = None
    attribute: AttrKind[Any] | None = None
    optional: bool = False
    default: Any = None
    internal: bool = False
    implied: bool = False
    name: str = ""
    role: str = ""


# As with `dataclasses.field`, the type is that of what is read from an op.
@overload
def operand(constraint: Constraint) -> ir.Value: ...
@overload
def operand(constraint: Constraint, optional: Literal[True]) -> ir.Value | None: ...
def operand(constraint: Constraint, optional: bool = False) -> Any:
    return Field("operand", constraint, optional=optional)


@overload
def result(constraint: Constraint) -> ir.Value: ...
@overload
def result(constraint: Constraint, optional: Literal[True]) -> ir.Value | None: ...
def result(constraint: Constraint, optional: bool = False) -> Any:
    return Field("result", constraint, optional=optional)


@overload
def attr(kind: AttrKind[T], default: T, *, internal: bool = False, implied: bool = False) -> T: ...
@overload
def attr(kind: AttrKind[T], *, required: Literal[True], internal: bool = False, implied: bool = False) -> T: ...
@overload
def attr(kind: AttrKind[T], *, internal: bool = False, implied: bool = False) -> T | None: ...
def attr(
    kind: AttrKind[Any], default: Any = None, required: bool = False, internal: bool = False, implied: bool = False
) -> Any:
    """An attribute. Without `required` it may be left out and then reads as `default`. `internal`: passes write it, and
    it is no argument of the function. `implied`: where it is not given, the function states it by its other arguments.
    """
    return Field("attr", attribute=kind, optional=not required, default=default, internal=internal, implied=implied)


def parameter(kind: AttrKind[T]) -> T:
    """An argument of the function that shapes the op's result, and is no attribute of the op."""
    found: Any = Field("parameter", attribute=kind, optional=True)
    read: T = found
    return read


OPS: dict[str, type[Op]] = {}


def _accessor(f: Field, index: int) -> property:
    if f.kind == "operand":
        return property(lambda self: self._operand(f.name), doc=f"operand: {f.constraint and f.constraint.description}")
    if f.kind == "result":
        return property(lambda self: self._result(index), doc=f"result: {f.constraint and f.constraint.description}")
    return property(lambda self: self._attribute(f), doc=f"attribute: {f.attribute and f.attribute.description}")


def _in_role(f: Field, sides: Mapping[str, str]) -> Field:
    """An inherited field by an op's own name of its side."""
    side, _, what = f.name.partition("_")
    return replace(f, name=f"{sides[side]}_{what}", role=f.name) if what and side in sides else f


class Op:
    """An operation, read by the fields of its class. See the module's docstring.

    `class Conv2dQOp(ProductOp, name="conv2d_q", sides={"lhs": "input", "rhs": "weight"})` inherits `lhs_scale` as
    `input_scale`: so the op calls it in text and in Python, while the rules and lowerings that all products share read
    the same field as `lhs_scale`, its role.
    """

    OPERATION_NAME: ClassVar[str]
    RESULTS: ClassVar[tuple[int, int]]  # least and most
    FIELDS: ClassVar[tuple[Field, ...]] = ()
    OPERANDS: ClassVar[tuple[str, ...]] = ()
    REQUIRED: ClassVar[tuple[str, ...]] = ()  # the operands that are not optional
    PARAMETERS: ClassVar[tuple[Field, ...]] = ()
    POSITIONAL: ClassVar[tuple[str, ...]] = ()  # arguments of the function that need no name, besides the required ones
    FUNCTION: ClassVar[str]  # its name in `qmlir.ops`
    ROLES: ClassVar[Mapping[str, str]] = {}  # the roles of fields that have one, and their names

    def __init_subclass__(
        cls, *, name: str = "", function: str = "", sides: Mapping[str, str] | None = None, **kw: Any
    ) -> None:
        super().__init_subclass__(**kw)
        own = []
        for key, value in list(cls.__dict__.items()):
            if isinstance(value, Field):
                value.name = key
                own.append(value)
        cls.PARAMETERS = tuple(f for f in own if f.kind == "parameter")
        for f in cls.PARAMETERS:
            delattr(cls, f.name)
        # Inherited fields (a product's epilogue) come where the base class put them; own ones follow.
        ordered = cls._order([f for f in own if f.kind != "parameter"])
        cls.FIELDS = tuple(_in_role(f, sides or {}) for f in ordered)
        cls.ROLES = {f.role: f.name for f in cls.FIELDS if f.role}
        for kind in ("operand", "result", "attr"):
            for i, f in enumerate(f for f in cls.FIELDS if f.kind == kind):
                for known_as in {f.name, f.role or f.name}:
                    setattr(cls, known_as, _accessor(f, i))
        if not name:
            return
        operands = [f for f in cls.FIELDS if f.kind == "operand"]
        results = [f for f in cls.FIELDS if f.kind == "result"]
        cls.OPERATION_NAME = f"{NAMESPACE}.{name}"
        cls.FUNCTION = function or name
        cls.OPERANDS = tuple(f.name for f in operands)
        cls.REQUIRED = tuple(f.name for f in operands if not f.optional)
        cls.RESULTS = (sum(not f.optional for f in results), len(results))
        OPS[cls.OPERATION_NAME] = cls

    def __init__(self, operation: OpLike) -> None:
        self.operation = operation

    @property
    def results(self) -> ir.OpResultList:
        return self.operation.results

    @property
    def location(self) -> Any:
        return self.operation.location

    @classmethod
    def _order(cls, own: list[Field]) -> list[Field]:
        """Own fields, then inherited ones that are not declared anew."""
        names = {f.name for f in own}
        return [*own, *(f for f in cls.FIELDS if f.name not in names)]

    @classmethod
    def build(cls, *, results: Sequence[ir.Type], loc: ir.Location | None = None, ip: Any = None, **values: Any) -> Op:
        """Create the op. Operands are `ir.Value`s; attributes Python values; results types.

        Raises:
            OpError: for a name that the op does not have, a missing operand, or a value of another kind.
        """
        operands: dict[str, ir.Value] = {}
        attributes: dict[str, ir.Attribute] = {}
        for f in cls.FIELDS:
            value = values.pop(f.name, None)
            if f.kind == "operand":
                if value is not None:
                    operands[f.name] = value
                elif not f.optional:
                    raise OpError(f"operand '{f.name}' is missing")
            elif f.kind == "attr" and f.attribute is not None and value is not None:
                try:
                    attributes[f.name] = f.attribute.build(f.attribute.of(value))
                except OpError as e:
                    raise OpError(f"{f.name}={value!r} {e}") from None
        if values:
            names = [f.name for f in cls.FIELDS]
            first = sorted(values)[0]
            raise OpError(f"{cls.OPERATION_NAME} has no operand or attribute {first!r}{did_you_mean(first, names)}")
        if cls.OPERANDS != cls.REQUIRED:
            attributes[OPERAND_NAMES] = names_attribute(operands)
        op = ir.Operation.create(
            cls.OPERATION_NAME,
            results=list(results),
            operands=list(operands.values()),
            attributes=attributes,
            loc=loc,
            ip=ip,
        )
        return cls(op)

    @staticmethod
    def infer(operands: Operands, attributes: Attributes) -> list[Spec]:
        """Shapes and dtypes of the results, from those of the operands that are given: for callers that start from
        arrays. What the verifier asks of the results' types is this too. Raises ValueError for what has no result."""
        raise NotImplementedError

    # ---- reading

    def operand_names(self) -> tuple[str, ...]:
        """The name of each operand that is given."""
        attributes = self.operation.attributes
        if OPERAND_NAMES not in attributes:
            return self.REQUIRED
        return tuple(str(ir.StringAttr(a).value) for a in attributes[OPERAND_NAMES])

    def _operand(self, name: str) -> ir.Value | None:
        names = self.operand_names()
        return self.operation.operands[names.index(name)] if name in names else None

    def _result(self, index: int) -> ir.Value | None:
        results = self.operation.results
        return results[index] if index < len(results) else None

    def _attribute(self, f: Field) -> Any:
        attributes = self.operation.attributes
        if f.name not in attributes:
            return f.default
        assert f.attribute is not None
        return f.attribute.read(attributes[f.name])

    def operands_by_name(self) -> dict[str, ir.Value]:
        """The operands that are present."""
        given = dict(zip(self.operand_names(), self.operation.operands, strict=True))
        return {name: given[name] for name in self.OPERANDS if name in given}

    def attributes_by_name(self) -> dict[str, Any]:
        """Every attribute, defaults included, as Python values."""
        return {f.name: getattr(self, f.name) for f in self.FIELDS if f.kind == "attr"}

    # ---- verification

    def verify_structure(self) -> None:
        """Counts and names and types of operands, known attributes and their values."""
        op = self.operation
        if len(op.regions) or len(op.successors):
            raise OpError("takes no regions and no successors")
        if _PROPERTIES.match(op.get_asm(print_generic_op_form=True, use_local_scope=True)):
            raise OpError("has attributes in <{...}>, which hides them from an op that MLIR has not registered; "
                          "write {...}")  # fmt: skip
        self._verify_operands()
        least, most = self.RESULTS
        if not least <= len(op.results) <= most:
            raise OpError(f"expects {least if least == most else f'{least} to {most}'} results, got {len(op.results)}")
        known = [f.name for f in self.FIELDS if f.kind == "attr"]
        for name in attribute_names(op):
            if self._renamed().get(name) in known:  # `upgrade` has replaced those that are given once
                raise OpError(f"has attributes '{self._renamed()[name]}' and '{name}', its old name; leave '{name}' "
                              "out")  # fmt: skip
            if "." not in name and name not in (*known, OPERAND_NAMES):
                raise OpError(f"has no attribute '{name}'{did_you_mean(name, known)}")
        for f in self.FIELDS:
            if f.kind == "attr":
                if f.name not in op.attributes:
                    if not f.optional:
                        raise OpError(f"requires attribute '{f.name}'")
                    continue
                try:
                    getattr(self, f.name)
                except OpError as e:
                    raise OpError(f"attribute '{f.name}' {e}") from None
                continue
            value = getattr(self, f.name)
            if value is not None and f.constraint is not None and not f.constraint.check(value.type):
                raise OpError(f"{f.kind} '{f.name}' must be {f.constraint.description}, but is {value.type}")

    def _verify_operands(self) -> None:
        """Each operand has a name of the definition; none is given twice, none is missing."""
        attributes, count = self.operation.attributes, len(self.operation.operands)
        if SEGMENTS in attributes:
            # `upgrade` has replaced what it could.
            raise OpError(f"'{SEGMENTS}' {attributes[SEGMENTS]} does not match {count} operands; name those that are "
                          f"given, {OPERAND_NAMES} = [...], from {self._expected()}")  # fmt: skip
        if OPERAND_NAMES not in attributes:
            if count == len(self.REQUIRED):
                return
            if self.OPERANDS == self.REQUIRED:
                raise OpError(f"expects {len(self.REQUIRED)} operands ({self._expected()}), but got {count}")
            raise OpError(f"has {count} operands, and only the required ones need no names; name all, "
                          f"{OPERAND_NAMES} = [...], from {self._expected()}")  # fmt: skip
        names = attributes[OPERAND_NAMES]
        if not isinstance(names, ir.ArrayAttr) or not all(isinstance(n, ir.StringAttr) for n in names):
            raise OpError(f"attribute '{OPERAND_NAMES}' must be an array of strings, but is {names}")
        given = self.operand_names()
        if len(given) != count:
            raise OpError(f"'{OPERAND_NAMES}' has {len(given)} names for {count} operands")
        for i, name in enumerate(given):
            if name not in self.OPERANDS and self._renamed().get(name) in given:
                raise OpError(f"has operands '{self._renamed()[name]}' and '{name}', its old name; leave '{name}' out")
            if name not in self.OPERANDS:
                raise OpError(f"has no operand '{name}'{did_you_mean(name, self.OPERANDS)}")
            if name in given[:i]:
                raise OpError(f"operand '{name}' is given {given.count(name)} times")
        for name in self.REQUIRED:
            if name not in given:
                raise OpError(f"operand '{name}' is missing")

    @classmethod
    def _renamed(cls) -> Mapping[str, str]:
        return RENAMED.get(cls.OPERATION_NAME.partition(".")[2], {})

    @classmethod
    def _expected(cls) -> str:
        return ", ".join(name + ("" if name in cls.REQUIRED else "?") for name in cls.OPERANDS)

    def verify_semantics(self) -> None:
        """Shape and type rules of the op. Raises OpError."""

    def sizes(self) -> Sizes:
        """For operands and results by name: the size along each axis, so that axes that must agree say the same. None
        where nothing is said: an axis of one element that is broadcast, or one that counts blocks; a number where an
        attribute says it. Names are the op's own: `M`, `N`, `K`."""
        return {}


class View:
    """The fields and rules of an op class over values that are no such op: the products inside a composite, or an
    op with some operands replaced.

    A field reads as its entry in `values`, else as that of `base`, else as its default. Properties and methods are
    the class's own. For rules of the result's type, `values` needs "results".
    """

    def __init__(self, cls: type[Op], values: Mapping[str, Any], base: Op | View | None = None) -> None:
        self._cls, self._values, self._base = cls, dict(values), base

    def __getattr__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        field = next((f for f in self._cls.FIELDS if f.name == name), None)
        if self._base is not None and (field is not None or name == "results"):
            return getattr(self._base, name)
        if field is not None:
            return field.default
        member = inspect.getattr_static(self._cls, name)
        if isinstance(member, property) and member.fget is not None:
            return member.fget(self)
        return types.MethodType(member, self)


def view_of(op: OpLike) -> Any:
    """An operation of the dialect, by the fields of its class."""
    return OPS[op.name](op)


def names_attribute(names: Iterable[str]) -> ir.Attribute:
    """`operand_names` of an op."""
    return ir.ArrayAttr.get([ir.StringAttr.get(name) for name in names])


def attribute_names(op: OpLike) -> list[str]:
    return [a if isinstance(a, str) else a.name for a in op.attributes]


# ------------------------------------------------------------------------------------- module verification


def verify_module(module: ir.Module) -> list[Diagnostic]:
    """Check every op of the dialect below `module`; one diagnostic for each that breaks a rule."""
    found: list[Diagnostic] = []

    def visit(op: OpLike) -> ir.WalkResult:
        if op.name.startswith(NAMESPACE + "."):
            message = problem(op)
            if message:
                found.append(Diagnostic(f"'{op.name}' op {message}", location_text(op.location)))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def problem(op: OpLike) -> str:
    """The first rule that an op breaks, "" when there is none."""
    if op.name not in OPS:
        known = [name.split(".", 1)[1] for name in OPS]
        return f"is not an op of this dialect{did_you_mean(op.name.split('.', 1)[1], known)}"
    view = view_of(op)
    try:
        view.verify_structure()
    except OpError as e:
        return str(e)
    return misfit(view)


def misfit(view: Op) -> str:
    """The first rule of shapes and types that an op of the right form breaks, "" when there is none."""
    try:
        view.verify_semantics()
    except OpError as e:
        return quoted_as(str(e), view.ROLES)
    except IndexError:  # a rule reads an axis that there is not
        types = [f"'{name}' {value.type}" for name, value in view.operands_by_name().items()]
        return f"has an operand or a result with too few axes: {', '.join(types)}"
    return ""


def quoted_as(message: str, names: Mapping[str, str]) -> str:
    """A message of shared rules, with the op's own names of what it quotes."""
    return re.sub(r"'(\w+)'", lambda m: f"'{names.get(m[1], m[1])}'", message)


def fail(message: str) -> NoReturn:
    """Break a rule: for the bodies of verifiers."""
    raise OpError(message)


def irdl_text() -> str:
    """The dialect as an upstream IRDL module. IRDL has no optional attributes: those are left out. It tells optional
    operands apart by their counts, which `saved.count_operands` adds to a program."""
    lines = [f"irdl.dialect @{NAMESPACE} {{"]
    for name, cls in sorted(OPS.items()):
        lines.append(f"  irdl.operation @{name.split('.', 1)[1]} {{")
        lists: dict[str, list[str]] = {"operand": [], "result": [], "attr": []}
        for number, f in enumerate(f for f in cls.FIELDS if f.kind != "attr" or not f.optional):
            source = f.constraint if f.constraint is not None else f.attribute
            assert source is not None
            lines.append(f"    %{number} = {source.irdl}")
            mark = "optional " if f.optional else ""
            lists[f.kind].append(f'"{f.name}" = %{number}' if f.kind == "attr" else f"{f.name}: {mark}%{number}")
        for kind in ("operand", "result"):
            if lists[kind]:
                lines.append(f"    irdl.{kind}s({', '.join(lists[kind])})")
        if lists["attr"]:
            lines.append(f"    irdl.attributes {{{', '.join(lists['attr'])}}}")
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"
