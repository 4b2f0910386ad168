"""qmlir.reference: what every operation means, in numpy; the oracle of all tests.

The functions take the keyword arguments of `qmlir.ops.*` and follow docs/semantics.md to the bit. Integer
sums are exact; f32 steps are single f32 operations in the stated order; float contractions are evaluated in
float64 on the dequantised operands and rounded once to f32.
"""

from .conv import conv2d_q
from .dynamic import dynamic_quantize
from .grouped import grouped_matmul
from .matmul import scaled_matmul
from .moe import moe, moe_align_block_size, route
from .packing import pack, unpack
from .sparse import sparse_matmul
from .values import dequant, quantize

__all__ = [
    "conv2d_q",
    "dequant",
    "dynamic_quantize",
    "grouped_matmul",
    "moe",
    "moe_align_block_size",
    "pack",
    "quantize",
    "route",
    "scaled_matmul",
    "sparse_matmul",
    "unpack",
]
