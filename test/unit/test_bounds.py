"""Bounds of integers against the values that IREE computes, and the checks of computed indices."""

from __future__ import annotations

import numpy as np
import pytest

import qmlir
from qmlir.core.mlir import context, ir
from qmlir.errors import InputError
from qmlir.ir.bounds import Bounds
from qmlir.ir.walk import collect, terminator_of
from qmlir.passes.base import State
from qmlir.passes.core.check_indices import CheckIndicesPass

AT = "#at = affine_map<(d0) -> (d0)>\n"


def elementwise(steps: str, kind: str = "i32", result: str = "i32") -> str:
    return (
        AT
        + f"""
func.func @main(%x: tensor<6x{kind}>) -> tensor<6x{result}> {{
  %e = tensor.empty() : tensor<6x{result}>
  %a = linalg.generic {{indexing_maps = [#at, #at], iterator_types = ["parallel"]}}
      ins(%x : tensor<6x{kind}>) outs(%e : tensor<6x{result}>) {{
  ^bb0(%in: {kind}, %out: {result}):
    {steps}
    linalg.yield %y : {result}
  }} -> tensor<6x{result}>
  return %a : tensor<6x{result}>
}}"""
    )


def bounds_of(text: str) -> tuple[int, int]:
    with context():
        module = ir.Module.parse(text)
        [f] = collect(module, "func.func")
        return Bounds().of_tensor(terminator_of(f.regions[0].blocks[0]).operands[0])


FULL = (-(2**31), 2**31 - 1)
SEVEN = "%c7 = arith.constant 7 : i32\n"
NARROW = SEVEN + "%n = arith.remsi %in, %c7 : i32\n"  # -6 to 6


@pytest.mark.sweep(fast=12, slow=60)
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("%y = arith.addi %in, %in : i32", FULL),
        (SEVEN + "%y = arith.remsi %in, %c7 : i32", (-6, 6)),
        (SEVEN + "%y = arith.remui %in, %c7 : i32", FULL),
        (NARROW + "%y = arith.addi %n, %c7 : i32", (1, 13)),
        (NARROW + "%y = arith.subi %n, %n : i32", (-12, 12)),
        (NARROW + "%y = arith.muli %n, %n : i32", (-36, 36)),
        (NARROW + "%p = arith.addi %n, %c7 : i32\n%y = arith.divsi %p, %c7 : i32", (0, 1)),
        (NARROW + "%p = arith.addi %n, %c7 : i32\n%y = arith.remui %p, %c7 : i32", (0, 6)),
        (NARROW + "%y = arith.divsi %n, %c7 : i32", FULL),
        (SEVEN + "%y = arith.minsi %in, %c7 : i32", (-(2**31), 7)),
        (SEVEN + "%p = arith.minsi %in, %c7 : i32\n%z = arith.constant 0 : i32\n%y = arith.maxsi %p, %z : i32", (0, 7)),
        (SEVEN + "%p = arith.addi %in, %c7 : i32\n%y = arith.minsi %p, %c7 : i32", (-(2**31), 7)),
        (SEVEN + "%b = arith.cmpi slt, %in, %c7 : i32\n%y = arith.extui %b : i1 to i32", (0, 1)),
        (SEVEN + "%b = arith.cmpi slt, %in, %c7 : i32\n%n = arith.remsi %in, %c7 : i32\n"
         "%y = arith.select %b, %n, %c7 : i32", (-6, 7)),
        ("%i = linalg.index 0 : index\n%y = arith.index_cast %i : index to i32", (0, 5)),
        (NARROW + "%p = arith.addi %n, %c7 : i32\n%c = arith.constant 2.0 : f64\n%f = arith.sitofp %p : i32 to f64\n"
         "%q = arith.divf %f, %c : f64\n%g = math.floor %q : f64\n%y = arith.fptosi %g : f64 to i32", (0, 6)),
        ("%f = arith.sitofp %in : i32 to f64\n%s = math.sqrt %f : f64\n%y = arith.fptosi %s : f64 to i32", FULL),
    ],
)  # fmt: skip
def test_elements_are_within_their_bounds(steps: str, expected: tuple[int, int]) -> None:
    text = elementwise(steps)
    assert bounds_of(text) == expected
    x = np.array([0, 1, 7, 13, 2**31 - 1, 100], np.int32)  # not negative: NaN has no defined i32 value on x86
    made = qmlir.load(qmlir.compile(text, target="cpu")).main(x)
    assert expected[0] <= made.min()
    assert made.max() <= expected[1]


def test_tensors() -> None:
    tensors = """
func.func @main(%x: tensor<6xi32>) -> tensor<3xi32> {
  %c = arith.constant dense<[4, -2, 9]> : tensor<3xi32>
  %d = arith.constant dense<7> : tensor<3xi32>
  %e = tensor.concat dim(0) %c, %d : (tensor<3xi32>, tensor<3xi32>) -> tensor<6xi32>
  %f = tensor.extract_slice %e[1] [3] [1] : tensor<6xi32> to tensor<3xi32>
  return %f : tensor<3xi32>
}"""
    assert bounds_of(tensors) == (-2, 9)
    sums = (
        AT
        + """
func.func @main(%x: tensor<6xi1>) -> tensor<6xi32> {
  %z = arith.constant 0 : i32
  %e = tensor.empty() : tensor<6xi32>
  %w = linalg.generic {indexing_maps = [#at, #at], iterator_types = ["parallel"]}
      ins(%x : tensor<6xi1>) outs(%e : tensor<6xi32>) {
  ^bb0(%in: i1, %out: i32):
    %y = arith.extui %in : i1 to i32
    linalg.yield %y : i32
  } -> tensor<6xi32>
  %o = linalg.fill ins(%z : i32) outs(%e : tensor<6xi32>) -> tensor<6xi32>
  %s = tensor.empty() : tensor<i32>
  %p = linalg.fill ins(%z : i32) outs(%s : tensor<i32>) -> tensor<i32>
  %r:2 = iree_linalg_ext.scan dimension(0) inclusive(true)
      ins(%w : tensor<6xi32>) outs(%o, %p : tensor<6xi32>, tensor<i32>) {
  ^bb0(%a: i32, %b: i32):
    %t = arith.addi %a, %b : i32
    iree_linalg_ext.yield %t : i32
  } -> tensor<6xi32>, tensor<i32>
  return %r#0 : tensor<6xi32>
}"""
    )
    assert bounds_of(sums) == (0, 6)


COUNTED = """
#m = affine_map<(a, b) -> (a, b)>
func.func @main(%x: tensor<2x3xi32>, %t: tensor<5xf32>) -> tensor<2x3xf32> {
  %one = arith.constant MOST : i32
  %o = tensor.empty() : tensor<2x3xi32>
  %p = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<2x3xi32>) outs(%o : tensor<2x3xi32>) {
  ^bb0(%a: i32, %c: i32):
    %s = arith.muli %a, %a : i32
    %r = arith.remui %s, %one : i32
    linalg.yield %r : i32
  } -> tensor<2x3xi32>
  %q = tensor.empty() : tensor<2x3xf32>
  %r = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<2x3xi32>) outs(%q : tensor<2x3xf32>) {
  ^bb0(%a: i32, %c: f32):
    %i = arith.index_cast %a : i32 to index
    %v = tensor.extract %t[%i] : tensor<5xf32>
    linalg.yield %v : f32
  } -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}"""


def test_a_computed_index_outside_of_the_table_ends_the_call() -> None:
    """Regression: RoBERTa with more tokens than positions read past the end of its table."""
    main = qmlir.load(qmlir.compile(COUNTED.replace("MOST", "1000"), target="cpu")).main
    table, x = np.arange(5, dtype=np.float32), np.array([[0, 1, 2], [1, 0, 2]], np.int32)
    np.testing.assert_array_equal(main(x, table), table[x * x])
    x[1, 1] = 3
    with pytest.raises(InputError, match=r"a computed index is outside of the axis of 5 elements .*:18:"):
        main(x, table)


def test_an_index_of_a_deep_program_is_checked() -> None:
    """Regression: the ops that an index depends on were followed by recursion, which failed at 1,000 ops."""
    steps = "\n".join(
        f"%x{i + 1} = linalg.generic {{indexing_maps = [#at, #at], iterator_types = ['parallel']}} "
        f"ins(%x{i} : tensor<4xi32>) outs(%e : tensor<4xi32>) {{\n^bb0(%a: i32, %o: i32):\n"
        "%s = arith.shli %a, %a : i32\nlinalg.yield %s : i32 } -> tensor<4xi32>"
        for i in range(1500)
    ).replace("'", '"')
    text = (
        AT
        + f"""
func.func @main(%x0: tensor<4xi32>, %t: tensor<5xf32>) -> tensor<4xf32> {{
  %e = tensor.empty() : tensor<4xi32>
  %f = tensor.empty() : tensor<4xf32>
  {steps}
  %y = linalg.generic {{indexing_maps = [#at, #at], iterator_types = ["parallel"]}}
      ins(%x1500 : tensor<4xi32>) outs(%f : tensor<4xf32>) {{
  ^bb0(%a: i32, %o: f32):
    %i = arith.index_cast %a : i32 to index
    %v = tensor.extract %t[%i] : tensor<5xf32>
    linalg.yield %v : f32
  }} -> tensor<4xf32>
  return %y : tensor<4xf32>
}}"""
    )
    with context():
        module = ir.Module.parse(text)
        CheckIndicesPass().run(module, State())
        assert len(collect(module, "cf.assert")) == 1


@pytest.mark.slow
def test_torch_models_with_counted_positions_and_written_places() -> None:
    torch = pytest.importorskip("torch")

    class Counted(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.places = torch.nn.Embedding(8, 4)

        def forward(self, ids):  # type: ignore[no-untyped-def]
            mask = (ids != 0).int()
            return self.places((torch.cumsum(mask, 1) * mask).long())

    model, auto = Counted().eval(), torch.export.Dim.AUTO
    exported = torch.export.export(model, (torch.ones(2, 6, dtype=torch.int64),), dynamic_shapes=({1: auto},))
    main = qmlir.load(qmlir.compile(exported, target="cpu")).main
    ids = torch.ones(2, 9, dtype=torch.int64)
    ids[:, 3:5] = 0
    torch.testing.assert_close(main(ids), model(ids))
    ids[1, 3] = 1
    with pytest.raises(InputError, match=r"a computed index is outside of the axis of 8 .*test_bounds\.py"):
        main(ids)

    class Written(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, cache, new, at):  # type: ignore[no-untyped-def]
            return cache.index_put((at,), new)

    arguments = torch.zeros(8, 4), torch.ones(3, 4), torch.tensor([1, 7, 5])
    main = qmlir.load(qmlir.compile(torch.export.export(Written(), arguments), target="cpu")).main
    torch.testing.assert_close(main(*arguments), Written()(*arguments))
    arguments[2][1] = 8
    with pytest.raises(InputError, match=r"holds at\[1\] = 8, which is outside of \[(-8|0), 7\]"):
        main(*arguments)
