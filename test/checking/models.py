"""Programs for the tests of `qmlir check`: twelve quantised layers as text, with faults to plant."""

from __future__ import annotations

import numpy as np

LAYERS = 12
WIDTH = 16


def twelve_layers(scales: dict[int, float] | None = None, packings: dict[int, str] | None = None,
                  roundings: dict[int, str] | None = None) -> str:  # fmt: skip
    """Twelve requantised int8 layers of 16 columns; every third has packed int4 weights. Faults are given by the number
    of the layer, from 1: `scales` multiply the layer's own scale.

    Scales are powers of two, so that ties are frequent and the rounding mode matters. They differ between channels, so
    that they stay operands and all layers share one executable, which IREE compiles once.
    """
    rng = np.random.default_rng(7)
    lines = [f"func.func @main(%x0: tensor<?x{WIDTH}xi8>) -> tensor<?x{WIDTH}xi8> {{"]
    for n in range(1, LAYERS + 1):
        packed = n % 3 == 0
        codes = rng.integers(-128, 128, (WIDTH, WIDTH // 2 if packed else WIDTH))
        weight = f"tensor<{WIDTH}x{codes.shape[1]}xi8>"
        scale = 2.0 ** rng.integers(-3, -1, (WIDTH, 1)) * (1.0 if packed else 2.0**-5) * (scales or {}).get(n, 1.0)
        form = [f'rounding = "{(roundings or {}).get(n, "half_even")}"', "rhs_transposed = true"]
        if packed:
            form += [f'rhs_packing = "{(packings or {}).get(n, "low_first")}"', 'rhs_dtype = "i4"']
        lines += [
            f"  %w{n} = arith.constant dense<{codes.tolist()}> : {weight}",
            f"  %s{n} = arith.constant dense<{scale.tolist()}> : tensor<{WIDTH}x1xf32>",
            f"  %o{n} = arith.constant dense<2.0> : tensor<f32>",
            f'  %x{n} = "qmlir.scaled_matmul"(%x{n - 1}, %w{n}, %s{n}, %o{n}) {{{", ".join(form)},',
            '    operand_names = ["lhs", "rhs", "rhs_scale", "out_scale"]',
            f"  }} : (tensor<?x{WIDTH}xi8>, {weight}, tensor<{WIDTH}x1xf32>, tensor<f32>) -> tensor<?x{WIDTH}xi8> "
            f'loc("layer{n}")',
        ]
    return "\n".join([*lines, f"  return %x{LAYERS} : tensor<?x{WIDTH}xi8>", "}"]) + "\n"
