"""Names that arguments had before: they work, with a warning that says the name of today."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from ..errors import UsageError, caller

T = TypeVar("T")


def by_old_name(given: dict[str, Any], old: str, new: str, value: T) -> T:
    """`value`, or what is given under the argument's old name, which is taken out of `given`.

    Raises:
        UsageError: both are given.
    """
    if given.get(old) is None:
        given.pop(old, None)
        return value
    if value is not None:
        raise UsageError(f"{old!r} is the old name of {new!r}, and both are given; leave {old!r} out")
    warnings.warn(f"{old!r} is deprecated: use {new!r}", DeprecationWarning, stacklevel=caller())
    found: T = given.pop(old)
    return found
