"""torch's own samples of its operators: what is recorded as right is, the others are refused by name."""

from __future__ import annotations

import pytest
from support import children, torch_samples

RECORDED = torch_samples.recorded()
PARTS = 40  # of the operators of a dtype: the names are known when the database is imported, which takes seconds


def _as_recorded(dtype: str, names: list[str]) -> None:
    found = dict(torch_samples.outcomes(dtype, names))
    assert not {n: o for n, o in found.items() if not all(map(children.is_acceptable, o.values()))}
    assert {n: set(o) for n, o in found.items()} == {n: set(RECORDED[dtype].get(n, ())) for n in names}


@pytest.mark.slow
@pytest.mark.sweep(slow=PARTS)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dtype", RECORDED)
def test_samples(dtype: str, part: int) -> None:
    _as_recorded(dtype, sorted(torch_samples.operators(dtype))[part::PARTS])
