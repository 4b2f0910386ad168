"""Whether a result is right (docs/semantics.md, section 5).

Integer products must be bit-exact. For sums of floats the bound is `|err| <= relative * |ref| + K * eps * sum|terms|`,
where the terms are products of the dequantised operands: the bound covers the kernel's error, not the quantisation's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import qmlir
from qmlir.dialect.enums import GATED
from qmlir.dialect.reference.conv import filter_parameter
from qmlir.dialect.reference.grouped import group_values
from qmlir.dialect.reference.matmul import columns_hint, make_side

from .program import Program, Step, reference

# By output type. For f16 and bf16 it is the single rounding of the output, half a unit in the last place.
RELATIVE = {"float32": 2.0**-22, "float16": 2.0**-11, "bfloat16": 2.0**-8}
EPS = 2.0**-24
# Share of requantised codes that may be off by one if an f32 intermediate is not exact.
SHARE = 1e-3
TRANSCENDENTAL = ("gelu", "gelu_tanh", "silu", "tanh", *GATED)
_PLAIN = ("f32", "f16", "bf16")


def exactly(actual: Any, expected: Any) -> None:
    """Asserts that two arrays have the same shape, dtype and values (NaN equals NaN)."""
    assert actual.dtype == expected.dtype, f"{actual.dtype} instead of {expected.dtype}"
    assert actual.shape == expected.shape, f"{actual.shape} instead of {expected.shape}"
    same = (actual == expected) | ((actual != actual) & (expected != expected))
    assert same.all(), (
        f"{np.count_nonzero(~same)} of {same.size} differ, first at {np.argwhere(~same)[0].tolist()}: "
        f"{actual[~same][0]} instead of {expected[~same][0]}"
    )


def closely(actual: Any, expected: Any, terms: Any) -> None:
    """Asserts that an array is within the bound. `expected` is the unrounded f32 or f64 value; `terms` is K * sum|a*b|
    of the dequantised operands, per element."""
    assert actual.shape == expected.shape, f"{actual.shape} instead of {expected.shape}"
    if not actual.size:
        return
    ref = expected.astype(np.float64)
    bound = RELATIVE[actual.dtype.name] * np.abs(ref) + EPS * np.asarray(terms)
    value = actual.astype(np.float64)
    # An f16 result may overflow where the f32 reference does not.
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = expected.astype(actual.dtype).astype(np.float64)
        error = np.where(value == rounded, 0.0, np.abs(value - ref))
    worst = np.unravel_index(np.argmax(error - bound), error.shape)
    assert (error <= bound).all(), f"at {worst}: {actual[worst]} instead of {expected[worst]}, allowed {bound[worst]}"


def one_code(actual: Any, expected: Any) -> None:
    """Asserts that requantised codes differ by at most one, and few of them: the f32 intermediate is not exact."""
    assert actual.dtype == expected.dtype, f"{actual.dtype} instead of {expected.dtype}"
    assert actual.shape == expected.shape, f"{actual.shape} instead of {expected.shape}"
    off = np.abs(actual.astype(np.int64) - expected.astype(np.int64))
    share = float((off != 0).mean()) if off.size else 0.0
    # In a small result a single code may exceed the share; one is allowed all the same.
    assert off.max(initial=0) <= 1, f"codes differ by up to {off.max()}"
    assert share < SHARE or (off != 0).sum() <= 1, f"{share:.2%} of the codes are one off"


def magnitude_terms(lhs: Any, rhs: Any, kw: dict[str, Any]) -> Any:
    """K * sum_k |A[m,k] * B[k,n]| of the dequantised operands of a scaled_matmul, plus |bias|."""
    x, y = (np.abs(s.real("f32").astype(np.float64)) for s in _sides(lhs, rhs, kw))
    bias = np.abs(np.asarray(kw.get("bias", 0), np.float64))
    return x.shape[-1] * (x @ np.swapaxes(y, -1, -2)) + bias


def _sides(lhs: Any, rhs: Any, kw: dict[str, Any]) -> tuple[Any, Any]:
    transposed, lhs_transposed = kw.get("rhs_transposed", False), kw.get("lhs_transposed", False)
    packing = kw.get("rhs_packing", "none")
    k = lhs.shape[-2 if lhs_transposed else -1]
    width = columns_hint(rhs, kw.get("rhs_dtype"), packing, kw.get("rhs_scale"), kw.get("bias"))
    a = make_side("lhs", lhs, kw.get("lhs_dtype"), kw.get("lhs_scale"), kw.get("lhs_zero_point"),
                  kw.get("lhs_zero_mode"), "none", lhs_transposed, None,
                  global_scale=kw.get("lhs_global_scale"))  # fmt: skip
    b = make_side("rhs", rhs, kw.get("rhs_dtype"), kw.get("rhs_scale"), kw.get("rhs_zero_point"),
                  kw.get("rhs_zero_mode"), packing, not transposed, k if transposed else width, kw.get("codebook"),
                  kw.get("rhs_global_scale"))  # fmt: skip
    return a, b


def check(program: Program, results: list[Any]) -> None:
    """Compares each step with its reference on the values that the program itself computed. Raises AssertionError with
    the step's name."""
    values = {**program.arrays, **dict(zip(program.results(), results, strict=True))}
    for step in program.steps:
        if not step.returned:
            values.update(zip(step.results, reference(step, values), strict=True))
            continue
        made = [values[n] for n in step.results]
        try:
            _check_step(step, values, made)
        except AssertionError as e:
            raise AssertionError(f"{step.op} -> {', '.join(step.results)}: {e}") from None


def _check_step(step: Step, values: dict[str, Any], made: list[Any]) -> None:
    if step.op not in ("scaled_matmul", "grouped_matmul", "conv2d_q"):
        for actual, expected in zip(made, reference(step, values), strict=True):
            exactly(actual, expected)
        return
    (actual,) = made
    kw = step.attributes | {k: values[n] for k, n in step.operands.items()}
    sides = ("input", "weight") if step.op == "conv2d_q" else ("lhs", "rhs")
    a, b = (_dtype(kw, side) for side in sides)
    integer = not ({a, b} & set(_PLAIN)) and _is_code(a) and _is_code(b)
    smooth = step.attributes.get("activation", "none") not in TRANSCENDENTAL and "routing_weights" not in step.operands
    if integer and smooth and not _grouped(kw, step.op):
        exactly(actual, reference(step, values)[0])
    elif actual.dtype in (np.int8, np.uint8):
        one_code(actual, reference(step, values)[0])
    else:
        closely(actual, *_expected(step, values, kw))


def _is_code(dtype: str) -> bool:
    return dtype[0] in "iu" and dtype[1:].isdigit()


def _dtype(kw: dict[str, Any], side: str) -> str:
    from qmlir.dialect.dtypes import from_numpy

    return str(kw.get(f"{side}_dtype") or from_numpy(kw[side].dtype))


def _grouped(kw: dict[str, Any], op: str) -> bool:
    """Whether exact partial sums are added in f32: with scales or zero points that vary along K, or a float zero
    point."""
    if op == "conv2d_q":
        return False  # it takes neither
    if kw.get("rhs_zero_mode") in ("offset_float", "rescale"):
        return True
    for side in ("lhs", "rhs"):
        k_axis = -2 if kw.get(f"{side}_transposed", False) != (side == "rhs") else -1
        for name in ("scale", "zero_point"):
            value = kw.get(f"{side}_{name}")
            if value is not None and np.ndim(value) >= 2 and np.shape(value)[k_axis] != 1:
                return True
    return False


def _expected(step: Step, values: dict[str, Any], kw: dict[str, Any]) -> tuple[Any, Any]:
    """The value before the cast to the output type, and the `terms` of its error bound."""
    stages = {"activation": "none", "act_clamp": None, "act_scale": None}
    bare = Step(step.op, {k: n for k, n in step.operands.items() if k not in ("act_scale",)},
                {k: v for k, v in step.attributes.items() if k not in stages}, step.results)  # fmt: skip
    late = kw.get("bias_stage") == "out"
    if late:
        # The result is rounded both before and after the bias.
        bare = Step(bare.op, {k: n for k, n in bare.operands.items() if k != "bias"},
                    {k: v for k, v in bare.attributes.items() if k != "bias_stage"}, bare.results)  # fmt: skip
    terms = _terms(step.op, kw) * abs(kw.get("alpha", 1.0))
    if "c" in kw:
        terms = terms + abs(kw["beta"]) * np.abs(kw["c"].astype(np.float64))
    if "bias" in kw and not late:
        terms = terms + _bias(kw, step.op, terms.shape)
    activation = step.attributes.get("activation", "none")
    if activation == "none" and not late and "act_scale" not in kw:
        return reference(step, values, out_dtype="f32")[0], terms
    before = reference(bare, values, out_dtype="f32")[0].astype(np.float64)
    expected = reference(Step(step.op, {k: n for k, n in step.operands.items() if not (late and k == "bias")},
                              {k: v for k, v in step.attributes.items() if not (late and k == "bias_stage")},
                              step.results), values, out_dtype="f32")[0]  # fmt: skip
    if activation in GATED:
        terms = _through_gate(kw, before, terms)
    elif activation in TRANSCENDENTAL:
        # The slope of each activation is at most 1.13; its evaluation is accurate to a few units in the last place.
        terms = 1.13 * terms + 8 * np.abs(before)
    if "act_scale" in kw:
        terms = terms * np.abs(kw["act_scale"].astype(np.float64))
    if late:
        bias = _aligned_bias(kw, step.op)
        kind = qmlir.dialect.dtypes.DTYPES[step.attributes["out_dtype"]].numpy
        rounding = RELATIVE[kind.name] * np.abs(expected.astype(np.float64))
        expected = expected.astype(np.float64) + bias.astype(kind).astype(np.float64)
        terms = terms + rounding / EPS
    return expected, terms


def _through_gate(kw: dict[str, Any], before: Any, terms: Any) -> Any:
    """The `terms` of `act(gate) * up`: each factor's error times the other factor."""
    from qmlir.dialect.reference.epilogue import activate

    half = before.shape[-1] // 2
    if kw.get("gate_layout", "halves") == "halves":
        gate, up, gate_terms, up_terms = before[..., :half], before[..., half:], terms[..., :half], terms[..., half:]
    else:
        gate, up, gate_terms, up_terms = before[..., ::2], before[..., 1::2], terms[..., ::2], terms[..., 1::2]
    name = "silu" if kw["activation"] == "swiglu" else "gelu"
    opened = np.abs(activate(gate.astype(np.float32), name, None, "halves").astype(np.float64))
    return (1.13 * gate_terms + 8 * np.abs(gate)) * np.abs(up) + (up_terms + np.abs(up)) * opened


def _aligned_bias(kw: dict[str, Any], op: str) -> Any:
    bias = np.asarray(kw["bias"])
    return bias.reshape(-1, 1, 1) if op == "conv2d_q" and kw.get("input_layout") == "NCHW" and bias.ndim == 1 else bias


def _bias(kw: dict[str, Any], op: str, shape: tuple[int, ...]) -> Any:
    """|bias|, aligned with the product; of per-group biases, the largest over all groups."""
    bias = np.abs(_aligned_bias(kw, op).astype(np.float64))
    return bias.max(0) if op == "grouped_matmul" and bias.ndim == 2 else bias


def _terms(op: str, kw: dict[str, Any]) -> Any:
    """K * sum|a * b| of the dequantised operands: the same op on their absolute values, in plain floats."""
    if op == "conv2d_q":
        return _conv_terms(kw)
    if op == "scaled_matmul":
        return magnitude_terms(kw["lhs"], kw["rhs"], {k: v for k, v in kw.items() if k != "bias"})
    return _grouped_terms(kw)


def _grouped_terms(kw: dict[str, Any]) -> Any:
    """`_terms` of a grouped product, computed group by group."""
    lhs, rhs, ids, sizes = kw["lhs"], kw["rhs"], kw.get("expert_ids"), kw.get("group_sizes")
    topk = 1 if ids is None else ids.shape[1]
    owner = np.repeat(np.arange(len(rhs)), sizes) if ids is None else ids.reshape(-1)

    def rows_of(x: Any) -> Any:
        """A per-token parameter repeated for the rows `[T * topk, ..]`."""
        if x is None or np.ndim(x) < 2 or (np.ndim(x) == 2 and np.shape(x)[0] == 1):
            return x
        return np.repeat(x, topk, 0) if np.ndim(x) == 2 else x.reshape(-1, x.shape[-1])

    rows = {name: rows_of(kw.get(name)) for name in ("lhs", "lhs_scale", "lhs_zero_point")}
    stated = {
        k: v for k, v in kw.items() if k in ("lhs_dtype", "rhs_dtype", "rhs_transposed", "rhs_packing", "rhs_zero_mode")
    }
    out = None
    for g in np.unique(owner):
        mine = owner == g
        part = {k: x[mine] if np.ndim(x) == 2 and len(x) == len(owner) else x for k, x in rows.items() if x is not None}
        for name in ("rhs_scale", "rhs_zero_point"):
            if name in kw:
                part[name] = group_values(kw[name], g, len(rhs))
        y = magnitude_terms(part.pop("lhs"), rhs[g], stated | part)
        out = np.zeros((len(owner), y.shape[-1])) if out is None else out
        out[mine] = y
    assert out is not None
    if ids is None:
        return out
    out = out.reshape(*ids.shape, -1)
    weights = kw.get("routing_weights")
    # The weighted sum adds another topk terms.
    return out if weights is None else (out * np.abs(weights)[..., None]).sum(1) * (1 + topk / lhs.shape[-1])


def _conv_terms(kw: dict[str, Any]) -> Any:
    layout = kw.get("weight_layout", "FHWC")
    packed = kw.get("weight_packing", "none") != "none"
    channels = kw["input"].shape[1 if kw.get("input_layout") == "NCHW" else 3]
    length = channels // kw.get("groups", 1) if packed else None
    a = make_side("lhs", kw["input"], kw.get("input_dtype"), kw.get("input_scale"), kw.get("input_zero_point"),
                  kw.get("input_zero_mode"), "none", False, None)  # fmt: skip
    b = make_side("rhs", kw["weight"], kw.get("weight_dtype"), filter_parameter(kw.get("weight_scale"), layout),
                  filter_parameter(kw.get("weight_zero_point"), layout), kw.get("weight_zero_mode"),
                  kw.get("weight_packing", "none"), False, length, kw.get("codebook"))  # fmt: skip
    names = ("input_layout", "weight_layout", "strides", "dilations", "padding", "groups", "transposed",
             "output_padding")  # fmt: skip
    geometry = {k: kw[k] for k in names if k in kw}
    x, w = np.abs(a.real("f32")), np.abs(b.real("f32"))
    y = qmlir.reference.conv2d_q(x, w, **geometry)
    return (w.size // y.shape[1 if geometry.get("input_layout") == "NCHW" else -1]) * y.astype(np.float64)
