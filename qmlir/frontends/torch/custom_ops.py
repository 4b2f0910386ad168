"""`torch.ops.qmlir.*`: the operations of the dialect as torch operators, for use in a model.

`torch.ops.qmlir.scaled_matmul(x, w, lhs_scale=..., rhs_scale=...)` takes the arguments of `qmlir.ops.scaled_matmul`:
required tensors by position, the rest by keyword. Called eagerly, it runs the compiled operation on the CPU; in an
exported program, it is raised to the operation. Fusions in FX graphs also create calls of these operators.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import torch

from ... import ops
from ...dialect.dtypes import dtype_name
from ...dialect.ods import Field, Keywords, Spec
from ...dialect.renamed import RENAMED
from .dtypes import FROM_TORCH, TO_TORCH

NAMESPACE = "qmlir"
OPERATIONS = ops.BY_EITHER_NAME  # including `dequant`, which older exported programs call for `dequantize`


def schema(name: str) -> str:
    """The torch schema of an operation; arguments under their former names come last."""
    operation = OPERATIONS[name]
    definition = operation.definition
    fields = {f.name: f for f in (*definition.FIELDS, *definition.PARAMETERS)}
    renamed = RENAMED.get(operation.name, {})
    required = [f"Tensor {n}" for n in operation.required]
    stated = [f"{_kind(fields[n])} {n}" for n in operation.attributes if not fields[n].optional]
    optional = [f"Tensor? {n}=None" for n in operation.operands if n not in operation.required]
    # An attribute with a former name defaults to None, to tell whether it was passed.
    attributes = [
        _attribute(fields[n], plain=n in renamed.values()) for n in operation.attributes if fields[n].optional
    ]
    now = {**dict.fromkeys(operation.operands, "Tensor"), **{n: _kind(fields[n]) for n in operation.attributes}}
    old = [f"{now[new]}? {n}=None" for n, new in renamed.items() if new in now]
    # A torch schema fixes the number of results; `_specs` adds those that the operation does not return.
    results = ", ".join(["Tensor"] * definition.RESULTS[1])
    return f"{name}({', '.join([*required, '*', *stated, *optional, *attributes, *old])}) -> ({results})"


def _attribute(field: Field, plain: bool) -> str:
    """An optional attribute in a schema, with the default of its definition, or None if `plain`."""
    kind, default = _kind(field), field.function_default
    if default is None or plain:
        return f"{kind}? {field.name}=None"
    text = f'"{default}"' if isinstance(default, str) else str(list(default) if isinstance(default, tuple) else default)
    return f"{kind} {field.name}={text}"


def _kind(field: Field) -> str:
    """The schema type of an attribute."""
    assert field.attribute is not None
    python = field.attribute.python
    return f"{python[len('tuple[') :].partition(',')[0]}[]" if python.startswith("tuple[") else python


def _split(
    name: str, args: Sequence[torch.Tensor], kwargs: Mapping[str, object]
) -> tuple[dict[str, torch.Tensor], Keywords]:
    """The tensors and the attributes that are passed, by their current names."""
    operation = OPERATIONS[name]
    given = {**dict(zip(operation.required, args, strict=False)), **kwargs}
    given = operation.by_current_names({k: v for k, v in given.items() if v is not None})
    tensors = {k: v for k, v in given.items() if k in operation.operands}
    attributes = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items() if k not in tensors}
    return tensors, {k: dtype_name(v) if k.endswith("dtype") else v for k, v in attributes.items()}


def _specs(name: str, tensors: Mapping[str, torch.Tensor], attributes: Keywords) -> list[Spec]:
    """Shapes and dtypes of all results. One that the operation does not return (the zero point of a symmetric
    quantisation) is i32 zeros in the shape of the result before it."""
    definition = OPERATIONS[name].definition
    found = definition.inferred({k: (tuple(v.shape), FROM_TORCH[v.dtype]) for k, v in tensors.items()}, attributes)
    return [*found, *[(found[-1][0], "i32")] * (definition.RESULTS[1] - len(found))]


def _eager(name: str) -> Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]:
    def call(*args: torch.Tensor, **kwargs: object) -> torch.Tensor | tuple[torch.Tensor, ...]:
        tensors, attributes = _split(name, args, kwargs)
        # The base class' call, because that of a sparse product takes its weight as one object.
        arrays = {k: v.detach().contiguous() for k, v in tensors.items()}
        found = ops.Operation.__call__(OPERATIONS[name], **arrays, **attributes)
        results = list(found) if isinstance(found, tuple) else [found]
        if len(results) < OPERATIONS[name].definition.RESULTS[1]:
            more = _specs(name, tensors, attributes)[len(results) :]
            results += [torch.zeros(shape, dtype=TO_TORCH[dtype]) for shape, dtype in more]
        return tuple(results) if len(results) > 1 else results[0]

    return call


def _fake(name: str) -> Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]:
    def call(*args: torch.Tensor, **kwargs: object) -> torch.Tensor | tuple[torch.Tensor, ...]:
        tensors, attributes = _split(name, args, kwargs)
        found = _specs(name, tensors, attributes)
        like = next(iter(tensors.values()))
        results = [like.new_empty(shape, dtype=TO_TORCH[dtype]) for shape, dtype in found]
        return tuple(results) if len(results) > 1 else results[0]

    return call


@functools.cache
def register() -> None:
    """Define the operators, once per process."""
    for name in OPERATIONS:
        define(schema(name), _fake(name), _eager(name))


def define(text: str, fake: Callable[..., object], eager: Callable[..., object] | None = None) -> None:
    """Define the operator of a schema: `fake` returns results for tracing, `eager` computes them on the CPU."""
    name, library = text.partition("(")[0], _library()
    library.define(text)
    if eager is not None:
        library.impl(name, eager, "CPU")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=library)


@functools.cache
def _library() -> torch.library.Library:
    """The library of the operators, cached because its definitions vanish when it is garbage-collected."""
    return torch.library.Library(NAMESPACE, "FRAGMENT")
