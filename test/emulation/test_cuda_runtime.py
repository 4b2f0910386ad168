"""What the runtime does for CUDA devices (core/cuda.py, runtime/cuda_function.py), on an emulated one."""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir.core import cuda, hal
from qmlir.core.hal import binding, keep
from qmlir.dialect.arrays import numpy_type, torch_type
from qmlir.dialect.dtypes import DTYPES
from qmlir.errors import InputError, TargetError
from qmlir.runtime.cuda_function import CudaFunction
from qmlir.runtime.function import Function
from qmlir.runtime.transfers import Kept, Pool, Transfers, rounded, transfers

W = np.arange(64, dtype=np.int8).reshape(8, 8)


@pytest.fixture(scope="module")
def artifact() -> qmlir.Artifact:
    """`x @ W` of codes, for sm_80."""
    return qmlir.ops.scaled_matmul.compile(qmlir.TensorSpec((None, 8), "i8"), W, out_dtype="i32", target="cuda:sm_80")


@pytest.fixture(scope="module")
def program(artifact: qmlir.Artifact) -> Any:
    """It on an emulated device."""
    return qmlir.load(artifact, emulate=True)


@pytest.fixture
def device(program: Any) -> Iterator[Any]:
    """Another device of IREE's, whose pool nobody has changed; its context is current."""
    driver = binding().get_cached_hal_driver("cuda")
    made = driver.create_device(driver.query_available_devices()[0]["device_id"])
    keep(made)
    return made


def threshold(device: Any) -> int:
    """The release threshold of a device's pool."""
    library = cuda.library()
    semaphores = [device.create_semaphore(0) for _ in range(2)]
    fences = [binding().HalFence.create_at(s, i) for i, s in enumerate(semaphores)]
    buffer = device.queue_alloca(4096, *fences)
    pool = next(pool for word in cuda._words(buffer) if (pool := cuda._pool_of(library, word)))
    value = ctypes.c_uint64(1)
    library.cuMemPoolGetAttribute(ctypes.c_void_p(pool), 4, ctypes.byref(value))
    return value.value


def test_the_pool_keeps_its_memory(device: Any) -> None:
    assert cuda.keep_memory(device, binding(), cuda.library())
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
        assert not cuda.keep_memory(device, binding(), library)
    assert not cuda.keep_memory(object(), binding(), cuda.library())
    assert threshold(device) == 0


def test_an_object_that_is_no_buffer_is_not_looked_into() -> None:
    class Slots:
        __slots__ = ("a",)

    assert cuda._words(Slots()) == []
    assert cuda._words(1 << 100) == []


@pytest.mark.xfail(strict=True, reason="IREE's CUDA allocator frees twice what a caching allocator gives back")
def test_with_a_caching_allocator() -> None:
    b = binding()
    driver = b.get_cached_hal_driver("cuda")
    made = driver.create_device(driver.query_available_devices()[0]["device_id"], allocators=["caching:*=*;1mib;4"])
    keep(made)
    frees = cuda.library().emulated_stray_frees
    before = frees()
    made.allocator.allocate_buffer(int(b.MemoryType.DEVICE_LOCAL), int(b.BufferUsage.DEFAULT), 64)
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

    for devices, times in ((1, 1), (2, 2)):  # with several, others may have made another one current
        context = cuda.Context(Library(devices))
        calls.clear()
        context.enter()
        context.enter()
        assert len(calls) == times


def test_any_thread_loads_and_calls(
    artifact: qmlir.Artifact, program: Any, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a real device does, on another one of the emulated driver."""
    monkeypatch.setattr(hal, "is_emulated", lambda driver: False)
    monkeypatch.setitem(hal._devices, ("cuda", ""), device)
    cuda.opened(device, binding())
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
    cuda.opened(other, binding())
    assert cuda.context_of(other) is None


# ------------------------------------------------------------------------------------- arguments and results in numpy


def as_on_a_device(program: Any) -> CudaFunction:
    """The function `main` of an emulated program, as it is on a real device."""
    main = program.functions["main"]
    return CudaFunction("main", main.signature, program, main._function)


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
    for y, factor in kept:  # none is overwritten by a later one
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
    pytest.importorskip("tinygrad")  # which Python 3.10 does not have
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


def test_no_memory_for_an_argument(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    main = as_on_a_device(program)
    monkeypatch.setattr(main._transfers, "_take", Exhausted().take)
    where = "cannot copy argument 0 ('lhs': i8[M, 8], 32 bytes) of main to the device of cuda"
    with program.emulated.running(), pytest.raises(TargetError, match=re.escape(f"{where}: {NO_MEMORY}")):
        main(np.ones((4, 8), np.int8))


def test_no_memory_for_a_result(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    main = as_on_a_device(program)
    monkeypatch.setattr(main._transfers, "download", Exhausted().download)
    where = "cannot copy result 0 of main from the device"
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


# ------------------------------------------------------------------------------------------------- tensors of torch


class Gpu:
    """Tensors of torch that say that they are on CUDA devices, in memory that the emulated device knows."""

    def __init__(self, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synchronised = 0
        self.ordinal = 0
        registered: set[int] = set()
        register = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)()
        cuda.library().cuGetProcAddress(b"cuMemHostRegister", ctypes.byref(register), 12000, ctypes.c_uint64(0))
        gpu = self

        class Tensor(torch.Tensor):  # type: ignore[misc]
            __module__ = "torch"
            is_cuda = True

            @property
            def device(self) -> Any:
                return torch.device("cuda", gpu.ordinal)

        class Stream:
            def synchronize(self) -> None:
                gpu.synchronised += 1

        imported, empty = CudaFunction._imported, torch.empty

        def registering(function: Any, tensor: Any) -> Any:
            if tensor.data_ptr() not in registered:
                registered.add(tensor.data_ptr())
                register(tensor.data_ptr(), tensor.nbytes, 0)
            self.alive.append(tensor)  # torch gives no memory of a test out twice
            return imported(function, tensor)

        self.alive: list[Any] = []
        self._tensor = Tensor
        self._empty = empty
        monkeypatch.setattr(CudaFunction, "_imported", registering)
        monkeypatch.setattr(torch, "empty", lambda *a, device, **k: empty(*a, **k).as_subclass(Tensor))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())

    def __call__(self, tensor: Any) -> Any:
        made = tensor.as_subclass(self._tensor)
        self.alive.append(made)
        return made


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, program: Any) -> Gpu:
    return Gpu(pytest.importorskip("torch"), monkeypatch)


def test_tensors_stay_on_the_device(program: Any, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    main = as_on_a_device(program)
    monkeypatch.setattr(main._transfers, "_take", lambda *_: pytest.fail("copied through the host"))
    x = gpu(torch.arange(24, dtype=torch.int8).reshape(3, 8))
    with program.emulated.running():
        y = main(x)
    assert y.is_cuda
    assert y.dtype == torch.int32
    assert np.array_equal(y.numpy(), np.arange(24, dtype=np.int32).reshape(3, 8) @ W)
    assert gpu.synchronised == 2  # before the argument is read, and before the result is written


def test_tensors_that_are_strided_or_start_anywhere(program: Any, gpu: Gpu) -> None:
    import torch

    main = as_on_a_device(program)
    many = torch.arange(96, dtype=torch.int8)
    with program.emulated.running():
        for tensor in (many.reshape(6, 16)[:, ::2], many[8:88].reshape(10, 8), many.reshape(8, 12).T[:, :]):
            expected = tensor.numpy().astype(np.int32) @ W
            assert np.array_equal(main(gpu(tensor)).numpy(), expected)
        assert tuple(main(gpu(many[:0].reshape(0, 8))).shape) == (0, 8)


def test_a_tensor_of_another_type_goes_through_the_host(program: Any, gpu: Gpu) -> None:
    import torch

    main = as_on_a_device(program)
    with program.emulated.running(), pytest.raises(InputError, match=r"must be i8\[M, 8\], but has dtype f32"):
        main(gpu(torch.ones(2, 8)))


def test_a_tensor_of_another_shape(program: Any, gpu: Gpu) -> None:
    import torch

    main = as_on_a_device(program)
    with program.emulated.running(), pytest.raises(InputError, match=r"must be i8\[M, 8\], but has shape \[2, 9\]"):
        main(gpu(torch.ones(2, 9, dtype=torch.int8)))


def test_a_tensor_on_another_device(program: Any, gpu: Gpu) -> None:
    import torch

    main = as_on_a_device(program)
    gpu.ordinal = 1
    with program.emulated.running(), pytest.raises(
        InputError,
        match=r"argument 0 \('lhs'\) of main is on cuda:1, but the program runs on cuda:0: lhs.to\('cuda:0'\), or load "
        r"the program with device='cuda://1'",
    ):  # fmt: skip
        main(gpu(torch.ones(2, 8, dtype=torch.int8)))


def test_a_tensor_without_memory_for_its_result(program: Any, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    main = as_on_a_device(program)
    x = gpu(torch.ones(2, 8, dtype=torch.int8))

    def none(*_: Any, **__: Any) -> Any:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    monkeypatch.setattr(torch, "empty", none)
    with program.emulated.running(), pytest.raises(
        TargetError, match=r"cannot make a tensor on cuda:0 of the results of main: CUDA out of memory\. Tried"
    ):  # fmt: skip
        main(x)


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "e4m3", "e5m2", "e8m0", "bool", "i16", "u16", "i64"])
def test_types_of_torch_and_numpy(name: str) -> None:
    pytest.importorskip("torch")
    numpy = DTYPES[name].numpy
    found = torch_type(numpy)
    assert found is not None
    assert numpy_type(found) == numpy
