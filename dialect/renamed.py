"""Old names of operands and attributes that were renamed.

`qmlir.ops`, `qmlir.reference` and the reader of saved programs accept the old and the current name, and warn about the
old one. The verifier refuses an op that has both; nothing else uses the old names.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TypeVar

from ..errors import caller

T = TypeVar("T")
_RHS_NAMES = {"zero_mode": "rhs_zero_mode", "packing": "rhs_packing"}
# By op name in the dialect: old name to current name.
RENAMED: dict[str, dict[str, str]] = {
    "conv2d_q": {
        **{f"{side}_{what}": f"{name}_{what}" for side, name in (("lhs", "input"), ("rhs", "weight"))
           for what in ("scale", "zero_point", "global_scale", "dtype")},
        "lhs_zero_mode": "input_zero_mode", "zero_mode": "weight_zero_mode", "packing": "weight_packing",
        "filter_layout": "weight_layout",
    },
    "grouped_matmul": _RHS_NAMES,
    "moe": {"zero_mode": "weight_zero_mode", "packing": "weight_packing"},
    "scaled_matmul": _RHS_NAMES,
    "sparse_matmul": _RHS_NAMES,
}  # fmt: skip


def current_names(op: str, given: Mapping[str, T]) -> dict[str, T]:
    """The arguments of an op under their current names. An old name that is not None gives a warning at the caller's
    line.

    Raises ValueError if an argument is given under both of its names.
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
