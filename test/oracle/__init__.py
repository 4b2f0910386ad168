"""A second oracle: every operation, implemented from docs/semantics.md alone, in Python integers and fractions.

Compiled programs are compared with `qmlir.reference`, and `qmlir.reference` is compared with this oracle. The two share
no code and no arithmetic: the oracle computes one element at a time with exact numbers, and rounds where
docs/semantics.md says so. A result is a `Tensor` of numbers, or of intervals if section 5 gives a tolerance.
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
