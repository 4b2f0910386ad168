"""A second oracle: every operation from docs/semantics.md alone, in Python integers and fractions.

`qmlir.reference` judges the compiled programs; this judges `qmlir.reference`. It shares no code with it, and no
arithmetic: it works on one element at a time, on exact numbers, and rounds where the page says so. A result is a
`Tensor` of numbers, or of intervals where section 5 gives an allowance.
"""

from .conv import conv2d_q
from .experts import grouped_matmul, moe, moe_align_block_size, route
from .products import scaled_matmul
from .sparse import sparse_matmul
from .values import dequant, dynamic_quantize, quantize, unpack

__all__ = [
    "conv2d_q",
    "dequant",
    "dynamic_quantize",
    "grouped_matmul",
    "moe",
    "moe_align_block_size",
    "quantize",
    "route",
    "scaled_matmul",
    "sparse_matmul",
    "unpack",
]
