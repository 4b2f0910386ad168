"""Small operands for a row of a covering array: arrays and attributes, as qmlir.ops and qmlir.reference take them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from qmlir.dialect.dtypes import DTYPES
from qmlir.dialect.enums import GATED

from .spaces import fields
from .values import code_range, is_integer, width

Row = Mapping[str, Any]
M, N, GROUPS = 3, 4, 2


class Maker:
    """Random data that depends only on the row."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.rng = np.random.default_rng(zlib.crc32(repr(sorted(row.items(), key=str)).encode()))

    def floats(self, shape: tuple[int, ...], dtype: str = "f32", size: float = 1.0) -> Any:
        return (self.rng.standard_normal(shape) * size).astype(DTYPES[dtype].numpy)

    def positive(self, shape: tuple[int, ...], dtype: str, size: float) -> Any:
        """Scales. Those of type e8m0 have only an exponent."""
        values = size * np.exp2(self.rng.uniform(-1, 1, shape))
        return np.asarray(values.astype(np.float32)).astype(DTYPES[dtype].numpy)

    def integers(self, lo: int, hi: int, shape: tuple[int, ...], dtype: Any = np.int32) -> Any:
        return np.asarray(self.rng.integers(lo, hi + 1, shape)).astype(dtype)

    def codes(self, dtype: str, shape: tuple[int, ...], packing: str = "none") -> Any:
        """Stored codes, or values of a float type; packed along the last axis unless `packing` is "none"."""
        if dtype in ("f32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz"):
            return self.floats(shape, dtype)
        if packing != "none":
            per = 8 // width(dtype)
            return self.integers(0, 255, (*shape[:-1], -(-shape[-1] // per)), np.uint8)
        lo, hi = (0, 1) if dtype == "i1" else code_range(dtype) if is_integer(dtype) else (0, 15)
        return self.integers(lo, hi, shape, np.int8 if dtype[0] == "i" else np.uint8)

    def zero(self, dtype: str, mode: str, shape: tuple[int, ...], packing: str, code_type: bool) -> Any:
        """A zero point. Integer ones are within the range of the codes."""
        if mode in ("offset_float", "rescale"):
            return self.floats(shape, "f32", 0.1)
        if mode == "packed_int":
            return self.codes(dtype, shape, packing)
        lo, hi = (-1, 1) if dtype == "i1" else code_range(dtype)
        if mode == "offset_int":
            lo, hi = lo - (1 << width(dtype) - 1), hi - (1 << width(dtype) - 1)
        kind = np.int32 if not code_type or mode == "offset_int" else np.int8 if dtype[0] == "i" else np.uint8
        return self.integers(lo, hi, shape, kind)


def form_shape(form: str, shape: tuple[int, ...], k: int, whole: bool = True) -> tuple[int, ...]:
    """Shape of a scale. `k`: the axis of K, from the end. "channel": every axis but K; "k_group": K; "group": all."""
    if form == "tensor":
        return ()
    k += len(shape)
    groups = min(GROUPS, shape[k])
    other = [1] * len(shape) if form == "k_group" else list(shape)
    other[k] = 1 if form == "channel" else groups
    return tuple(other)


def _packed_length(dtype: str, packing: str) -> int:
    """Number of codes along a packed axis: a whole word if the order needs one."""
    return 32 // width(dtype) if packing == "interleaved" else 8


def _sides(m: Maker, lhs: tuple[int, ...], rhs: tuple[int, ...], lhs_k: int, rhs_k: int) -> dict[str, Any]:
    """Scales and zero points of a product."""
    row, made = m.row, {}
    for side, shape, k, mode in (("lhs", lhs, lhs_k, row["lhs_zero_mode"]), ("rhs", rhs, rhs_k, row["rhs_zero_mode"])):
        if row[f"{side}_scale"] != "none":
            size = 0.05 if is_integer(row[f"{side}_dtype"]) else 0.5
            made[f"{side}_scale"] = m.positive(form_shape(row[f"{side}_scale"], shape, k), row["scale_type"], size)
        form = row[f"{side}_zero_point"]
        if form != "none":
            packing = row["rhs_packing"] if side == "rhs" else "none"
            made[f"{side}_zero_point"] = m.zero(
                row[f"{side}_dtype"], mode, form_shape(form, shape, k), packing, row["zero_type"] == "code"
            )
        if row["global_scale"] in (side, "both"):
            made[f"{side}_global_scale"] = np.float32(0.5 if side == "lhs" else 2.0)
    if row["rhs_dtype"] == "codebook":
        made["codebook"] = m.floats((16,))
    return made


def _epilogue(m: Maker, shape: tuple[int, ...], bias_rows: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Operands and attributes after the contraction. `shape` is before a gated activation; `bias_rows` replaces the
    axes before the last in the shape of a full bias."""
    row, made = m.row, {}
    result = (*shape[:-1], shape[-1] // 2) if row["activation"] in GATED else shape
    if row["bias"] != "none":
        own = result if row["bias_stage"] == "out" else shape
        own = {"row": own[-1:], "one": (), "full": own if bias_rows is None else (*bias_rows, own[-1])}[row["bias"]]
        integer = row["bias_stage"] == "acc" or row["out_dtype"] == "i32"
        # Sums with the accumulator pass 2^31: the bias is added modulo 2^32.
        high = 2**31 - 1 if row["gate_layout"] == "interleaved" and integer else 3000
        made["bias"] = m.integers(-high, high, own) if integer else m.floats(own, row["bias_type"])
    if row["c"] != "none":
        made["c"] = m.floats(shape[-1:] if row["c"] == "row" else shape, row["bias_type"])
        made["beta"] = 0.75
    if row["activation"] == "clamp":
        made["act_clamp"] = (-0.75, 1.25)

    def sized(form: str) -> tuple[int, ...]:
        return () if form == "tensor" else result[-1:] if form == "channel" else (*result[:-1], 1)

    if row["act_scale"] != "none":
        made["act_scale"] = m.positive(sized(row["act_scale"]), "f32", 1.0)
    if row["requantise"] == "out_scale":
        made["out_scale"] = m.positive(sized(row["requantise_form"]), "f32", 0.05)
    elif row["requantise"] == "out_multiplier":
        made["out_multiplier"] = m.positive(sized(row["requantise_form"]), "f32", 20.0)
    if row["out_zero_point"] != "none":
        lo, hi = code_range(row["out_dtype"])
        made["out_zero_point"] = m.integers(lo, hi, sized(row["out_zero_point"]))
    return made


def _scaled_matmul(m: Maker) -> dict[str, Any]:
    row = m.row
    k = max(8, _packed_length(row["rhs_dtype"], row["rhs_packing"]) if row["rhs_transposed"] else 8)
    n = max(N, _packed_length(row["rhs_dtype"], row["rhs_packing"]) if not row["rhs_transposed"] else N)
    n = N if row["rhs_packing"] == "none" else n
    batch = {"none": ((), ()), "both": ((2,), (2,)), "lhs": ((2,), (1,)), "rhs": ((1,), (2,))}[row["batch"]]
    lhs = (*batch[0], *((k, M) if row["lhs_transposed"] else (M, k)))
    rhs = (*batch[1], *((n, k) if row["rhs_transposed"] else (k, n)))
    shape = (2, M, n) if batch[0] or batch[1] else (M, n)
    return {
        "lhs": m.codes(row["lhs_dtype"], lhs),
        "rhs": m.codes(row["rhs_dtype"], rhs, row["rhs_packing"]),
        **_sides(m, lhs, rhs, -2 if row["lhs_transposed"] else -1, -1 if row["rhs_transposed"] else -2),
        **_epilogue(m, shape),
    }


def _conv2d_q(m: Maker) -> dict[str, Any]:
    row = m.row
    groups, f = row["groups"], 4
    cg = 3 if row["rhs_packing"] == "none" else _packed_length(row["rhs_dtype"], row["rhs_packing"])
    sizes = {"N": 1, "H": 3, "W": 3, "C": cg * groups}
    reach = {"F": f, "H": 2, "W": 2, "C": cg}
    (sh, sw), (dh, dw), pad, extra = row["strides"], row["dilations"], row["padding"], row["output_padding"]
    if row["transposed"]:
        oh = (sizes["H"] - 1) * sh + dh + 1 + extra[0] - pad[0] - pad[2]
        ow = (sizes["W"] - 1) * sw + dw + 1 + extra[1] - pad[1] - pad[3]
    else:
        oh = (sizes["H"] + pad[0] + pad[2] - dh - 1) // sh + 1
        ow = (sizes["W"] + pad[1] + pad[3] - dw - 1) // sw + 1
    input = tuple(sizes[c] for c in row["input_layout"])
    weight = tuple(reach[c] for c in row["weight_layout"])
    nhwc = _epilogue(m, (1, oh, ow, f))
    if row["input_layout"] == "NCHW":
        nhwc = {
            n: np.ascontiguousarray(np.moveaxis(v, -1, 1)) if getattr(v, "ndim", 0) == 4 else v for n, v in nhwc.items()
        }
    made = {
        "input": m.codes(row["lhs_dtype"], input),
        "weight": m.codes(row["rhs_dtype"], weight, row["rhs_packing"]),
        **_sides(m, (f,), (f, 1), -1, -1),
        **nhwc,
    }
    for name in ("rhs_scale", "rhs_zero_point"):
        if name in made and made[name].ndim:
            made[name] = made[name].reshape(f)
    return made


def _grouped_matmul(m: Maker) -> dict[str, Any]:
    row, groups, topk = m.row, 3, 2
    k = max(8, _packed_length(row["rhs_dtype"], row["rhs_packing"]) if row["rhs_transposed"] else 8)
    n = (
        N
        if row["rhs_packing"] == "none" or row["rhs_transposed"]
        else _packed_length(row["rhs_dtype"], row["rhs_packing"])
    )
    rows = {"sizes": (5,), "ids": (M,), "ids_rows": (M, topk)}[row["group_sizes"]]
    lhs, rhs = (*rows, k), (groups, n, k) if row["rhs_transposed"] else (groups, k, n)
    made = {
        "lhs": m.codes(row["lhs_dtype"], lhs),
        "rhs": m.codes(row["rhs_dtype"], rhs, row["rhs_packing"]),
        **_sides(m, lhs, rhs, -1, -1 if row["rhs_transposed"] else -2),
    }
    if row["group_sizes"] == "sizes":
        made["group_sizes"] = np.array([2, 0, 3], np.int32)
        return {**made, **_epilogue(m, (5, n), (groups,))}
    made["expert_ids"] = m.integers(0, groups - 1, (M, topk))
    if row["skip_invalid"]:
        made["expert_ids"][0, 1], made["expert_ids"][2, 0] = -1, groups
    if row["routing_weights"] == "given":
        made["routing_weights"] = m.floats((M, topk))
    return {**made, **_epilogue(m, (M, topk, n), (groups,))}


def _sparse_matmul(m: Maker) -> dict[str, Any]:
    row, form, dtype = m.row, m.row["format"], m.row["rhs_dtype"]
    k, n = 16, 4
    shape = (n, k) if row["rhs_transposed"] else (k, n)
    lhs = (*((2,) if row["batch"] == "lhs" else ()), M, k)
    block = (2, 2)
    made: dict[str, Any] = {"lhs": m.codes(row["lhs_dtype"], lhs), "format": form, "rhs_shape": shape}
    if form == "2:4":
        pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])[m.integers(0, 5, (n, k // 4))]
        nibbles = pairs[..., 0] | pairs[..., 1] << 2
        made["indices"] = (nibbles[:, ::2] | nibbles[:, 1::2] << 4).astype(np.uint8)
        values: tuple[int, ...] = (n, k // 2)
    else:
        rows, columns = (shape[0] // 2, shape[1] // 2) if form == "bsr" else shape
        mask = m.rng.random((rows, columns)) < 0.5
        per = _packed_length(dtype, row["rhs_packing"]) if row["rhs_packing"] != "none" else 1
        at = np.argwhere(mask)
        at = at[: len(at) // per * per] if form != "bsr" else at
        values = (len(at), *(block if form == "bsr" else ()))
        if form == "coo":
            made["indices"] = at.T.astype(np.int32)
        else:
            made["indices"] = at[:, 1].astype(np.int32)
            made["indptr"] = np.searchsorted(at[:, 0], np.arange(rows + 1)).astype(np.int32)
    if form == "bsr":
        made["block"] = block
    made["values"] = m.codes(dtype, values, row["rhs_packing"])
    return {**made, **_sides(m, lhs, shape, -1, -1 if row["rhs_transposed"] else -2),
            **_epilogue(m, (*lhs[:-1], n))}  # fmt: skip


def _dequant(m: Maker) -> dict[str, Any]:
    row, d = m.row, m.row["dtype"]
    k = max(8, _packed_length(d, row["packing"])) if row["packing"] != "none" else 8
    shape = (M, k)
    made = {"input": m.codes(d, shape, row["packing"])}
    made["scale"] = m.positive(form_shape(row["scale_form"], shape, -1), row["scale_type"], 0.5)
    if row["zero_form"] != "none":
        own = form_shape(row["zero_form"], shape, -1)
        made["zero_point"] = m.zero(d, row["zero_mode"], own, row["packing"], row["zero_type"] == "code")
    if d == "codebook":
        made["codebook"] = m.floats((16,))
    return made


def _quantize(m: Maker) -> dict[str, Any]:
    row, shape = m.row, (M, 8)
    lo, hi = (-1, 1) if row["out_dtype"] == "i1" else code_range(row["out_dtype"])
    size = 0.25
    x = m.floats(shape, "f32", size * max(hi - lo, 4) / 2)
    if row["special"]:
        x[0, :6] = np.nan, np.inf, -np.inf, 0.49999997 * size, 6e4, -6e4
    made = {"input": x.astype(DTYPES[row["input_type"]].numpy), "scale": m.positive(
        form_shape(row["scale_form"], shape, -1), row["scale_type"], size)}  # fmt: skip
    if row["zero_form"] != "none":
        span = (lo, hi) if row["zero_range"] == "inside" else (lo - 300, hi + 300)
        made["zero_point"] = m.integers(*span, form_shape(row["zero_form"], shape, -1))
    if row["clamp"]:
        made["clamp"] = (lo + 1 if hi - lo > 2 else lo, hi - 1 if hi - lo > 3 else hi)
    return made


def _dynamic_quantize(m: Maker) -> dict[str, Any]:
    row = m.row
    x = m.floats((M, 8))
    contents = row["contents"]
    x = {"positive": np.abs(x), "negative": -np.abs(x), "zero": x * 0, "tiny": x * np.float32(1e-6),
         "large": x * np.float32(5e3)}.get(contents, x)  # fmt: skip
    x[1] *= contents != "normal"  # one row of zeros
    made: dict[str, Any] = {"input": x.astype(DTYPES[row["input_type"]].numpy)}
    if row["granularity"] == "group":
        made["group_size"] = 4
    if row["clamp"]:
        lo, hi = code_range(row["out_dtype"])
        made["clamp"] = (lo + 1, hi) if hi - lo > 3 else (lo, hi - 1)
    return made


def _unpack(m: Maker) -> dict[str, Any]:
    row, per = m.row, 8 // width(m.row["dtype"])
    made: dict[str, Any] = {"input": m.integers(0, 255, (2, 4), np.uint8)}
    if row["length"] == "odd":
        made["length"] = 4 * per - per // 2
    return made


def _route(m: Maker) -> dict[str, Any]:
    x = m.floats((4, 6))
    if m.row["contents"] == "ties":
        x = np.round(x)
    if m.row["contents"] == "nan":
        x[1, 2] = np.nan
    return {"logits": x.astype(DTYPES[m.row["input_type"]].numpy)}


def _moe_align(m: Maker) -> dict[str, Any]:
    ids = m.integers(0, m.row["experts"] - 1, (m.row["tokens"], 2))
    if m.row["ids"] == "invalid" and ids.size:
        ids[0] = -1, m.row["experts"]
    return {"expert_ids": ids, "experts": m.row["experts"], "block_size": m.row["block_size"]}


def _moe(m: Maker) -> dict[str, Any]:
    row, experts, topk, h, n = m.row, 3, 2, 8, 4
    d, packing = row["weight_dtype"], row["weight_packing"]
    f = h = 8 if packing == "none" else max(8, _packed_length(d, packing))
    n = 4 if packing == "none" else f
    wide = f * (2 if row["activation"] in GATED else 1)
    w1 = (experts, wide, h) if row["weights_transposed"] else (experts, h, wide)
    w2 = (experts, n, f) if row["weights_transposed"] else (experts, f, n)
    k = -1 if row["weights_transposed"] else -2
    made: dict[str, Any] = {
        "input": m.codes(row["input_dtype"], (M, topk, h) if row["rows"] == "slot" else (M, h)),
        "w1": m.codes(d, w1, packing),
        "w2": m.codes(d, w2, packing),
        "expert_ids": m.integers(0, experts - 1, (M, topk)),
        "routing_weights": m.floats((M, topk)),
    }
    if row["input_dtype"] in ("f32", "f16", "bf16") and row["intermediate_dtype"] == "f16":  # no infinite intermediates
        made["input"] = (made["input"] * np.float32(0.02)).astype(made["input"].dtype)
    if row["skip_invalid"]:
        made["expert_ids"][0, 1] = -1
    if row["input_scale"] != "none":
        own = () if row["input_scale"] == "tensor" else (*made["input"].shape[:-1], 1)
        made["input_scale"] = m.positive(own, "f32", 0.05)
    if row["input_zero_point"] != "none":
        made["input_zero_point"] = m.zero(row["input_dtype"], "int", (), "none", False)
    for which, shape, width_ in (("w1", w1, wide), ("w2", w2, n)):
        if row[f"{which}_scale"] != "none":
            made[f"{which}_scale"] = m.positive(form_shape(row[f"{which}_scale"], shape, k), "f32", 0.05)
        form = row[f"{which}_zero_point"]
        if form != "none":
            made[f"{which}_zero_point"] = m.zero(d, row["weight_zero_mode"], form_shape(form, shape, k), packing, False)
        if row[f"{which}_bias"] != "none":
            made[f"{which}_bias"] = m.floats((width_,) if row[f"{which}_bias"] == "row" else (experts, width_))
    if d == "codebook":
        made["codebook"] = m.floats((16,))
    if row["intermediate_scale"] == "given":
        made["intermediate_scale"] = np.float32(0.07)
    if row["intermediate_zero_point"] == "given":
        made["intermediate_zero_point"] = m.integers(*code_range(row["intermediate_dtype"]), ())
    if row["activation"] == "clamp":
        made["act_clamp"] = (-0.75, 1.25)
    return made


_MAKERS = {"scaled_matmul": _scaled_matmul, "conv2d_q": _conv2d_q, "grouped_matmul": _grouped_matmul,
           "sparse_matmul": _sparse_matmul, "dequant": _dequant, "quantize": _quantize,
           "dynamic_quantize": _dynamic_quantize, "unpack": _unpack, "route": _route,
           "moe_align_block_size": _moe_align, "moe": _moe}  # fmt: skip


def arguments(op: str, row: Row) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays by operand name, and the attributes."""
    made = _MAKERS[op](Maker(row))
    known = {n for n, f in fields(op).items() if f.kind == "attr"} | {"out_dtype", "length"}
    stated = {
        n: v for n, v in row.items() if n in known and n not in ("group_size",) and v is not None and n not in made
    }
    if op == "unpack":
        stated.pop("length", None)
    own = {f.role: f.name for f in fields(op).values() if f.role}
    made = {own.get(n, n): v for n, v in made.items()}
    arrays = {n: v for n, v in made.items() if isinstance(v, np.ndarray | np.generic)}
    attributes = {own.get(n, n): v for n, v in stated.items()}
    return arrays, {**attributes, **{n: v for n, v in made.items() if n not in arrays}}


__all__ = ["arguments", "ml_dtypes"]
