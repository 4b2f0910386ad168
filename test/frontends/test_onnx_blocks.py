"""DepthToSpace and SpaceToDepth with sizes known only at run time, against the onnx package."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import qmlir
from qmlir.errors import FrontEndError, InputError


def program(node: str, sizes: str) -> onnx.ModelProto:
    opset = '<ir_version: 9, opset_import: ["" : 18]>'
    text = f"{opset} graph (float[{sizes}] x) => (float[a, b, c, d] y) {{ y = {node}(x) }}"
    return parser.parse_model(text)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("sizes", ["N, 12, H, W", "1, 12, H, 6"])
def test_sizes_of_images_may_be_dynamic(sizes: str, mode: str) -> None:
    model = program(f'DepthToSpace <blocksize = 2, mode = "{mode}">', sizes)
    main, expected = qmlir.load(qmlir.compile(model)).main, ReferenceEvaluator(model)
    for height in (1, 4, 9):
        x = np.random.default_rng(height).standard_normal((1, 12, height, 6), dtype=np.float32)
        np.testing.assert_array_equal(main(x), expected.run(None, {"x": x})[0])


def test_blocks_of_a_dynamic_image() -> None:
    model = program("SpaceToDepth <blocksize = 3>", "N, 2, H, W")
    main, expected = qmlir.load(qmlir.compile(model)).main, ReferenceEvaluator(model)
    for height in (3, 12):
        x = np.random.default_rng(height).standard_normal((2, 2, height, 6), dtype=np.float32)
        np.testing.assert_array_equal(main(x), expected.run(None, {"x": x})[0])
    with pytest.raises(InputError, match="height and width must be multiples of the block size 3"):
        main(np.zeros((2, 2, 6, 5), np.float32))


def test_dynamic_channels_are_refused() -> None:
    with pytest.raises(FrontEndError, match="DepthToSpace of dynamic channels is not imported"):
        qmlir.compile(program("DepthToSpace <blocksize = 2>", "N, C, 4, 4"))
