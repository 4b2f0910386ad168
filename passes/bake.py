"""qmlir-bake-parameters: named parameters become constants, so that folding sees the weights."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._mlir import ir
from ..dialect.dtypes import DTYPES
from ..errors import UsageError
from .base import Diagnostic, Pass, State, error_at, fail
from .lower.build import dense

_NAMED = re.compile(r'#flow\.parameter\.named<(?:"([^"]*)"::)?"([^"]*)">')
_BY_MLIR = {d.mlir: d for d in DTYPES.values() if d.kind == "float"}


def parameter_scopes(module: Any) -> list[str]:
    """The scopes of the parameters that a program names."""
    values = (str(op.operation.attributes["initial_value"]) for op in module.body.operations
              if op.operation.name == "util.global" and "initial_value" in op.operation.attributes)  # fmt: skip
    return sorted({m.group(1) or "" for m in map(_NAMED.search, values) if m})


@dataclass(frozen=True)
class BakeParametersPass(Pass):
    """Replaces loads of globals that are initialised by `#flow.parameter.named` with the parameter's array, read
    through `State.parameters`. Without parameter files it does nothing, and the program loads its parameters at
    run time."""

    name: ClassVar[str] = "qmlir-bake-parameters"
    summary: ClassVar[str] = "turn named parameters into constants"

    def run(self, module: Any, state: State) -> None:
        if state.parameters is None:
            return
        named: dict[str, tuple[str, str, Any]] = {}
        for op in module.body.operations:
            operation = op.operation
            if operation.name == "util.global" and "initial_value" in operation.attributes:
                match = _NAMED.search(str(operation.attributes["initial_value"]))
                if match:
                    named[operation.attributes["sym_name"].value] = (
                        match.group(1) or "",
                        match.group(2),
                        operation,
                    )
        found: list[Diagnostic] = []
        loads: list[Any] = []

        def visit(op: Any) -> Any:
            if op.name == "util.global.load" and op.attributes["global"].value in named:
                loads.append(op)
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        for op in loads:
            scope, key, _ = named[op.attributes["global"].value]
            try:
                array = _fitting(state.parameters(scope, key), op.results[0].type, key)
            except UsageError as e:
                found.append(error_at(op, str(e)))
                continue
            with ir.InsertionPoint(op), op.location:
                t = op.results[0].type.element_type
                constant = dense(array, str(t) if isinstance(t, ir.FloatType) else None)
            op.results[0].replace_all_uses_with(constant)
            op.erase()
        fail(self.name, found)
        for _, _, operation in named.values():
            operation.erase()


def _fitting(array: Any, t: Any, key: str) -> Any:
    """The array, checked against the type that the program declares."""
    shape = tuple(t.get_dim_size(i) for i in range(t.rank))
    element = str(t.element_type)
    d = _BY_MLIR.get(element)
    fits = (
        array.dtype == d.numpy
        if d is not None
        else (array.dtype.kind in "iu" and f"i{array.dtype.itemsize * 8}" == element)
    )
    if array.shape != shape or not fits:
        raise UsageError(f"parameter {key!r} is {array.dtype} {list(array.shape)}, but the program declares {t}")
    return np.asarray(array)
