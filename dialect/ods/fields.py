"""Declarations in an op class: operands, attributes, results, and parameters of its function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar, overload

from ...core.mlir import ir
from .constraints import AttrKind, Constraint

T = TypeVar("T")


@dataclass
class Field:
    """One declared operand, attribute, result or parameter.

    The op class sets `name`, and `role` if a base class reads the field under another name (see `Op`). `default` is the
    value of an attribute that an op does not state; `function_default` is the value that its functions (`qmlir.ops`,
    `qmlir.reference`) use for an omitted argument. `doc` is the meaning, shape and unit, for `help()` and the API
    pages; `{lhs}` and `{rhs}` in it are replaced by the operands' own names.
    """

    kind: str  # "operand" | "attr" | "result" | "parameter"
    constraint: Constraint | None = None
    attribute: AttrKind[object] | None = None
    optional: bool = False
    default: object = None
    function_default: object = None
    implied: bool = False
    name: str = ""
    role: str = ""
    doc: str = ""

    @property
    def takes(self) -> str:
        """The constraint on the field's value, as an argument of the function."""
        if self.constraint is not None:
            return self.constraint.description.replace("a ranked tensor", "an array")
        return self.attribute.description if self.attribute is not None else ""

    @property
    def described(self) -> str:
        """The meaning of the field, and the constraint on its value."""
        return "; ".join(filter(None, (self.doc, self.takes)))


# As with `dataclasses.field`, the return type is the type of the value that is read from an op.
@overload
def operand(constraint: Constraint, *, doc: str = "") -> ir.Value: ...
@overload
def operand(constraint: Constraint, optional: Literal[True], *, doc: str = "") -> ir.Value | None: ...
def operand(constraint: Constraint, optional: bool = False, *, doc: str = "") -> object:
    return Field("operand", constraint, optional=optional, doc=doc)


@overload
def result(constraint: Constraint, *, doc: str = "") -> ir.Value: ...
@overload
def result(constraint: Constraint, optional: Literal[True], *, doc: str = "") -> ir.Value | None: ...
def result(constraint: Constraint, optional: bool = False, *, doc: str = "") -> object:
    return Field("result", constraint, optional=optional, doc=doc)


@overload
def attr(kind: AttrKind[T], default: T, *, implied: bool = False, doc: str = "") -> T: ...
@overload
def attr(kind: AttrKind[T], *, required: Literal[True], implied: bool = False, doc: str = "") -> T: ...
@overload
def attr(
    kind: AttrKind[T],
    *,
    implied: bool = False,
    function_default: T | None = None,
    doc: str = "",
) -> T | None: ...
def attr(
    kind: AttrKind[object], default: object = None, required: bool = False, implied: bool = False,
    function_default: object = None, doc: str = "",
) -> object:  # fmt: skip
    """Declare an attribute. Unless it is `required`, an op may omit it and then reads `default`.

    `implied`: the function derives an omitted argument from its other arguments. `function_default`: the value that the
    function states for an omitted argument; an op without the attribute derives its value from types.
    """
    return Field("attr", attribute=kind, optional=not required, default=default, implied=implied,
                 function_default=None if implied else default if function_default is None else function_default,
                 doc=doc)  # fmt: skip


@overload
def parameter(kind: AttrKind[T], *, doc: str = "") -> T: ...
@overload
def parameter(kind: AttrKind[T], default: T, *, doc: str = "") -> T: ...
def parameter(kind: AttrKind[object], default: object = None, *, doc: str = "") -> object:
    """Declare an argument of the function that determines the result's type and is not an attribute of the op."""
    return Field("parameter", attribute=kind, optional=True, function_default=default, doc=doc)
