"""Shared by all tests: the cache of compiled programs, the targets that run here, the hooks of support/slices.py."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

# pytest finds its hooks by their names here.
from support.slices import (  # noqa: F401
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_runtest_setup,
    pytest_terminal_summary,
)

from qmlir import settings

# The fast tier tries the same examples in every run, so that a change is judged by what it changed; the slow tier
# explores (its tests say derandomize=False). Compiling is slow, and slower on a loaded machine: that is not a failure.
hypothesis.settings.register_profile(
    "qmlir", derandomize=True, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)
hypothesis.settings.load_profile("qmlir")


def have_lavapipe() -> bool:
    """Whether Mesa's software Vulkan device is installed; on CI a missing one is a failure, not a skip."""
    if settings.require_lavapipe():
        return True
    folders = (Path("/usr/share/vulkan/icd.d"), Path("/etc/vulkan/icd.d"))
    return any(list(f.glob("lvp_icd*.json")) for f in folders)


def pytest_configure(config: pytest.Config) -> None:
    # One device and one cache for the whole run: the user's files are neither read nor written.
    for folder in (Path("/usr/share/vulkan/icd.d"), Path("/etc/vulkan/icd.d")):
        for driver in folder.glob("lvp_icd*.json"):
            os.environ.setdefault("VK_DRIVER_FILES", str(driver))
    if "QMLIR_CACHE_DIR" not in os.environ:
        import tempfile

        os.environ["QMLIR_CACHE_DIR"] = tempfile.mkdtemp(prefix="qmlir-test-cache-")
        config.stash[_OWN_CACHE] = Path(os.environ["QMLIR_CACHE_DIR"])


_OWN_CACHE = pytest.StashKey[Path]()


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(_OWN_CACHE, None)
    if folder is not None:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def rotation(pytestconfig: pytest.Config) -> int:
    """The number of `--sweep`, which differs per commit: it selects the committed results that a run reproduces."""
    return int(pytestconfig.getoption("--sweep"))


@pytest.fixture
def lavapipe() -> str:
    """The software Vulkan target."""
    if not have_lavapipe():
        pytest.skip("lavapipe is not installed")
    return "vulkan:lavapipe"


@pytest.fixture(params=["cpu", "vulkan:lavapipe"])
def target(request: pytest.FixtureRequest) -> str:
    """Each target whose programs run on this machine."""
    name = str(request.param)
    if name == "vulkan:lavapipe" and not have_lavapipe():
        pytest.skip("lavapipe is not installed")
    return name
