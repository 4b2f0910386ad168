"""numpy arguments and results on a device with separate memory (runtime/transfers.py), which is emulated here."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from emulation.cuda_functions import W, as_on_a_device, product

import qmlir
from qmlir.errors import InputError, TargetError
from qmlir.runtime.function import Function
from qmlir.runtime.transfers import Kept, Pool, Transfers, rounded, transfers


@pytest.fixture(scope="module")
def program() -> Any:
    """`x @ W` of codes on an emulated device."""
    return qmlir.load(product(), emulate=True)


@pytest.fixture
def device(program: Any) -> Any:
    """IREE's device."""
    return program._device


def test_arguments_and_results_take_memory_that_was_used_before(program: Any) -> None:
    main = as_on_a_device(program)
    x = np.ones((3, 8), np.int8)
    kept = []
    with program.emulated.running():
        for factor in (1, 2, 3):
            y = main(x * np.int8(factor))
            kept.append((y, factor))
            if factor == 1:
                idle = transfers(program._device, "cuda")
                buffers = {id(k) for pool in (idle._host, idle._own) for k in pool._idle}
    assert {id(k) for pool in (idle._host, idle._own) for k in pool._idle} == buffers
    for y, factor in kept:  # no result is overwritten by a later one
        assert np.array_equal(y, factor * np.ones((3, 8), np.int32) @ W)


def test_arguments_that_are_strided_empty_or_refused(program: Any) -> None:
    main = as_on_a_device(program)
    wide = np.arange(32, dtype=np.int8).reshape(2, 16)
    with program.emulated.running():
        assert np.array_equal(main(wide[:, ::2]), wide[:, ::2].astype(np.int32) @ W)
        assert main(np.zeros((0, 8), np.int8)).shape == (0, 8)
        with pytest.raises(InputError, match=r"argument 0 .* must be .* but has shape \[2, 7\]"):
            main(np.zeros((2, 7), np.int8))
        with pytest.raises(InputError, match="but has dtype f32"):
            main(np.zeros((2, 8), np.float32))


def test_so_they_do_on_hip() -> None:
    pytest.importorskip("tinygrad")  # not available for Python 3.10
    made = qmlir.ops.scaled_matmul.compile(qmlir.TensorSpec((3, 8), "i8"), W, out_dtype="i32", target="rocm:gfx942")
    program = qmlir.load(made, emulate=True)
    main = Function("main", program.main.signature, program, program.main._function)
    assert program.emulated is not None
    with program.emulated.running():
        for factor in (1, 2):
            x = factor * np.ones((3, 8), np.int8)
            assert np.array_equal(main(x), x.astype(np.int32) @ W)
    idle = transfers(program._device, "hip")
    assert [len(pool._idle) for pool in (idle._host, idle._own)] == [2, 1]


def test_memory_is_given_back_when_there_is_none(device: Any) -> None:
    copies = Transfers(device, shares=True)
    kept = copies._own.take(256)
    copies._own.give(kept)
    asked: list[int] = []

    def make(size: int) -> Kept:
        asked.append(len(copies._own._idle))
        if copies._own._idle:
            raise RuntimeError("RESOURCE_EXHAUSTED; out of memory")
        return Kept(None, size)

    copies._host._make = make
    assert copies._take(copies._host, 512).size == 512
    assert asked == [1, 0]


def test_a_pool_keeps_so_many_bytes_and_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(lambda size: Kept(object(), size))
    monkeypatch.setattr("qmlir.runtime.transfers._MOST_BYTES", 1000)
    monkeypatch.setattr("qmlir.runtime.transfers._MOST_BUFFERS", 3)
    for size in (600, 300, 300):
        pool.give(Kept(None, size))
    assert [k.size for k in pool._idle] == [300, 300]
    for size in (100, 100):
        pool.give(Kept(None, size))
    assert [k.size for k in pool._idle] == [300, 100, 100]
    assert pool.take(300).size == 300
    assert [k.size for k in pool._idle] == [100, 100]


@pytest.mark.parametrize("size", [1, 255, 256, 257, 4095, 4097, 1 << 20, (1 << 20) + 1, 123_456_789])
def test_sizes_are_rounded(size: int) -> None:
    assert size <= rounded(size) <= size + max(size // 8, 256)
    assert rounded(rounded(size)) == rounded(size)


# ------------------------------------------------------------------------------------------------------------ errors


NO_MEMORY = "CUDA driver error 'CUDA_ERROR_OUT_OF_MEMORY' (2): out of memory"


class Exhausted:
    """A device or an allocator without memory."""

    def __getattr__(self, name: str) -> Any:
        def fail(*_: Any, **__: Any) -> Any:
            raise RuntimeError(f"cuda_allocator.c:1: RESOURCE_EXHAUSTED; {NO_MEMORY};")

        return fail


@pytest.mark.parametrize(
    ("method", "where"),
    [
        ("_take", "cannot copy argument 0 ('lhs': i8[M, 8], 32 bytes) of main to the device of cuda"),
        ("download", "cannot copy result 0 of main from the device"),
    ],
)
def test_no_memory(program: Any, monkeypatch: pytest.MonkeyPatch, method: str, where: str) -> None:
    main = as_on_a_device(program)
    monkeypatch.setattr(main._transfers, method, getattr(Exhausted(), method))
    with program.emulated.running(), pytest.raises(TargetError, match=re.escape(f"{where}: {NO_MEMORY}")):
        main(np.ones((4, 8), np.int8))


def test_a_device_that_fails_is_no_fault_of_the_arguments(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    main = as_on_a_device(program)
    monkeypatch.setattr(main, "_context", Exhausted())
    with program.emulated.running(), pytest.raises(TargetError, match=re.escape(f"main failed: {NO_MEMORY}")):
        main(np.ones((4, 8), np.int8))


def test_idle_buffers_are_given_up_for_a_call(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    main = as_on_a_device(program)
    x = np.ones((4, 8), np.int8)
    context, failures = main._context, 1

    class Full:
        def invoke(self, *args: Any) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise RuntimeError(f"x.c:1: RESOURCE_EXHAUSTED; {NO_MEMORY};")
            context.invoke(*args)

    with program.emulated.running():
        expected = main(x)
        monkeypatch.setattr(main, "_context", Full())
        assert np.array_equal(main(x), expected)
        failures = 2
        with pytest.raises(TargetError, match=re.escape(f"main failed: {NO_MEMORY}")):
            main(x)
