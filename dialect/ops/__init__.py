"""The operations, one file each: fields, shape and type rules, verifier. Importing this package defines
the dialect."""

from .conv2d_q import Conv2dQOp
from .dequant import DequantOp
from .dynamic_quantize import DynamicQuantizeOp
from .grouped_matmul import GroupedMatmulOp
from .quantize import QuantizeOp
from .scaled_matmul import ScaledMatmulOp
from .unpack import UnpackOp

__all__ = [
    "Conv2dQOp",
    "DequantOp",
    "DynamicQuantizeOp",
    "GroupedMatmulOp",
    "QuantizeOp",
    "ScaledMatmulOp",
    "UnpackOp",
]
