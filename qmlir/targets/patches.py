"""The IR of `im2col`: patches of the image, the filter as a matrix, the product, the result as an image.

Every size but the batch is static.
"""

from __future__ import annotations

from typing import Any

from .._mlir import arith, ir, tensor
from ..dialect.constants import is_zero_fill
from .tensors import barrier, filled, generic, merge, opaque, permuted, sizes_of, split, type_of


def _window(op: Any, name: str) -> tuple[int, int]:
    """`strides` or `dilations` of a named convolution; absent means one."""
    if name not in op.attributes:
        return 1, 1
    height, width = (int(v) for v in ir.DenseIntElementsAttr(op.attributes[name]))
    return height, width


def _times(size: Any, factor: int) -> Any:
    if isinstance(size, int):
        return size * factor
    return arith.muli(size, arith.constant(ir.IndexType.get(), factor))


def _image(rows: Any, image: list[Any]) -> Any:
    """`[N*OH*OW, ..]` -> `[N, OH, OW, ..]`."""
    return split(split(rows, 0, _times(image[0], image[1]), image[2]), 0, image[0], image[1])


def _rows(value: Any, first: int) -> Any:
    """Three dims from `first` on merged into one."""
    return merge(merge(value, first), first)


def convolution_as_matmul(op: Any, keep: bool) -> tuple[Any, Any]:
    """The result of a 2-D convolution as a matmul, and the matmul's op; `keep` puts a barrier behind it."""
    data, weight, init = op.operands
    grouped = "nhwgc" in op.name
    if "hwcf" in op.name:
        weight = permuted(weight, (3, 0, 1, 2))
    kernel = sizes_of(weight)[-3:-1]
    image = sizes_of(init)[:3]
    # [G.., N, OH, OW, KH, KW, C] -> [G.., N*OH*OW, KH*KW*C]; [G.., F, KH, KW, C] -> [G.., F, KH*KW*C]
    lead = 1 if grouped else 0
    columns = _patches(data, image, kernel, _window(op, "strides"), _window(op, "dilations"), grouped)
    columns = _rows(_rows(columns, lead + 3), lead)
    groups = sizes_of(weight)[:lead]
    # IREE would push the patches back into the product, and be at the convolution again.
    rows = sizes_of(columns)[lead]
    hidden = opaque(rows) if keep else rows
    columns = barrier(columns, [*groups, hidden, sizes_of(columns)[-1]])
    weight = _rows(weight, lead + 1)
    filters = sizes_of(weight)[lead]
    element = type_of(init).element_type
    if is_zero_fill(init):
        start = filled([*groups, hidden, filters], element)
    else:
        start = _rows(permuted(init, (3, 0, 1, 2, 4)) if grouped else init, lead)
    product = _matmul(columns, weight, start, lead)
    matmul = product.owner.operation
    product = barrier(product, [*groups, rows, filters]) if keep else product
    back = permuted(product, (1, 0, 2)) if grouped else product
    return _image(back, image), matmul


def _patches(
    data: Any,
    image: list[Any],
    kernel: list[int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    grouped: bool,
) -> Any:
    """[N,H,W,G..,C] -> [G..,N,OH,OW,KH,KW,C]."""
    sizes = sizes_of(data)
    if not grouped and kernel == [1, 1] and strides == (1, 1):
        return split(split(data, 3, 1, sizes[3]), 3, 1, 1)  # the patches are the image
    groups = sizes[3:-1]
    lead = len(groups)
    dims = [ir.AffineDimExpr.get(d) for d in range(lead + 6)]
    n, oh, ow, kh, kw, c = dims[lead:]
    y, x = oh * strides[0] + kh * dilations[0], ow * strides[1] + kw * dilations[1]
    source = ir.AffineMap.get(lead + 6, 0, [n, y, x, *dims[:lead], c])
    init = tensor.empty([*groups, *image, *kernel, sizes[-1]], type_of(data).element_type)
    maps = [source, ir.AffineMap.get_identity(lead + 6)]
    return generic([data], init, maps, ["parallel"] * (lead + 6), lambda value, _: value)


def _matmul(lhs: Any, rhs: Any, init: Any, lead: int) -> Any:
    """`[G.., M, K] x [G.., N, K] -> [G.., M, N]` in the accumulator's type."""
    batch = list(range(lead))
    m, n, k = lead, lead + 1, lead + 2
    maps = [
        ir.AffineMap.get(lead + 3, 0, [ir.AffineDimExpr.get(d) for d in (*batch, *dims)])
        for dims in ((m, k), (n, k), (m, n))
    ]
    result = type_of(init).element_type
    integer = isinstance(result, ir.IntegerType)

    def extended(x: Any) -> Any:
        if x.type == result:
            return x
        return arith.extsi(result, x) if integer else arith.extf(result, x)

    def body(x: Any, y: Any, acc: Any) -> Any:
        if integer:
            return arith.addi(acc, arith.muli(extended(x), extended(y)))
        return arith.addf(acc, arith.mulf(extended(x), extended(y)))

    return generic([lhs, rhs], init, maps, ["parallel"] * (lead + 2) + ["reduction"], body)
