"""The base class of op classes: it provides accessors for the declared fields, the builder, and rules to override."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ...core.mlir import collect, ir
from ...core.spelling import did_you_mean
from ..shapes import Shape
from ..sizes import Size
from .coded_operand import CodedOperand
from .constraints import OpError
from .fields import Field

if TYPE_CHECKING:
    from typing_extensions import Self

    from ...core.mlir import OpLike

NAMESPACE = "qmlir"
AxisSizes = tuple[str | Size | int | None, ...]
Sizes = dict[str, AxisSizes]
Spec = tuple[Shape, str]  # shape and dtype of a value
Operands = Mapping[str, Spec]
# Values by field name; the AttrKind of the field determines the Python type of a value.
Attributes = Mapping[str, Any]
Keywords = dict[str, Any]  # attributes and arrays
OPERAND_NAMES = "operand_names"

OPS: dict[str, type[Op]] = {}

V = TypeVar("V", bound="Op")


def _accessor(f: Field, index: int) -> property:
    if f.kind == "operand":
        return property(lambda self: self._operand(f.name), doc=f"operand: {f.doc}")
    if f.kind == "result":
        return property(lambda self: self._result(index), doc=f"result: {f.doc}")
    return property(lambda self: self._attribute(f), doc=f"attribute: {f.doc}")


def _in_role(f: Field, sides: Mapping[str, str]) -> Field:
    """An inherited field such as `lhs_scale`, renamed for an op that calls its left-hand side `sides["lhs"]`."""
    side, _, what = f.name.partition("_")
    own = replace(f, doc=f.doc.replace("{lhs}", sides.get("lhs", "lhs")).replace("{rhs}", sides.get("rhs", "rhs")))
    return replace(own, name=f"{sides[side]}_{what}", role=f.name) if what and side in sides else own


class Op:
    """An operation, read through the fields of its class. See the docstring of `qmlir.dialect.ods`.

    `class Conv2dQOp(ProductOp, name="conv2d_q", sides={"lhs": "input", "rhs": "weight"})` inherits `lhs_scale` as
    `input_scale`. This is its name in IR text and in Python; the rules and lowerings that all products share read the
    same field as `lhs_scale`, its role.
    """

    OPERATION_NAME: ClassVar[str]
    RESULTS: ClassVar[tuple[int, int]]  # minimum and maximum number
    FIELDS: ClassVar[tuple[Field, ...]] = ()
    OPERANDS: ClassVar[tuple[str, ...]] = ()
    REQUIRED: ClassVar[tuple[str, ...]] = ()  # the operands that are not optional
    PARAMETERS: ClassVar[tuple[Field, ...]] = ()
    POSITIONAL: ClassVar[tuple[str, ...]] = ()  # positional arguments of the function, after the required ones
    FUNCTION: ClassVar[str]  # name of the op's function in `qmlir.ops`
    DEFAULTS: ClassVar[Attributes] = {}  # values that the op's functions use for omitted arguments
    SIDES: ClassVar[tuple[CodedOperand, ...]] = ()  # operands of codes; of a product: activations, then weights
    ROLES: ClassVar[Mapping[str, str]] = {}  # role to name, for the fields that have a role

    def __init_subclass__(
        cls, *, name: str = "", function: str = "", sides: Mapping[str, str] | None = None, **kw: object
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
        ordered = cls._order([f for f in own if f.kind != "parameter"])
        cls.FIELDS = tuple(_in_role(f, sides or {}) if name else f for f in ordered)
        arguments = [f for f in (*cls.FIELDS, *cls.PARAMETERS) if f.attribute is not None]
        cls.DEFAULTS = {f.name: f.function_default for f in arguments if f.optional}
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
    def location(self) -> ir.Location:
        return self.operation.location

    @classmethod
    def _order(cls, own: list[Field]) -> list[Field]:
        """Own fields, then inherited fields (such as a product's epilogue) that are not redeclared."""
        names = {f.name for f in own}
        return [*own, *(f for f in cls.FIELDS if f.name not in names)]

    @classmethod
    def build(
        cls, fields: Mapping[str, object], *, results: Sequence[ir.Type], loc: ir.Location | None = None,
        ip: ir.InsertionPoint | None = None,
    ) -> Self:  # fmt: skip
        """Create the op from operands (`ir.Value`s) and attributes (Python values), both by field name. Attributes that
        equal their default are not written. `results` are the result types.

        Raises:
            OpError: for a name that the op does not have, a missing operand, or an attribute value of another kind.
        """
        values = dict(fields)
        operands: dict[str, ir.Value] = {}
        attributes: dict[str, ir.Attribute] = {}
        for f in cls.FIELDS:
            value = values.pop(f.name, None)
            if f.kind == "operand":
                if isinstance(value, ir.Value):
                    operands[f.name] = value
                elif value is not None:
                    raise TypeError(f"operand '{f.name}' is a {type(value).__name__}, not an ir.Value")
                elif not f.optional:
                    raise OpError(f"operand '{f.name}' is missing")
            elif f.kind == "attr" and f.attribute is not None and value is not None:
                try:
                    stated = f.attribute.build(value)
                except OpError as e:
                    raise OpError(f"{f.name}={value!r} {e}") from None
                # Defaults are not written: the text of an op with two epilogue steps states two attributes.
                if f.default is None or stated != f.attribute.build(f.default):
                    attributes[f.name] = stated
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
        """Shapes and dtypes of the results, from those of the given operands and from all attributes and parameters.
        The verifier requires the same result types. Raises ValueError if no result is possible."""
        raise NotImplementedError

    @classmethod
    def inferred(cls, operands: Operands, given: Attributes) -> list[Spec]:
        """`infer` for a caller that has only the given arguments: the others have their defaults."""
        return cls.infer(operands, {**cls.DEFAULTS, **given})

    # ---- reading

    def operand_names(self) -> tuple[str, ...]:
        """The names of the operation's operands, in their order."""
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

    def _attribute(self, f: Field) -> object:
        attributes = self.operation.attributes
        if f.name not in attributes:
            return f.default
        assert f.attribute is not None
        return f.attribute.read(attributes[f.name])

    def operands_by_name(self) -> dict[str, ir.Value]:
        """The operands that are present, in the order of the definition."""
        given = dict(zip(self.operand_names(), self.operation.operands, strict=True))
        return {name: given[name] for name in self.OPERANDS if name in given}

    def attributes_by_name(self) -> Attributes:
        """Every attribute, defaults included, as Python values."""
        return {f.name: getattr(self, f.name) for f in self.FIELDS if f.kind == "attr"}

    # ---- rules

    def verify_semantics(self) -> None:
        """Shape and type rules of the op. Raises OpError."""

    def sizes(self) -> Sizes:
        """For each operand and result by name: the size along each of its axes, the same for axes that must agree. None
        makes no statement: for an axis of one element that is broadcast, or one that counts blocks. An int is a size
        that an attribute states. Size names (`M`, `N`, `K`) are local to the op."""
        return {}


def view_of(op: OpLike) -> Op:
    """Wrap an operation of the dialect in its op class."""
    return OPS[op.name](op)


def views_of(root: OpLike | ir.Module, kind: type[V]) -> list[V]:
    """Views of the operations of a class in `root`; those in a region come before the operation that contains it."""
    return [view for op in collect(root, *OPS) if isinstance(view := view_of(op), kind)]


def names_attribute(names: Iterable[str]) -> ir.Attribute:
    """The attribute `operand_names` with these names."""
    return ir.ArrayAttr.get([ir.StringAttr.get(name) for name in names])


def attribute_names(op: OpLike) -> list[str]:
    return [a if isinstance(a, str) else a.name for a in op.attributes]
