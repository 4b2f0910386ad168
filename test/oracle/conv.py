"""Convolutions (docs/semantics.md, section 4), one element at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .interval import Arithmetic, Interval
from .products import Contraction, Epilogue, gated, side
from .tensor import Index, Tensor, fill


def _at(layout: str, **axes: int) -> Index:
    return tuple(axes[letter] for letter in layout)


class _ConvolutionEpilogue(Epilogue):
    """The epilogue of a convolution. Operands with several axes are in the result's layout; one axis is one value per
    filter."""

    nchw = False

    def _in_layout(self, i: Index) -> Index:
        return (i[0], i[3], i[1], i[2]) if self.nchw else i

    def look(self, name: str, i: Index) -> Any:
        t = self.operands[name]
        return super().look(name, i if len(t.shape) < 2 else self._in_layout(i))

    def block(self, name: str, i: Index, default: Any) -> Any:
        t = self.operands.get(name)
        if t is None or not t.shape:
            return default if t is None else t.data[0]
        if len(t.shape) < 2:
            return t.data[0 if t.shape[0] == 1 else i[3] // (self.result[3] // t.shape[0])]
        shape = self._in_layout(self.result)
        i = self._in_layout(i)
        tail, sizes = i[4 - len(t.shape) :], shape[4 - len(t.shape) :]
        return t[tuple(x // (d // s) for x, d, s in zip(tail, sizes, t.shape, strict=True))]


def _name_in_product(name: str) -> str:
    """The name of a convolution's argument in a product: `input_*` is `lhs_*`, `weight_*` is `rhs_*`."""
    for own, side_ in (("input", "lhs"), ("weight", "rhs")):
        if name.startswith(f"{own}_") and not name.endswith("_layout"):
            return side_ + name.removeprefix(own)
    return name


def conv2d_q(input: Any, weight: Any, *, fused: bool = False, **kw: Any) -> Tensor:
    """`qmlir.conv2d_q`."""
    f = Arithmetic(fused)
    kw = {_name_in_product(name): value for name, value in kw.items()}
    layout, filters = kw.get("input_layout", "NHWC"), kw.get("weight_layout", "FHWC")
    a = side(input, kw["lhs_dtype"], kw, "lhs")
    sizes = dict(zip(layout, a.codes.shape, strict=True))
    groups, packing = kw.get("groups", 1), kw.get("rhs_packing", "none")
    b = side(weight, kw["rhs_dtype"], kw, "rhs", packing, sizes["C"] // groups if packing != "none" else None)
    reach = dict(zip(filters, b.codes.shape, strict=True))
    for name in ("scale", "zero"):  # one axis: one value per filter
        t = getattr(b, name)
        if t is not None and len(t.shape) == 1:
            setattr(b, name, Tensor(tuple(t.shape[0] if c == "F" else 1 for c in filters), t.data))
    (sh, sw), (dh, dw) = kw.get("strides", (1, 1)), kw.get("dilations", (1, 1))
    top, left, bottom, right = kw.get("padding", (0, 0, 0, 0))
    transposed = kw.get("transposed", False)

    def extent(size: int, kernel: int, stride: int, dilation: int, before: int, after: int, extra: int) -> int:
        if transposed:
            return (size - 1) * stride + dilation * (kernel - 1) + 1 + extra - before - after
        return (size + before + after - dilation * (kernel - 1) - 1) // stride + 1

    extra = kw.get("output_padding", (0, 0))
    oh = extent(sizes["H"], reach["H"], sh, dh, top, bottom, extra[0])
    ow = extent(sizes["W"], reach["W"], sw, dw, left, right, extra[1])
    shape = (sizes["N"], oh, ow, reach["F"])
    epilogue = _ConvolutionEpilogue(kw, shape, (*shape[:3], gated(reach["F"], kw)), f)
    epilogue.nchw = layout == "NCHW"
    contraction = Contraction(a, b, f, kw.get("compute_dtype"))
    per = reach["F"] // groups

    def source(at: int, tap: int, stride: int, dilation: int, before: int, size: int) -> int | None:
        """The input position that a tap of the kernel reads; None in the padding, whose real value is 0."""
        if transposed:
            place = at + before - tap * dilation
            if place % stride:
                return None
            place //= stride
        else:
            place = at * stride - before + tap * dilation
        return place if 0 <= place < size else None

    def pairs(i: Index) -> Iterator[tuple[Index, Index]]:
        for kh in range(reach["H"]):
            h = source(i[1], kh, sh, dh, top, sizes["H"])
            for kw_ in range(reach["W"]):
                w = source(i[2], kw_, sw, dw, left, sizes["W"])
                for c in range(reach["C"]):
                    if h is not None and w is not None:
                        yield (_at(layout, N=i[0], H=h, W=w, C=i[3] // per * reach["C"] + c),
                               _at(filters, F=i[3], H=kh, W=kw_, C=c))  # fmt: skip

    def total(i: Index) -> Interval | int:
        at = (0, 0, 0, 0), _at(filters, F=i[3], H=0, W=0, C=0)
        return contraction.total(pairs(i), at, epilogue.acc_bias(i), False)

    result = epilogue.run(total)
    if layout == "NHWC":
        return result
    n, h, w, c = result.shape
    return fill((n, c, h, w), lambda i: result[i[0], i[2], i[3], i[1]])
