"""The device code of compiled programs as text."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from ..errors import UsageError
from .device_code import OPCODES, assembly_parts, spirv_instructions

# Extensions of the files that IREE dumps: the IR of each dispatch, and each kind of device code.
_DEVICE_CODE = {"dispatch": (".mlir",), "asm": (".s",), "ptx": (".ptx",), "isa": (".rocmasm", ".s"), "spirv": (".spv",)}

_EXECUTABLE = re.compile(r"^hal\.executable \w+ @(\w+)", re.M)


def device_code(folder: Path, kind: str, dispatch: str | None = None) -> str:
    """The text of the dumped executables of one kind, or of the one dispatch whose name is, or contains, `dispatch`.

    Raises:
        UsageError: there are no files of the kind, or not exactly one such dispatch.
    """
    found = sorted((p for p in folder.iterdir() if p.suffix in _DEVICE_CODE[kind]), key=_numbered)
    if not found:
        have = ", ".join(sorted({p.suffix for p in folder.iterdir()})) or "none"
        raise UsageError(f"this target makes no {kind} (its files: {have})")
    texts = {p.stem: _disassemble(p) if p.suffix == ".spv" else p.read_text(errors="replace") for p in found}
    if dispatch is None:
        return "\n".join(texts.values())
    if kind == "dispatch":  # file names begin with the module's name
        texts = {m[1] if (m := _EXECUTABLE.search(text)) else name: text for name, text in texts.items()}
    elif kind in ("asm", "ptx", "isa"):
        texts = {name: part for text in texts.values() for name, part in assembly_parts(text)}
    fitting = [n for n in texts if n == dispatch] or [n for n in texts if dispatch in n]
    if len(fitting) != 1:
        what = "several dispatches are" if fitting else "no dispatch is"
        # A CPU's file also contains the functions of the library that is linked in.
        own = [n for n in texts if re.search(r"_(dispatch|product|encoding|initializer|hoisted)_", n)]
        names = "".join(f"\n  {n}" for n in fitting or own or texts)
        raise UsageError(f"{what} called {dispatch!r}:{names}")
    return texts[fitting[0]]


def _numbered(path: Path) -> list[tuple[int, str]]:
    """A sort key that puts dispatch_2 before dispatch_10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", path.name)]


def _disassemble(path: Path) -> str:
    """SPIR-V as text: from spirv-dis if it is installed and supports the module's extensions (Debian 12's does not
    support cooperative matrices), otherwise as a listing of opcodes and words."""

    tool = shutil.which("spirv-dis")
    if tool is not None:
        done = subprocess.run([tool, str(path)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout
    return spirv_listing(path.read_bytes())


def spirv_listing(data: bytes) -> str:
    """One line per instruction: its opcode's name or number, and its operand words."""
    lines = (
        f"{OPCODES.get(opcode, f'Op{opcode}')} {' '.join(map(str, words))}".rstrip()
        for opcode, words in spirv_instructions(data)
    )
    return "\n".join(lines)
