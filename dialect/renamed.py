"""Names of operands and attributes that an op had before, and has under another name now.

`qmlir.ops`, `qmlir.reference` and the reader of saved programs take both and warn of the old one; nothing else knows
these.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TypeVar

from ..errors import caller

T = TypeVar("T")
_OF_RHS = {"zero_mode": "rhs_zero_mode", "packing": "rhs_packing"}
# By the op's name in the dialect: each old name, and the one to use.
RENAMED: dict[str, dict[str, str]] = {
    "conv2d_q": {
        **{f"{side}_{what}": f"{name}_{what}" for side, name in (("lhs", "input"), ("rhs", "weight"))
           for what in ("scale", "zero_point", "global_scale", "dtype")},
        "lhs_zero_mode": "input_zero_mode", "zero_mode": "weight_zero_mode", "packing": "weight_packing",
        "filter_layout": "weight_layout",
    },
    "grouped_matmul": _OF_RHS,
    "moe": {"zero_mode": "weight_zero_mode", "packing": "weight_packing"},
    "scaled_matmul": _OF_RHS,
    "sparse_matmul": _OF_RHS,
}  # fmt: skip


def current_names(op: str, given: Mapping[str, T]) -> dict[str, T]:
    """Arguments of an op by its names of today; old ones that are not None are warned of at the caller's line.

    Raises ValueError where an argument is given by both of its names.
    """
    renamed = RENAMED.get(op, {})
    found: dict[str, T] = {}
    for name, value in given.items():
        new = renamed.get(name)
        if new is not None and value is not None:
            if given.get(new) is not None:
                raise ValueError(f"{name!r} is the old name of {new!r}, and both are given; leave {name!r} out")
            warnings.warn(f"{op}: {name!r} is deprecated: use {new!r}", DeprecationWarning, stacklevel=caller())
        if new is None or value is not None:
            found[new or name] = value
    return found
