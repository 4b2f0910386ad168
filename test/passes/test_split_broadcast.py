"""qmlir-split-broadcast on a long program, which its lit tests do not cover."""

from __future__ import annotations

from qmlir.core.mlir import context, ir
from qmlir.passes.base import State
from qmlir.passes.pipeline import Pipeline

GENERIC = """
  %v{n} = linalg.generic {{indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}}
      ins(%v{before}, %v{before} : tensor<8x24xf32>, tensor<8x24xf32>) outs(%to : tensor<8x24xf32>) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.addf %a, %b : f32
    linalg.yield %m : f32
  }} -> tensor<8x24xf32>"""
PROGRAM = """
#all = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @main(%v0: tensor<8x24xf32>, %start: tensor<8xf32>) -> tensor<8xf32> {{
  %to = tensor.empty() : tensor<8x24xf32>{chain}
  %sum = linalg.generic {{indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%v{last} : tensor<8x24xf32>) outs(%start : tensor<8xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %m = arith.addf %a, %o : f32
    linalg.yield %m : f32
  }} -> tensor<8xf32>
  return %sum : tensor<8xf32>
}}
"""


def test_a_chain_of_values_with_two_readers_each() -> None:
    """Regression: each value was visited once per path to it: 23 s for 20 operations, and twice as long for 21."""
    chain = "".join(GENERIC.format(n=n, before=n - 1) for n in range(1, 65))
    with context():
        module = ir.Module.parse(PROGRAM.format(chain=chain, last=64))
        before = str(module)
        Pipeline.parse("qmlir-split-broadcast").run(module, State())
        assert str(module) == before
