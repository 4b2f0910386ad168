"""The raising patterns of ONNX's quantised operators, registered when this package is imported."""

from __future__ import annotations

from . import (
    casts as casts,
    convolutions as convolutions,
    corrected as corrected,
    dynamic as dynamic,
    gather as gather,
    linear as linear,
    matmul_nbits as matmul_nbits,
    pointwise as pointwise,
    pooling as pooling,
    products as products,
    recurrent as recurrent,
    remainder as remainder,
    reshaped as reshaped,
)
