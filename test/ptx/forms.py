"""Forms for kernels that only CUDA has; the forms for every target are in `emulation.programs`."""

# ruff: noqa: E501  (rows of tables)

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from emulation.forms import Build, Draw, Form, w4, w8, w8_finished, w8_zeros


def fast_one_byte_floats() -> Iterator[Form]:
    """fp8 products on the fp8 instructions, which a choice has to request."""

    def build(d: Draw, m: int, lhs: str = "e4m3", rhs: str = "e4m3", n: int = 72, k: int = 160, groups: int = 1) -> Any:
        return {"lhs": d.codes(lhs, m, k), "rhs": d.codes(rhs, n, k), "rhs_transposed": True,
                "lhs_scale": d.scales(m, groups), "rhs_scale": d.scales(n, groups)}  # fmt: skip

    for groups in (1, 4):
        yield Form("fp8", f"fast, {groups} groups", lambda d, m, g=groups: build(d, m, "e4m3", "e5m2", 72, 512, g),
                   rows=(5, 33), judge="near", choice="strategy:mma-sync-fp8-fast", targets=("cuda:sm_89",))  # fmt: skip

    def wgmma(name: str, tile: str = "", make: Build = build, rows: tuple[int, ...] = (5, 70), **more: Any) -> Form:
        choice = "strategy:wgmma-fp8-fast" + (f"|wgmma-fp8-fast-tile:{tile}" if tile else "")
        return Form("fp8 wgmma", name, make, rows=rows, judge="near", choice=choice, targets=("cuda:sm_90a",), **more)

    for lhs in ("e4m3", "e5m2"):
        for rhs in ("e4m3", "e5m2"):
            yield wgmma(f"{lhs} x {rhs}", make=lambda d, m, a=lhs, b=rhs: build(d, m, a, b))
    for tile in ("128x128x128x8x1x1x6", "64x128x128x4x1x1x6"):
        yield wgmma(f"ragged {tile}", tile, lambda d, m: build(d, m, n=210, k=330), rows=(1, 133))
    yield wgmma("tiles that are multiplied together", make=lambda d, m: build(d, m, n=72, k=2500))
    yield wgmma("rows of odd length", make=lambda d, m: build(d, m, n=70, k=97), rows=(1, 64, 130))
    yield wgmma("static rows", make=lambda d, m: build(d, m, n=130, k=1031), rows=(65,), dynamic=False)
    for groups in (2, 4, 8):
        yield wgmma(f"groups of {256 // groups}", make=lambda d, m, g=groups: build(d, m, n=130, k=256, groups=g))
    for tile in ("128x128x128x8x1x1x6", "64x64x128x4x1x1x8"):
        yield wgmma(f"blocks {tile}", tile, lambda d, m: {
            **build(d, m, n=384, k=512, groups=4), "rhs_scale": d.scales(3, 4)}, rows=(5, 130))  # fmt: skip
    yield wgmma("arguments", rows=(70,), arguments=("lhs", "lhs_scale", "rhs", "rhs_scale"))
    yield wgmma("finished", make=lambda d, m: {**build(d, m), "bias": d.floats(72), "c": d.floats(m, 72), "beta": 0.5,
                                               "activation": "relu", "out_dtype": "bf16"})  # fmt: skip


def sliced() -> Iterator[Form]:
    """Tiles whose warps split K and pass their partial sums to the first warp."""
    for tile in ("64x64x256x2x2x2x3", "32x32x256x1x1x4x4", "16x32x512x1x1x4x3", "16x16x512x1x1x4x4"):
        choice = f"mma-sync-int8-tile:{tile}"
        yield Form("sliced", f"w8a8 {tile}", lambda d, m: w8(d, m, 72, 1100), rows=(16, 33), choice=choice)
        yield Form("sliced", f"i4 {tile}", w4("i4", n=72, k=1024), rows=(16, 33), choice=choice)
        yield Form("sliced", f"zero points {tile}", w8_zeros, rows=(16, 33), choice=choice)


def handed() -> Iterator[Form]:
    """Tiles whose warps split K by groups: each warp sums different groups, and all combine all groups in order."""
    tiles = {"16x32x1024x1x1x8x3": (64, 128), "16x32x512x1x1x4x3": (32, 64, 128), "16x16x512x1x1x4x4": (128,),
             "32x32x256x1x1x4x4": (32, 64)}  # fmt: skip
    for tile, groups in tiles.items():
        choice = f"strategy:mma-sync-int8|mma-sync-int8-tile:{tile}"
        for group in groups:
            # The last tile of K has fewer groups than the others.
            for name, build in (("i4", w4("i4", group, n=72, k=1152)),
                                ("zeros on both sides", w4("u4", group, n=50, k=1152, zeros=True, lhs_zeros=True))):  # fmt: skip
                yield Form("handed", f"{name}, groups of {group} {tile}", build, rows=(5, 33), choice=choice)
    choice = "strategy:mma-sync-fp8|mma-sync-fp8-tile:16x32x512x1x1x4x3"
    yield Form("handed", "fp8", lambda d, m: {
        "lhs": d.codes("e4m3", m, 1024), "rhs": d.codes("e4m3", 72, 1024), "rhs_transposed": True,
        "lhs_scale": d.scales(m, 8), "rhs_scale": d.scales(72, 8)
    }, rows=(5, 33), judge="near", choice=choice)  # fmt: skip


def stream_k() -> Iterator[Form]:
    """Stream-K kernels: workgroups that split K, run in shuffled order, a few at the same time."""

    def form(name: str, make: Build, tile: str, strategy: str = "mma-sync-int8", rows: tuple[int, ...] = (16, 33),
             target: str = "cuda:sm_80", **more: Any) -> Form:  # fmt: skip
        choice = f"strategy:{strategy}|{strategy}-tile:{tile}-stream-k"
        options = {"seed": zlib.crc32(name.encode()), "resident": 7}
        return Form("stream-K", name, make, rows=rows, choice=choice, targets=(target,), options=options, **more)

    small, middle, wide = "16x64x128x1x4x1x4", "64x64x128x2x2x1x4", "128x128x128x2x4x1x3"
    for tile in (small, middle, wide, "64x128x128x2x2x1x3", "32x128x128x1x4x1x4", "32x64x128x1x4x1x4",
                 "16x128x128x1x4x1x4"):  # fmt: skip
        yield form(f"w8a8 {tile}", lambda d, m: w8(d, m, 72, 1100), tile)
    for n, k in ((33, 97), (8, 2051), (130, 1024), (64, 128)):
        yield form(f"ragged {n}x{k}", lambda d, m, n=n, k=k: w8(d, m, n, k), small, rows=(1, 5, 130))
    # More tiles than workgroups: one workgroup computes some tiles alone, and some shares span three tiles.
    yield form("many tiles", lambda d, m: w8(d, m, 520, 130), small, rows=(400, 520))
    yield form("static rows", lambda d, m: w8(d, m, 72, 1100), middle, rows=(70,), dynamic=False)
    yield form("batch of rows", lambda d, m: {
        **w8(d, m, 72, 640), "lhs": d.codes("i8", 3, 7, 640), "lhs_scale": d.scales(3, 7, 1)
    }, small, rows=(7,), dynamic=False)  # fmt: skip
    yield form("arguments", lambda d, m: w8(d, m, 72, 1104), small, arguments=("lhs", "lhs_scale", "rhs", "rhs_scale"))

    for tile in (small, middle):
        yield form(f"zero points {tile}", w8_zeros, tile)
        yield form(f"finished {tile}", w8_finished, tile)
        yield form(f"i4 {tile}", w4("i4", n=72, k=1024), tile)
        for group in (32, 64, 128, 256):  # sums within a group are exact; sums over groups are split into partial sums
            yield form(f"i4 group {group} {tile}", w4("i4", group, n=72, k=1024), tile, judge="near")
        yield form(
            f"u4 zeros on both sides {tile}", w4("u4", 128, k=1024, zeros=True, lhs_zeros=True), tile, judge="near"
        )
    yield form("swiglu", lambda d, m: {**w8(d, m, 72, 1100), "activation": "swiglu", "gate_layout": "halves"}, small,
               judge="smooth")  # fmt: skip

    def floats(d: Draw, m: int, lhs: Any = np.float16, dtype: str = "i4", group: int = 128) -> dict[str, Any]:
        return {"lhs": d.floats(m, 1024).astype(lhs), **d.weight(dtype, 72, 1024), "rhs_transposed": True,
                "rhs_scale": d.scales(72, 1024 // group if group else 1),
                "out_dtype": "f16" if lhs == np.float16 else "bf16"}  # fmt: skip

    for tile in ("128x64x64x2x2x1x4", "64x64x64x2x2x1x4", "32x64x128x1x2x2x4", "16x64x128x1x2x2x4"):
        yield form(f"f16 x i4 {tile}", floats, tile, "mma-sync-weight-only", judge="near")
        yield form(f"bf16 x i8 {tile}", lambda d, m: floats(d, m, ml_dtypes.bfloat16, "i8", 0), tile,
                   "mma-sync-weight-only", judge="near")  # fmt: skip

    def one_byte(d: Draw, m: int, groups: int = 1) -> dict[str, Any]:
        return {"lhs": d.codes("e4m3", m, 1024), "rhs": d.codes("e4m3", 72, 1024), "rhs_transposed": True,
                "lhs_scale": d.scales(m, groups), "rhs_scale": d.scales(72, groups)}  # fmt: skip

    yield form("fp8", one_byte, small, "mma-sync-fp8", judge="near")
    yield form("fp8, groups", lambda d, m: one_byte(d, m, 8), middle, "mma-sync-fp8", judge="near")
    for tile in ("128x128x128x8x1x1x6", "64x128x128x4x1x1x6", "64x64x128x4x1x1x8"):
        yield form(f"wgmma {tile}", lambda d, m: w8(d, m, 200, 1100), tile, "wgmma-int8", (1, 70), "cuda:sm_90a")

        fast = lambda d, m: {**one_byte(d, m), "rhs": d.codes("e5m2", 72, 1024)}  # noqa: E731
        yield form(f"wgmma, fp8 {tile}", fast, tile, "wgmma-fp8-fast", (1, 70), "cuda:sm_90a", judge="near")
    blocks = lambda d, m: {**one_byte(d, m, 8), "rhs": d.codes("e4m3", 128, 1024), "rhs_scale": d.scales(1, 8)}  # noqa: E731
    yield form(
        "wgmma, fp8, blocks", blocks, "64x128x128x4x1x1x6", "wgmma-fp8-fast", (1, 70), "cuda:sm_90a", judge="near"
    )

    def convolution(d: Draw, m: int) -> dict[str, Any]:
        return {"input": d.codes("i8", m, 7, 7, 64), "weight": d.codes("i8", 72, 3, 3, 64), "weight_layout": "FHWC",
                "input_scale": np.float32(0.02), "weight_scale": d.scales(72), "padding": [1, 1, 1, 1]}  # fmt: skip

    for dynamic, rows in ((False, (1,)), (True, (1, 2))):
        one = form(f"convolution, {'dynamic' if dynamic else 'static'}", convolution, middle, "mma-sync-int8-conv", rows,
                   op="conv2d_q", dynamic=dynamic, arguments=("input",))  # fmt: skip
        yield replace(one, choice=one.choice.replace("conv-tile", "tile"))
