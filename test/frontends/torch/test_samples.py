"""torch's own samples of its operators: those recorded as right are right, the others are refused by name."""

from __future__ import annotations

import pytest
from support import children, torch_samples

RECORDED = torch_samples.recorded()
# Tests are parametrised by parts of a dtype's operators: the names are only known once the database is imported, which
# takes seconds.
PARTS = 120
IN_SLICES = "cpu f32"  # a part takes minutes


@pytest.mark.slow
@pytest.mark.sweep(slow=PARTS)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("run", [r if r == IN_SLICES else pytest.param(r, marks=pytest.mark.long) for r in RECORDED])
def test_samples(run: str, part: int) -> None:
    names = sorted(torch_samples.operators(run.split()[1]))[part::PARTS]
    found = dict(torch_samples.outcomes(run, names))
    assert not {n: o for n, o in found.items() if not all(map(children.is_acceptable, o.values()))}
    assert {n: set(o) for n, o in found.items()} == {n: set(RECORDED[run].get(n, ())) for n in names}
