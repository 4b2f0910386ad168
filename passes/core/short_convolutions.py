"""qmlir-short-convolutions: convolutions of bfloat16 as products of their patches."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar

from ...core.mlir import arith, ir, linalg
from ...dialect.constants import is_zero_fill
from ...ir.barriers import Reason, fusion_barrier
from ...ir.build import Arg, dims, elementwise, filled
from ...ir.walk import collect
from ...targets import backend_of, resolve
from ...targets.im2col import convolution_as_matmul
from ...targets.tensors import permuted, type_of
from ..base import Pass, State

if TYPE_CHECKING:
    from ...core.mlir import OpLike


_MOST = 256 << 20  # bytes of the patches


@dataclass(frozen=True)
class ShortConvolutionsPass(Pass):
    """IREE's code for a CPU goes element by element through convolutions of bfloat16 (64 to 64 channels, 3x3 on 56x56:
    55 ms on one core of a Sapphire Rapids). Their patches, with the channels of a pixel one behind the other, are
    multiplied with the filters, which the kernels of `qmlir-select` take. Where the patches would take more than
    256 MiB, of each image where their number is dynamic, they are not made. What a convolution starts from is added
    behind the sum, in f32.
    """

    name: ClassVar[str] = "qmlir-short-convolutions"
    summary: ClassVar[str] = "convolutions of bfloat16 as products of their patches (CPU)"
    target: str = "cpu"

    def run(self, module: ir.Module, state: State) -> None:
        if not backend_of(resolve(self.target)).on_host:
            return
        for op in collect(module, "linalg.conv_2d_nchw_fchw", where=_fits):
            with op.location, ir.InsertionPoint(op):
                result = _channels_last(op)
            op.results[0].replace_all_uses_with(result)
            op.erase()


def _fits(op: OpLike) -> bool:
    """Whether it is one of bfloat16, summed in f32, of which only the number of images is dynamic."""
    data, weight, init = (type_of(value) for value in op.operands)
    short = all(isinstance(t.element_type, ir.BF16Type) for t in (data, weight))
    static = weight.has_static_shape and not any(t.is_dynamic_dim(d) for t in (data, init) for d in range(1, 4))
    if not (short and static and isinstance(init.element_type, ir.F32Type)):
        return False
    images = 1 if init.is_dynamic_dim(0) else init.get_dim_size(0)
    return 2 * prod(list(weight.shape)[1:]) * prod(list(init.shape)[2:]) * images <= _MOST


def _channels_last(op: OpLike) -> ir.Value:
    data, weight, init = op.operands
    images, filters, height, width = dims(init)
    start = filled([images, height, width, filters], arith.constant(ir.F32Type.get(), 0.0))
    windows = {name: op.attributes[name] for name in ("strides", "dilations") if name in op.attributes}
    image = fusion_barrier(permuted(data, (0, 2, 3, 1)), Reason.CHANNELS_LAST)
    made = linalg.conv_2d_nhwc_fhwc(image, permuted(weight, (0, 2, 3, 1)), outs=[start], **windows).owner.operation
    product, _ = convolution_as_matmul(made, keep=False)
    made.erase()
    result = permuted(product, (0, 3, 1, 2))
    if is_zero_fill(init):
        return result
    sizes = dims(init)
    return elementwise([Arg.aligned(v, sizes) for v in (result, init)], sizes, ir.F32Type.get(), arith.addf)
