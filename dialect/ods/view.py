"""The rules of an op class, applied to values that are not an operation of this class."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from typing import Any

from .op import Op


class FieldView:
    """A view with the fields and rules of an op class over values that are not an operation of this class: a product
    inside a composite op, or an op with some operands replaced.

    A field reads as its entry in `values`, else as that of `base`, else as its default. Properties and methods are
    those of the class. Rules about the result's type need an entry "results" in `values` or a `base`.
    """

    def __init__(self, cls: type[Op], values: Mapping[str, object], base: Op | FieldView | None = None) -> None:
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
