"""`qmlir.ops.sparse_matmul`, whose weight is one argument."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter, Signature
from typing import Any

from ..dialect.ods import Field
from ..errors import UsageError
from ..runtime.artifact import Artifact
from ..sparse import SparseSpec, SparseWeight
from ..targets.strategy import Choice
from .operation import Operation

# Attributes of a sparse product, each with the field of the weight that determines it.
_OF_SPARSE_WEIGHT = {"format": "format", "rhs_shape": "shape", "block": "block", "rhs_dtype": "dtype",
                     "rhs_packing": "packing", "rhs_transposed": "rhs_transposed"}  # fmt: skip


class SparseOperation(Operation):
    """A product whose weight is one argument that contains several arrays."""

    def _unnamed(self) -> list[Parameter]:
        kind = Parameter.POSITIONAL_OR_KEYWORD
        return [Parameter("lhs", kind, annotation="ArrayLike"), Parameter("weight", kind, annotation="SparseWeight")]

    def _signature(self, fields: Sequence[Field]) -> Signature:
        """The signature without the arguments that the weight determines."""
        found = super()._signature(fields)
        implied = (*_OF_SPARSE_WEIGHT, "values", "indices", "indptr")
        return found.replace(parameters=[p for n, p in found.parameters.items() if n not in implied])

    def __call__(self, *args: object, target: str = "cpu", **kw: object) -> Any:
        return super().__call__(target=target, **self._spread(args, kw))

    def compile(
        self, *args: object, target: str = "cpu", flags: tuple[str, ...] = (), strict: bool = False,
        pipeline: str | None = None, choice: Choice | None = None, **kw: object,
    ) -> Artifact:  # fmt: skip
        """Compile ahead of time. Returns an `Artifact`.

        A `TensorSpec` becomes an argument of the program's `main`, in the order of the op's operands; an array becomes
        a constant. The weight is a `SparseWeight`, which is folded, or a `SparseSpec`, whose arrays are the arguments
        `values`, `indices` and `indptr` of the program, checked at run time.
        """
        return super().compile(target=target, flags=flags, strict=strict, pipeline=pipeline, choice=choice,
                               **self._spread(args, kw, spec=True))  # fmt: skip

    def _spread(self, args: tuple[object, ...], kw: dict[str, object], spec: bool = False) -> dict[str, object]:
        """Arguments by name, the weight as the op's operands and attributes."""
        names = ("lhs", "weight")
        if len(args) > len(names):
            raise UsageError(f"{self.__name__} takes {len(names)} positional arguments: {', '.join(names)}")
        every = {**dict(zip(names, args, strict=False)), **self.by_current_names(kw)}
        for name in names:
            if every.get(name) is None:
                raise UsageError(f"{self.__name__} needs the argument {name!r}")
        weight = every.pop("weight")
        if not isinstance(weight, (SparseWeight, SparseSpec) if spec else SparseWeight):
            raise UsageError(
                f"the weight of {self.__name__} is a {type(weight).__name__}, but must be a SparseWeight"
                f"{' or a SparseSpec' if spec else ''}: SparseWeight.from_scipy, from_torch and from_dense make one"
            )
        implied = {**weight.operands(), **{k: getattr(weight, v) for k, v in _OF_SPARSE_WEIGHT.items()}}
        for name in implied:
            if every.get(name) is not None:
                raise UsageError(f"{self.__name__} has no argument {name!r}: the weight says it")
        return {**every, **implied}
