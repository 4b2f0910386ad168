"""The one place that reads the environment.

| variable | meaning |
|---|---|
| `QMLIR_CACHE_DIR` | folder of the compilation cache |
| `QMLIR_REPRODUCER_DIR` | where reproducers of failures go (default: the system's temporary folder) |
| `QMLIR_THREADS` | threads of a CPU program, the calling one included (default: the CPUs this process may use) |
| `QMLIR_VERIFY_IREE` | IREE verifies the program after each of its passes, and takes half as long again |
| `QMLIR_REQUIRE_LAVAPIPE` | tests: a missing lavapipe is a failure, not a skip |
| `QMLIR_REQUIRE_ARM` | tests: likewise a missing means to execute programs for 64-bit Arm |
| `QMLIR_REQUIRE_EMULATION` | tests: likewise a missing C compiler or emulator of AMD devices |
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Folder of the compilation cache."""
    given = os.environ.get("QMLIR_CACHE_DIR")
    if given:
        return Path(given)
    import platformdirs

    return Path(platformdirs.user_cache_dir("qmlir"))


def reproducer_folder() -> Path:
    """Folder for reproducers."""
    return Path(os.environ.get("QMLIR_REPRODUCER_DIR") or tempfile.gettempdir())


def cpus() -> list[int]:
    """The numbers of the CPUs that this process may use: its affinity mask on Linux, all CPUs on systems without one
    (macOS, Windows)."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def threads() -> int:
    """Threads of the CPU runtime, the calling one included."""
    given = os.environ.get("QMLIR_THREADS", "")
    return int(given) if given.isdigit() and int(given) > 0 else len(cpus())


def verify_iree() -> bool:
    """Whether IREE verifies the program after each of its passes; the output of qmlir's passes is always verified."""
    return os.environ.get("QMLIR_VERIFY_IREE", "") not in ("", "0")


def require_lavapipe() -> bool:
    """Tests fail instead of skipping when lavapipe is missing."""
    return os.environ.get("QMLIR_REQUIRE_LAVAPIPE", "") not in ("", "0")


def require_arm() -> bool:
    """Tests fail instead of skipping when nothing executes programs for 64-bit Arm."""
    return os.environ.get("QMLIR_REQUIRE_ARM", "") not in ("", "0")


def require_emulation() -> bool:
    """Tests fail instead of skipping when devices cannot be emulated."""
    return os.environ.get("QMLIR_REQUIRE_EMULATION", "") not in ("", "0")


def terminal() -> dict[str, str]:
    """The environment variables that let a child, whose output this process forwards, write as on the terminal."""

    if not sys.stdout.isatty():
        return {}
    size = shutil.get_terminal_size((80, 24))
    plain = {"NO_COLOR": os.environ["NO_COLOR"]} if os.environ.get("NO_COLOR") else {"FORCE_COLOR": "1"}
    return {"COLUMNS": str(size.columns), "LINES": str(size.lines), **plain}
