"""Shared by the tests of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import amx
from support.arm import Emulator, require

from qmlir import settings


@pytest.fixture(scope="module")
def emulated_amx() -> Iterator[None]:
    """Makes the AMX kernels selectable, with tiles emulated in software."""
    with amx.emulated():
        yield


@pytest.fixture(scope="session")
def arm() -> Iterator[Emulator]:
    """An emulator that runs programs for 64-bit Arm."""
    require()
    emulator = Emulator()
    yield emulator
    emulator.close()


WRAPPER = Path(__file__).resolve().parents[2] / "build" / "lavapipe" / "lavapipe"


@pytest.fixture
def newer() -> Path:
    """The wrapper that starts a program with a lavapipe and SPIR-V tools that support cooperative matrices."""
    if not WRAPPER.exists() and not settings.require_lavapipe():
        pytest.skip("there is no newer lavapipe: make vulkan fetches it")
    assert WRAPPER.exists(), "there is no newer lavapipe: make vulkan fetches it"
    return WRAPPER
