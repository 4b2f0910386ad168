"""torch's own samples of its operators: what is recorded as right is, the others are refused by name."""

from __future__ import annotations

import pytest
from support import children, torch_samples

RECORDED = torch_samples.recorded()
PARTS = 40  # of the operators of a dtype: the names are known when the database is imported, which takes seconds


@pytest.mark.slow
@pytest.mark.sweep(slow=PARTS)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("run", RECORDED)
def test_samples(run: str, part: int) -> None:
    names = sorted(torch_samples.operators(run.split()[1]))[part::PARTS]
    found = dict(torch_samples.outcomes(run, names))
    assert not {n: o for n, o in found.items() if not all(map(children.is_acceptable, o.values()))}
    assert {n: set(o) for n, o in found.items()} == {n: set(RECORDED[run].get(n, ())) for n in names}
