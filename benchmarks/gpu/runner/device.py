"""A device of IREE's runtime and programs loaded on it."""

from __future__ import annotations

import importlib.util
import lzma
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

# dtype -> the runtime's element type, and the numpy type for its bits.
DTYPES = {
    "i8": ("INT_8", np.int8), "u8": ("INT_8", np.uint8), "i16": ("INT_16", np.int16), "u16": ("INT_16", np.uint16),
    "i32": ("INT_32", np.int32), "u32": ("INT_32", np.uint32), "i64": ("INT_64", np.int64),
    "bool": ("BOOL_8", np.bool_),
    "f64": ("FLOAT_64", np.float64), "f32": ("FLOAT_32", np.float32), "f16": ("FLOAT_16", np.float16),
    "bf16": ("BFLOAT_16", np.uint16), "e4m3": ("FLOAT_8_E4M3_FN", np.uint8), "e5m2": ("FLOAT_8_E5M2", np.uint8),
    "e4m3fnuz": ("FLOAT_8_E4M3_FNUZ", np.uint8), "e5m2fnuz": ("FLOAT_8_E5M2_FNUZ", np.uint8),
    "e8m0": ("FLOAT_8_E8M0_FNU", np.uint8),
}  # fmt: skip


class NoDevice(Exception):
    """There is no such driver, or it has no device."""


def find_runtime(folder: Path) -> str:
    """Make iree.runtime importable, from the folder's wheel if it is not installed. Returns a text that says which."""
    where = "installed"
    if importlib.util.find_spec("iree") is None or importlib.util.find_spec("iree.runtime") is None:
        wheels = sorted((folder / "wheels").glob("iree_base_runtime-*.whl"))
        if not wheels:
            raise SystemExit("iree-base-runtime is not installed, and wheels/ is empty: pip install iree-base-runtime")
        site = folder / "site"
        if not site.exists():
            with zipfile.ZipFile(wheels[0]) as wheel:
                wheel.extractall(site)
        sys.path.insert(0, str(site))
        importlib.invalidate_caches()
        where = wheels[0].name
    return f"iree-base-runtime: {where}"


def binding() -> Any:
    from iree.runtime import _binding

    return _binding


def read_program(file: Path, draw: list[list[int]], seed: int) -> Any:
    """The module of a file, with random bytes in place of its large constants."""
    data = bytearray(lzma.decompress(file.read_bytes()))
    random = np.random.default_rng(seed)
    for start, length in draw:
        data[start : start + length] = random.bytes(length)
    b = binding()
    return b.VmModule.copy_buffer(b.VmInstance(), bytes(data))


class Device:
    """The first device of a driver."""

    def __init__(self, driver: str) -> None:
        b = binding()
        self.driver = driver
        try:
            self.hal = b.get_cached_hal_driver(driver).create_default_device()
        except Exception as e:
            raise NoDevice(str(e).splitlines()[0] if str(e) else type(e).__name__) from None
        if driver == "cuda":  # as qmlir.load opens it
            from core.cuda import opened

            opened(self.hal)
        self.instance = b.VmInstance()
        self.module = b.create_hal_module(self.instance, self.hal)
        mapped = int(b.BufferUsage.MAPPING) if driver.startswith("local") else 0
        self.usage = int(b.BufferUsage.DEFAULT) | mapped

    def load(self, file: Path, draw: list[list[int]], seed: int = 0) -> Program:
        data = bytearray(lzma.decompress(file.read_bytes()))
        random = np.random.default_rng(seed)
        for start, length in draw:
            data[start : start + length] = random.bytes(length)
        return Program(self, bytes(data))

    def buffer(self, array: Any, dtype: str) -> Any:
        """A buffer on the device with the bits of an array."""
        b = binding()
        element = int(getattr(b.HalElementType, DTYPES[dtype][0]))
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        memory = int(b.MemoryType.DEVICE_LOCAL)
        return self.hal.allocator.allocate_buffer_copy(memory, self.usage, self.hal, array, element)


class Program:
    """The function `main` of a program."""

    def __init__(self, device: Device, vmfb: bytes) -> None:
        b = binding()
        self.device = device
        module = b.VmModule.copy_buffer(device.instance, vmfb)
        self.context = b.VmContext(device.instance, modules=[device.module, module])
        self.main = module.lookup_function("main")

    def call(self, buffers: list[Any], results: int) -> Any:
        """Runs the program and waits for its results, which are returned as a list of the runtime."""
        b = binding()
        inputs, outputs = b.VmVariantList(len(buffers)), b.VmVariantList(results)
        for buffer in buffers:
            inputs.push_ref(buffer)
        self.context.invoke(self.main, inputs, outputs)
        return outputs

    def call_arrays(self, arrays: list[tuple[Any, str]], outputs: list[str]) -> list[Any]:
        """The results as numpy arrays."""
        made = self.call([self.device.buffer(a, dtype) for a, dtype in arrays], len(outputs))
        return [self._array(made, i, dtype) for i, dtype in enumerate(outputs)]

    def _array(self, results: Any, i: int, dtype: str) -> Any:
        b = binding()
        view = results.get_as_object(i, b.HalBufferView)
        shape, kind = tuple(view.shape), np.dtype(DTYPES[dtype][1])
        if self.device.driver.startswith("local"):
            return np.array(view.map().asarray(shape, kind))
        source = view.get_buffer()
        staging = self.device.hal.allocator.allocate_buffer(
            int(b.MemoryType.HOST_LOCAL) | int(b.MemoryType.DEVICE_VISIBLE),
            int(b.BufferUsage.TRANSFER_TARGET) | int(b.BufferUsage.MAPPING_SCOPED),
            source.byte_length(),
        )
        semaphore = self.device.hal.create_semaphore(0)
        done = b.HalFence.create_at(semaphore, 1)
        self.device.hal.queue_copy(
            source, staging, wait_semaphores=b.HalFence.create_at(semaphore, 0), signal_semaphores=done
        )
        done.wait()
        return np.array(staging.map().asarray(shape, kind))
