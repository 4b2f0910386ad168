"""Constants that are only moved (transposed, padded, reshaped) are found without compiling; also torch's resources."""

from __future__ import annotations

import numpy as np
import pytest

import qmlir
from qmlir.core.mlir import context, ir
from qmlir.dialect.dtypes import Array
from qmlir.ir.moved import moved_constant
from qmlir.ir.resources import kept_resources, resource, resource_array

PROGRAM = """
func.func @f(%x: tensor<2x3xf32>) -> tensor<2x4x2xf32> {{
  %c = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %e = tensor.empty() : tensor<3x2xf32>
  %t = linalg.transpose ins({source} : tensor<2x3xf32>) outs(%e : tensor<3x2xf32>) permutation = [1, 0]
  %p = tensor.pad %t low[1, 0] high[0, 2] {{
  ^bb0(%i: index, %j: index):
    %zero = arith.constant 7.0 : f32
    tensor.yield %zero : f32
  }} : tensor<3x2xf32> to tensor<4x4xf32>
  %s = tensor.expand_shape %p [[0, 1], [2]] output_shape [2, 2, 4] : tensor<4x4xf32> into tensor<2x2x4xf32>
  %o = tensor.empty() : tensor<2x4x2xf32>
  %r = linalg.transpose ins(%s : tensor<2x2x4xf32>) outs(%o : tensor<2x4x2xf32>) permutation = [0, 2, 1]
  return %r : tensor<2x4x2xf32>
}}
"""


def found(source: str) -> Array | None:
    with context():
        module = ir.Module.parse(PROGRAM.format(source=source))
        *_, end = module.body.operations[0].regions[0].blocks[0].operations
        return moved_constant(end.operands[0])


def test_what_moves_a_constant_is_followed() -> None:
    assert found("%x") is None
    matrix = np.pad(np.arange(1, 7, dtype=np.float32).reshape(2, 3).T, [(1, 0), (0, 2)], constant_values=7)
    np.testing.assert_array_equal(found("%c"), matrix.reshape(2, 2, 4).transpose(0, 2, 1))


def test_resources_are_known_where_they_were_made() -> None:
    array = np.arange(6, dtype=np.float32)
    with context():
        kind = ir.RankedTensorType.get([6], ir.F32Type.get())
        with kept_resources():
            made = resource(array, kind)
            with kept_resources():  # of the same context: they share the outer resources
                assert resource(array.copy(), kind) == made
            read = ir.Attribute.parse(str(ir.DenseElementsAttr.get(array)))
            assert resource_array(read) is None
            np.testing.assert_array_equal(resource_array(made), array)
            with context(), kept_resources():  # an equal array in another context is another resource
                other = resource(array, ir.RankedTensorType.get([6], ir.F32Type.get()))
                assert other.context is not made.context
        assert resource_array(made) is None


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("channels", [24, 160])  # a weight of 20 KB is stored as elements, one of 920 KB is not
def test_weights_of_floats_are_packed_when_a_program_is_compiled(channels: int) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(channels, channels, 3, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(channels, channels, 3, groups=channels), torch.nn.Flatten(2), torch.nn.Linear(16, 33),
    ).eval()  # fmt: skip
    x = torch.randn(1, channels, 6, 6)
    artifact = qmlir.compile(torch.export.export(model, (x,)))
    assert "util.initializer" not in artifact.source("configured")
    with torch.no_grad():
        expected = model.double()(x.double()).numpy()
    np.testing.assert_allclose(qmlir.load(artifact).main(x), expected, rtol=1e-5, atol=1e-5)
