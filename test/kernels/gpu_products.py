"""Products for GPU kernels, and a way to run their programs without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from kernels import gpu_interpreter, gpu_workgroup

import qmlir
from qmlir import TensorSpec
from qmlir.core.mlir import context, ir
from qmlir.dialect.constants import constant_array

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Product:
    """A signature of `scaled_matmul`: constants, and specs with `m` rows (None: dynamic)."""

    n: int
    k: int
    build: Callable[[Product, np.random.Generator], Arguments]
    exact: bool = True

    def arguments(self, m: int | None) -> Arguments:
        """The keyword arguments of `compile`."""
        made = self.build(self, np.random.default_rng(self.n + self.k))
        return {
            name: TensorSpec(tuple(m if s == -1 else s for s in value[0]), value[1])
            if isinstance(value, tuple)
            else value
            for name, value in made.items()
        }


def _scales(rng: np.random.Generator, *shape: int) -> Any:
    # Scales are powers of two, so that sums of scaled values are exact in f32, in any order.
    return (2.0 ** rng.integers(-9, -3, shape)).astype(np.float32)


def _packed(codes: Any, dtype: str) -> Arguments:
    return {"rhs": qmlir.reference.pack(codes, dtype, "low_first"), "rhs_dtype": dtype, "rhs_packing": "low_first"}


def codes_of(
    weight: str, group: int = 0, zeros: bool = False, lhs: str = "i8", **more: Any
) -> Callable[[Product, np.random.Generator], Arguments]:
    """Integer codes for both operands."""

    def build(p: Product, rng: np.random.Generator) -> Arguments:
        groups = p.k // group if group else 1
        low, high = {"i8": (-128, 128), "i4": (-8, 8), "u4": (0, 16), "i2": (-2, 2)}[weight]
        codes = rng.integers(low, high, (p.n, p.k)).astype(np.uint8 if weight == "u4" else np.int8)
        made: Arguments = {"lhs": ((-1, p.k), lhs), "rhs_transposed": True, "lhs_scale": ((-1, 1), "f32")}
        made |= {"rhs": codes} if weight == "i8" else _packed(codes, weight)
        made["rhs_scale"] = _scales(rng, p.n, groups)
        if zeros:
            made["rhs_zero_point"] = rng.integers(-9, 9, (p.n, groups)).astype(np.int32)
        if lhs == "u8":
            made["lhs_zero_point"] = ((-1, 1), "i32")
        return made | more

    return build


def _requantised(p: Product, rng: np.random.Generator) -> Arguments:
    bias = rng.integers(-999, 999, p.n).astype(np.int32)
    more = {"bias": bias, "activation": "relu", "out_dtype": "i8", "out_scale": np.float32(0.5)}
    return codes_of("i8", out_zero_point=np.int32(3), **more)(p, rng)


def weight_only(
    weight: str, group: int = 0, zeros: bool = False, lhs: str = "f16"
) -> Callable[[Product, np.random.Generator], Arguments]:
    def build(p: Product, rng: np.random.Generator) -> Arguments:
        made = codes_of(weight, group, zeros)(p, rng)
        del made["lhs_scale"]
        return made | {"lhs": ((-1, p.k), lhs), "out_dtype": "f32" if lhs == "bf16" else lhs}

    return build


PRODUCTS = {
    "w8a8": Product(48, 192, codes_of("i8")),
    "w8a8, ragged": Product(37, 70, codes_of("i8")),
    "w8a8, K of no words": Product(20, 33, codes_of("i8")),
    "w8a8, zero points": Product(40, 100, codes_of("i8", zeros=True, lhs="u8")),
    "w8a8, zero points, K of half a step": Product(24, 48, codes_of("i8", zeros=True, lhs="u8")),
    "w8a8, requantised": Product(36, 64, _requantised),
    "w8a8, residual, gelu": Product(32, 64, codes_of("i8", activation="gelu_tanh", out_dtype="f16"), exact=False),
    "w4a8": Product(40, 200, codes_of("i4")),
    "w4a8, group 32": Product(50, 128, codes_of("i4", 32)),
    "w4a8, group 128": Product(33, 384, codes_of("i4", 128)),
    "w4a8, group 64, zero points": Product(40, 192, codes_of("u4", 64, zeros=True)),
    "w2a8": Product(24, 128, codes_of("i2")),
    "w8a16": Product(40, 72, weight_only("i8"), exact=False),
    "w4a16, group 32": Product(37, 96, weight_only("i4", 32), exact=False),
    "w4a16, group 64, zero points": Product(48, 128, weight_only("u4", 64, zeros=True), exact=False),
    "w8a32, K of no words": Product(20, 35, weight_only("i8", lhs="f32"), exact=False),
    "w4abf16, group 32": Product(40, 64, weight_only("i4", 32, lhs="bf16"), exact=False),
}


def values(arguments: Arguments, rows: int) -> Arguments:
    """Arrays for the specs among `arguments`."""
    rng = np.random.default_rng(rows)
    found: Arguments = {}
    for name, spec in arguments.items():
        if not isinstance(spec, TensorSpec):
            continue
        shape = tuple(rows if s is None else s for s in spec.shape)
        dtype = str(spec.dtype)
        if name == "lhs_scale":
            found[name] = _scales(rng, *shape)
        elif dtype in ("f16", "f32", "bf16"):
            numbers = rng.standard_normal(shape).astype(np.float32)
            found[name] = numbers.astype(qmlir.dialect.dtypes.DTYPES[dtype].numpy)
        else:
            low, high = {"i8": (-128, 128), "u8": (0, 256), "i32": (0, 200)}[dtype]
            found[name] = rng.integers(low, high, shape).astype(qmlir.dialect.dtypes.DTYPES[dtype].numpy)
    return found


def chosen(artifact: Any) -> list[str]:
    """The strategies of a program's contractions; if they depend on the number of rows, those for the most rows."""
    return [functions(decision)[-1].get("strategy", decision["chosen"]) for decision in artifact.manifest.strategies]


def functions(decision: Any) -> list[dict[str, Any]]:
    """The plans of a contraction's kernels: of the only one, or of each, from the one for the fewest rows up."""
    plan = next(a["plan"] for a in decision["answers"] if a["strategy"] == decision["chosen"])
    return [{"route": plan["route"], **facts} for name, facts in plan.items() if name.endswith("rows")] or [plan]


def check(product: Product, got: Any, want: Any) -> None:
    """Check that integers are bit-exact, and floats within the tolerance of the semantics."""
    if product.exact:
        np.testing.assert_array_equal(got, want)
        return
    want, got = want.astype(np.float64), got.astype(np.float64)
    scale = np.abs(want).max(initial=1e-9)
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3 * scale)


def interpreted(
    artifact: Any,
    arguments: Arguments,
    shape: tuple[int, ...],
    dtype: Any,
    rows: int,
    change: Callable[[Any], None] = lambda module: None,
) -> Any:
    """The result of a program with a single dispatch, of a qmlir kernel, interpreted from the IR that IREE was given.
    `change` breaks this IR, for tests that the interpreter notices it."""
    with context():
        module = ir.Module.parse(artifact.source("configured"))
        found: list[Any] = []

        def visit(op: Any) -> Any:
            if op.name == "flow.dispatch":
                found.append(op.operation)
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        (dispatch,) = found
        inputs = list(arguments.values())

        def value(v: Any) -> Any:
            if isinstance(v.owner, ir.Block):
                return inputs[ir.BlockArgument(v).arg_number]
            owner = v.owner.operation
            if owner.name in ("tensor.collapse_shape", "tensor.expand_shape", "tensor.cast"):
                return value(owner.operands[0])
            if owner.name == "flow.tensor.splat":  # counters
                return zeros(v.type)
            known = constant_array(v)
            assert known is not None, owner.name
            return known

        def zeros(kind: Any) -> Any:
            return np.zeros(ir.RankedTensorType(kind).shape, gpu_workgroup.dtype_of(kind.element_type))

        operands = [value(v) for v in dispatch.operands if isinstance(v.type, ir.RankedTensorType)]
        out = np.full(shape, 77, dtype)
        change(module)
        # After the result come counters, which are an operand too, and a workspace.
        scratch = [zeros(r.type) + 77 for r in list(dispatch.results)[2:]]
        gpu_interpreter.run(module, operands, [out, *scratch], rows)
        return out
