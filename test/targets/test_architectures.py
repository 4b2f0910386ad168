"""Programs for an architecture other than the present device's."""

from __future__ import annotations

import re

import numpy as np
import pytest

import qmlir
from qmlir.errors import TargetError
from qmlir.targets.base import Device
from qmlir.targets.devices import other_architecture

H100 = Device("cuda", 0, "NVIDIA H100", "sm_90")


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_89", "cuda:sm_90", "cuda:sm_90a"])
def test_what_a_device_runs(target: str) -> None:
    assert other_architecture(target, H100) == ""


@pytest.mark.parametrize(
    ("target", "device", "said"),
    [
        ("cuda:sm_120", H100, "cuda://0 is NVIDIA H100 (compute capability 9.0): compile it for cuda:sm_90a"),
        ("cuda:sm_120a", H100, "cuda://0 is NVIDIA H100 (compute capability 9.0): compile it for cuda:sm_90a"),
        (
            "cuda:sm_90a",  # an `a` architecture runs on its own devices only, not on newer ones
            Device("cuda", 1, "NVIDIA GeForce RTX 5090", "sm_120"),
            "cuda://1 is NVIDIA GeForce RTX 5090 (compute capability 12.0): compile it for cuda:sm_120a",
        ),
        (
            "cuda:sm_80",
            Device("cuda", 0, "Tesla T4", "sm_75"),
            "cuda://0 is Tesla T4 (compute capability 7.5): no target of cuda is for this device",
        ),
        (
            "rocm:gfx90a",
            Device("hip", 0, "AMD Instinct MI300X", "gfx942"),
            "hip://0 is AMD Instinct MI300X (gfx942): compile it for rocm:gfx942",
        ),
    ],
)
def test_what_it_does_not_run(target: str, device: Device, said: str) -> None:
    assert other_architecture(target, device) == f"the device {said}"


def test_a_device_that_does_not_say_what_it_is() -> None:
    assert other_architecture("cuda:sm_120", Device("cuda", 0, "something", "")) == ""


def test_it_is_said_before_the_program_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's own message says only that a PTX JIT compilation failed."""
    made = qmlir.ops.scaled_matmul.compile(
        qmlir.TensorSpec((2, 8), "i8"), np.eye(8, dtype=np.int8), out_dtype="i32", target="cuda:sm_120"
    )
    monkeypatch.setattr("qmlir.runtime.program.devices", lambda driver: (H100,))
    said = re.escape(f"the program was compiled for cuda:sm_120, but {other_architecture('cuda:sm_120', H100)}")
    for device in (None, "cuda", "cuda://0"):
        with pytest.raises(TargetError, match=said):
            qmlir.load(made, device=device)
    # It is not known which device `GPU-0` is; another test of this process may emulate the driver.
    with pytest.raises(TargetError, match=r"no device for the driver 'cuda'|process emulates the driver"):
        qmlir.load(made, device="cuda://GPU-0")
