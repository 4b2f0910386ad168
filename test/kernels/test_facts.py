"""The analysis of what an op computes uses the op's fact, or its body if it has none, but never a fact that was written
for another body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
from support import dispatches
from support.forms import FORMS

import qmlir
from qmlir.core.mlir import context, ir
from qmlir.ir import build, facts
from qmlir.ir.walk import collect
from qmlir.kernels import computes

# Facts about the tables of rows. No body states them: without these facts a program gets other kernels.
TABLES = (facts.ENDED_BLOCKS, facts.BLOCK_OF, facts.SLOT_OF, facts.BACK)

SUMS_OP = """
  %start = arith.constant START : i32
  %row = tensor.empty() : tensor<4xi32>
  %first = linalg.fill ins(%start : i32) outs(%row : tensor<4xi32>) -> tensor<4xi32>
  %sums = linalg.generic {
    indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
    iterator_types = ["parallel", "reduction"]
  } ins(%x : tensor<4x8xi8>) outs(%first : tensor<4xi32>) {
  ^bb0(%code: i8, %sum: i32):
    BODY
    linalg.yield %new : i32
  } -> tensor<4xi32>"""
SUMS = f"""
func.func @f(%x: tensor<4x8xi8>) -> tensor<4xi32> {{{SUMS_OP}
  return %sums : tensor<4xi32>
}}"""
SIGNED = "%wide = arith.extsi %code : i8 to i32\n    %new = arith.addi %sum, %wide : i32"
SWAPPED = "%wide = arith.extsi %code : i8 to i32\n    %new = arith.addi %wide, %sum : i32"
UNSIGNED = "%wide = arith.extui %code : i8 to i32\n    %new = arith.addi %sum, %wide : i32"
TWICE = "%wide = arith.extsi %code : i8 to i32\n    %new = arith.addi %wide, %wide : i32"

CLAMPED = """
func.func @f(%x: tensor<4xf32>) -> tensor<4xi32> {
  %empty = tensor.empty() : tensor<4xi32>
  %codes = linalg.generic {
    indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]
  } ins(%x : tensor<4xf32>) outs(%empty : tensor<4xi32>) {
  ^bb0(%a: f32, %ignored: i32):
    %least = arith.constant LEAST : f32
    %most = arith.constant 255.0 : f32
    %b = arith.maximumf %a, %least : f32
    %c = arith.minimumf %b, %most : f32
    %d = arith.fptosi %c : f32 to i32
    linalg.yield %d : i32
  } -> tensor<4xi32>
  return %codes : tensor<4xi32>
}"""

GROUPS = """
func.func @f(%parts: tensor<4x8x8xf32>, %lhs: tensor<8x4xf8E8M0FNU>, %rhs: tensor<8x4xf8E8M0FNU>) -> tensor<8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<8x8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<8x8xf32>) -> tensor<8x8xf32>
  %sums = linalg.generic {
    indexing_maps = [affine_map<(g, m, n) -> (g, m, n)>, affine_map<(g, m, n) -> (m, g)>,
                     affine_map<(g, m, n) -> (n, g)>, affine_map<(g, m, n) -> (m, n)>],
    iterator_types = ["reduction", "parallel", "parallel"]
  } ins(%parts, %lhs, %rhs : tensor<4x8x8xf32>, tensor<8x4xf8E8M0FNU>, tensor<8x4xf8E8M0FNU>)
    outs(%init : tensor<8x8xf32>) {
  ^bb0(%part: f32, %a: f8E8M0FNU, %b: f8E8M0FNU, %sum: f32):
    %s = arith.extf %a : f8E8M0FNU to f32
    %t = arith.extf %b : f8E8M0FNU to f32
    %scale = arith.mulf LEFT, RIGHT : f32
    %scaled = arith.mulf %part, %scale : f32
    %new = arith.addf %sum, %scaled : f32
    linalg.yield %new : f32
  } -> tensor<8x8xf32>
  return %sums : tensor<8x8xf32>
}"""

BIASED = """
func.func @f(%x: tensor<4x8xi8>) -> tensor<4x4xi32> {
  %w = arith.constant dense<WEIGHT> : tensor<4x8xi8>
  %zero = arith.constant 0 : i32
  %empty = tensor.empty() : tensor<4x4xi32>
  %init = linalg.fill ins(%zero : i32) outs(%empty : tensor<4x4xi32>) -> tensor<4x4xi32>
SUMS
  %product = linalg.generic {
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                     affine_map<(m, n, k) -> (m, n)>],
    iterator_types = ["parallel", "parallel", "reduction"]
  } ins(%x, %w : tensor<4x8xi8>, tensor<4x8xi8>) outs(%init : tensor<4x4xi32>) {
  ^bb0(%a: i8, %b: i8, %sum: i32):
    %c = arith.extsi %a : i8 to i32
    %d = arith.extsi %b : i8 to i32
    %e = arith.muli %c, %d : i32
    %f = arith.addi %sum, %e : i32
    linalg.yield %f : i32
  } -> tensor<4x4xi32>
  %out = linalg.generic {
    indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>, affine_map<(m, n) -> (m, n)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%product, %sums : tensor<4x4xi32>, tensor<4xi32>) outs(%empty : tensor<4x4xi32>) {
  ^bb0(%a: i32, %b: i32, %ignored: i32):
    %c = arith.subi %a, %b : i32
    linalg.yield %c : i32
  } -> tensor<4x4xi32>
  return %out : tensor<4x4xi32>
}"""


@pytest.fixture
def in_context() -> Iterator[None]:
    with context(), ir.Location.unknown():
        yield


def _only_generic(text: str) -> tuple[ir.Module, ir.Operation]:
    module = ir.Module.parse(text)
    (op,) = collect(module, "linalg.generic")
    return module, op


def _sums(body: str, start: int = 0) -> tuple[ir.Module, ir.Operation]:
    return _only_generic(SUMS.replace("BODY", body).replace("START", str(start)))


@pytest.mark.usefixtures("in_context")
@pytest.mark.parametrize(("body", "start", "found"), [
    (SIGNED, 0, True), (SWAPPED, 0, True), (UNSIGNED, 0, False), (TWICE, 0, False), (SIGNED, 5, False),
])  # fmt: skip
def test_sums_of_rows_without_a_fact(body: str, start: int, found: bool) -> None:
    _module, op = _sums(body, start)
    assert (computes.row_sums_of(op.results[0]) is not None) is found


@pytest.mark.usefixtures("in_context")
@pytest.mark.parametrize(("left", "right", "found"), [("%s", "%t", True), ("%t", "%s", True), ("%s", "%s", False)])
def test_a_sum_over_groups_without_a_fact(left: str, right: str, found: bool) -> None:
    _module, op = _only_generic(GROUPS.replace("LEFT", left).replace("RIGHT", right))
    assert computes.scales_groups(op) is found


@pytest.mark.usefixtures("in_context")
@pytest.mark.parametrize(("least", "noted", "found"), [
    (0.0, None, True), (-1.0, None, False), (-1.0, (0, 255), True), (-1.0, (-1, 255), False),
])  # fmt: skip
def test_integers_within_bounds(least: float, noted: tuple[int, int] | None, found: bool) -> None:
    """The bounds are those of a clamp of the floats that are converted, or of a fact."""
    _module, op = _only_generic(CLAMPED.replace("LEAST", str(least)))
    if noted is not None:
        facts.note(op, {facts.WITHIN: noted})
    assert computes.is_within(op.results[0], 0, 255) is found


@pytest.mark.usefixtures("in_context")
def test_a_fact_is_believed_for_its_body_only(monkeypatch: pytest.MonkeyPatch) -> None:
    module, op = _sums(SIGNED)
    facts.note(op, {facts.ROW_SUMS: facts.PRESENT})
    monkeypatch.setattr(computes, "_adds_signed", lambda op: False)
    assert computes.row_sums_of(op.results[0]) is not None  # by the fact alone
    text = str(module)
    moved = ir.Module.parse(text)
    assert computes.row_sums_of(collect(moved, "linalg.generic")[0].results[0]) is not None
    for old, new in (("arith.extsi", "arith.extui"), ("arith.addi", "arith.subi")):
        changed = ir.Module.parse(text.replace(old, new))
        op = collect(changed, "linalg.generic")[0]
        assert facts.ROW_SUMS in op.attributes
        assert facts.known(op, facts.ROW_SUMS) is None
        assert computes.row_sums_of(op.results[0]) is None
    _module, op = _sums(SIGNED, start=5)
    facts.note(op, {facts.ROW_SUMS: facts.PRESENT})
    assert computes.row_sums_of(op.results[0]) is None  # a sum's initial value is not in its body


@pytest.mark.usefixtures("in_context")
def test_a_fact_without_a_fingerprint_is_none() -> None:
    _module, op = _sums(UNSIGNED)
    op.attributes[facts.ROW_SUMS] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 1)
    assert computes.row_sums_of(op.results[0]) is None
    op.attributes["qmlir.noted"] = ir.StringAttr.get("")
    assert computes.row_sums_of(op.results[0]) is None


@pytest.mark.usefixtures("in_context")
def test_a_fingerprint_says_what_a_body_computes() -> None:
    hoisted = SIGNED.replace("%new = arith.addi %sum, %wide", "%three = arith.constant 3 : i32\n    "
                             "%more = arith.muli %wide, %three : i32\n    %new = arith.addi %sum, %more")  # fmt: skip
    outside = SUMS.replace("%row =", "%three = arith.constant 3 : i32\n  %row =").replace("START", "0")
    body = hoisted.replace("%three = arith.constant 3 : i32\n", "")
    inside = _fingerprint(SUMS.replace("BODY", hoisted).replace("START", "0"))
    assert _fingerprint(outside.replace("BODY", body)) == inside
    assert _fingerprint(outside.replace("BODY", body).replace("constant 3", "constant 4")) != inside
    prints = [_fingerprint(outside.replace("BODY", b)) for b in (SIGNED, SWAPPED, UNSIGNED, TWICE)]
    assert len(set(prints)) == len(prints)


def _fingerprint(text: str) -> str:
    _module, op = _only_generic(text)
    return facts.fingerprint(op)


def _program(name: str, target: str) -> str:
    """The program after dispatch formation: kernels, and the ops that remain outside of them."""
    form = next(f for f in FORMS if f.name == name)
    with dispatches._until_dispatches_are_formed():
        try:
            form.compile(target)
        except dispatches._Formed as formed:
            return str(formed)
    raise AssertionError("the program was compiled to its end")


def _without(kept: tuple[str, ...]) -> Callable[[ir.Operation, Mapping[str, facts.FactValue]], None]:
    note = facts.note

    def written(op: ir.Operation, known: Mapping[str, facts.FactValue]) -> None:
        note(op, {name: fact for name, fact in known.items() if name in kept})

    return written


SAMPLE = [
    ("grouped_matmul: s8 x s8, routed", "cuda:sm_80"),
    ("moe: s8 x s4, s8 between", "rocm:gfx942"),
    ("grouped_matmul: f16 x s4, group 128, routed", "vulkan:lavapipe"),
    ("scaled_matmul: s8 x u4, zero points, group 128", "cuda:sm_80"),
    ("scaled_matmul: u8 x s8, zero points", "vulkan:lavapipe"),
    ("scaled_matmul: fp4 e2m1 x e2m1, MX (32, e8m0)", "rocm:gfx950"),
    ("scaled_matmul: e4m3 x e4m3, MX (32, e8m0)", "rocm:gfx950"),
]


@pytest.mark.sweep(fast=8, slow=60)
@pytest.mark.parametrize(("name", "target"), SAMPLE)
def test_kernels_are_the_same_without_facts(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    known = facts.known

    def counted(op: ir.Operation, name: str) -> facts.FactValue | None:
        found = known(op, name)
        if found is not None and name not in TABLES:
            asked.append(name)
        return found

    monkeypatch.setattr(facts, "known", counted)
    with_facts = _program(name, target)
    assert asked  # at this point of the pipeline the facts of this form are still there
    asked.clear()
    monkeypatch.setattr(build, "note", _without((*TABLES, facts.ROWS, *facts.MAGNITUDES)))
    assert _program(name, target) == with_facts
    assert not asked


@pytest.mark.sweep(fast=3, slow=3)
@pytest.mark.parametrize(("name", "target"), SAMPLE[:6:2])
def test_kernels_are_the_same_by_facts_alone(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _program(name, target)
    monkeypatch.setattr(computes, "_gathered_by_body", lambda op: None)
    monkeypatch.setattr(computes, "_adds_signed", lambda op: False)
    monkeypatch.setattr(computes, "decodes_e2m1", lambda op: False)
    assert _program(name, target) == found


@pytest.mark.sweep(fast=2, slow=3)
def test_sums_that_start_elsewhere_are_not_those_of_a_kernel(target: str) -> None:
    """The row sums subtracted from a product start at 5: the kernel's own, which start at 0, must not replace them."""
    weight = np.arange(32, dtype=np.int8).reshape(4, 8) - 16
    rows = np.arange(32, dtype=np.int8).reshape(4, 8)
    elements = "[" + ", ".join(str(list(map(int, row))) for row in weight) + "]"
    sums = SUMS_OP.replace("BODY", SIGNED).replace("START", "5")
    program = BIASED.replace("WEIGHT", elements).replace("SUMS", sums)
    artifact = qmlir.compile(program, target=target)
    expected = rows.astype(np.int32) @ weight.T.astype(np.int32) - (rows.sum(1, dtype=np.int32)[:, None] + 5)
    np.testing.assert_array_equal(qmlir.load(artifact).f(rows), expected)
