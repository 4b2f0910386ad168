"""qmlir-float-convolutions: rewrite float convolutions with channels first as products, which IREE vectorises."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar

from ...core.mlir import arith, ir, tensor
from ...dialect.constants import is_zero_fill
from ...ir.attributes import window_steps
from ...ir.barriers import Reason, fusion_barrier
from ...ir.build import Arg, collapse, dims, elementwise, expand, filled, generic as built
from ...ir.walk import outside_kernels
from ...targets.tensors import generic, multiply_add, permuted, type_of
from ..base import Pass, State

if TYPE_CHECKING:
    from ...core.mlir import OpLike

# `[N, C, ..]` by `[F, C, ..]`, or `[N, G, C, ..]` by `[G, F, C, ..]`, and the number of axes of a window.
_CONVOLUTIONS = {
    "linalg.conv_1d_ncw_fcw": 1, "linalg.conv_2d_nchw_fchw": 2, "linalg.conv_3d_ncdhw_fcdhw": 3,
    "linalg.conv_2d_ngchw_gfchw": 2,
}  # fmt: skip
_VECTORS = "linalg.conv_2d_nchw_fchw"  # vectorised by IREE if the stride is one
_SMALL = 4  # elements of a window: up to this size its patches are small


@dataclass(frozen=True)
class FloatConvolutionsPass(Pass):
    """IREE's CPU code computes convolutions with channels first element by element, except convolutions of images over
    all channels with a stride of one. So:

    * `[N, C, ..]` by `[F, C, K..]` becomes filters `[F, C * K..]` by patches `[C * K.., N * O..]`, a matrix product.
      The result has its channels first again.
    * A grouped convolution becomes a batch of such products.

    A convolution that IREE vectorises stays: its patches would be many times the size of the image. Windows of up to
    four elements have small patches and are rewritten too: 64 to 64 channels, 2x2 on 56x56, takes 1.3 ms as a product
    on one core of a Sapphire Rapids, and 3.3 ms as a convolution.
    """

    name: ClassVar[str] = "qmlir-float-convolutions"
    summary: ClassVar[str] = "rewrite float convolutions with channels first as matrix products (CPU)"

    def run(self, module: ir.Module, state: State) -> None:
        for op in outside_kernels(module, where=_fits):
            with op.location, ir.InsertionPoint(op):
                result = _product(op)
                if not is_zero_fill(op.operands[2]):
                    result = _sum(result, op.operands[2])
            op.results[0].replace_all_uses_with(result)
            op.erase()


def _fits(op: OpLike) -> bool:
    """Whether the op is slow as it is, has one float type, and only its number of images is dynamic."""
    axes = _CONVOLUTIONS.get(op.name, 0)
    if not axes:
        return False
    data, weight, init = (type_of(value) for value in op.operands)
    static = weight.has_static_shape and not any(t.is_dynamic_dim(d) for t in (data, init) for d in range(1, t.rank))
    floats = isinstance(init.element_type, ir.FloatType) and data.element_type == init.element_type
    small = prod(list(weight.shape)[-axes:]) <= _SMALL
    slow = op.name != _VECTORS or max(window_steps(op, "strides", axes)) > 1 or small
    return static and floats and slow


def _product(op: OpLike) -> ir.Value:
    """The convolution without its init."""
    data, weight, init = op.operands
    axes = _CONVOLUTIONS[op.name]
    strides, dilations = (window_steps(op, name, axes) for name in ("strides", "dilations"))
    *groups, filters, channels = dims(weight)[:-axes]
    kernel, images, image = dims(weight)[-axes:], dims(init)[0], dims(init)[-axes:]
    element = type_of(init).element_type
    # Loops of the patches: G, C, K.., N, O..
    lead = len(groups)
    count = lead + 2 + 2 * axes
    every = [ir.AffineDimExpr.get(i) for i in range(count)]
    g, c, k, n, o = every[:lead], every[lead], every[lead + 1 :][:axes], every[lead + 1 + axes], every[count - axes :]
    places = [o[i] * strides[i] + k[i] * dilations[i] for i in range(axes)]
    maps = [ir.AffineMap.get(count, 0, [n, *g, c, *places]), ir.AffineMap.get_identity(count)]
    patches = tensor.empty([*groups, channels, *kernel, images, *image], element)
    patches = generic([data], patches, maps, ["parallel"] * count, lambda x, _: x)
    each = [[i] for i in range(lead)]
    inner, outer = range(lead, lead + 1 + axes), range(lead + 1 + axes, count)
    patches = fusion_barrier(collapse(patches, [*each, list(inner), list(outer)]), Reason.PATCHES)
    matrix = collapse(weight, [*each, [lead], list(range(lead + 1, lead + 2 + axes))])
    start = filled([*groups, filters, dims(patches)[-1]], _zero(element))
    f, p, q = lead, lead + 1, lead + 2  # loops of filters, output positions, and the reduction
    batch = tuple(range(lead))
    result = built([Arg(matrix, (*batch, f, q)), Arg(patches, (*batch, q, p))], start, (*batch, f, p), lead + 3,
                   multiply_add)  # fmt: skip
    result = expand(result, [*([size] for size in (*groups, filters)), [images, *image]])
    return permuted(result, (lead + 1, *range(lead + 1), *range(lead + 2, lead + 2 + axes)))


def _sum(x: ir.Value, y: ir.Value) -> ir.Value:
    sizes = dims(y)
    return elementwise([Arg.aligned(v, sizes) for v in (x, y)], sizes, type_of(y).element_type, arith.addf)


def _zero(element: ir.Type) -> ir.Value:
    return arith.constant(element, 0.0)
