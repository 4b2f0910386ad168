"""Vulkan kernels on lavapipe and AMD kernels in the interpreter, both against the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels.gpu_products import PRODUCTS, check, chosen, functions, interpreted, values

import qmlir
from qmlir import TensorSpec
from qmlir.compiler.device_code import spirv_instructions

pytestmark = pytest.mark.sweep(fast=6, slow=40)

ROWS = (1, 5, 33, None)  # None: dynamic, called with 18 and with 1
AMD = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")
# Each scheme with one of the numbers of rows, in turn.
QUICK = [(name, (1, 33, None, 5)[i % 4]) for i, name in enumerate(PRODUCTS)]


def _compiled(name: str, m: int | None, target: str) -> Any:
    return qmlir.ops.scaled_matmul.compile(target=target, **PRODUCTS[name].arguments(m))


def _on_lavapipe(name: str, m: int | None, target: str) -> None:
    product = PRODUCTS[name]
    artifact = _compiled(name, m, target)
    assert chosen(artifact) == ["cooperative" if m is not None and m <= 8 else "tiled"]
    program = qmlir.load(artifact)
    for rows in (18, 1) if m is None else (m,):
        arguments = product.arguments(m)
        given = values(arguments, rows)
        check(product, program.main(*given.values()), qmlir.reference.scaled_matmul(**{**arguments, **given}))


def _interpreted(name: str, m: int | None, target: str) -> None:
    product = PRODUCTS[name]
    artifact = _compiled(name, m, target)
    if not {"matrix", "cooperative"} & set(chosen(artifact)):
        pytest.fail(f"{chosen(artifact)}: no kernel of ours")
    for rows in (18, 1) if m is None else (m,):
        arguments = product.arguments(m)
        given = values(arguments, rows)
        want = qmlir.reference.scaled_matmul(**{**arguments, **given})
        check(product, interpreted(artifact, given, want.shape, want.dtype, rows), want)


def _for_amd(names: Any) -> Any:
    """The cases with a kernel for AMD, without those that IREE's own tiles compute in one dispatch."""
    stock = ("w8a8", "w8a8, ragged", "w8a8, K of no words", "w8a8, requantised", "w8a8, residual, gelu", "w4a8", "w2a8",
             "w8a16", "w8a32, K of no words")  # fmt: skip
    few = {name for name in stock if "a8" in name}
    return [(name, m) for name, m in names if name not in stock or (name in few and m is not None and m <= 8)]


EVERY = [(name, m) for name in PRODUCTS for m in ROWS]


@pytest.mark.sweep(fast=9, slow=40)
@pytest.mark.parametrize(("name", "m"), QUICK)
def test_on_lavapipe(name: str, m: int | None, lavapipe: str) -> None:
    _on_lavapipe(name, m, lavapipe)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "m"), [case for case in EVERY if case not in QUICK])
def test_all_on_lavapipe(name: str, m: int | None, lavapipe: str) -> None:
    _on_lavapipe(name, m, lavapipe)


@pytest.mark.sweep(fast=9, slow=6)
@pytest.mark.parametrize(("name", "m"), [(name, m) for name in PRODUCTS for m in (33, None)])
def test_shared_k_on_lavapipe(name: str, m: int | None, lavapipe: str) -> None:
    """Workgroups share K of all tiles (`gpu_kernels/stream_k.py`)."""
    product = PRODUCTS[name]
    choice = {"strategy": "tiled", "tiled-tile": "32x32-stream-k"}
    artifact = qmlir.ops.scaled_matmul.compile(target=lavapipe, choice=choice, **product.arguments(m))
    assert all("stream_k" in plan for decision in artifact.manifest.strategies for plan in functions(decision))
    program = qmlir.load(artifact)
    for rows in (18, 1, 70) if m is None else (m,):
        arguments = product.arguments(m)
        given = values(arguments, rows)
        check(product, program.main(*given.values()), qmlir.reference.scaled_matmul(**{**arguments, **given}))


def test_shared_k_orders_the_stores_of_workgroups(tmp_path: Path) -> None:
    """lavapipe's memory is always coherent, so what other devices need is looked for: each thread's stores are ordered
    before the count and its loads after it, and of the buffers only the workspace, the last one, is coherent."""
    choice = {"strategy": "tiled", "tiled-tile": "32x32-stream-k"}
    flags = (f"--iree-hal-dump-executable-files-to={tmp_path}",)
    arguments = PRODUCTS["w8a8"].arguments(33)
    qmlir.ops.scaled_matmul.compile(target="vulkan:valhall4", choice=choice, flags=flags, **arguments)
    (shader,) = tmp_path.glob("*.spv")
    found = list(spirv_instructions(shader.read_bytes()))
    decorate, coherent, binding = 71, 23, 33
    marked = [words[0] for op, words in found if op == decorate and words[1] == coherent]
    bound = {words[2]: words[0] for op, words in found if op == decorate and words[1] == binding}
    assert marked == [bound[max(bound)]]
    names = {225: "memory", 224: "workgroup", 234: "count"}  # OpMemoryBarrier, OpControlBarrier, OpAtomicIAdd
    order = [names[op] for op, _ in found if op in names]
    assert order == ["memory", "workgroup", "count", "workgroup", "memory", "workgroup"]


SOME = [("w4a8, group 64, zero points", None), ("w4a16, group 32", 33)]


@pytest.mark.sweep(fast=9, slow=40)
@pytest.mark.parametrize(
    ("name", "m", "arch"),
    [(*case, "gfx942") for case in _for_amd(QUICK)]
    + [(*SOME[i % 2], arch) for i, arch in enumerate(("gfx90a", "gfx950", "gfx1100", "gfx1201"))],
)
def test_on_amd(name: str, m: int | None, arch: str) -> None:
    _interpreted(name, m, f"rocm:{arch}")


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize(
    ("name", "m", "arch"),
    [
        ("w8a8, ragged", 33, "rdna3"),
        ("w4a8, group 64, zero points", None, "ada"),
        ("w8a8, requantised", 16, "rdna3"),
        ("w4a16, group 32", 33, "turing"),
        ("w4a16, group 64, zero points", None, "rdna4"),
        ("w8a8, ragged", 33, "xe2"),
        ("w4a8, group 64, zero points", None, "xe2"),
        ("w4a16, group 32", 33, "xe2"),
    ],
)
def test_on_cooperative_matrices(name: str, m: int | None, arch: str) -> None:
    _interpreted(name, m, f"vulkan:{arch}")


@pytest.mark.sweep(slow=40)
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["rdna3", "ada", "xe2"])
@pytest.mark.parametrize(("name", "m"), [(n, m) for n, m in EVERY if n[2:4] == "a8" or n[2:5] == "a16"])
def test_all_on_cooperative_matrices(name: str, m: int | None, arch: str) -> None:
    _interpreted(name, m, f"vulkan:{arch}")


@pytest.mark.sweep(slow=40)
@pytest.mark.slow
@pytest.mark.parametrize("arch", AMD)
@pytest.mark.parametrize(("name", "m"), _for_amd(EVERY))
def test_all_on_amd(name: str, m: int | None, arch: str) -> None:
    _interpreted(name, m, f"rocm:{arch}")


CONVOLUTIONS = {
    "3x3": ((6, 5, 32), (20, 3, 3), {"padding": (1, 1, 1, 1)}),
    "stride, dilation": ((9, 11, 16), (8, 3, 2), {"strides": (2, 1), "dilations": (1, 2), "padding": (0, 1, 1, 0)}),
    "1x1, few channels": ((5, 4, 12), (9, 1, 1), {}),
    "2x2, steps of 128 codes": ((6, 5, 64), (20, 2, 2), {"padding": (1, 0, 0, 1)}),
}


def _convolution(name: str, batch: int | None) -> dict[str, Any]:
    image, filters, more = CONVOLUTIONS[name]
    rng = np.random.default_rng(4)
    weight = rng.integers(-128, 128, (*filters, image[-1])).astype(np.int8)
    scale = (2.0 ** rng.integers(-9, -3, filters[0])).astype(np.float32)
    return {"input": TensorSpec((batch, *image), "i8"), "weight": weight, "input_scale": np.float32(0.5),
            "weight_scale": scale, **more}  # fmt: skip


@pytest.mark.parametrize(("name", "batch"), [("3x3", 2), ("stride, dilation", None), ("1x1, few channels", None)])
def test_convolutions_on_lavapipe(name: str, batch: int | None, lavapipe: str) -> None:
    """Rows are read from the image, padded or not, without storing patches in memory."""
    arguments = _convolution(name, batch)
    artifact = qmlir.ops.conv2d_q.compile(target=lavapipe, **arguments)
    assert chosen(artifact) == ["tiled"]
    x = np.random.default_rng(5).integers(-128, 128, (batch or 3, *CONVOLUTIONS[name][0])).astype(np.int8)
    want = qmlir.reference.conv2d_q(**{**arguments, "input": x})
    np.testing.assert_array_equal(qmlir.load(artifact).main(x), want)


def test_a_convolution_that_shares_k_on_lavapipe(lavapipe: str) -> None:
    arguments, choice = _convolution("3x3", 2), {"strategy": "tiled", "tiled-tile": "32x32-stream-k"}
    artifact = qmlir.ops.conv2d_q.compile(target=lavapipe, choice=choice, **arguments)
    assert "stream_k" in functions(artifact.manifest.strategies[0])[0]
    x = np.random.default_rng(5).integers(-128, 128, (2, *CONVOLUTIONS["3x3"][0])).astype(np.int8)
    want = qmlir.reference.conv2d_q(**{**arguments, "input": x})
    np.testing.assert_array_equal(qmlir.load(artifact).main(x), want)


def test_a_convolution_whose_padding_is_a_zero_point(lavapipe: str) -> None:
    """The image is read without being padded: elements outside of it are the code of 0, which is not 0."""
    arguments = _convolution("3x3", 2) | {"input_zero_point": np.int32(77)}
    arguments["input"] = TensorSpec((2, 6, 5, 32), "u8")
    artifact = qmlir.ops.conv2d_q.compile(target=lavapipe, **arguments)
    assert chosen(artifact) == ["tiled"]
    x = np.random.default_rng(5).integers(0, 256, (2, 6, 5, 32)).astype(np.uint8)
    want = qmlir.reference.conv2d_q(**{**arguments, "input": x})
    np.testing.assert_array_equal(qmlir.load(artifact).main(x), want)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("2x2, steps of 128 codes", "rocm:gfx942"),
        ("3x3", "vulkan:rdna3"),
        ("stride, dilation", "rocm:gfx942"),
        ("stride, dilation", "vulkan:xe2"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("3x3", "rocm:gfx942"), ("stride, dilation", "vulkan:rdna3"))
        ),
    ],
)
def test_padded_convolutions_on_matrices(name: str, target: str) -> None:
    """The kernel is the whole program: no other op pads the image."""
    arguments = _convolution(name, 2)
    artifact = qmlir.ops.conv2d_q.compile(target=target, **arguments)
    assert chosen(artifact) == ["matrix"]
    x = np.random.default_rng(5).integers(-128, 128, arguments["input"].shape).astype(np.int8)
    want = qmlir.reference.conv2d_q(**{**arguments, "input": x})
    rows = int(np.prod(want.shape[:3]))
    np.testing.assert_array_equal(interpreted(artifact, {"input": x}, want.shape, want.dtype, rows), want)


@pytest.mark.parametrize("target", ["rocm:gfx942", "rocm:gfx1100", "vulkan:rdna3"])
def test_convolutions_on_matrices(target: str) -> None:
    """With a dynamic batch and without padding, the kernel is the whole program."""
    arguments = _convolution("3x3", None) | {"padding": (0, 0, 0, 0)}
    artifact = qmlir.ops.conv2d_q.compile(target=target, **arguments)
    assert chosen(artifact) == ["matrix"]
    x = np.random.default_rng(5).integers(-128, 128, (3, 6, 5, 32)).astype(np.int8)
    want = qmlir.reference.conv2d_q(**{**arguments, "input": x})
    rows = int(np.prod(want.shape[:3]))
    np.testing.assert_array_equal(interpreted(artifact, {"input": x}, want.shape, want.dtype, rows), want)


# Image `[H, W, C]`, filters, type and further arguments: layouts, groups of channels and floats.
OTHER_CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], str, dict[str, Any]]] = {
    "NCHW": ((6, 5, 32), (20, 3, 3), "i8", {"input_layout": "NCHW", "padding": (1, 1, 1, 1)}),
    "NCHW, zero point, s8 result": (
        (6, 5, 32), (20, 3, 3), "u8",
        {"input_layout": "NCHW", "padding": (1, 1, 1, 1), "strides": (2, 1), "out_dtype": "i8",
         "out_scale": np.float32(64)},
    ),
    "2 groups": ((6, 5, 64), (40, 3, 3), "i8", {"groups": 2, "padding": (1, 1, 1, 1)}),
    "4 groups, zero point, ragged": (
        (6, 5, 64), (36, 3, 3), "u8", {"groups": 4, "padding": (1, 1, 1, 1), "strides": (2, 2)}
    ),
    "2 groups, NCHW": ((6, 5, 32), (10, 3, 2), "i8", {"groups": 2, "input_layout": "NCHW"}),
    "f16": ((6, 5, 32), (20, 3, 3), "f16", {"padding": (1, 1, 1, 1)}),
    "f16, NCHW": ((6, 5, 32), (9, 3, 3), "f16", {"input_layout": "NCHW", "padding": (1, 1, 1, 1)}),
}  # fmt: skip


def _other_convolution(name: str, batch: int | None, target: str, kinds: set[str]) -> None:
    """Check on lavapipe (`tiled`), or one kernel in the interpreter."""
    (height, width, channels), (filters, *window), dtype, more = OTHER_CONVOLUTIONS[name]
    image = (channels, height, width) if "input_layout" in more else (height, width, channels)
    rng = np.random.default_rng(4)
    weight = rng.integers(-128, 128, (filters, *window, channels // more.get("groups", 1))).astype(np.int8)
    arguments = {"input": TensorSpec((batch, *image), dtype), "weight": weight,
                 "weight_scale": (2.0 ** rng.integers(-9, -3, filters)).astype(np.float32), **more}  # fmt: skip
    arguments |= {} if dtype == "f16" else {"input_scale": np.float32(0.5)}
    arguments |= {"input_zero_point": np.uint8(77)} if dtype == "u8" else {}
    artifact = qmlir.ops.conv2d_q.compile(target=target, **arguments)
    assert set(chosen(artifact)) <= kinds
    low, high, kind = {"i8": (-128, 128, np.int8), "u8": (0, 256, np.uint8), "f16": (-8, 9, np.float16)}[dtype]
    x = rng.integers(low, high, (batch or 3, *image)).astype(kind)
    want = qmlir.reference.conv2d_q(**{**arguments, "input": x})
    if kinds == {"tiled"}:
        got = qmlir.load(artifact).main(x)
    else:
        given = x.view(np.int8) if dtype == "u8" else x
        got = interpreted(artifact, {"input": given}, want.shape, want.dtype, want.size // filters)
    np.testing.assert_array_equal(got, want)  # sums of these floats are exact


@pytest.mark.parametrize(("name", "batch"), [(n, (None, 2)[i % 2]) for i, n in enumerate(OTHER_CONVOLUTIONS)])
def test_layouts_groups_and_floats_on_lavapipe(name: str, batch: int | None, lavapipe: str) -> None:
    _other_convolution(name, batch, lavapipe, {"tiled"})


@pytest.mark.parametrize(
    ("name", "batch", "target"),
    [("NCHW", None, "rocm:gfx942"), ("4 groups, zero point, ragged", 2, "rocm:gfx942"), ("f16", None, "rocm:gfx942"),
     ("NCHW, zero point, s8 result", 2, "vulkan:rdna3"), ("2 groups", None, "vulkan:rdna3"),
     ("f16", None, "vulkan:xe2")],
)  # fmt: skip
def test_layouts_groups_and_floats_on_matrices(name: str, batch: int | None, target: str) -> None:
    """Channels-first images, groups of channels and floats also compile to one kernel."""
    _other_convolution(name, batch, target, {"matrix"})


@pytest.mark.slow
@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize(
    ("name", "target"),
    [(name, f"rocm:{arch}") for name in OTHER_CONVOLUTIONS for arch in AMD]
    + [(n, f"vulkan:{arch}") for n in OTHER_CONVOLUTIONS for arch in ("rdna3", "rdna4", "xe2")],
)
def test_all_layouts_groups_and_floats(name: str, batch: int | None, target: str) -> None:
    _other_convolution(name, batch, target, {"matrix"})
