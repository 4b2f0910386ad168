"""The raising patterns of ONNX's quantised operators, registered when this package is imported."""

from __future__ import annotations

from . import casts as casts
from . import convolutions as convolutions
from . import dynamic as dynamic
from . import gather as gather
from . import linear as linear
from . import matmul_nbits as matmul_nbits
from . import pointwise as pointwise
from . import pooling as pooling
from . import products as products
