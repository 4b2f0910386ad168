"""torch tensors that stay on a CUDA device (runtime/cuda_function.py), which is emulated here."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from emulation.cuda_functions import W, as_on_a_device, product

import qmlir
from qmlir.core import cuda
from qmlir.dialect.arrays import numpy_type, torch_type
from qmlir.dialect.dtypes import DTYPES
from qmlir.errors import InputError, TargetError
from qmlir.runtime.cuda_function import CudaFunction


@pytest.fixture(scope="module")
def program() -> Any:
    """`x @ W` of codes on an emulated device."""
    return qmlir.load(product(), emulate=True)


class Gpu:
    """Makes torch tensors that claim to be on a CUDA device, in memory that the emulated device knows."""

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
            self.alive.append(tensor)  # so that torch does not reuse memory within a test
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
