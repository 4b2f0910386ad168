"""`torch.ops.qmlir.*`: the operations of the dialect as torch operators, for use in a model.

`torch.ops.qmlir.scaled_matmul(x, w, lhs_scale=..., rhs_scale=...)` takes what `qmlir.ops.scaled_matmul` takes, tensors
by position and the rest by keyword. Called eagerly it runs the compiled operation on the CPU; exported, it is the
operation. Raised programs are written in them too: what is fused in an FX graph is a call of one of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ... import ops
from ...dialect import (
    infer,
    ops as _dialect,  # noqa: F401  (defines the dialect)
)
from ...dialect.ods import OPS, Field
from .dtypes import FROM_TORCH, TO_TORCH

NAMESPACE = "qmlir"
OPERATIONS = ("scaled_matmul", "conv2d_q", "grouped_matmul", "route", "moe", "moe_align_block_size", "dequant",
              "quantize", "dynamic_quantize", "unpack")  # fmt: skip
# torch's schemas fix how many results there are: a symmetric quantisation has zeros for its zero point.
RESULTS = {"dynamic_quantize": 3, "route": 2, "moe_align_block_size": 3}
_SCALARS = {"a bool": "bool", "an integer": "int", "a float": "float"}


def schema(name: str) -> str:
    """The torch schema of an operation."""
    operation = ops.BY_NAME[name]
    fields = {f.name: f for f in OPS[f"qmlir.{name}"].FIELDS}
    required = [f"Tensor {n}" for n in operation._required]
    optional = [f"Tensor? {n}=None" for n in operation._operands if n not in operation._required]
    attributes = [f"{_kind(n, fields.get(n))}? {n}=None" for n in operation._attributes]
    results = ", ".join(["Tensor"] * RESULTS.get(name, 1))
    return f"{name}({', '.join([*required, '*', *optional, *attributes])}) -> ({results})"


def _kind(name: str, field: Field | None) -> str:
    """The schema type of an attribute. Those that shape the result alone have no field."""
    if field is None or field.attribute is None:
        return "int" if name == "length" else "str"
    described = field.attribute.description
    if described in _SCALARS:
        return _SCALARS[described]
    if described.startswith("an array"):
        return "int[]" if "i64" in described else "float[]"
    return "str"


def _split(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors and attributes by name, those that are given."""
    operation = ops.BY_NAME[name]
    given = {**dict(zip(operation._required, args, strict=False)), **kwargs}
    given = {k: v for k, v in given.items() if v is not None}
    tensors = {k: v for k, v in given.items() if k in operation._operands}
    return tensors, {k: tuple(v) if isinstance(v, list) else v for k, v in given.items() if k not in tensors}


def _eager(name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        tensors, attributes = _split(name, args, kwargs)
        found = ops.BY_NAME[name](**{k: v.detach().contiguous() for k, v in tensors.items()}, **attributes)
        results = list(found) if isinstance(found, tuple) else [found]
        if name == "dynamic_quantize" and len(results) == 2:
            results.append(torch.zeros(results[1].shape, dtype=torch.int32))
        return tuple(results) if len(results) > 1 else results[0]

    return call


def _fake(name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        tensors, attributes = _split(name, args, kwargs)
        specs = {k: (tuple(v.shape), FROM_TORCH[v.dtype]) for k, v in tensors.items()}
        found = infer.RESULTS[name](specs, attributes)
        if name == "dynamic_quantize" and len(found) == 2:
            found = [*found, (found[1][0], "i32")]
        like = next(iter(tensors.values()))
        results = [like.new_empty(shape, dtype=TO_TORCH[dtype]) for shape, dtype in found]
        return tuple(results) if len(results) > 1 else results[0]

    return call


_library: Any = None


def register() -> None:
    """Define the operators, once a process."""
    global _library
    if _library is not None:
        return
    library = torch.library.Library(NAMESPACE, "DEF")
    for name in OPERATIONS:
        library.define(schema(name))
        library.impl(name, _eager(name), "CPU")
        torch.library.register_fake(f"{NAMESPACE}::{name}", _fake(name), lib=library)
    _library = library
