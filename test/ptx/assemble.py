"""Run ptxas, NVIDIA's assembler, on PTX. It comes with the package nvidia-cuda-nvcc-cu12 and needs no GPU."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """The resources of one entry: registers per thread, the rest in bytes."""

    entry: str
    registers: int
    shared: int  # static only, without the dynamic size that a launch requests
    stack: int
    spill_stores: int
    spill_loads: int


class AssemblerError(Exception):
    """ptxas refuses the text."""


def ptxas() -> Path:
    """Return the path of ptxas. Raises AssemblerError."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        tool = Path(folder) / "cuda_nvcc" / "bin" / "ptxas"
        if tool.exists():
            return tool
    found = shutil.which("ptxas")
    if found is None:
        raise AssemblerError("no ptxas: pip install nvidia-cuda-nvcc-cu12")
    return Path(found)


def assemble(text: str, arch: str | None = None) -> list[Usage]:
    """Assemble for `arch` (default: the target that the text names) and return the resources of each entry.

    Raises:
        AssemblerError: with ptxas's message.
    """
    target = arch or (re.search(r"^\.target\s+(\w+)", text, re.MULTILINE) or [""] * 2)[1]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(text)
        command = [ptxas(), f"-arch={target}", "-v", source, "-o", Path(folder, "kernel.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssemblerError(done.stderr or done.stdout)
    return [_usage(part) for part in done.stderr.split("Compiling entry function ")[1:]]


def _usage(text: str) -> Usage:
    def number(pattern: str) -> int:
        found = re.search(pattern, text)
        return int(found.group(1)) if found else 0

    name = re.match(r"'([^']+)'", text)
    return Usage(
        name.group(1) if name else "",
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes smem"),
        number(r"(\d+) bytes stack frame"),
        number(r"(\d+) bytes spill stores"),
        number(r"(\d+) bytes spill loads"),
    )
