"""Data and comparisons for the numeric tests. Results are compared with qmlir.reference's, within the tolerances of
docs/semantics.md, section 5."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmlir
import qmlir.runtime
from conformance.judge import closely, exactly, magnitude_terms

# lavapipe compiles each program a second time when it loads it, which takes most of these tests' time. Of its cases
# that no other mark makes slow, the fast tier always runs the same third, and the slow tier the others. A function with
# several cases has at least one in the fast tier, so that every operation is tested there.
ONE_IN = 3
WHOLE = ("test_golden.py",)
INTERPRETED = ("cuda:sm_80", "cuda:sm_90a")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    of_function: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.path.parent != here or item.path.name in WHOLE or "lavapipe" not in item.name:
            continue
        if not item.get_closest_marker("slow"):
            of_function.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for found in of_function.values():
        found.sort(key=lambda item: zlib.crc32(item.name.encode()))
        few = len(found) == 1 and zlib.crc32(found[0].name.encode()) % ONE_IN
        for item in found if few else found[-(-len(found) // ONE_IN) :]:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=["cpu", "vulkan:lavapipe", *(pytest.param(t, marks=pytest.mark.slow) for t in INTERPRETED)])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each target whose programs run on this machine; those of CUDA run in the interpreter of test/ptx."""
    name = str(request.param)
    if name == "vulkan:lavapipe":
        return str(request.getfixturevalue("lavapipe"))
    if name in INTERPRETED:
        from ptx.program import interpret

        monkeypatch.setattr(qmlir, "load", interpret)
        monkeypatch.setattr(qmlir.runtime, "load", interpret)
        monkeypatch.setattr("qmlir.ops.operation.load", interpret)
    return name


class Data:
    """Random operands from one seeded stream."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def codes(self, *shape: int, dtype: str = "i8") -> Any:
        lo, hi = {"i8": (-128, 128), "u8": (0, 256), "i4": (-8, 8), "u4": (0, 16), "i2": (-2, 2), "u2": (0, 4)}[dtype]
        kind = np.uint8 if dtype[0] == "u" else np.int8
        return self.rng.integers(lo, hi, shape).astype(kind)

    def floats(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape).astype(np.float32)

    def scales(self, *shape: int) -> Any:
        return (self.rng.random(shape) * 0.01 + 0.001).astype(np.float32)

    def zeros(self, *shape: int, lo: int = -30, hi: int = 30) -> Any:
        return self.rng.integers(lo, hi, shape).astype(np.int32)


@pytest.fixture
def data(request: pytest.FixtureRequest) -> Data:
    """A stream that depends on the test's name only."""
    return Data(zlib.crc32(request.node.name.encode()))


@pytest.fixture
def same() -> Callable[[Any, Any], None]:
    return exactly


@pytest.fixture
def near() -> Callable[..., None]:
    return closely


@pytest.fixture
def terms() -> Callable[..., Any]:
    return magnitude_terms
