"""Programs that are executed on emulated devices: the families of kernels, and whole models.

The tests of all emulated targets and those of the PTX interpreter share the table. A program is compiled once, with its
weight as a constant and, unless stated otherwise, a dynamic M; each number of rows that it is called with is a case.
"""

# ruff: noqa: E501  (rows of tables)

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

import qmlir
from conformance.judge import closely, exactly, magnitude_terms
from qmlir import TensorSpec
from qmlir.dialect.dtypes import from_numpy
from qmlir.runtime.artifact import Artifact
from qmlir.targets.strategy import parse_choice

from .forms import Draw, Form, w4, w8

R = qmlir.reference
ACTIVATIONS = ("relu", "relu6", "gelu", "gelu_tanh", "silu", "tanh", "clamp(-1.5,2.0)")


def products() -> Iterator[Form]:
    """w8a8: shapes, then zero points, then each step of the epilogue."""
    for n, k in ((72, 160), (33, 70), (8, 16), (130, 97), (256, 512), (64, 1031)):
        yield Form("w8a8", f"{n}x{k}", lambda d, m, n=n, k=k: w8(d, m, n, k))
    for m in (1, 2, 8, 9, 17, 129):
        yield Form("w8a8", f"static rows {m}", w8, rows=(m,), dynamic=False)
    yield Form("w8a8", "raw", lambda d, m: {"lhs": d.codes("i8", m, 96), "rhs": d.codes("i8", 40, 96),
                                            "rhs_transposed": True, "out_dtype": "i32"})  # fmt: skip
    yield Form("w8a8", "weight [K, N]", lambda d, m: {
        "lhs": d.codes("i8", m, 96), "rhs": d.codes("i8", 96, 40), "lhs_scale": d.scales(m, 1), "rhs_scale": d.scales(1, 40)
    })  # fmt: skip
    yield Form("w8a8", "argument [N, K]", w8, arguments=("lhs", "lhs_scale", "rhs", "rhs_scale"))
    yield Form("w8a8", "argument [K, N]", lambda d, m: {
        "lhs": d.codes("i8", m, 96), "rhs": d.codes("i8", 96, 40), "lhs_scale": d.scales(m, 1), "rhs_scale": d.scales(1, 40)
    }, arguments=("lhs", "lhs_scale", "rhs", "rhs_scale"))  # fmt: skip
    yield Form("w8a8", "batch of rows", lambda d, m: {
        **w8(d, m), "lhs": d.codes("i8", 3, 7, 160), "lhs_scale": d.scales(3, 7, 1)
    }, rows=(7,), dynamic=False)  # fmt: skip
    yield Form("w8a8", "batch", lambda d, m: {
        "lhs": d.codes("i8", 3, 17, 64), "rhs": d.codes("i8", 3, 40, 64), "rhs_transposed": True,
        "lhs_scale": d.scales(3, 17, 1), "rhs_scale": d.scales(3, 40, 1),
    }, rows=(17,), dynamic=False, arguments=("lhs", "lhs_scale", "rhs", "rhs_scale"))  # fmt: skip

    def zero(name: str, make: Callable[[Draw, int], dict[str, Any]]) -> Form:
        return Form("zero points", name, lambda d, m: {**w8(d, m), **make(d, m)})

    yield zero("lhs per token", lambda d, m: {"lhs_zero_point": d.zeros(m, 1)})
    yield zero("rhs per channel", lambda d, m: {"rhs_zero_point": d.zeros(72, 1)})
    yield zero("both", lambda d, m: {"lhs_zero_point": d.zeros(m, 1), "rhs_zero_point": d.zeros(72, 1)})
    yield zero("u8 lhs", lambda d, m: {"lhs": d.codes("u8", m, 160), "lhs_zero_point": d.zeros(m, 1, lo=0, hi=256)})
    yield zero("u8 both", lambda d, m: {"lhs": d.codes("u8", m, 160), "lhs_zero_point": d.zeros(m, 1, lo=0, hi=256),
                                        "rhs": d.codes("u8", 72, 160), "rhs_zero_point": d.zeros(72, 1, lo=0, hi=256)})  # fmt: skip
    yield Form("zero points", "lhs tensor", lambda d, m: {**w8(d, m), "lhs_scale": np.float32(0.02),
                                                          "lhs_zero_point": np.int8(-7)}, arguments=("lhs",))  # fmt: skip

    def step(name: str, make: Callable[[Draw, int], dict[str, Any]], judge: str = "exact") -> Form:
        return Form("epilogue", name, lambda d, m: {**w8(d, m), **make(d, m)}, rows=(3, 33), judge=judge)

    for stage in ("acc", "scaled", "out"):
        yield step(f"bias {stage}", lambda d, m, s=stage: {
            "bias": d.zeros(72, lo=-999, hi=999) if s == "acc" else d.floats(72), "bias_stage": s})  # fmt: skip
    yield step("residual", lambda d, m: {"c": d.floats(m, 72), "alpha": 0.5, "beta": 2.0})
    for name in ACTIVATIONS:
        exact = name.startswith(("relu", "clamp"))
        yield step(name, lambda d, m, n=name: {"activation": n}, "exact" if exact else "smooth")
    yield step("act_scale", lambda d, m: {"activation": "relu", "act_scale": np.float32(0.3)})
    for kind in ("swiglu", "geglu"):
        for layout in ("halves", "interleaved"):
            yield step(f"{kind} {layout}", lambda d, m, k=kind, g=layout: {"activation": k, "gate_layout": g}, "smooth")
    for out in ("f16", "bf16"):
        yield step(out, lambda d, m, o=out: {"out_dtype": o})
    for out in ("i8", "u8"):
        for rounding in ("half_even", "half_away", "trunc"):
            yield step(f"{out} {rounding}", lambda d, m, o=out, r=rounding: {
                "out_dtype": o, "out_scale": np.float32(0.25), "out_zero_point": np.int32(3), "rounding": r})  # fmt: skip
    yield step("out scale per channel", lambda d, m: {"out_dtype": "i8", "out_scale": d.scales(1, 72) * 20})
    yield step("multiplier", lambda d, m: {"out_dtype": "i8", "out_multiplier": np.float32(3.5)})
    yield step("all", lambda d, m: {"bias": d.floats(72), "c": d.floats(m, 72), "beta": 1.0, "activation": "relu",
                                    "out_dtype": "i8", "out_scale": np.float32(0.25), "lhs_zero_point": d.zeros(m, 1)})  # fmt: skip


def short_weights() -> Iterator[Form]:
    """Weights of 4, 2 and 1 bits. Sums within a group are exact; the f32 sum over groups has a fixed order."""
    for dtype in ("i4", "u4", "i2", "u2", "i1", "nf4"):
        # The values of a table are floats, so the sums are too.
        yield Form("w4a8", f"{dtype} per channel", w4(dtype), judge="near" if dtype == "nf4" else "exact")
    for dtype, group in (("i4", 16), ("i4", 32), ("i4", 64), ("u4", 128), ("i2", 64), ("u2", 32)):
        yield Form("w4a8", f"{dtype} group {group}", w4(dtype, group))
    yield Form("w4a8", "i4 group 48 of ragged", w4("i4", 48, n=50, k=144))
    for dtype, group in (("u4", 0), ("u4", 32), ("u4", 128), ("i4", 64), ("u2", 64)):
        yield Form("w4a8", f"{dtype} zeros, group {group}", w4(dtype, group, zeros=True))
        yield Form("w4a8", f"{dtype} zeros on both sides, group {group}", w4(dtype, group, zeros=True, lhs_zeros=True))
    for m in (1, 4, 8):
        yield Form("w4a8", f"static rows {m}", w4("i4", 128, n=64, k=1024), rows=(m,), dynamic=False)
    yield Form("w4a8", "scales on both sides", lambda d, m: {
        "lhs": d.codes("i8", m, 256), "rhs": d.codes("i8", 64, 256), "rhs_transposed": True,
        "lhs_scale": d.scales(m, 4), "rhs_scale": d.scales(64, 4)})  # fmt: skip
    yield Form("w4a8", "blocks", lambda d, m: {
        "lhs": d.codes("i8", m, 256), "rhs": d.codes("i8", 128, 256), "rhs_transposed": True,
        "lhs_scale": d.scales(m, 2), "rhs_scale": d.scales(1, 2)})  # fmt: skip


def weight_only() -> Iterator[Form]:
    """Floats times codes, with f32 sums in no fixed order."""
    for lhs in (np.float16, ml_dtypes.bfloat16, np.float32):
        for dtype, group in (("i8", 0), ("i4", 0), ("i4", 32), ("u4", 128), ("nf4", 64)):
            name = f"{np.dtype(lhs).name} x {dtype} group {group}"

            def build(d: Draw, m: int, lhs: Any = lhs, dtype: str = dtype, group: int = group) -> dict[str, Any]:
                scale = d.scales(72, 256 // group if group else 1)
                made = {"lhs": d.floats(m, 256).astype(lhs), **d.weight(dtype, 72, 256), "rhs_transposed": True,
                        "rhs_scale": scale, "out_dtype": {2: "f16", 4: "f32"}[np.dtype(lhs).itemsize]}  # fmt: skip
                if lhs == ml_dtypes.bfloat16:
                    made["out_dtype"] = "bf16"
                if dtype == "u4":
                    made |= {"rhs_zero_point": d.zeros(*scale.shape, lo=0, hi=16), "rhs_zero_mode": "int"}
                return made

            yield Form("weight only", name, build, rows=(1, 5, 33), judge="near")


def one_byte_floats() -> Iterator[Form]:
    """Codes become 16-bit floats if the target has no instruction for them; their products are summed in f32."""

    def build(d: Draw, m: int, lhs: str = "e4m3", rhs: str = "e4m3", n: int = 72, k: int = 160, groups: int = 1) -> Any:
        return {"lhs": d.codes(lhs, m, k), "rhs": d.codes(rhs, n, k), "rhs_transposed": True,
                "lhs_scale": d.scales(m, groups), "rhs_scale": d.scales(n, groups)}  # fmt: skip

    for lhs in ("e4m3", "e5m2"):
        for rhs in ("e4m3", "e5m2"):
            yield Form(
                "fp8", f"{lhs} x {rhs}", lambda d, m, a=lhs, b=rhs: build(d, m, a, b), rows=(5, 33), judge="near"
            )
    yield Form("fp8", "ragged", lambda d, m: build(d, m, n=50, k=97), rows=(1, 33, 130), judge="near")
    yield Form("fp8", "groups", lambda d, m: build(d, m, k=256, groups=2), rows=(5, 33), judge="near")
    yield Form("fp8", "blocks", lambda d, m: {**build(d, m, n=128, k=256, groups=2), "rhs_scale": d.scales(1, 2)},
               rows=(5, 33), judge="near")  # fmt: skip
    yield Form("fp8", "arguments", build, rows=(5,), judge="near", arguments=("lhs", "lhs_scale", "rhs", "rhs_scale"))
    yield Form("fp8", "finished", lambda d, m: {**build(d, m), "bias": d.floats(72), "activation": "relu",
                                                "out_dtype": "bf16"}, rows=(5, 33), judge="near")  # fmt: skip


def convolutions() -> Iterator[Form]:
    """conv2d_q; `rows` is the size of the batch."""

    def form(name: str, h: int = 9, w: int = 8, c: int = 16, f: int = 24, kernel: int = 3, groups: int = 1,
             layout: str = "FHWC", **more: Any) -> Form:  # fmt: skip
        def build(d: Draw, m: int) -> dict[str, Any]:
            shape = {"FHWC": (f, kernel, kernel, c // groups), "HWCF": (kernel, kernel, c // groups, f)}[layout]
            made = {"input": d.codes("i8", m, h, w, c), "weight": d.codes("i8", *shape), "weight_layout": layout,
                    "input_scale": np.float32(0.02), "weight_scale": d.scales(f), "groups": groups, **more}  # fmt: skip
            if more.get("zero"):
                del made["zero"]
                made["input_zero_point"] = np.int8(5)
            return made

        return Form("conv2d", name, build, "conv2d_q", (2,), False, ("input",))

    def unsigned(d: Draw, m: int) -> dict[str, Any]:
        made = form("3x3", padding=[1, 1, 1, 1]).build(d, m)
        return {**made, "input": d.codes("u8", m, 9, 8, 16), "input_zero_point": np.uint8(117)}

    def planes(d: Draw, m: int) -> dict[str, Any]:
        made = form("3x3", f=72, padding=[1, 1, 1, 1]).build(d, m)
        more = {"bias": d.floats(72), "activation": "relu", "out_dtype": "f16"}
        return {**made, **more, "input": d.codes("i8", m, 16, 9, 8), "input_layout": "NCHW"}

    def floats(d: Draw, m: int, dtype: Any = np.float16, code: str = "i8", c: int = 16, groups: int = 1) -> Any:
        """Small integers times codes times powers of two: f32 holds the sums exactly in any order."""
        weight = d.weight(code, 32, 3, 3, c // groups)
        weight = {"weight" + name.removeprefix("rhs"): value for name, value in weight.items()}
        return {"input": d.rng.integers(-8, 9, (m, 9, 8, c)).astype(dtype), **weight, "weight_layout": "FHWC",
                "weight_scale": np.exp2(d.rng.integers(-3, 1, 32)).astype(np.float32), "groups": groups,
                "padding": [1, 1, 1, 1]}  # fmt: skip

    yield form("3x3", padding=[1, 1, 1, 1])
    yield form("1x1", kernel=1)
    yield form("stride 2", strides=[2, 2], padding=[1, 1, 1, 1])
    yield form("dilation 2", dilations=[2, 2])
    yield form("hwcf", layout="HWCF")
    yield form("stride 2, zero point", strides=[2, 1], padding=[2, 1, 1, 2], zero=True)
    yield form("dilation 2, padded", c=8, dilations=[2, 2], padding=[2, 2, 2, 2], zero=True)
    yield form("7x7", kernel=7, c=4, strides=[2, 2], padding=[3, 3, 3, 3])
    yield form("wide filter", kernel=17, c=4, padding=[8, 8, 8, 8])
    yield form("3 channels, zero point", c=3, padding=[1, 1, 1, 1], zero=True)
    yield replace(form("images at run time", padding=[1, 1, 1, 1], zero=True), rows=(1, 2), dynamic=True)
    yield replace(form("channels first", padding=[1, 1, 1, 1]), build=planes)
    yield replace(form("channels first, images at run time", padding=[1, 1, 1, 1]), build=planes, rows=(1, 2),
                  dynamic=True)  # fmt: skip
    yield replace(form("unsigned", padding=[1, 1, 1, 1]), build=unsigned)
    yield form("zero point", padding=[1, 1, 1, 1], zero=True)
    yield form("asymmetric padding", padding=[0, 1, 2, 1], zero=True)
    yield replace(form("filter as an argument", padding=[1, 1, 1, 1]), arguments=("input", "weight"))
    yield form("groups", groups=2, padding=[1, 1, 1, 1])
    yield form("groups of 16 filters", c=32, f=64, groups=4, padding=[1, 1, 1, 1], zero=True)
    yield form("groups of 64 filters", c=32, f=128, groups=2, padding=[1, 1, 1, 1], strides=[2, 2])
    yield form("64 filters", c=32, f=64, padding=[1, 1, 1, 1], zero=True)
    yield replace(form("float16", padding=[1, 1, 1, 1]), build=floats)
    yield replace(form("float16, 3 channels", padding=[1, 1, 1, 1]),
                  build=lambda d, m: floats(d, m, c=3), rows=(1, 2), dynamic=True)  # fmt: skip
    yield replace(form("bfloat16 x i4, groups", padding=[1, 1, 1, 1]),
                  build=lambda d, m: floats(d, m, ml_dtypes.bfloat16, "i4", groups=2))  # fmt: skip
    yield form("depthwise", groups=16, f=16, padding=[1, 1, 1, 1])
    yield form("3 channels", c=3, padding=[1, 1, 1, 1])
    yield form(
        "requantised", padding=[1, 1, 1, 1], zero=True, activation="relu", out_dtype="i8", out_scale=np.float32(0.1)
    )


def experts() -> Iterator[Form]:
    """grouped_matmul with rows sorted by group and with routed rows; some groups have no rows."""
    sizes = {7: (3, 0, 4, 0), 70: (0, 33, 1, 36), 64: (16, 16, 16, 16), 1: (0, 0, 0, 1), 130: (0, 129, 0, 1)}

    def contiguous(d: Draw, m: int) -> dict[str, Any]:
        return {"lhs": d.codes("i8", m, 64), "rhs": d.codes("i8", 4, 40, 64), "rhs_transposed": True,
                "lhs_scale": d.scales(m, 1), "rhs_scale": d.scales(4, 40, 1),
                "group_sizes": np.array(sizes[m], np.int32)}  # fmt: skip

    def short(d: Draw, m: int) -> dict[str, Any]:
        return {**contiguous(d, m), **d.weight("i4", 4, 40, 64), "rhs_scale": d.scales(4, 40, 2)}

    def routed(d: Draw, m: int) -> dict[str, Any]:
        ids = np.stack([d.rng.permutation(8)[:2] for _ in range(m)]).astype(np.int32)
        return {"lhs": d.codes("i8", m, 64), "rhs": d.codes("i8", 8, 40, 64), "rhs_transposed": True,
                "lhs_scale": d.scales(m, 1), "rhs_scale": d.scales(8, 40, 1), "expert_ids": ids}  # fmt: skip

    def one_slot(d: Draw, m: int) -> dict[str, Any]:
        return {**routed(d, m), "expert_ids": np.array([[5]], np.int32)}

    def weighted(d: Draw, m: int) -> dict[str, Any]:
        made = routed(d, m)
        return {**made, "routing_weights": d.scales(*made["expert_ids"].shape)}

    def unsigned(d: Draw, m: int) -> dict[str, Any]:
        return {**routed(d, m), "lhs": d.codes("u8", m, 64), "lhs_zero_point": d.zeros(m, 1, lo=0, hi=256)}

    def zeros(d: Draw, m: int) -> dict[str, Any]:
        return {**routed(d, m), **d.weight("u4", 8, 40, 64), "rhs_scale": d.scales(8, 40, 2),
                "rhs_zero_point": d.zeros(8, 40, 2, lo=0, hi=16)}  # fmt: skip

    def finished(d: Draw, m: int) -> dict[str, Any]:
        return {**routed(d, m), "bias": d.floats(8, 40), "activation": "relu", "out_dtype": "i8",
                "out_scale": np.float32(0.25)}  # fmt: skip

    def skipping(d: Draw, m: int) -> dict[str, Any]:
        made = routed(d, m)
        made["expert_ids"].flat[::3] = -1
        made["expert_ids"].flat[1::5] = 8
        return {**made, "skip_invalid": True}

    def layer(d: Draw, m: int) -> dict[str, Any]:
        ids = np.stack([d.rng.permutation(8)[:2] for _ in range(m)]).astype(np.int32)
        return {"input": d.codes("i8", m, 64), "input_scale": d.scales(m, 1), "expert_ids": ids,
                "routing_weights": d.scales(m, 2), "w1": d.codes("i8", 8, 96, 64), "w1_scale": d.scales(8, 96, 1),
                "w2": d.codes("i8", 8, 64, 96), "w2_scale": d.scales(8, 64, 1), "weights_transposed": True,
                "activation": "relu", "intermediate_dtype": "i8"}  # fmt: skip

    def floats(d: Draw, m: int, lhs: Any = np.float16, dtype: str = "i4", group: int = 64, zero: bool = False) -> Any:
        """Small integers times codes times powers of two: f32 holds the sums exactly in any order."""
        given = routed(d, m)
        del given["lhs_scale"]
        k, groups = 128, 128 // group
        scale = np.exp2(d.rng.integers(-3, 1, (8, 40, groups))).astype(np.float32)
        given |= {"lhs": d.rng.integers(-8, 9, (m, k)).astype(lhs), **d.weight(dtype, 8, 40, k), "rhs_scale": scale}
        if zero:
            given |= {"rhs_zero_point": d.zeros(8, 40, groups, lo=0, hi=16), "rhs_zero_mode": "int"}
        return given

    def floats_in_order(d: Draw, m: int) -> dict[str, Any]:
        made = floats(d, m)
        del made["expert_ids"]
        return {**made, "group_sizes": np.bincount(d.rng.integers(0, 8, m), minlength=8).astype(np.int32)}

    names = (
        "lhs",
        "lhs_scale",
        "lhs_zero_point",
        "group_sizes",
        "expert_ids",
        "routing_weights",
        "input",
        "input_scale",
    )
    for name, build in (("contiguous", contiguous), ("contiguous i4", short)):
        yield Form("experts", name, build, "grouped_matmul", tuple(sizes), True, names)
        yield Form("experts", f"{name}, static rows", build, "grouped_matmul", (70,), False, names)
    for name, build in (
        ("routed", routed),
        ("routed u8", unsigned),
        ("routed u4 zeros", zeros),
        ("routed, finished", finished),
    ):
        yield Form("experts", name, build, "grouped_matmul", (1, 9, 70), True, names)
    yield Form("experts", "routed, static rows", routed, "grouped_matmul", (9,), False, names)
    yield Form("experts", "contiguous, one static row", contiguous, "grouped_matmul", (1,), False, names)
    yield Form("experts", "one slot", one_slot, "grouped_matmul", (1,), False, names)
    yield Form("experts", "routed, skipping", skipping, "grouped_matmul", (1, 9), True, names)
    yield Form("experts", "routed, weighted", weighted, "grouped_matmul", (1, 9), True, names, judge="near")
    for name, build in (
        ("f16 x i4", floats),
        ("bf16 x i8", lambda d, m: floats(d, m, ml_dtypes.bfloat16, "i8", 128)),
        ("f16 x u4 zeros", lambda d, m: floats(d, m, dtype="u4", group=32, zero=True)),
    ):
        yield Form("experts", name, build, "grouped_matmul", (1, 9, 70), True, names)
        yield Form("experts", f"{name}, static rows", build, "grouped_matmul", (9,), False, names)
    yield Form("experts", "f16 x i4, in order", floats_in_order, "grouped_matmul", (7, 70, 130), True, names)
    yield Form("experts", "f16 x i4, in order, static rows", floats_in_order, "grouped_matmul", (70,), False, names)
    yield Form("experts", "moe", layer, "moe", (1, 9, 40), True, names, judge="near")


# Every target has kernels for these.
FAMILIES = [*products(), *short_weights(), *weight_only(), *one_byte_floats(), *convolutions(), *experts()]


def artifact_of(form: Form, target: str, kw: dict[str, Any]) -> Artifact:
    """The compiled program of a form, with the sizes of the arguments in `kw`."""
    given: dict[str, Any] = {}
    for name, value in kw.items():
        if name not in form.arguments:
            given[name] = value
            continue
        array = np.asarray(value)
        per_row = form.dynamic and name not in ("rhs", "rhs_scale", "group_sizes")
        given[name] = TensorSpec((None, *array.shape[1:]) if per_row else array.shape, from_numpy(array.dtype))
    choice = parse_choice(form.choice)
    made: Artifact = getattr(qmlir.ops, form.op).compile(target=target, choice=choice or None, **given)
    for decision in made.manifest.strategies:
        assert choice.get("strategy", decision["chosen"]) == decision["chosen"]
        plan = next(a["plan"] for a in decision["answers"] if a["strategy"] == decision["chosen"])
        assert ("stream_k" in plan) == form.choice.endswith("-stream-k")
    return made


def judged(form: Form, kw: dict[str, Any], got: Any) -> None:
    reference = getattr(R, form.op)
    want = reference(**kw)
    if form.judge == "exact":
        exactly(got, want)
    elif form.judge == "near" and form.op == "scaled_matmul":
        closely(got, reference(**{**kw, "out_dtype": "f32"}), magnitude_terms(kw["lhs"], kw["rhs"], kw))
    else:
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        assert np.allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-5, atol=1e-5)


def calls(form: Form) -> Iterator[dict[str, Any]]:
    """The operands of each call of a form's program: its constants, and the arguments for each number of rows."""
    draw = Draw(form.id)
    constants = form.build(draw, form.rows[0])
    for m in form.rows:
        varying = form.build(draw, m)
        yield {**constants, **{n: varying[n] for n in form.arguments if n in varying}}
