"""The raising patterns of ONNX's quantised operators, registered when this package is imported."""

from __future__ import annotations

from . import (
    casts as casts,
    convolutions as convolutions,
    corrected as corrected,
    decoders as decoders,
    dynamic as dynamic,
    expanded as expanded,
    experts as experts,
    fused as fused,
    gather as gather,
    heads as heads,
    linear as linear,
    matmul_nbits as matmul_nbits,
    normalised as normalised,
    pointwise as pointwise,
    pooling as pooling,
    products as products,
    recurrent as recurrent,
    remainder as remainder,
    reshaped as reshaped,
)
