"""The runtime's code for CUDA devices (core/cuda.py, runtime/cuda_function.py), on an emulated one."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest
from emulation.cuda_functions import product

import qmlir
from qmlir.core import cuda, hal
from qmlir.core.bindings import binding
from qmlir.core.hal import keep
from qmlir.runtime.cuda_function import CudaFunction


@pytest.fixture(scope="module")
def artifact() -> qmlir.Artifact:
    return product()


@pytest.fixture(scope="module")
def program(artifact: qmlir.Artifact) -> Any:
    """The artifact, loaded on an emulated device."""
    return qmlir.load(artifact, emulate=True)


@pytest.fixture
def device(program: Any) -> Any:
    """Another IREE device, whose pool is unchanged and whose context is current."""
    driver = binding.get_cached_hal_driver("cuda")
    made = driver.create_device(driver.query_available_devices()[0]["device_id"])
    keep(made)
    return made


def threshold(device: Any) -> int:
    """The release threshold of a device's pool."""
    library = cuda.library()
    semaphores = [device.create_semaphore(0) for _ in range(2)]
    fences = [binding.HalFence.create_at(s, i) for i, s in enumerate(semaphores)]
    buffer = device.queue_alloca(4096, *fences)
    pool = next(pool for word in cuda._words(buffer) if (pool := cuda._pool_of(library, word)))
    value = ctypes.c_uint64(1)
    library.cuMemPoolGetAttribute(ctypes.c_void_p(pool), 4, ctypes.byref(value))
    return value.value


def test_the_pool_keeps_its_memory(device: Any) -> None:
    assert cuda.keep_memory(device, cuda.library())
    assert threshold(device) == 2**64 - 1


@pytest.mark.xfail(strict=True, reason="IREE gives the memory of its pool back")
def test_without_a_threshold(device: Any) -> None:
    assert threshold(device) > 0


def test_a_library_that_is_not_as_expected_changes_nothing(device: Any) -> None:
    class Refuses:
        def cuPointerGetAttribute(self, *_: Any) -> int:
            return 1

    class Fails:
        def cuPointerGetAttribute(self, *_: Any) -> int:
            raise AttributeError("no such function")

    for library in (Refuses(), Fails()):
        assert not cuda.keep_memory(device, library)
    assert not cuda.keep_memory(object(), cuda.library())
    assert threshold(device) == 0


def test_an_object_that_is_no_buffer_is_not_looked_into() -> None:
    class Slots:
        __slots__ = ("a",)

    assert cuda._words(Slots()) == []
    assert cuda._words(1 << 100) == []


@pytest.mark.xfail(strict=True, reason="IREE's CUDA allocator frees twice what a caching allocator gives back")
def test_with_a_caching_allocator() -> None:
    driver = binding.get_cached_hal_driver("cuda")
    made = driver.create_device(driver.query_available_devices()[0]["device_id"], allocators=["caching:*=*;1mib;4"])
    keep(made)
    frees = cuda.library().emulated_stray_frees
    before = frees()
    made.allocator.allocate_buffer(int(binding.MemoryType.DEVICE_LOCAL), int(binding.BufferUsage.DEFAULT), 64)
    made.allocator.trim()
    assert frees() == before


def test_the_context_is_current_in_every_thread(device: Any) -> None:
    library = cuda.library()
    context = cuda.Context(library)
    seen: list[int | None] = []

    def look() -> None:
        for enter in (False, True):
            if enter:
                context.enter()
            found = ctypes.c_void_p()
            library.cuCtxGetCurrent(ctypes.byref(found))
            seen.append(found.value)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [None, context._handle.value]
    assert context.ordinal == 0


def test_a_context_that_is_current_is_not_set_again(device: Any) -> None:
    calls: list[str] = []

    class Library:
        def __init__(self, devices: int) -> None:
            self._devices = devices

        def cuCtxGetCurrent(self, into: Any) -> int:
            into._obj.value = 1
            return 0

        def cuCtxGetDevice(self, into: Any) -> int:
            return 0

        def cuDeviceGetCount(self, into: Any) -> int:
            into._obj.value = self._devices
            return 0

        def cuCtxSetCurrent(self, context: Any) -> int:
            calls.append("set")
            return 0

    for devices, times in ((1, 1), (2, 2)):  # with several devices, other code may have made another context current
        context = cuda.Context(Library(devices))
        calls.clear()
        context.enter()
        context.enter()
        assert len(calls) == times


def test_any_thread_loads_and_calls(
    artifact: qmlir.Artifact, program: Any, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a real device, on a second device of the emulated driver."""
    monkeypatch.setattr(hal, "is_emulated", lambda driver: False)
    monkeypatch.setitem(hal._devices, ("cuda", ""), device)
    cuda.opened(device)
    x = np.ones((2, 8), np.int8)
    with program.emulated.running():
        loaded = qmlir.load(artifact)
        assert type(loaded.main) is CudaFunction
        expected = loaded.main(x)
        made: list[Any] = []
        contexts: list[int | None] = []

        def other() -> None:
            made.append(loaded.main(x))
            found = ctypes.c_void_p()
            cuda.library().cuCtxGetCurrent(ctypes.byref(found))
            contexts.append(found.value)
            made.append(qmlir.load(artifact).main(x))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    context = cuda.context_of(device)
    assert context is not None
    assert contexts == [context._handle.value]
    assert all(np.array_equal(y, expected) for y in made)
    assert len(made) == 2
    assert threshold(device) == 2**64 - 1


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    def none() -> Any:
        raise OSError("no libcuda.so")

    monkeypatch.setattr(cuda, "library", none)
    other = object()
    cuda.opened(other)
    assert cuda.context_of(other) is None
