"""Every family of CUDA kernels: PTX in the interpreter against qmlir.reference, bit-exact if the arithmetic is exact.

The fast tier runs some forms of each family, the slow tier all.
"""

# ruff: noqa: E501  (rows of tables)

from __future__ import annotations

import pytest
from emulation.forms import Form
from emulation.programs import FAMILIES, artifact_of, calls, judged
from ptx.forms import fast_one_byte_floats, handed, sliced, stream_k
from ptx.program import interpret

pytestmark = pytest.mark.sweep(fast=3, slow=66)

FORMS = [*FAMILIES, *fast_one_byte_floats(), *sliced(), *handed(), *stream_k()]
# In the fast tier: every family, and most kinds of products.
FAST = {
    ("cuda:sm_80", n)
    for n in (
        "w8a8-33x70", "w8a8-batch", "zero points-u8 both", "epilogue-all", "w4a8-u4 zeros on both sides, group 32",
        "weight only-float16 x i4 group 32", "fp8-e4m3 x e4m3", "sliced-zero points 16x32x512x1x1x4x3", "conv2d-zero point",
        "experts-routed u8", "stream-K-u4 zeros on both sides 16x64x128x1x4x1x4",
        "handed-zeros on both sides, groups of 64 16x32x512x1x1x4x3",
    )
} | {("cuda:sm_90a", n) for n in ("w8a8-72x160",)}  # fmt: skip
FAST |= {("cuda:sm_89", "fp8-fast, 1 groups"), ("cuda:sm_90a", "fp8 wgmma-groups of 64")}


CASES = [(t, f) for f in FORMS for t in f.targets]


@pytest.mark.sweep(fast=15, slow=66)
@pytest.mark.parametrize(
    ("target", "form"),
    [pytest.param(t, f, id=f"{t[5:]}-{f.id}", marks=[] if (t, f.id) in FAST else [pytest.mark.slow]) for t, f in CASES],
)
def test_family(target: str, form: Form) -> None:
    made = None
    for kw in calls(form):
        if made is None:
            made = interpret(artifact_of(form, target, kw))
            made.options = form.options
        judged(form, kw, made.main(*[kw[name] for name, _ in made.main.signature.inputs]))


def test_there_are_enough_cases() -> None:
    """A case is a call of a program with some number of rows; `exact` ones are compared bit for bit."""
    assert sum(len(f.rows) for _, f in CASES if f.judge == "exact") >= 600
    assert sum(len(f.rows) for _, f in CASES) >= 800
    fast = {form for _, form in FAST}
    assert fast <= {f.id for f in FORMS}
    assert {f.family for f in FORMS} == {f.family for f in FORMS if f.id in fast}
