"""Quotients corrected by qmlir-exact-divisions, on a device whose divisions are as inexact as Vulkan allows: the pass's
IR evaluated in numpy, and on lavapipe, which divides exactly, with quotients changed before they are corrected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.divisions import vulkan_division

import qmlir
from qmlir.compiler.stages import default_pipeline
from qmlir.core.mlir import arith, context, ir
from qmlir.dialect.reference.scalars import evaluate, numpy_type
from qmlir.ir.walk import collect, operations_of
from qmlir.passes.pipeline import Pipeline, State
from qmlir.targets import resolve

Array = np.ndarray[Any, Any]
FLOATS: dict[str, tuple[type, type]] = {
    "f32": (np.float32, np.int32),
    "f64": (np.float64, np.int64),
    "f16": (np.float16, np.int16),
}
PROGRAM = """
#map = affine_map<(i) -> (i)>
func.func @main(%x: tensor<?x{t}>, %y: tensor<?x{t}>, %d: tensor<?xi32>) -> tensor<?x{t}> {{
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x{t}>
  %e = tensor.empty(%n) : tensor<?x{t}>
  %0 = linalg.generic {{indexing_maps = [#map, #map, #map, #map], iterator_types = ["parallel"]}}
      ins(%x, %y, %d : tensor<?x{t}>, tensor<?x{t}>, tensor<?xi32>) outs(%e : tensor<?x{t}>) {{
  ^bb0(%a: {t}, %b: {t}, %moved: i32, %o: {t}):
    %q = arith.divf %a, %b : {t}
    linalg.yield %q : {t}
  }} -> tensor<?x{t}>
  return %0 : tensor<?x{t}>
}}"""


def pairs(kind: str, count: int) -> tuple[Array, Array]:
    """Dividends and divisors: random bits, numbers near each other, and all pairs of special values."""
    to, bits = FLOATS[kind]
    rng, info, limits = np.random.default_rng(0), np.finfo(to), np.iinfo(bits)
    dividends, divisors = (rng.integers(limits.min, limits.max, count, bits, endpoint=True) for _ in range(2))
    small = np.asarray(rng.choice([1, 2, 3], count // 4), to).view(bits)
    near = rng.integers(0, 4, (2, count // 4)).astype(bits) + small
    tiny, least, eps, epsneg = info.tiny, info.smallest_subnormal, info.eps, info.epsneg
    special = [0, least, 3 * least, tiny - least, tiny, tiny + least, eps, 0.1, 1 - epsneg, 1, 1 + eps, 1.5, 2 - eps, 3,
               127, 2.0**14, 2.0**-14, info.max / 2, info.max, np.inf, np.nan]  # fmt: skip
    one = np.array([*special, *(-x for x in special)], to)
    both = np.meshgrid(one, one)
    a, b = (
        np.concatenate([random.view(to), close.view(to), all_pairs.ravel()])
        for random, close, all_pairs in zip((dividends, divisors), near, both, strict=True)
    )
    return a, b


def exact(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(a / b)


def assert_same(kind: str, got: Array, want: Array) -> None:
    """Bit-exact, except for the bits of NaN."""
    bits = FLOATS[kind][1]
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), ~number)
    np.testing.assert_array_equal(got.view(bits)[number], want.view(bits)[number])


def rewritten(kind: str) -> ir.Module:
    module = ir.Module.parse(PROGRAM.format(t=kind))
    Pipeline.parse("qmlir-exact-divisions").run(module, State())
    return module


def evaluated(module: ir.Module, a: Array, b: Array, divide: Callable[[Array, Array], Array]) -> Array:
    """The value that the program's body yields, with the device's division in place of `arith.divf`."""
    (op,) = collect(module, "linalg.generic")
    block = op.regions[0].blocks[0]
    known = dict(zip(block.arguments, (a, b), strict=False))
    for step in operations_of(block):
        operands = [known[x] for x in step.operands]
        if step.name == "linalg.yield":
            return operands[0]
        if step.name == "arith.constant":
            made = np.asarray(step.attributes["value"].value, numpy_type(step.results[0].type))
        else:
            made = divide(*operands) if step.name == "arith.divf" else evaluate(step, operands)
        known[step.results[0]] = made
    raise AssertionError("a body without a yield")


@pytest.mark.parametrize("units", [-2.5, -1, 0, 2, 2.5, None])
@pytest.mark.parametrize("kind", FLOATS)
def test_quotients_are_rounded_correctly(kind: str, units: float | None) -> None:
    a, b = pairs(kind, 1 << 17)
    with context():
        assert_same(kind, evaluated(rewritten(kind), a, b, vulkan_division(units)), exact(a, b))


@pytest.mark.slow
@pytest.mark.parametrize("kind", FLOATS)
def test_millions_of_quotients_are_rounded_correctly(kind: str) -> None:
    a, b = pairs(kind, 1 << 22)
    with context():
        assert_same(kind, evaluated(rewritten(kind), a, b, vulkan_division(None)), exact(a, b))


def test_a_device_that_divides_badly_is_seen() -> None:
    """The test above fails for a program without the correction."""
    a, b = pairs("f32", 1 << 12)
    with context():
        got = evaluated(ir.Module.parse(PROGRAM.format(t="f32")), a, b, vulkan_division(2))
    with pytest.raises(AssertionError):
        assert_same("f32", got, exact(a, b))


def test_quotients_on_lavapipe_that_are_moved_before_they_are_corrected(lavapipe: str) -> None:
    """By up to two units in the last place. With the half unit of correct rounding, Vulkan allows no more."""
    with context():
        module = rewritten("f32")
        (whole,) = collect(module, "arith.fptosi")
        with ir.InsertionPoint.after(whole), whole.location:
            units = whole.parent.operation.regions[0].blocks[0].arguments[2]
            moved = arith.addi(whole.results[0], units)
        whole.results[0].replace_all_uses_except(moved, moved.owner.operation)
        program = str(module)
    a, b = pairs("f32", 1 << 14)
    units = np.random.default_rng(1).integers(-2, 3, a.size).astype(np.int32)
    got = np.asarray(qmlir.load(qmlir.compile(program, target=lavapipe)).main(a, b, units))
    assert_same("f32", got, exact(a, b))


@pytest.mark.parametrize("kind", ["f16", "f64"])
def test_quotients_of_other_types_on_lavapipe(kind: str, lavapipe: str) -> None:
    a, b = pairs(kind, 1 << 10)
    run = qmlir.load(qmlir.compile(PROGRAM.format(t=kind), target=lavapipe)).main
    got = np.asarray(run(a, b, np.zeros(a.size, np.int32)))
    assert_same(kind, got, exact(a, b))


def test_only_vulkan_divides_in_integers() -> None:
    for name in ("cpu:x86-64-v3", "cpu:neoverse-n2", "cuda:sm_90", "rocm:gfx942"):
        assert "qmlir-exact-divisions" not in default_pipeline(resolve(name))
    for name in ("vulkan:lavapipe", "vulkan:hopper", "vulkan:valhall4"):
        assert "qmlir-exact-divisions" in default_pipeline(resolve(name))
