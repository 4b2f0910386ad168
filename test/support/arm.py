"""Run programs for 64-bit Arm: an emulator of user processes (qemu) runs a Python for Arm with IREE's runtime, which
loads the program as it would on a device. `make arm` installs both."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qmlir import settings
from qmlir.dialect.dtypes import DTYPES

PYTHON = Path(__file__).resolve().parents[2] / "build" / "arm" / "python"
_MISSING = "nothing here executes programs for Arm: make arm installs an emulator"


class Emulator:
    """An emulated process that serves a whole session of tests, because it takes seconds to start."""

    @cached_property
    def _messages(self) -> Any:
        """The standard error of the process: a file, because a pipe would fill up."""
        return tempfile.TemporaryFile("w+")

    @cached_property
    def _process(self) -> Any:
        return subprocess.Popen(
            [PYTHON, Path(__file__).with_name("arm_child.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._messages, text=True,
        )  # fmt: skip

    def run(self, artifact: Any, calls: Sequence[Sequence[Any]]) -> list[Any]:
        """Call `main` with each argument list. Returns the result of each call, a list if there are several."""
        outputs = artifact.functions["main"].outputs
        with tempfile.TemporaryDirectory(prefix="qmlir-arm-") as name:
            folder = Path(name)
            program = folder / "program.vmfb"
            program.write_bytes(artifact.vmfb)
            request: dict[str, Any] = {"program": str(program), "function": "main", "calls": [], "results": []}
            for c, arguments in enumerate(calls):
                call = []
                for i, array in enumerate(map(np.asarray, arguments)):
                    path, kind = str(folder / f"{c}_{i}.npy"), ""
                    if array.dtype.kind == "u":  # the types of a compiled program are signless
                        array = array.view(f"i{array.itemsize}")
                    elif array.dtype.isbuiltin != 1:
                        kind, array = array.dtype.name, array.view(f"u{array.itemsize}")
                    np.save(path, array)
                    call.append([path, kind])
                request["calls"].append(call)
                request["results"].append([str(folder / f"result_{c}_{i}.npy") for i in range(len(outputs))])
            self._ask(request)
            made = [
                [np.load(path).view(DTYPES[spec.dtype].numpy) for path, spec in zip(paths, outputs, strict=True)]
                for paths in request["results"]
            ]
            return [results if len(outputs) > 1 else results[0] for results in made]

    def _ask(self, request: dict[str, Any]) -> None:
        process = self._process
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().strip()
        except BrokenPipeError:
            answer = ""
        if answer != "ok":
            if not answer:  # the next test starts another process
                del self._process
                self._messages.seek(0)
                answer = f"the program ended the emulated process ({process.wait()}): {self._messages.read()}"
            raise AssertionError(answer)

    def close(self) -> None:
        if "_process" in self.__dict__:
            self._process.stdin.close()
            self._process.wait()


def require() -> None:
    """Skip the test if the emulator is missing, or fail if it is required."""
    there = PYTHON.exists() and shutil.which("qemu-aarch64")
    if not there and not settings.require_arm():
        pytest.skip(_MISSING)
    assert there, _MISSING
