"""Shared by the tests of kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import amx


@pytest.fixture(scope="module")
def emulated_amx() -> Iterator[None]:
    """The kernels for AMX, with tiles in software, can be asked for."""
    with amx.emulated():
        yield
