"""Former names of arguments: they still work, with a warning that states the current name."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..errors import UsageError, caller

P = ParamSpec("P")
T = TypeVar("T")


def by_old_name(old: str, given: T | None, new: str, value: T | None) -> T | None:
    """`value`, or `given`, which was passed under the argument's old name and causes a warning.

    Raises:
        UsageError: both are given.
    """
    if given is None:
        return value
    if value is not None:
        raise UsageError(f"{old!r} is the old name of {new!r}, and both are given; leave {old!r} out")
    warnings.warn(f"{old!r} is deprecated: use {new!r}", DeprecationWarning, stacklevel=caller())
    return given


def renamed(**names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function so that it also takes arguments by their old names: `@renamed(old="new")`."""

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kw: P.kwargs) -> T:
            for old, new in names.items():
                if old in kw:
                    kw[new] = by_old_name(old, kw.pop(old), new, kw.get(new))
            return function(*args, **kw)

        return call

    return decorated
