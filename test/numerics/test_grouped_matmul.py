"""grouped_matmul against the reference (a loop of products), on every target that runs here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir import InputError, TensorSpec
from qmlir.errors import CompileError

pytestmark = pytest.mark.sweep(fast=3, slow=40)

R = qmlir.reference

# Rows of each group: empty groups, one group with everything, single rows, more rows than a block.
SIZES: dict[str, list[int]] = {
    "none": [0, 0, 0, 0],
    "one_row": [0, 1, 0, 0],
    "two": [1, 0, 0, 1],
    "three": [0, 3, 0, 0],
    "seventeen": [5, 0, 8, 4],
    "first_only": [31, 0, 0, 0],
    "last_only": [0, 0, 0, 33],
    "many": [50, 1, 0, 77],
}
G = 4


def _scheme(name: str, d: Any, m: int, n: int, k: int) -> dict[str, Any]:
    kw: dict[str, Any] = {"lhs": d.codes(m, k), "rhs": d.codes(G, k, n), "lhs_scale": d.scales(m, 1),
                          "rhs_scale": d.scales(G, 1, n)}  # fmt: skip
    if name == "bias_relu_f16":
        kw |= {"bias": d.floats(G, n), "activation": "relu", "out_dtype": "f16"}
    elif name == "asymmetric":
        kw |= {"lhs_zero_point": d.zeros(m, 1), "rhs_zero_point": d.zeros(G, 1, n)}
    elif name == "requantised":
        kw |= {"out_dtype": "i8", "out_scale": 0.05, "out_zero_point": 5, "rounding": "half_away"}
    elif name == "raw":
        kw = {"lhs": kw["lhs"], "rhs": kw["rhs"], "out_dtype": "i32"}
    elif name == "w4a8_g16":
        kw |= {"rhs": R.pack(d.codes(G, n, k, dtype="i4"), "i4"), "rhs_dtype": "i4", "rhs_packing": "low_first",
               "rhs_transposed": True, "rhs_scale": d.scales(G, n, k // 16)}  # fmt: skip
    return kw


SCHEMES = ("plain", "bias_relu_f16", "asymmetric", "requantised", "raw", "w4a8_g16")


def _compiled(kw: dict[str, Any], target: str, dynamic: bool) -> Any:
    from qmlir.dialect.dtypes import from_numpy

    specs: dict[str, Any] = {"group_sizes": TensorSpec((G,), "i32")}
    for name, value in kw.items():
        if isinstance(value, np.ndarray):
            per_row = dynamic and name in ("lhs", "lhs_scale", "lhs_zero_point")
            specs[name] = TensorSpec((None, *value.shape[1:]) if per_row else value.shape, from_numpy(value.dtype))
        else:
            specs[name] = value
    return qmlir.load(qmlir.ops.grouped_matmul.compile(target=target, **specs)).main


def _call(function: Any, kw: dict[str, Any], sizes: list[int]) -> Any:
    every = {**kw, "group_sizes": np.array(sizes, np.int32)}
    return function(*[every[name] for name, _ in function.signature.inputs])


# A program of two dozen dispatches takes seconds to compile: the fast tier runs only the odd shape on the CPU and the
# even one on lavapipe.
SHAPES = [
    pytest.param(shape, target, marks=pytest.mark.slow if (target == "cpu") == (shape == (64, 128)) else ())
    for shape in ((33, 48), (64, 128))
    for target in ("cpu", "vulkan:lavapipe")
]


@pytest.mark.sweep(fast=12, slow=40)
@pytest.mark.parametrize(("shape", "on"), SHAPES, ids=str)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_group_sizes_at_run_time(
    scheme: str, shape: tuple[int, int], on: str, request: pytest.FixtureRequest, data: Any, same: Any
) -> None:
    target = on if on == "cpu" else request.getfixturevalue("lavapipe")
    n, k = shape
    first = _scheme(scheme, data, 4, n, k)
    function = _compiled(_arrays(first), target, dynamic=True)
    for sizes in SIZES.values():
        kw = _scheme(scheme, data, sum(sizes), n, k)
        same(_call(function, _arrays(kw), sizes), R.grouped_matmul(**kw, group_sizes=np.array(sizes)))


def _arrays(kw: dict[str, Any]) -> dict[str, Any]:
    """Replace Python numbers by the arrays that an eager call makes of them."""
    return {
        name: np.asarray(v, np.int32 if name.endswith("zero_point") else np.float32)
        if isinstance(v, (int, float)) and not isinstance(v, bool)
        else v
        for name, v in kw.items()
    }


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize("sizes", ["none", "seventeen", "many"])
def test_static_rows(sizes: str, target: str, request: pytest.FixtureRequest, data: Any, same: Any) -> None:
    if sizes == "none" and target == "vulkan:lavapipe":
        reason = "IREE: no rows at all leave a memref.alloca of no size, which is not legalized for SPIR-V"
        request.applymarker(pytest.mark.xfail(strict=True, raises=CompileError, reason=reason))
    kw = _scheme("plain", data, sum(SIZES[sizes]), 40, 64)
    expected = R.grouped_matmul(**kw, group_sizes=np.array(SIZES[sizes]))
    actual = qmlir.ops.grouped_matmul(**kw, group_sizes=np.array(SIZES[sizes], np.int64), target=target)
    same(actual, expected)


@pytest.mark.slow
def test_one_group_and_many_groups(target: str, data: Any, same: Any) -> None:
    for groups, rows in ((1, 20), (17, 40)):
        sizes = np.bincount(data.rng.integers(0, groups, rows), minlength=groups).astype(np.int32)
        kw = {"lhs": data.codes(rows, 32), "rhs": data.codes(groups, 32, 24), "group_sizes": sizes}
        same(qmlir.ops.grouped_matmul(**kw, target=target), R.grouped_matmul(**kw))


@pytest.mark.parametrize("sizes", [[5, 5, 5, 5], [10, -3, 5, 5], [0, 0, 0, 0]])
def test_sizes_that_do_not_add_up(sizes: list[int], target: str, data: Any) -> None:
    kw = _scheme("plain", data, 17, 8, 16)
    with pytest.raises(InputError, match="group_sizes must be non-negative and add up"):
        qmlir.ops.grouped_matmul(**kw, group_sizes=np.array(sizes, np.int32), target=target)


@pytest.mark.parametrize("topk", [1, 2])
def test_routed(topk: int, target: str, data: Any, same: Any) -> None:
    kw = _scheme("plain", data, 19, 24, 32)
    ids = data.rng.integers(0, G, (19, topk)).astype(np.int32)
    same(qmlir.ops.grouped_matmul(**kw, expert_ids=ids, target=target), R.grouped_matmul(**kw, expert_ids=ids))
    weights = data.rng.random((19, topk), dtype=np.float32)
    same(
        qmlir.ops.grouped_matmul(**kw, expert_ids=ids, routing_weights=weights, target=target),
        R.grouped_matmul(**kw, expert_ids=ids, routing_weights=weights),
    )


FORMS = {
    "sizes": ((8, 32), (4, 1), {"group_sizes": np.array([3, 0, 4, 1], np.int32)}),
    "tokens": ((4, 32), (2, 1), {"expert_ids": np.array([[0, 3], [1, 1], [2, 0], [3, 2]], np.int32)}),
    "slots": ((4, 2, 32), (2, 1, 1), {"expert_ids": np.array([[0, 3], [1, 1], [2, 0], [3, 2]], np.int32)}),
    "each slot": ((4, 2, 32), (2, 1), {"expert_ids": np.array([[0, 3], [1, 1], [2, 0], [3, 2]], np.int32)}),
}  # fmt: skip


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize("form", FORMS)
def test_parameters_of_several_rows_and_groups(form: str, data: Any, same: Any) -> None:
    """Regression: a scale that two rows, slots or groups share was indexed by each of them, and read past its end."""
    shape, own, routing = FORMS[form]
    few: dict[str, Any] = {"lhs_scale": data.scales(*own), "lhs_zero_point": data.zeros(*own),
                           "rhs_scale": data.scales(2, 1, 24), "rhs_zero_point": data.zeros(2, 1, 24)}  # fmt: skip
    each = {n: np.repeat(v, 2, 0) for n, v in few.items()}
    if form == "each slot":
        each |= {n: np.broadcast_to(few[n], (4, 2, 1)).copy() for n in ("lhs_scale", "lhs_zero_point")}
    kw = {"lhs": data.codes(*shape), "rhs": data.codes(4, 32, 24), **routing}
    expected = R.grouped_matmul(**kw, **each)
    same(R.grouped_matmul(**kw, **few), expected)
    same(qmlir.ops.grouped_matmul(**kw, **few), expected)


def test_ids_may_be_64_bits_wide(data: Any, same: Any) -> None:
    """torch's and numpy's integers are 64 bits wide by default."""
    kw = _scheme("plain", data, 9, 24, 32)
    ids = data.rng.integers(0, G, (9, 2))
    same(qmlir.ops.grouped_matmul(**kw, expert_ids=ids), R.grouped_matmul(**kw, expert_ids=ids))
    ids[3, 1] = 2**32  # its low 32 bits are a group's number
    with pytest.raises(InputError, match=rf"expert_ids\[3, 1\] = {2**32} is outside \[0, {G}\)"):
        qmlir.ops.grouped_matmul(**kw, expert_ids=ids)


def test_an_id_out_of_range_is_an_error_or_skipped(target: str, data: Any, same: Any) -> None:
    kw = _scheme("plain", data, 9, 24, 32)
    ids = data.rng.integers(0, G, (9, 2)).astype(np.int32)
    ids[3, 1], ids[5, 0] = G, -1
    with pytest.raises(InputError, match="expert_ids"):
        qmlir.ops.grouped_matmul(**kw, expert_ids=ids, target=target)
    same(
        qmlir.ops.grouped_matmul(**kw, expert_ids=ids, skip_invalid=True, target=target),
        R.grouped_matmul(**kw, expert_ids=ids, skip_invalid=True),
    )


def test_packed_zero_points(data: Any) -> None:
    """GPTQ's form: zero points are packed like the weights, one per group along K."""
    codes, zeros = data.codes(G, 24, 64, dtype="u4"), data.codes(G, 24, 4, dtype="u4")
    kw = {
        "lhs": data.floats(17, 64), "rhs": R.pack(codes, "u4"), "rhs_zero_point": R.pack(zeros, "u4"),
        "rhs_scale": data.scales(G, 24, 4), "rhs_dtype": "u4", "rhs_packing": "low_first",
        "rhs_zero_mode": "packed_int", "rhs_transposed": True, "group_sizes": np.array([5, 0, 8, 4], np.int32),
    }  # fmt: skip
    expected = R.grouped_matmul(**kw)
    assert np.allclose(qmlir.ops.grouped_matmul(**kw), expected, rtol=0, atol=2.0**-18 * np.abs(expected).max())
