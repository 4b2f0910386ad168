"""A whole mixture-of-experts layer (AITER's documented shape: hidden 512, 8 experts, top 2, 2048 out) as one program.

    python samples/07_moe/run.py
    python samples/07_moe/run.py --target vulkan:lavapipe

`layer.mlir` is compiled once for any number of tokens. Prints a table; exits with 1 when a result differs from the
reference by more than the rounding of the router's weights explains.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from report import Report, target_option

import qmlir
from qmlir import reference

HIDDEN, EXPERTS, INNER, OUT = 512, 8, 2048, 2048


def main() -> int:
    """The sample; returns the exit code."""
    target = target_option(__doc__)
    rng = np.random.default_rng(0)
    # Small integers, so that the logits are exact sums and every target routes each token alike.
    router = rng.integers(-8, 9, (HIDDEN, EXPERTS)).astype(np.float32) / 64
    router[:, 5] = -8  # an expert without tokens
    w1, w2 = (rng.integers(-127, 128, shape, np.int8) for shape in ((EXPERTS, HIDDEN, INNER), (EXPERTS, INNER, OUT)))
    s1, s2 = ((rng.random((EXPERTS, 1, n)) * 0.01).astype(np.float32) for n in (INNER, OUT))
    layer = qmlir.load(qmlir.compile(str(Path(__file__).with_name("layer.mlir")), target=target)).main
    report = Report("A mixture-of-experts layer", target)
    for count in (1, 33, 256):
        tokens = np.abs(rng.integers(-64, 65, (count, HIDDEN))).astype(np.float32) / 32
        ids, weights = reference.route(tokens @ router, topk=2, renormalize=True)
        codes, scale, _ = reference.dynamic_quantize(tokens)
        experts = {
            "input_scale": scale,
            "w1_scale": s1,
            "w2_scale": s2,
            "activation": "relu",
            "intermediate_dtype": "i8",
        }
        expected = reference.moe(codes, w1, w2, ids, weights, **experts)
        # The device's exp differs from numpy's by a few units in the last place; so do the routing weights, and this
        # error is multiplied by the experts' results.
        each = np.stack([
            reference.moe(codes, w1, w2, ids[:, k : k + 1], np.ones((count, 1), np.float32), **experts) for k in (0, 1)
        ])  # fmt: skip
        size = np.einsum("tk,ktn->tn", weights, np.abs(each))
        operands = f"f32[{count}, {HIDDEN}], {EXPERTS} experts, top 2"
        report.close("layer", operands, lambda x=tokens: layer(x, router, w1, s1, w2, s2), expected, 32 * size)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
