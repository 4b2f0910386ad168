"""qmlir-bake-parameters: replace named parameters by constants, so that weights can be folded."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...checkpoint.parameters import RAW
from ...core.mlir import ir
from ...core.rows import ParameterRow
from ...dialect.dtypes import DTYPES, Array
from ...errors import DiagnosticsError, UsageError
from ...ir.build import dense_like
from ...ir.walk import collect
from ..base import Diagnostic, Pass, State, error_at

if TYPE_CHECKING:
    from ...core.mlir import OpLike

_NAMED = re.compile(r'#flow\.parameter\.named<(?:"([^"]*)"::)?"([^"]*)">')
_BY_MLIR = {d.mlir: d for d in DTYPES.values() if d.kind == "float"}


def parameter_scopes(module: ir.Module) -> list[str]:
    """The scopes of the parameters that a program names."""
    return sorted({p["scope"] for p in named_parameters(module)})


def named_parameters(module: ir.Module) -> list[ParameterRow]:
    """Scope, key, shape and element type of each parameter that a program names, JSON-able."""
    found: list[ParameterRow] = []
    for op in module.body.operations:
        attributes = op.operation.attributes
        if op.operation.name != "util.global" or "initial_value" not in attributes:
            continue
        match = _NAMED.search(str(attributes["initial_value"]))
        t = attributes["type"].value if match else None
        if match and isinstance(t, ir.RankedTensorType):
            found.append({"scope": match.group(1) or "", "key": match.group(2), "shape": list(t.shape),
                          "element": str(t.element_type)})  # fmt: skip
    return found


@dataclass(frozen=True)
class BakeParametersPass(Pass):
    """Replaces loads of globals that are initialised by `#flow.parameter.named` with the parameter's array, from
    `State.parameters`. Without parameter files it does nothing, and the program loads its parameters at run time.
    """

    name: ClassVar[str] = "qmlir-bake-parameters"
    summary: ClassVar[str] = "replace named parameters by constants"

    def run(self, module: ir.Module, state: State) -> None:
        if state.parameters is None:
            return
        named: dict[str, tuple[str, str, OpLike]] = {}
        for definition in module.body.operations:
            operation: OpLike = definition.operation
            if operation.name == "util.global" and "initial_value" in operation.attributes:
                match = _NAMED.search(str(operation.attributes["initial_value"]))
                if match:
                    named[operation.attributes["sym_name"].value] = (
                        match.group(1) or "",
                        match.group(2),
                        operation,
                    )
        found: list[Diagnostic] = []
        loads = collect(module, "util.global.load", where=lambda op: op.attributes["global"].value in named)
        for op in loads:
            scope, key, _ = named[op.attributes["global"].value]
            try:
                array = _fitting(state.parameters(scope, key), op.results[0].type, key)
            except UsageError as e:
                found.append(error_at(op, str(e)))
                continue
            with ir.InsertionPoint(op), op.location:
                constant = dense_like(array, op.results[0])
            op.results[0].replace_all_uses_with(constant)
            op.erase()
        if found:
            # Not a PassError, because its reproducer would lack the parameter files.
            raise DiagnosticsError(found)
        for _, _, operation in named.values():
            operation.erase()


def _fitting(array: Array, t: ir.Type, key: str) -> Array:
    """The array, checked against the type that the program declares."""
    shape = tuple(t.get_dim_size(i) for i in range(t.rank))
    element = str(t.element_type)
    d = _BY_MLIR.get(element)
    if array.dtype == RAW:
        numpy = d.numpy if d is not None else np.dtype(f"i{t.element_type.width // 8}")
        if array.size != math.prod(shape) * numpy.itemsize:
            raise UsageError(f"parameter {key!r} has {array.size} bytes, but the program declares {t}")
        array = array.view(numpy).reshape(shape)
    fits = (
        array.dtype == d.numpy
        if d is not None
        else (array.dtype.kind in "iu" and f"i{array.dtype.itemsize * 8}" == element)
    )
    if array.shape != shape or not fits:
        raise UsageError(f"parameter {key!r} is {array.dtype} {list(array.shape)}, but the program declares {t}")
    return np.asarray(array)
