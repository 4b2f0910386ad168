"""The cost of compiling a large weight: memory, and bytes of the program. benchmarks.compile measures the seconds."""

from __future__ import annotations

import re

import numpy as np
import pytest

import qmlir
from benchmarks import compile as costs
from qmlir import TensorSpec as T


@pytest.mark.parametrize("work", ["int8 4096x11008, any rows", "int4 g128 4096x11008, any rows"])
@pytest.mark.slow
def test_a_large_weight_is_compiled_in_little_memory_and_stored_once(work: str) -> None:
    held = np.ones(costs.PEAK_MIB << 20, np.int8)  # memory that the process has held before does not count
    del held
    found = costs.run(work)
    assert found["peak_mib"] < costs.PEAK_MIB
    assert found["vmfb_over_weights"] <= costs.SIZE


@pytest.mark.slow
def test_two_products_with_one_weight_store_it_once() -> None:
    """Large constants are resources, which IREE does not compare with each other."""
    codes = np.random.default_rng(0).integers(-127, 128, (1024, 1024), dtype=np.int8)
    one = qmlir.ops.scaled_matmul.compile(
        T((1, 1024), "i8"), codes, lhs_scale=np.float32(1), rhs_scale=np.ones((1, 1024), np.float32)
    )
    text = re.sub(r" loc\([^)]*\)|#loc.*\n", "", one.source("import"))
    function = text[text.index("func.func") : text.rindex("}")]
    twice = f"module {{\n{function}\n{function.replace('@main', '@other')}}}"
    both = qmlir.compile(twice)
    assert len(both.vmfb) < len(one.vmfb) + 0.1 * codes.nbytes
    x = np.random.default_rng(1).integers(-127, 128, (1, 1024), dtype=np.int8)
    program = qmlir.load(both)
    np.testing.assert_array_equal(program.main(x), program.other(x))
    np.testing.assert_array_equal(program.main(x), x.astype(np.float32) @ codes.astype(np.float32))
