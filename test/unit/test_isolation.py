"""Compilation in a child process from Python."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

import qmlir
from qmlir.core.isolation import ProcessLimits, in_fork
from qmlir.errors import CompileError, Diagnostic, FrontEndError, UsageError

SUM = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def test_crash_is_an_exception() -> None:
    with pytest.raises(CompileError, match=r"crashed \(SIGFPE\)"):
        in_fork(lambda: os.kill(os.getpid(), signal.SIGFPE) or b"", ProcessLimits())  # type: ignore[func-returns-value]


def test_time_is_bounded() -> None:
    with pytest.raises(CompileError, match=r"did not finish in 0\.2 s"):
        in_fork(lambda: time.sleep(60) or b"", ProcessLimits(seconds=0.2))  # type: ignore[func-returns-value]


def test_memory_is_bounded() -> None:
    with pytest.raises(CompileError, match=r"more memory than 0\.0625 GiB"):
        in_fork(lambda: bytes(1 << 30), ProcessLimits(memory=1 << 26))


def test_errors_are_those_of_the_compiler() -> None:
    def fail() -> bytes:
        raise FrontEndError([Diagnostic("what", "where")], "headline:")

    with pytest.raises(FrontEndError, match="headline:\nwhere: error: what") as caught:
        in_fork(fail, ProcessLimits())
    assert caught.value.diagnostics == [Diagnostic("what", "where")]


def test_compile_isolated() -> None:
    artifact = qmlir.compile(SUM, cache=False, isolated=True, timeout=600)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(qmlir.load(artifact).main(x), x + x)


@pytest.mark.parametrize("limit", [{"timeout": 0}, {"timeout": -1.0}, {"memory": 0}])
def test_limits_are_positive(limit: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="must be more than 0"):
        qmlir.compile(SUM, **limit)  # type: ignore[arg-type]
