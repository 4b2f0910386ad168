"""A program of several operations, written once: compiled by qmlir, and evaluated by the reference."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import qmlir
from qmlir import TensorSpec
from qmlir.dialect.dtypes import from_numpy

Array = Any


def _type_of(spec: TensorSpec) -> Any:
    from qmlir.dialect.ops.common import tensor_type

    return tensor_type(spec.shape, spec.dtype)


@dataclass(frozen=True)
class _Step:
    op: str
    operands: dict[str, str]
    attributes: dict[str, Any]
    results: tuple[str, ...]


@dataclass
class Chain:
    """Values have names: arguments, constants (folded and packed when compiled), and results of ops."""

    arguments: dict[str, Array] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    steps: list[_Step] = field(default_factory=list)

    def argument(self, name: str, array: Array) -> str:
        self.arguments[name] = array
        return name

    def constant(self, array: Array) -> str:
        name = f"constant{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def op(self, name: str, operands: dict[str, str | None], count: int = 1, **attributes: Any) -> tuple[str, ...]:
        """Adds an op of `qmlir.ops`, or one of `PLAIN`; the names of its results."""
        results = tuple(f"value{len(self.steps)}_{i}" for i in range(count))
        self.steps.append(_Step(name, {k: v for k, v in operands.items() if v is not None}, attributes, results))
        return results

    def compile(self, result: str, target: str = "cpu") -> qmlir.Artifact:
        from qmlir.cache import key_of
        from qmlir.compiler import Options, compile_built
        from qmlir.targets import resolve

        resolved = resolve(target)
        steps = [[s.op, s.operands, s.attributes, s.results] for s in self.steps]
        digests = [[n, str(a.dtype), a.shape, hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()]
                   for n, a in self.constants.items()]  # fmt: skip
        arguments = {n: str(_spec(a)) for n, a in self.arguments.items()}
        key = key_of(["chain", steps, digests, arguments, result, resolved.spelling, resolved.capabilities()])
        return compile_built(lambda ctx: self._module(result), resolved, Options(), key)

    def reference(self, result: str) -> Array:
        """The value by `qmlir.reference`."""
        values = {**self.arguments, **self.constants}
        for s in self.steps:
            operands = {k: values[n] for k, n in s.operands.items()}
            evaluate = PLAIN[s.op].reference if s.op in PLAIN else getattr(qmlir.reference, s.op)
            made = evaluate(**operands, **s.attributes)
            values.update(zip(s.results, made if isinstance(made, tuple) else (made,), strict=False))
        return values[result]

    def _module(self, result: str) -> Any:
        from qmlir._mlir import func, ir
        from qmlir.passes.lower.build import dense
        from qmlir.signature import DTYPE, NAME

        specs = {n: _spec(a) for n, a in {**self.arguments, **self.constants}.items()}
        order = list(self.arguments)
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            f = func.FuncOp("main", ([_type_of(specs[n]) for n in order], []))
            f.attributes["arg_attrs"] = ir.ArrayAttr.get([
                ir.DictAttr.get({NAME: ir.StringAttr.get(n), DTYPE: ir.StringAttr.get(specs[n].dtype)}) for n in order
            ])  # fmt: skip
            with ir.InsertionPoint(f.add_entry_block()):
                values = dict(zip(order, f.arguments, strict=True))
                values |= {n: dense(a) for n, a in self.constants.items()}
                for s in self.steps:
                    emit = PLAIN[s.op].emit if s.op in PLAIN else getattr(qmlir.ops, s.op).emit
                    made = emit({k: values[n] for k, n in s.operands.items()},
                                {k: specs[n] for k, n in s.operands.items()}, s.attributes)  # fmt: skip
                    for name, (value, spec) in zip(s.results, made, strict=True):
                        values[name], specs[name] = value, spec
                func.ReturnOp([values[result]])
            t = ir.FunctionType.get([_type_of(specs[n]) for n in order], [_type_of(specs[result])])
            f.attributes["function_type"] = ir.TypeAttr.get(t)
            f.attributes["res_attrs"] = ir.ArrayAttr.get(
                [ir.DictAttr.get({DTYPE: ir.StringAttr.get(specs[result].dtype)})]
            )
        return module


def _spec(array: Array) -> TensorSpec:
    return TensorSpec(array.shape, from_numpy(array.dtype))


# ------------------------------------------------------------------------- what networks need beside the dialect


@dataclass(frozen=True)
class _Plain:
    """An op of linalg, arith or tensor that is no op of the dialect."""

    emit: Callable[[Any, Any, Any], list[tuple[Any, TensorSpec]]]
    reference: Callable[..., Array]


def _max_pool(values: Any, specs: Any, attributes: Any) -> list[tuple[Any, TensorSpec]]:
    """Windows of 3x3 with stride 2 and padding 1, on i8 NHWC."""
    from qmlir._mlir import arith, ir, linalg, tensor

    n, h, w, c = specs["input"].shape
    i8 = ir.IntegerType.get_signless(8)
    low = arith.constant(i8, -128)
    padded = tensor.PadOp(
        _type_of(TensorSpec((n, h + 2, w + 2, c), "i8")), values["input"], [], [], [0, 1, 1, 0], [0, 1, 1, 0]
    )
    block = padded.region.blocks.append(*[ir.IndexType.get()] * 4)
    with ir.InsertionPoint(block):
        tensor.YieldOp(low)
    spec = TensorSpec((n, h // 2, w // 2, c), "i8")
    out = linalg.fill(low, outs=[tensor.empty(spec.shape, i8)])
    window = tensor.empty((3, 3), i8)
    pooled = linalg.pooling_nhwc_max(padded.result, window, outs=[out], strides=[2, 2], dilations=[1, 1])
    return [(pooled, spec)]


def _max_pool_reference(input: Array) -> Array:
    x = np.pad(input, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-128)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::2, ::2]
    return windows.max(axis=(-2, -1))


def _sum_pixels(values: Any, specs: Any, attributes: Any) -> list[tuple[Any, TensorSpec]]:
    """[N, H, W, C] i8 to the means over H and W in codes, f32 [N, C]."""
    from qmlir._mlir import arith, ir, linalg, tensor

    n, h, w, c = specs["input"].shape
    i32 = ir.IntegerType.get_signless(32)
    zero = linalg.fill(arith.constant(i32, 0), outs=[tensor.empty((n, 1, 1, c), i32)])
    window = tensor.empty((h, w), i32)
    total = linalg.pooling_nhwc_sum(values["input"], window, outs=[zero], strides=[1, 1], dilations=[1, 1])
    flat = ir.Operation.create(
        "tensor.collapse_shape",
        results=[_type_of(TensorSpec((n, c), "i32"))],
        operands=[total],
        attributes={"reassociation": ir.Attribute.parse("[[0 : i64, 1 : i64, 2 : i64], [3 : i64]]")},
    ).results[0]
    spec = TensorSpec((n, c), "f32")
    return [(arith.sitofp(_type_of(spec), flat), spec)]


def _flatten(values: Any, specs: Any, attributes: Any) -> list[tuple[Any, TensorSpec]]:
    """[N, ..] i8 to [N, C]."""
    from qmlir._mlir import ir

    shape = specs["input"].shape
    if len(shape) == 2:
        return [(values["input"], specs["input"])]
    spec = TensorSpec((shape[0], int(np.prod(shape[1:]))), "i8")
    axes = ", ".join(f"{i} : i64" for i in range(1, len(shape)))
    flat = ir.Operation.create(
        "tensor.collapse_shape",
        results=[_type_of(spec)],
        operands=[values["input"]],
        attributes={"reassociation": ir.Attribute.parse(f"[[0 : i64], [{axes}]]")},
    ).results[0]
    return [(flat, spec)]


PLAIN = {
    "flatten": _Plain(_flatten, lambda input: input.reshape(len(input), -1)),
    "max_pool": _Plain(_max_pool, _max_pool_reference),
    "sum_pixels": _Plain(_sum_pixels, lambda input: input.astype(np.int32).sum((1, 2)).astype(np.float32)),
}
