"""Raising patterns: convert one framework op to operations of the dialect.

A pattern is a function of a `Raising`, the op to convert, that returns the op's results or raises `PatternDeclined`::

    @raises("onnx.com.acme.ScaledMatMul")
    def scaled_matmul(op: Raising) -> Tensor:
        x, w = op.operand(0), op.operand(1)
        scale = op.constant(2)  # numpy
        return op.build("scaled_matmul", lhs=x, rhs=w, rhs_scale=scale, out_dtype="f32")

Op names are the framework's own, prefixed with the framework's name: `onnx.QLinearMatMul`, `onnx.com.microsoft.QGemm`,
`torch.quantized_decomposed.quantize_per_tensor`. A package registers one by an entry point of group `qmlir.raising`
whose name is the op's, or by importing a module that uses `raises`. The last pattern registered for an op applies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from .. import ops
from ..compiler import patterns
from ..core.mlir import ir
from ..dialect.arrays import scalar_array
from ..dialect.dtypes import DTYPES, Array, from_numpy
from ..dialect.ods import OpError, problem
from ..dialect.shapes import ShapeError
from ..errors import UsageError
from ..ir.build import dense
from ..ir.walk import defining_op
from ..spec import TensorSpec


class PatternDeclined(Exception):
    """A pattern does not apply to the op; the message says why and appears in the report."""


class NotQuantised(PatternDeclined):
    """The op is a plain float op: it is left to torch-mlir, and the report does not list it."""


class Tensor:
    """A tensor of a program that is being built: its spec (the dtype carries signedness, which MLIR's types do not) and
    either a value of builtin tensor type or an array, from which a constant is built when a value is needed.

    Sub-byte codes take one byte each: a tensor of dtype `u4` is stored as `i8`.
    """

    def __init__(self, spec: TensorSpec, value: ir.Value | None = None, array: Array | None = None) -> None:
        self.spec, self.array = spec, array
        self._value = value

    @classmethod
    def constant(cls, array: Array | np.generic, dtype: str | None = None) -> Tensor:
        """A constant. `dtype` is needed if numpy's dtype does not determine it (sub-byte codes).

        Raises UsageError for a numpy dtype that is unsupported."""
        array = np.asarray(array)
        try:
            name = dtype or from_numpy(array.dtype)
        except KeyError:
            raise UsageError(f"a constant has dtype {array.dtype}, which is unsupported") from None
        return cls(TensorSpec(array.shape, name), array=array)

    @property
    def shape(self) -> tuple[int | None, ...]:
        return self.spec.shape

    @property
    def dtype(self) -> str:
        return self.spec.dtype

    @property
    def value(self) -> ir.Value:
        """The `ir.Value`; for an array, an `arith.constant` at the current insertion point."""
        if self._value is not None:
            return self._value
        assert self.array is not None
        return dense(self.array, self.dtype if DTYPES[self.dtype].kind == "float" else None)

    def __repr__(self) -> str:
        return f"<{'constant' if self.array is not None else 'tensor'} {self.spec}>"


class Raising(ABC):
    """The framework op that a pattern converts, and the context to build its replacement, at the op's location."""

    name: str  # under which patterns are registered
    where: str  # the node's name, or file:line
    attributes: Mapping[str, object]  # Python values; arrays as numpy

    @property
    @abstractmethod
    def operands(self) -> Sequence[Tensor | None]:
        """The operands; None for an optional one that is absent."""

    @property
    @abstractmethod
    def results(self) -> Sequence[TensorSpec | None]:
        """The specs that the framework states for the results; None for a result without one."""

    @property
    @abstractmethod
    def location(self) -> ir.Location:
        """The op's `ir.Location`, which `build` gives to new ops."""

    # ---- reading

    def operand(self, i: int) -> Tensor:
        """Operand `i`. Raises PatternDeclined when it is absent."""
        found = self.optional(i)
        if found is None:
            raise PatternDeclined(f"operand {i} is missing")
        return found

    def optional(self, i: int) -> Tensor | None:
        """Operand `i`, None when it is absent."""
        return self.operands[i] if i < len(self.operands) else None

    def constant(self, i: int) -> Array:
        """Operand `i` as numpy. Raises PatternDeclined when it is not constant."""
        found = self.operand(i)
        if found.array is None:
            raise PatternDeclined(f"operand {i} is not constant")
        return found.array

    # ---- building

    def raised_by(self, pattern: Callable[..., object]) -> list[Tensor]:
        """Apply a pattern to the op and return the results, always as a list."""
        made = pattern(self)
        if isinstance(made, Tensor):
            return [made]
        if not isinstance(made, Iterable):
            raise TypeError(f"it gave a {type(made).__name__}, not tensors")
        return list(made)

    def build(self, op: str, **arguments: object) -> Any:
        """Build an operation of the dialect by name (`scaled_matmul`, `conv2d_q`, `dequantize`, ...): operands are
        `Tensor`s, numpy arrays or numbers; attributes are Python values; argument names are those of `qmlir.ops`.
        Returns its result, or a tuple of several.

        Raises:
            PatternDeclined: for arguments that the operation does not accept, with its message.
            UsageError: if no operation has this name.
        """
        return build(op, self.location, **arguments)


# The parameter of a pattern may be a front end's own subclass of Raising.
P = TypeVar("P", bound=Callable[[Any], Tensor | Sequence[Tensor]])


def register_raising(op_name: str, pattern: P) -> None:
    """Register `pattern` for the framework op `op_name`."""
    patterns.register_raising(op_name, pattern)


def raises(*op_names: str) -> Callable[[P], P]:
    """Decorator: register a function for framework ops of these names."""

    def decorate(pattern: P) -> P:
        for name in op_names:
            register_raising(name, pattern)
        return pattern

    return decorate


def build(op: str, location: ir.Location | None = None, **arguments: object) -> Any:
    """`Raising.build` at the current insertion point."""
    operation = ops.named(op)
    try:
        arguments = operation.by_current_names(arguments)
    except UsageError as e:
        raise PatternDeclined(str(e)) from None
    known = set(operation.operands)
    tensors = {n: _tensor(n, v) for n, v in arguments.items() if n in known and v is not None}
    attributes = {n: v for n, v in arguments.items() if n not in known and v is not None}
    with location if location is not None else ir.Location.current:
        values = {n: t.value for n, t in tensors.items()}
        try:
            made = operation.emit(values, {n: t.spec for n, t in tensors.items()}, attributes)
        except (UsageError, OpError, ShapeError) as e:
            raise PatternDeclined(f"{op}: {e}") from None
    owner = defining_op(made[0][0])
    if message := problem(owner):
        owner.erase()
        raise PatternDeclined(f"{op} {message}")
    results = tuple(Tensor(spec, value) for value, spec in made)
    return results[0] if len(results) == 1 else results


def _tensor(name: str, value: object) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return Tensor.constant(scalar_array(name, value) if isinstance(value, (int, float)) else np.asarray(value))
