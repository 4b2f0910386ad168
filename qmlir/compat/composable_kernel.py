"""Composable Kernel's quantisation functors, as the epilogue of `qmlir.ops.scaled_matmul` and `conv2d_q`.

Composable Kernel is a C++ library; a functor defines what its quantised GEMMs and convolutions compute after the int8
product. Each function here is the functor of that name in
include/ck/tensor_operation/gpu/element/quantization_operation.hpp of ROCm/composable_kernel, with the arguments of its
constructor; `matmul` and `conv2d` take the D tensors of the kernel in the functor's order:

    relu = Add_Activation_Mul_Clamp(2e-4, Relu)
    e = qmlir.ops.scaled_matmul(a, b, **relu.matmul(bias))   # A [M, K], B [N, K] (mk_nk_mn), E [M, N], all int8

| functor | constructor | D tensors |
|---|---|---|
| `Activation_Mul_Clamp` | `requantScale, activationOp` | |
| `Activation_Mul2_Clamp` | `activationOp` | requantScale `[N]` |
| `Add_Activation_Mul_Clamp` | `requantScale, activationOp` | bias `[N]` |
| `Add_Activation_Mul2_Clamp` | `activationOp` | bias `[N]`, requantScale `[N]` |
| `Mul_Activation_Mul_Clamp` | `scale_z_inv, scaleAcc, activationOp` | |
| `Add_Mul_Activation_Mul_Clamp` | `scale_z_inv, scaleAcc, activationOp` | bias `[N]` |
| `Add_Mul2_Activation_Mul_Clamp` | `scale_z_inv, activationOp` | bias `[N]`, scaleAcc `[N]` |

Conventions: codes have no zero points, the i32 sum is exact, and an i32 bias is added to it. `scaleAcc` and the
activation are applied to its f32 value, which is then multiplied by `requantScale` or `scale_z_inv` (never divided),
clamped to [-128, 127] and truncated toward zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..dialect.dtypes import Array
from ..dialect.ods import Keywords
from ..dialect.shapes import show
from ..errors import UsageError
from ._arguments import ArrayLike, floats, one_of, zero_points

__all__ = [
    "Activation_Mul2_Clamp",
    "Activation_Mul_Clamp",
    "Add_Activation_Mul2_Clamp",
    "Add_Activation_Mul_Clamp",
    "Add_Mul2_Activation_Mul_Clamp",
    "Add_Mul_Activation_Mul_Clamp",
    "Functor",
    "Mul_Activation_Mul_Clamp",
    "PassThrough",
    "Relu",
    "TanH",
]

# Activations, of ck::tensor_operation::element_wise.
PassThrough, Relu, TanH = "none", "relu", "tanh"


@dataclass(frozen=True)
class Functor:
    """A functor with the arguments of its constructor.

    Attributes:
        name: the functor's name in Composable Kernel.
        activation: `PassThrough`, `Relu` or `TanH`.
        factors: the constructor's scale factors, by name.
        tensors: names of the D tensors that `matmul` and `conv2d` take.
    """

    name: str
    activation: str
    factors: Mapping[str, float]
    tensors: tuple[str, ...]

    def matmul(self, *ds: ArrayLike, rhs_transposed: bool = True) -> Keywords:
        """Keyword arguments of `qmlir.ops.scaled_matmul`.

        Args:
            ds: the functor's D tensors, one value per output channel.
            rhs_transposed: B is `[N, K]` (the layout mk_nk_mn of the examples), else `[K, N]` (mk_kn_mn).

        Raises:
            UsageError: another number of D tensors, or one that is not `[N]`.
        """
        keywords, scale = self._epilogue(ds)
        keywords["rhs_transposed"] = rhs_transposed
        if scale is not None:
            keywords["rhs_scale"] = scale if not scale.ndim else scale[:, None] if rhs_transposed else scale[None]
        return keywords

    def conv2d(self, *ds: ArrayLike) -> Keywords:
        """Keyword arguments of `qmlir.ops.conv2d_q`. NHWGC images are NHWC with `groups=G`, and GKYXC filters are
        `[G*K, Y, X, C]`.

        Args:
            ds: the functor's D tensors, one value per output channel.

        Raises:
            UsageError: another number of D tensors, or one that is not `[K]`.
        """
        keywords, scale = self._epilogue(ds)
        return keywords if scale is None else {**keywords, "weight_scale": scale}

    def _epilogue(self, ds: tuple[ArrayLike, ...]) -> tuple[Keywords, Array | None]:
        """The keyword arguments that products and convolutions share, and `scaleAcc`, `[]` or `[N]`."""
        if len(ds) != len(self.tensors):
            raise UsageError(f"{self.name} takes {len(self.tensors)} D tensors ({', '.join(self.tensors) or 'none'}), "
                             f"but {len(ds)} are given")  # fmt: skip
        given: dict[str, Array] = {name: floats(value, name).reshape(()) for name, value in self.factors.items()}
        for name, value in zip(self.tensors, ds, strict=True):
            given[name] = zero_points(value, name) if name == "bias" else floats(value, name)
            if given[name].ndim != 1:
                raise UsageError(f"{name!r} of {self.name} must be one value per output channel, [N], but has shape "
                                 f"{show(given[name].shape)}")  # fmt: skip
        keywords: Keywords = {
            "activation": self.activation,
            "out_multiplier": given["scale_z_inv"] if "scale_z_inv" in given else given["requantScale"],
            "out_dtype": "i8",
            "rounding": "trunc",
        }
        if "bias" in given:
            keywords |= {"bias": given["bias"], "bias_stage": "acc"}
        return keywords, given.get("scaleAcc")


def _functor(name: str, activation: str, *tensors: str, **factors: float) -> Functor:
    return Functor(name, one_of(activation, (PassThrough, Relu, TanH), "activationOp"), factors, tensors)


def Activation_Mul_Clamp(requantScale: float, activationOp: str) -> Functor:
    """`requantScale * activation(acc)`, for activations that commute with a scale."""
    return _functor("Activation_Mul_Clamp", activationOp, requantScale=requantScale)


def Activation_Mul2_Clamp(activationOp: str) -> Functor:
    """`Activation_Mul_Clamp` with one scale per channel."""
    return _functor("Activation_Mul2_Clamp", activationOp, "requantScale")


def Add_Activation_Mul_Clamp(requantScale: float, activationOp: str) -> Functor:
    """`requantScale * activation(acc + bias)`."""
    return _functor("Add_Activation_Mul_Clamp", activationOp, "bias", requantScale=requantScale)


def Add_Activation_Mul2_Clamp(activationOp: str) -> Functor:
    """`Add_Activation_Mul_Clamp` with one scale per channel."""
    return _functor("Add_Activation_Mul2_Clamp", activationOp, "bias", "requantScale")


def Mul_Activation_Mul_Clamp(scale_z_inv: float, scaleAcc: float, activationOp: str) -> Functor:
    """`scale_z_inv * activation(scaleAcc * acc)`, for any activation."""
    return _functor("Mul_Activation_Mul_Clamp", activationOp, scale_z_inv=scale_z_inv, scaleAcc=scaleAcc)


def Add_Mul_Activation_Mul_Clamp(scale_z_inv: float, scaleAcc: float, activationOp: str) -> Functor:
    """`scale_z_inv * activation(scaleAcc * (acc + bias))`."""
    return _functor("Add_Mul_Activation_Mul_Clamp", activationOp, "bias", scale_z_inv=scale_z_inv, scaleAcc=scaleAcc)


def Add_Mul2_Activation_Mul_Clamp(scale_z_inv: float, activationOp: str) -> Functor:
    """`Add_Mul_Activation_Mul_Clamp` with `scaleAcc` per channel."""
    return _functor("Add_Mul2_Activation_Mul_Clamp", activationOp, "bias", "scaleAcc", scale_z_inv=scale_z_inv)
