"""The process that opens saved programs: it has no compiler, its errors come back, and it is started again."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

import qmlir
from conformance import opened as module
from conformance.opened import Died, inspected, opened
from qmlir.errors import InputError, UsageError

T = qmlir.TensorSpec


@pytest.fixture(scope="module")
def artifact() -> qmlir.Artifact:
    weight = np.eye(8, dtype=np.int8)
    return qmlir.ops.scaled_matmul.compile(T((None, 8), "i8"), weight, out_dtype="bf16")


def test_results_and_errors_come_back(artifact: qmlir.Artifact) -> None:
    x = np.arange(16, dtype=np.int8).reshape(2, 8)
    program = opened(artifact)
    assert program.main(x).dtype.name == "bfloat16"
    np.testing.assert_array_equal(program.main(x).astype(np.int8), x)
    with pytest.raises(InputError, match=r"argument 0 .* must be i8\[M, 8\], but has shape \[2, 7\]"):
        program.main(x[:, :7])
    with pytest.raises(UsageError, match="loads no parameters of scope 'w'"):
        opened(artifact, parameters={"w": "nowhere"})
    assert artifact.path is None
    assert inspected(artifact)["target"] == "cpu"


def test_it_is_started_again_after_a_crash(artifact: qmlir.Artifact) -> None:
    program = opened(artifact)
    process = module._SERVER._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with pytest.raises(Died, match="the process that had opened the program ended"):
        program.main(np.ones((1, 8), np.int8))
    assert opened(artifact).main(np.ones((1, 8), np.int8)).shape == (1, 8)
