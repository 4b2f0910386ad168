"""Forms of the support matrix, compiled for 64-bit Arm and executed in an emulator, against the interpreter of the
program that was compiled: whatever route a product takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.arm import Emulator
from support.cover import others_slow
from support.forms import FORMS

import qmlir
from qmlir import TensorSpec as T
from qmlir.checking.interpreter import Interpreter
from qmlir.core.mlir import context, ir
from qmlir.runtime import inputs

PRODUCTS = {form.name: form for form in FORMS if form.product and form.op not in ("sparse_matmul", "route")}


def evaluated(artifact: Any, arguments: list[Any]) -> Any:
    with context():
        return Interpreter(ir.Module.parse(artifact.source("import"))).call("main", arguments)


# One takes our kernels, the other IREE's route for integers.
@pytest.mark.sweep(slow=3)
@pytest.mark.parametrize("target", ["cpu:neoverse-v1", "cpu:aarch64"])
@pytest.mark.parametrize("name", others_slow(sorted(PRODUCTS)))
def test_products(arm: Emulator, name: str, target: str) -> None:
    artifact = PRODUCTS[name].compile(target, m=None)
    signature = artifact.functions["main"]
    arguments = list(inputs.make(signature, artifact.manifest.arguments.get("main"), size=5, seed=1))
    (got,) = arm.run(artifact, [arguments])
    for found, expected in zip([got], evaluated(artifact, arguments), strict=True):
        if np.asarray(expected).dtype.kind in "iu":
            np.testing.assert_array_equal(found, expected)
        else:
            a, b = (np.asarray(x).astype(np.float64) for x in (found, expected))
            np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-2 * np.abs(b).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    "packing",
    [
        "low_first",
        "high_first",
        # IREE 3.13 shifts all codes of a byte by the first one's distance.
        pytest.param("interleaved", marks=pytest.mark.xfail(strict=True, reason="IREE's code for Arm is wrong")),
    ],
)
def test_unpacking_is_exact(arm: Emulator, packing: str) -> None:
    codes = np.arange(96, dtype=np.uint8).reshape(3, 32)
    artifact = qmlir.ops.unpack.compile(T(codes.shape, "u8"), dtype="u2", packing=packing, target="cpu:aarch64")
    want = qmlir.reference.unpack(codes, dtype="u2", packing=packing)
    np.testing.assert_array_equal(arm.run(artifact, [[codes]])[0], want)
