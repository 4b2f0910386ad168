"""Run products on cooperative matrices on the present Vulkan device, and compare them with the reference. Prints one
line of JSON per case, {"case": .., "wrong": "" or the error}.

tools/lavapipe.sh build/lavapipe
build/lavapipe/lavapipe .venv/bin/python test/kernels/cooperative.py [CASE ...]
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # as a script
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from kernels.gpu_products import PRODUCTS, check, chosen, functions, values

import qmlir
from qmlir import TensorSpec

ROWS = {33: (33,), None: (18, 1, 70)}  # the calls of a program with static or dynamic rows


def _choice(shared: bool) -> dict[str, int | str]:
    """The choice of a kernel whose K is `shared` by workgroups, or not."""
    return {"strategy": "matrix", "matrix-tile": "64x64-stream-k" if shared else "64x64"}


def _chosen(artifact: qmlir.Artifact, shared: bool) -> bool:
    plans = [plan for decision in artifact.manifest.strategies for plan in functions(decision)]
    return chosen(artifact) == ["matrix"] and all(("stream_k" in plan) == shared for plan in plans)


def _product(name: str, m: int | None, shared: bool = False) -> None:
    product = PRODUCTS[name]
    artifact = qmlir.ops.scaled_matmul.compile(target="vulkan", choice=_choice(shared), **product.arguments(m))
    assert _chosen(artifact, shared), artifact.manifest.strategies
    program = qmlir.load(artifact)
    for rows in ROWS[m]:
        arguments = product.arguments(m)
        given = values(arguments, rows)
        check(product, program.main(*given.values()), qmlir.reference.scaled_matmul(**{**arguments, **given}))


def _convolution(dtype: str, layout: str, groups: int, shared: bool = False) -> None:
    rng = np.random.default_rng(6)
    shape = (2, 7, 6, 32) if layout == "NHWC" else (2, 32, 7, 6)
    arguments: dict[str, Any] = {
        "input": TensorSpec(shape, dtype), "weight": rng.integers(-128, 128, (48, 3, 3, 32 // groups)).astype(np.int8),
        "input_layout": layout, "padding": (1, 1, 1, 1), "groups": groups,
        "weight_scale": (2.0 ** rng.integers(-9, -3, 48)).astype(np.float16 if dtype == "f16" else np.float32),
    }  # fmt: skip
    if dtype == "i8":
        arguments["input_scale"] = np.float32(0.5)
    artifact = qmlir.ops.conv2d_q.compile(target="vulkan", choice=_choice(shared), **arguments)
    assert _chosen(artifact, shared), artifact.manifest.strategies
    x = rng.integers(-128, 128, shape).astype(np.int8 if dtype == "i8" else np.float16)
    want = qmlir.reference.conv2d_q(**{**arguments, "input": x})
    np.testing.assert_allclose(qmlir.load(artifact).main(x), want, rtol=2e-3 if dtype == "f16" else 0)


def _experts(dtype: str) -> None:
    rng = np.random.default_rng(7)
    scale = np.float16 if dtype == "f16" else np.float32
    arguments: dict[str, Any] = {
        "lhs": TensorSpec((40, 64), dtype), "rhs": rng.integers(-8, 8, (3, 32, 64)).astype(np.int8),
        "rhs_transposed": True, "rhs_dtype": "i4",
        "rhs_scale": (2.0 ** rng.integers(-5, -1, (3, 32, 1))).astype(scale),
        "group_sizes": TensorSpec((3,), "i32"),
    }  # fmt: skip
    artifact = qmlir.ops.grouped_matmul.compile(target="vulkan", **arguments)
    assert chosen(artifact) == ["matrix"], chosen(artifact)
    x = rng.integers(-8, 8, (40, 64)).astype(np.int8 if dtype == "i8" else np.float16)
    sizes = np.array([7, 0, 33], np.int32)
    want = qmlir.reference.grouped_matmul(**{**arguments, "lhs": x, "group_sizes": sizes})
    np.testing.assert_allclose(qmlir.load(artifact).main(x, sizes), want, rtol=2e-3 if dtype == "f16" else 0)


_PRODUCTS = [name for name in PRODUCTS if name.split(",")[0] in ("w8a8", "w4a8", "w2a8", "w8a16", "w4a16")]
CASES: dict[str, Callable[[], None]] = {
    **{f"{name}, {m or 'any'} rows": partial(_product, name, m) for name in _PRODUCTS for m in ROWS},
    **{f"{name}, {m or 'any'} rows, K shared": partial(_product, name, m, True) for name in _PRODUCTS for m in ROWS},
    "convolution of i8": partial(_convolution, "i8", "NHWC", 1),
    "convolution of i8, NCHW": partial(_convolution, "i8", "NCHW", 1),
    "convolution of i8, K shared": partial(_convolution, "i8", "NHWC", 1, True),
    "convolution of f16, NCHW, K shared": partial(_convolution, "f16", "NCHW", 1, True),
    "convolution of i8, 2 groups": partial(_convolution, "i8", "NHWC", 2),
    "convolution of f16": partial(_convolution, "f16", "NHWC", 1),
    "convolution of f16, NCHW": partial(_convolution, "f16", "NCHW", 1),
    "experts of i8": partial(_experts, "i8"),
    "experts of f16": partial(_experts, "f16"),
}  # fmt: skip


def main(names: list[str]) -> None:
    for name in names or CASES:
        try:
            CASES[name]()
            wrong = ""
        except Exception:
            wrong = traceback.format_exc(limit=-2)
        print(json.dumps({"case": name, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
