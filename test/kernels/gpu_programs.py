"""Run whole GPU programs without a GPU: qmlir's kernels in the interpreter, everything around them on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernels import gpu_interpreter, gpu_workgroup

import qmlir
from qmlir.core.mlir import arith, context, ir, tensor


def run(artifact: Any, *inputs: Any) -> list[Any]:
    """The results of a program. Each dispatch of a qmlir kernel is interpreted, from the IR that IREE was given, on the
    operands that the rest of the program, compiled for the CPU, computes."""
    text, results = artifact.source("configured"), []
    # Inside the program, bytes have no sign.
    inputs = tuple(a.view(np.int8) if a.dtype == np.uint8 else a for a in inputs)
    with context():
        module = ir.Module.parse(text)
        kinds = [(_entry(op), [r.type for r in op.results]) for op in _dispatches(module)]
        for number, (entry, made) in enumerate(kinds):
            dynamic = sum(kind.is_dynamic_dim(d) for kind in made for d in range(kind.rank))
            sizes, operands = [], []
            values = [np.asarray(value) for value in _several(_without_kernels(text, number)(*inputs, *results))]
            asked = [int(size) for size in values[len(values) - dynamic :]]
            for value in values[: len(values) - dynamic]:
                (operands if value.dtype != np.int32 or value.ndim else sizes).append(value)
            outs = []
            for kind in made:
                shape = [asked.pop(0) if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank)]
                outs.append(np.full(shape, 77, gpu_workgroup.dtype_of(kind.element_type)))
            gpu_interpreter.run(module, operands, outs, *(int(size) for size in sizes), entry=entry)
            results += outs
    return _several(_without_kernels(text, None)(*inputs, *results))


def dispatches(artifact: Any) -> list[str]:
    """The names of the dispatches, without those that only compute the i32 indices that sort rows: IREE's names end
    with the types that a dispatch reads and writes."""
    text = artifact.source("dispatch")
    names = [line.split("@")[1].split()[0] for line in text.splitlines() if "hal.executable.export public" in line]
    names = [name for name in names if "_above_" not in name]  # the same dispatch, for more rows
    return [name for name in names if not name.endswith("_i32")]


def _dispatches(module: Any) -> list[Any]:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "flow.dispatch":
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _entry(dispatch: Any) -> str:
    return str(dispatch.attributes["entry_points"]).split("@")[1].split("::")[0]


def _without_kernels(text: str, number: int | None) -> Any:
    """The program without its kernels, as a function for the CPU. It takes the program's arguments and the results of
    the dispatches before `number`, and returns that dispatch's operands or, for None, the program's results."""
    with context():
        module = ir.Module.parse(text)
        calls = _dispatches(module)
        function = calls[0].parent
        block = function.regions[0].blocks[0]
        last = list(block.operations)[-1].operation
        for call in calls[:number]:
            for result in call.results:
                result.replace_all_uses_with(block.add_argument(result.type, call.location))
        if number is not None:
            with ir.InsertionPoint(last), last.location:
                # The dispatch's operands, then the dynamic sizes of its results.
                made = [r.type for r in calls[number].results]
                dynamic = sum(kind.is_dynamic_dim(d) for kind in made for d in range(kind.rank))
                given = list(calls[number].operands)
                operands = [_as_tensor(v) for v in given if not isinstance(v.type, ir.IndexType)]
                operands += [_as_tensor(v) for v in given[len(given) - dynamic :]]
                last = ir.Operation.create(last.name, operands=operands)
            list(block.operations)[-1].operation.erase()
        kinds = [a.type for a in block.arguments], [v.type for v in last.operands]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*kinds))
        for name in ("arg_attrs", "res_attrs"):
            if name in function.attributes:
                del function.attributes[name]
        _drop(block)
        for op in list(module.body.operations):
            if op.operation.name == "hal.executable.source":
                op.operation.erase()
        del module.operation.attributes["hal.device.targets"]
        source = str(module)
    return qmlir.load(qmlir.compile(source, start="configured", target="cpu")).main


def _as_tensor(value: Any) -> Any:
    """Make a scalar a rank-0 tensor, which programs can return."""
    if isinstance(value.type, ir.RankedTensorType):
        return value
    if isinstance(value.type, ir.IndexType):
        value = arith.index_cast(ir.IntegerType.get_signless(64), value)
    return tensor.FromElementsOp(ir.RankedTensorType.get([], value.type), [value]).result


def _several(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _drop(block: Any) -> None:
    """Erase the ops whose results are no longer used, dispatches among them."""
    for op in reversed(list(block.operations)):
        operation = op.operation
        effects = operation.name in ("cf.assert", "util.return", "func.return")
        if not effects and not any(list(result.uses) for result in operation.results):
            operation.erase()
