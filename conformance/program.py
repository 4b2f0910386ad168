"""A program of a few ops on named values: its IR, its compiled form, and the reference of each step.

The results of each step are results of the program, so that each step can be compared with its reference on the inputs
that the compiled program gave it: errors do not accumulate over the steps. Only an exact step need not be `returned`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import qmlir
from qmlir import TensorSpec
from qmlir.core.cache import key_of
from qmlir.dialect.dtypes import from_numpy

from .primitives import PRIMITIVES, type_of

Array = Any


@dataclass(frozen=True)
class Step:
    """One op: the names of its values by the operand names of `qmlir.ops`, and the names of its results."""

    op: str
    operands: dict[str, str]
    attributes: dict[str, Any]
    results: tuple[str, ...]
    returned: bool = True


@dataclass
class Program:
    """Arrays and the steps on them. `arrays` that a step reads are arguments; `constants` are folded and packed when
    the program is compiled. `notes` are remarks for the reader of a result."""

    arrays: dict[str, Array] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def value(self, name: str, array: Array) -> str:
        """Adds an argument of the program. Returns its name."""
        assert name not in self.arrays
        self.arrays[name] = np.ascontiguousarray(array) if np.ndim(array) else np.asarray(array)
        return name

    def constant(self, array: Array) -> str:
        """Adds a constant. Returns its name."""
        name = f"constant{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def step(
        self, op: str, results: tuple[str, ...], operands: dict[str, Any], returned: bool = True, **attributes: Any
    ) -> None:
        """Adds an op. An operand is the name of a value, or an array, which becomes the argument `<result>_<operand>`
        (plain `<operand>` for the only step that has it)."""
        named = {}
        for operand, value in operands.items():
            if value is None:
                continue
            if not isinstance(value, str):
                own = operand if operand not in self.arrays else f"{results[0]}_{operand}"
                value = self.value(own, value)
            named[operand] = value
        self.steps.append(Step(op, named, {k: v for k, v in attributes.items() if v is not None}, results, returned))

    def results(self) -> list[str]:
        """Names of the program's results, in the order of the steps."""
        return [name for s in self.steps if s.returned for name in s.results]

    def arguments(self) -> list[str]:
        """Names of the arrays that the steps read, in the order of the program's arguments."""
        used = {name for s in self.steps for name in s.operands.values()}
        return [name for name in self.arrays if name in used]

    def spec(self, name: str) -> TensorSpec:
        array = self.arrays[name] if name in self.arrays else self.constants[name]
        return TensorSpec(array.shape, from_numpy(array.dtype))

    def compile(self, target: str, results: Sequence[str] | None = None) -> qmlir.Artifact:
        """The compiled program: `main` takes `arguments()` and returns `results` (default: `results()`)."""
        from qmlir.compiler.compilation import compile_built
        from qmlir.compiler.options import Options
        from qmlir.targets import resolve

        resolved, outputs = resolve(target), self.results() if results is None else list(results)
        steps = [[s.op, s.operands, s.attributes, s.results] for s in self.steps]
        arguments = {n: str(self.spec(n)) for n in self.arguments()}
        digests = {n: [str(self.spec(n)), hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()]
                   for n, a in self.constants.items()}  # fmt: skip
        key = key_of(["program", steps, arguments, digests, outputs, resolved.spelling, resolved.row()])
        return compile_built(lambda ctx: self._module(outputs), resolved, Options(), key)

    def _module(self, outputs: Sequence[str]) -> Any:
        from qmlir.core.mlir import func, ir
        from qmlir.ir.build import dense
        from qmlir.ir.signature import DTYPE, NAME

        order = self.arguments()
        specs = {n: self.spec(n) for n in (*order, *self.constants)}
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            argument_types = [type_of(specs[n]) for n in order]
            f = func.FuncOp("main", (argument_types, []))
            f.attributes["arg_attrs"] = ir.ArrayAttr.get([
                ir.DictAttr.get({NAME: ir.StringAttr.get(n), DTYPE: ir.StringAttr.get(specs[n].dtype)}) for n in order
            ])  # fmt: skip
            with ir.InsertionPoint(f.add_entry_block()):
                values = dict(zip(order, f.arguments, strict=True))
                values |= {n: dense(a) for n, a in self.constants.items()}
                for s in self.steps:
                    emit = PRIMITIVES[s.op].emit if s.op in PRIMITIVES else qmlir.ops.BY_NAME[s.op].emit
                    made = emit({k: values[n] for k, n in s.operands.items()},
                                {k: specs[n] for k, n in s.operands.items()}, s.attributes)  # fmt: skip
                    for name, (value, spec) in zip(s.results, made, strict=True):
                        values[name], specs[name] = value, spec
                func.ReturnOp([values[n] for n in outputs])
            result_types = [type_of(specs[n]) for n in outputs]
            f.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(argument_types, result_types))
            f.attributes["res_attrs"] = ir.ArrayAttr.get(
                [ir.DictAttr.get({DTYPE: ir.StringAttr.get(specs[n].dtype)}) for n in outputs]
            )
        return module


def reference(step: Step, values: dict[str, Array], **changed: Any) -> list[Array]:
    """The reference of one step on the given values. `changed` replaces attributes."""
    operands = {k: values[n] for k, n in step.operands.items()}
    if step.op in PRIMITIVES:
        return [PRIMITIVES[step.op].reference(**operands)]
    if step.op == "sparse_matmul":
        operands, attributes = _sparse(operands, step.attributes | changed)
        return [qmlir.reference.sparse_matmul(**operands, **attributes)]
    y = qmlir.reference.BY_NAME[step.op](**operands, **{**step.attributes, **changed})
    if not isinstance(y, tuple):
        return [y]
    return [x for x in y if x is not None]


def _sparse(operands: dict[str, Array], attributes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Operands and attributes of the Python function, which takes the parts of the weight as one `SparseWeight`."""
    own = dict(attributes)
    weight = qmlir.SparseWeight(
        format=own.pop("format"), shape=own.pop("rhs_shape"), dtype=own.pop("rhs_dtype"), values=operands["values"],
        indices=operands["indices"], indptr=operands.get("indptr"), block=own.pop("block", None),
        rhs_transposed=own.pop("rhs_transposed", False),
    )  # fmt: skip
    rest = {k: v for k, v in operands.items() if k not in ("values", "indices", "indptr")}
    return rest | {"weight": weight}, own
