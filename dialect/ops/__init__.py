"""The operations, one file each: fields, shape and type rules, verifier. Importing this package defines
the dialect."""

from .conv2d_q import Conv2dQOp
from .dequant import DequantOp
from .dynamic_quantize import DynamicQuantizeOp
from .grouped_matmul import GroupedMatmulOp
from .moe import MoeOp
from .moe_align_block_size import MoeAlignBlockSizeOp
from .quantize import QuantizeOp
from .route import RouteOp
from .scaled_matmul import ScaledMatmulOp
from .sparse_matmul import SparseMatmulOp
from .unpack import UnpackOp

__all__ = [
    "Conv2dQOp",
    "DequantOp",
    "DynamicQuantizeOp",
    "GroupedMatmulOp",
    "MoeAlignBlockSizeOp",
    "MoeOp",
    "QuantizeOp",
    "RouteOp",
    "ScaledMatmulOp",
    "SparseMatmulOp",
    "UnpackOp",
]
