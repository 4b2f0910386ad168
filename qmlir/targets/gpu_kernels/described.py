"""The kernel that a contraction is."""

from __future__ import annotations

from ...kernels.bodies import unclonable
from ...kernels.convolution import describe_convolution
from ...kernels.description import Kernel, Unfit
from ...kernels.gather_operands import gather_operands
from ...kernels.group import describe
from ...kernels.routing import scattered
from ...kernels.row_sums import absorbed
from ..base import FLOAT8
from ..strategy import Contraction, Decline
from .batch import side_by_side


def small_floats(c: Contraction) -> bool:
    """Whether it is a matmul of one-byte floats on both sides."""
    return c.kind == "matmul" and c.lhs in FLOAT8 and c.rhs in FLOAT8


def described(c: Contraction, planes: bool = False) -> Kernel | Decline:
    """The kernel of a matmul, or of a convolution. `planes`: images whose channels are in front are read as they are;
    else a transposition in front of the kernel brings their channels behind."""
    if c.kind == "depthwise_conv2d":
        return Decline("a convolution of each channel alone", "a convolution over several channels")
    if c.op is None:
        return Decline("what is fused with it is not known", "none needed")
    try:
        if c.kind == "matmul":
            kernel = describe(c.op, bool(c.batch) or small_floats(c), bool(c.batch) and not small_floats(c), True)
        else:
            floats = c.acc == "f32"
            kernel = side_by_side(describe_convolution(c.op, True, floats, not floats, (planes, True)))
            if kernel.rhs.decode is not None and (reason := unclonable(kernel.rhs.decode.body)):
                return Decline(f"what dequantises the filter has no form on vectors: {reason}", "codes and scales")
    except Unfit as unfit:
        return Decline(unfit.reason, unfit.remedy)
    return scattered(gather_operands(absorbed(kernel.without_gate()), slots=True))
