"""Unary elementwise functions, from torch and from ONNX, against float64 over the whole range of f32.

`FUNCTIONS` states the allowed relative error of each function. Results and arguments below 2^-126 may be 0
(docs/semantics.md, section 2).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
import scipy.special as special
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper

import qmlir
from conformance.opened import opened

Array = np.ndarray[Any, Any]
TINY = 2.0**-126
FEW = 6e-7  # five units in the last place


@dataclass(frozen=True)
class Function:
    """A function in float64, and how the results of a front end's program are compared with it.

    Attributes:
        exact: the function on float64 arrays.
        torch: the function on a torch tensor; None if torch does not have it.
        node: the ONNX operator and its attributes; None if ONNX does not have it.
        bound: largest relative error of a result.
        floor: absolute error that is always allowed, as a multiple of `max(1, |x|)`. It is for functions whose
            definition is a difference (torch's and ONNX Runtime's results lose as much).
        within: largest magnitude of an argument whose finite result is compared.
    """

    exact: Callable[[Array], Any]
    torch: Any = None
    node: tuple[str, dict[str, Any]] | None = None
    bound: float = FEW
    floor: float = 0.0
    within: float = math.inf


def elu(x: Array, alpha: float = 1.0, gamma: float = 1.0) -> Any:
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def softplus(x: Array) -> Any:
    return np.logaddexp(0, x)


def floor_divide(x: Any, y: Any) -> Any:
    """numpy's `floor_divide` on f32, because the quotient in float64 can be a different one."""
    return np.floor_divide(np.asarray(x, np.float32), np.asarray(y, np.float32)).astype(np.float64)


def gelu_tanh(x: Array) -> Any:
    return x * special.expit(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


SELU = (1.6732631921768188, 1.0507010221481323)  # as f32
C = float(np.float32(0.7))
FUNCTIONS = {
    "acos": Function(np.arccos, torch.acos, ("Acos", {})),
    "acosh": Function(np.arccosh, torch.acosh, ("Acosh", {})),
    "asin": Function(np.arcsin, torch.asin, ("Asin", {})),
    "asinh": Function(np.arcsinh, torch.asinh, ("Asinh", {})),
    "atan": Function(np.arctan, torch.atan, ("Atan", {})),
    "atan2": Function(lambda x: np.arctan2(x, C), lambda x: torch.atan2(x, torch.full_like(x, C))),
    "atan2 below": Function(lambda x: np.arctan2(-C, x), lambda x: torch.atan2(torch.full_like(x, -C), x)),
    "atanh": Function(np.arctanh, torch.atanh, ("Atanh", {})),
    "celu": Function(lambda x: np.where(x > 0, x, 1.5 * np.expm1(np.minimum(x, 0) / 1.5)), lambda x: F.celu(x, 1.5),
                     ("Celu", {"alpha": 1.5})),
    "cos": Function(np.cos, torch.cos, ("Cos", {})),
    "cosh": Function(np.cosh, torch.cosh, ("Cosh", {})),
    "elu": Function(elu, F.elu, ("Elu", {})),
    "erf": Function(special.erf, torch.erf, ("Erf", {})),
    "erfc": Function(special.erfc, torch.erfc),
    "exp": Function(np.exp, torch.exp, ("Exp", {})),
    "exp2": Function(np.exp2, torch.exp2),
    "expm1": Function(np.expm1, torch.expm1),
    "fmod": Function(lambda x: np.fmod(x, C), lambda x: torch.fmod(x, torch.full_like(x, C)), bound=0),
    "fmod by": Function(lambda x: np.fmod(C, x), lambda x: torch.fmod(torch.full_like(x, C), x), bound=0),
    "floor_divide": Function(lambda x: floor_divide(x, C), lambda x: x // C, bound=0),
    "floor_divide by": Function(lambda x: floor_divide(C, x), lambda x: torch.full_like(x, C) // x, bound=0),
    "gelu": Function(lambda x: x * special.ndtr(x), F.gelu, ("Gelu", {}), floor=1e-7),
    "gelu_tanh": Function(gelu_tanh, lambda x: F.gelu(x, approximate="tanh"), ("Gelu", {"approximate": "tanh"}),
                          floor=2e-7, within=1e6),
    "hardsigmoid": Function(lambda x: np.clip(x / 6 + 0.5, 0, 1), F.hardsigmoid,
                            ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}), floor=1e-7),
    "hardswish": Function(lambda x: x * np.clip(x + 3, 0, 6) / 6, F.hardswish, ("HardSwish", {}), floor=1e-7,
                          within=1e37),
    "log": Function(np.log, torch.log, ("Log", {})),
    "log10": Function(np.log10, torch.log10),
    "log1p": Function(np.log1p, torch.log1p),
    "log2": Function(np.log2, torch.log2),
    "log_sigmoid": Function(lambda x: -softplus(-x), F.logsigmoid),
    "logsumexp": Function(softplus, lambda x: torch.logsumexp(torch.stack([x, torch.zeros_like(x)]), 0), floor=1e-7),
    "mish": Function(lambda x: x * np.tanh(softplus(x)), F.mish, ("Mish", {}), bound=2e-6, floor=1e-35),
    "power 1/3": Function(lambda x: np.power(x, float(np.float32(1 / 3))), lambda x: x ** (1 / 3)),
    "power 2.5": Function(lambda x: np.power(x, 2.5), lambda x: x**2.5),
    "power -1.5": Function(lambda x: np.power(x, -1.5), lambda x: x**-1.5),
    "power of 0.7": Function(lambda x: np.power(C, x), lambda x: C**x),
    "power of itself": Function(lambda x: np.power(x, x), lambda x: torch.pow(x, x)),
    "power 20": Function(lambda x: x**20, lambda x: x**20),
    "selu": Function(lambda x: elu(x, *SELU), F.selu, ("Selu", {}), within=1e38),
    "sigmoid": Function(special.expit, torch.sigmoid, ("Sigmoid", {})),
    "silu": Function(lambda x: x * special.expit(x), F.silu, ("Swish", {}), floor=1e-35),
    "sin": Function(np.sin, torch.sin, ("Sin", {})),
    "sinh": Function(np.sinh, torch.sinh, ("Sinh", {})),
    "softplus": Function(softplus, F.softplus, ("Softplus", {})),
    "softsign": Function(lambda x: x / (1 + np.abs(x)), F.softsign, ("Softsign", {})),
    "tan": Function(np.tan, torch.tan, ("Tan", {})),
    "tanh": Function(np.tanh, torch.tanh, ("Tanh", {})),
}  # fmt: skip
TORCH = [n for n, f in FUNCTIONS.items() if f.torch is not None]
ONNX = [n for n, f in FUNCTIONS.items() if f.node is not None]


@cache
def arguments() -> Array:
    """Values of all magnitudes and both signs, denser around 0 and 1, multiples of pi/4, integers, and the extremes."""
    rng = np.random.default_rng(0)
    sizes = [
        np.exp(rng.uniform(math.log(1.2e-38), math.log(3.4e38), 1500)), 10 ** rng.uniform(-9, 2, 2500),
        rng.uniform(0, 1, 1000), rng.uniform(0, 20, 1500), rng.uniform(20, 110, 800), 10 ** rng.uniform(1.5, 7, 800),
        1 + 10 ** rng.uniform(-7, -0.5, 300), 1 - 10 ** rng.uniform(-7, -0.5, 300), np.arange(200) * (math.pi / 4),
        np.arange(130), [0.0, math.inf, 3.4028235e38, TINY],
    ]  # fmt: skip
    x = np.concatenate(sizes).astype(np.float32)
    x = np.concatenate([x, -x, [np.float32(np.nan)]])
    return np.concatenate([x, np.ones(-len(x) % 64, np.float32)])


def judge(name: str, got: Array) -> str:
    """A description of the error in the values of a function, or "" if they are right."""
    f, x = FUNCTIONS[name], arguments()
    with np.errstate(all="ignore"):
        want = np.asarray(f.exact(x.astype(np.float64)))
        rounded = want.astype(np.float32)
        error = np.abs(got.astype(np.float64) - want)
        allowed = np.maximum(f.bound * np.abs(want), f.floor * np.clip(np.abs(x), 1, 1e38))
    ends = np.isnan(want) | np.isinf(rounded)
    right = np.where(ends, (got == rounded) | (np.isnan(got) & np.isnan(want)), error <= allowed)
    # A result near the largest f32 may replace one that rounds up to infinity. Below TINY, 0 may replace a result, also
    # an intermediate one.
    right |= np.isinf(rounded) & np.isfinite(want) & (np.abs(got) > 3.4028e38) & (np.sign(got) == np.sign(want))
    right |= (np.abs(want) <= 2 * TINY) & (np.abs(got) <= 2 * TINY)
    right |= ~ends & (np.abs(x) > f.within)
    wrong = np.flatnonzero(~right)
    if not len(wrong):
        return ""
    i = wrong[np.argmax(np.where(np.isfinite(error[wrong]), error[wrong] / np.abs(want[wrong]), np.inf))]
    return f"{name}({x[i]!r}) = {got[i]!r}, not {want[i]!r}; {len(wrong)} of {len(x)}"


def faults(names: list[str], results: Any) -> list[str]:
    return [told for name, r in zip(names, results, strict=True) if (told := judge(name, np.asarray(r)))]


def groups(names: list[str]) -> Any:
    """Test parameters with eight functions each: a program with all of them is one loop, which takes LLVM a minute."""
    return [pytest.param(names[i : i + 8], id=names[i].replace(" ", "-")) for i in range(0, len(names), 8)]


class Some(torch.nn.Module):
    def __init__(self, *functions: Any) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: Any) -> Any:
        return tuple(f(x) for f in self.functions)


def export(x: Any, *functions: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(Some(*functions), (x,))


def check_torch(names: list[str], target: str) -> None:
    x = torch.from_numpy(arguments())
    program = export(x, *(FUNCTIONS[n].torch for n in names))
    assert not faults(names, opened(qmlir.compile(program, target=target)).main(x))


def check_onnx(names: list[str], target: str) -> None:
    x = arguments()
    described = [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n in ("x", *names)]
    nodes = [helper.make_node(f.node[0], ["x"], [n], **f.node[1]) for n in names if (f := FUNCTIONS[n]).node]
    graph = helper.make_graph(nodes, "functions", described[:1], described[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    onnx.checker.check_model(model)
    assert not faults(names, opened(qmlir.compile(model, target=target)).main(x))


@pytest.mark.sweep(fast=3, slow=60)
@pytest.mark.parametrize("names", groups(TORCH))
def test_torch(names: list[str]) -> None:
    check_torch(names, "cpu")


@pytest.mark.parametrize("names", groups(ONNX))
def test_onnx(names: list[str]) -> None:
    check_onnx(names, "cpu")


# The slow tier runs all functions on lavapipe.
def test_some_on_vulkan(lavapipe: str) -> None:
    check_torch(["atan", "erfc", "exp", "fmod", "log10", "log1p", "power 2.5", "sin", "sinh"], lavapipe)


@pytest.mark.slow
@pytest.mark.parametrize("names", groups(TORCH))
def test_torch_on_vulkan(names: list[str], lavapipe: str) -> None:
    check_torch(names, lavapipe)


@pytest.mark.slow
@pytest.mark.parametrize("names", groups(ONNX))
def test_onnx_on_vulkan(names: list[str], lavapipe: str) -> None:
    check_onnx(names, lavapipe)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_floats(dtype: Any) -> None:
    """The functions are computed in f32 and rounded once, so that no intermediate result overflows."""
    x = torch.tensor([300.0, 1e4, -6e4, 1e-3, 0.5, -2.0], dtype=dtype)
    functions = [torch.asinh, torch.sin, lambda x: torch.log10(x.abs()), lambda x: torch.expm1(-x.abs()), torch.erfc]
    results = opened(qmlir.compile(export(x, *functions))).main(x)
    for got, f in zip(results, functions, strict=True):
        tolerance = 1e-3 if dtype == torch.float16 else 8e-3
        np.testing.assert_allclose(got.double().numpy(), f(x.double()).numpy(), rtol=tolerance, atol=1e-7)


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("target", ["cpu", "vulkan:lavapipe"])
def test_mod_of_onnx(target: str, fmod: int, lavapipe: str) -> None:
    """Operands with random bits, and operands whose quotient is an integer."""
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 1 << 32, (2, 4096), np.uint64).astype(np.uint32).view(np.float32)
    y[:2048] = rng.integers(1, 100, 2048)
    x[:1024], x[1024:2048] = rng.integers(0, 10**6, 1024), y[1024:2048] * rng.integers(1, 1000, 1024)
    described = [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n in "xyr"]
    graph = helper.make_graph(
        [helper.make_node("Mod", ["x", "y"], ["r"], fmod=fmod)], "mod", described[:2], described[2:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    got = opened(qmlir.compile(model, target=target)).main(x, y)
    with np.errstate(all="ignore"):
        want = np.fmod(x, y) if fmod else np.mod(x, y)
        rest = np.fmod(x, y)
    if not fmod:  # devices flush subnormal values to 0, and a remainder of 0 is not adjusted to the sign of y
        normal = [(v == 0) | ~(np.abs(v) < np.finfo(np.float32).tiny) for v in (rest, want)]
        got, want = (v[normal[0] & normal[1]] for v in (got, want))
    np.testing.assert_array_equal(got, want)
    if not fmod:
        np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


def test_log10_of_float64() -> None:
    """Regression: on CPUs it was a call to a library that is not linked."""
    x = torch.rand(64, dtype=torch.float64) * 100
    (got,) = opened(qmlir.compile(export(x, torch.log10, torch.log))).main(x)[:1]
    np.testing.assert_allclose(got.numpy(), np.log10(x.numpy()), rtol=1e-6)


def test_tanh_of_float64() -> None:
    """Regression: it did not link on CPUs."""
    ends = [0.0, -0.0, 1e-300, -1e-9, 0.625, 0.62499, 19.0, -700.0, np.inf, -np.inf, np.nan]
    x = torch.cat([torch.linspace(-4, 4, 501, dtype=torch.float64), torch.tensor(ends, dtype=torch.float64)])
    got, want = opened(qmlir.compile(export(x, torch.tanh, torch.exp))).main(x)[0].numpy(), np.tanh(x.numpy())
    np.testing.assert_allclose(got, want, rtol=1e-15)
    assert np.array_equal(np.signbit(got[:-1]), np.signbit(want[:-1]))


def test_powers_of_float64() -> None:
    """Regression: powers of bases up to 0 were NaN, and log2 did not link on CPUs."""
    base = [-8.0, -3.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 7.0, np.inf, -np.inf, np.nan]
    power = [0.0, 1.0, -1.0, 3.0, -2.0, 0.5, 2.0**60, np.inf, -np.inf, np.nan]
    x, y = (torch.tensor(t, dtype=torch.float64).reshape(-1) for t in np.meshgrid(base, power))
    found = opened(qmlir.compile(export(torch.stack([x, y]), lambda t: t[0] ** t[1], lambda t: t[0].log2()))).main(
        torch.stack([x, y])
    )
    for got, want in zip((t.numpy() for t in found), ((x**y).numpy(), x.log2().numpy()), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-14)
        assert np.array_equal(np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))
