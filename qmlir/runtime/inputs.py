"""Makes arguments for programs that are checked or measured without data: random values that their ops accept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ..core.rows import RoleRow
from ..dialect.dtypes import DTYPES, Array
from ..dialect.sizes import Size
from ..errors import InputError, UsageError
from ..spec import Signature

_MOST_ELEMENTS = 1 << 40  # more do not fit into the memory of any machine, or into a size of numpy


def make(
    signature: Signature, given: Sequence[RoleRow] | None = None, *, size: int = 4, seed: int = 0,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> list[Array]:  # fmt: skip
    """Make an array for each argument.

    Args:
        given: the roles of the arguments; unknown ones are guessed from their names.
        size: the value of dynamic sizes.
        shapes: whole shapes by argument name.

    Raises:
        UsageError: a shape that does not fit, or an argument whose values cannot be made up.
    """
    for what, number in (("seed", seed), ("size", size)):
        if number < 0:
            raise UsageError(f"{what} is {number}, which is less than 0")
    rng = np.random.default_rng(seed)
    known = given or [{} for _ in signature.inputs]
    stated = shapes or {}
    unknown = sorted(set(stated) - {name for name, _ in signature.inputs})
    if unknown:
        names = ", ".join(n for n, _ in signature.inputs) or "none"
        raise UsageError(f"there is no argument {unknown[0]!r}; arguments: {names}")
    made = []
    values = _named(signature, stated)
    unnamed = {}
    for x in signature.limits:
        symbol = signature.inputs[x.argument][1].symbols[x.axis]
        if symbol is None:
            unnamed[x.argument, x.axis] = x.nearest(size)
        else:
            form = Size.parse(symbol)
            values.setdefault(form.name, (x.nearest(form.of(size)) - form.add) // form.mul)
    for i, (name, spec) in enumerate(signature.inputs):
        shape = stated.get(name) or tuple(
            _number(s, values, unnamed.get((i, axis), size)) for axis, s in enumerate(spec.sizes)
        )
        if not spec.accepts(shape):
            raise UsageError(f"argument {name!r} is {spec}, which takes no shape {'x'.join(map(str, shape))}")
        if math.prod(shape) > _MOST_ELEMENTS:
            raise UsageError(f"argument {name!r} of {'x'.join(map(str, shape))} elements is too large to generate")
        made.append(shape)
    arrays = [
        _values(rng, name, spec.dtype, shape, role, made)
        for (name, spec), shape, role in zip(signature.inputs, made, known, strict=True)
    ]
    for r in signature.ranges:
        part = arrays[r.argument][r.slices]
        # Without negative indices, which count from the end, if the range has others.
        part[...] = rng.integers(max(r.least, min(r.most, 0)), r.most, part.shape, endpoint=True)
    return arrays


def given_or_made(
    arguments: Sequence[Array] | Mapping[str, Array] | None, signature: Signature, roles: Sequence[RoleRow] | None,
    *, size: int, seed: int, shapes: Mapping[str, tuple[int, ...]] | None,
) -> list[Array]:  # fmt: skip
    """`arguments` in the order of the signature, or those that `make` makes if they are None."""
    if arguments is None:
        return make(signature, roles, size=size, seed=seed, shapes=shapes)
    return ordered(arguments, signature)


def ordered(given: Sequence[Array] | Mapping[str, Array], signature: Signature) -> list[Array]:
    """The arguments in the order of the signature. They are given in that order, or by name. If none of the names is
    that of an argument, as with the names that numpy generates, the order of the mapping counts.

    Raises:
        InputError: some of the names are those of arguments, and an argument is missing.
    """
    if not isinstance(given, Mapping):
        return list(given)
    names = [name for name, _ in signature.inputs]
    if not set(names) & set(given):
        return list(given.values())
    for name in names:
        if name not in given:
            raise InputError(f"there is no array for argument {name!r}, only {', '.join(given)}")
    return [given[name] for name in names]


def _named(signature: Signature, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The values of named sizes in the given shapes."""
    found: dict[str, int] = {}
    for name, spec in signature.inputs:
        for symbol, number in zip(spec.symbols, shapes.get(name, ()), strict=False):
            if symbol is not None and Size.parse(symbol).plain:
                found.setdefault(symbol, number)
    return found


def _number(size: int | str | None, values: Mapping[str, int], default: int) -> int:
    """The value of a size, which is a number, a name, an expression of a name, or None for `default`."""
    if isinstance(size, str):
        parsed = Size.parse(size)
        return parsed.of(values.get(parsed.name, default))
    return default if size is None else size


def _values(
    rng: np.random.Generator,
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    role: RoleRow,
    shapes: list[tuple[int, ...]],
) -> Array:  # fmt: skip
    d, kind = DTYPES[dtype], str(role.get("role") or name)
    if kind == "expert_ids":
        return rng.integers(0, int(role.get("limit", 1)), shape).astype(d.numpy)
    if kind == "group_sizes":
        return _partition(rng, role, shape, shapes).astype(d.numpy)
    if kind in ("indices", "indptr"):
        raise UsageError(f"argument {name!r} holds the structure of a sparse weight, which has to be given: -i FILE")
    if "scale" in kind or kind == "out_multiplier":
        return (2.0 ** rng.integers(-7, -2, shape) * rng.uniform(1, 2, shape)).astype(d.numpy)
    if kind == "routing_weights":
        return rng.uniform(0.1, 1, shape).astype(d.numpy)
    if "zero_point" in kind:
        return rng.integers(0 if dtype.startswith("u") else -8, 9, shape).astype(d.numpy)
    if d.kind == "float":
        return rng.standard_normal(shape).astype(d.numpy)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if d.bits > 8:
        return rng.integers(-1000 if d.signed else 0, 1001, shape).astype(d.numpy)
    return rng.integers(d.lo, d.hi + 1, shape).astype(d.numpy)


def _partition(rng: np.random.Generator, role: RoleRow, shape: tuple[int, ...], shapes: list[tuple[int, ...]]) -> Array:
    """Random sizes of groups that add up to the number of rows."""
    at = role.get("rows_of")
    rows = shapes[at][0] if at is not None else role.get("rows")
    if rows is None:
        raise UsageError("'group_sizes' has to add up to rows that are computed; give it: -i FILE")
    cuts = np.sort(rng.integers(0, rows + 1, max(math.prod(shape) - 1, 0)))
    return np.diff([0, *cuts, rows])[: math.prod(shape)].reshape(shape)


def bytes_of(arrays: list[Array]) -> int:
    return sum(int(np.asarray(a).nbytes) for a in arrays)
