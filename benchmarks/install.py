"""The disk space of installed packages, each without its dependencies.

    python -m benchmarks.install [PACKAGE ...]

Installs each package alone into a temporary folder, from the registry that pip is configured for.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (str(ROOT), "iree-base-compiler==3.13.0", "iree-base-runtime==3.13.0", "numpy",
            "onnxruntime", "torch==2.13.0", "torchao", "bitblas", "amd-aiter")  # fmt: skip


def megabytes(package: str) -> float | None:
    """The size of the installed files in MB (10^6 bytes), or None if pip cannot install the package."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                   "--no-compile", "--target", folder, package]  # fmt: skip
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
        return sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file()) / 1e6


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "packages", nargs="*", metavar="PACKAGE", default=list(PACKAGES), help="default: qmlir and peers"
    )
    for package in parser.parse_args(argv).packages:
        size = megabytes(package)
        print(
            f"{'qmlir' if package == str(ROOT) else package:28} {'-' if size is None else f'{size:7.0f} MB'}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
