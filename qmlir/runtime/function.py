"""Calls functions of a loaded program: puts arguments into device buffers, and makes arrays of the results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from ..core.bindings import binding
from ..core.drivers import driver_named
from ..core.hal import forks
from ..dialect.arrays import is_torch, to_numpy, to_torch
from ..dialect.dtypes import DTYPES, Array, NumpyType, from_numpy, is_sub_byte, restored, stored_codes
from ..errors import InputError, TargetError, runtime_reason
from ..spec import Signature, TensorSpec
from .manifest import Manifest
from .transfers import Upload, transfers

if TYPE_CHECKING:
    import torch
    from iree.runtime import HalBufferView, HalDevice, VmContext, VmFunction, VmVariantList

    from ..emulation.program import Emulated

# The message of passes/core/lower/blocks.py about ids; a program cannot put the value into its message.
_OUTSIDE = re.compile(r"an id of (\w+) \(argument (\d+)\) is outside \[0, (\d+)\)")


def with_position(reason: str, args: tuple[object, ...]) -> str:
    """`reason`, with the position and value of the first id outside its range if the arguments contain one."""
    found = _OUTSIDE.search(reason)
    if found is None or int(found[2]) >= len(args):
        return reason
    ids = to_numpy(args[int(found[2])], found[1])
    bad = np.argwhere((ids < 0) | (ids >= int(found[3])))
    if not len(bad):
        return reason
    position = tuple(bad[0].tolist())
    place_text = f"{found[1]}[{', '.join(map(str, position))}] = {ids[position]} is outside [0, {found[3]})"
    return reason.replace(found[0], place_text)


# Messages of IREE for a device that fails, as opposed to values that the program refuses.
_NO_MEMORY = "RESOURCE_EXHAUSTED"
_DEVICE_FAILURE = re.compile(rf"{_NO_MEMORY}|\b(CUDA|HIP) driver error|\bCUDA_ERROR_|\bhipError|\bVK_ERROR_")

_LEAST_ZERO_COPY = 8 << 10  # bytes: to copy a smaller argument takes less time than to wrap it


Results: TypeAlias = "Sequence[Array] | Sequence[torch.Tensor]"


class Loaded(Protocol):
    """The members of a loaded program that calls of its functions need."""

    manifest: Manifest
    emulated: Emulated | None
    device_driver: str
    _context: VmContext
    _device: HalDevice
    _forks: int

    def _load_again(self) -> None: ...


class Function:
    """A function of a loaded program."""

    def __init__(self, name: str, signature: Signature, program: Loaded, vm_function: VmFunction) -> None:
        self.name, self.signature = name, signature
        self._program, self._function = program, vm_function
        self._context, self._device = program._context, program._device
        self._allocator = program._device.allocator
        self._list, self._view = binding.VmVariantList, binding.HalBufferView
        self._memory = int(binding.MemoryType.DEVICE_LOCAL)
        local = driver_named(program.device_driver).local
        self._usage = int(binding.BufferUsage.DEFAULT) | (int(binding.BufferUsage.MAPPING) if local else 0)
        # The properties of arguments and results that every call needs, computed once.
        self._inputs = [_input(spec) for _, spec in signature.inputs]
        self._outputs = [_output(spec) for spec in signature.outputs]
        self._same = tuple(
            (a.argument, a.axis, a.other, a.other_axis, None if a.size.plain else a.size) for a in signature.agreements
        )
        self._ranges = tuple((r.argument, r.slices, r.least, r.most) for r in signature.ranges)
        self._limits = tuple((x.argument, x.axis, x) for x in signature.limits)
        self._multiples = signature.multiples
        self._transfers = None if local else transfers(program._device, program.device_driver)
        self._zero_copy = frozenset(program.manifest.zero_copy.get(name, ()) if local else ())
        self.__doc__ = f"{name}{signature}"

    def __repr__(self) -> str:
        return f"<qmlir function {self.name}{self.signature}>"

    def __call__(self, *args: object) -> Any:
        """Call with numpy arrays, torch tensors or anything with `__dlpack__`; results are torch tensors if an
        argument is one, otherwise numpy arrays.

        Raises:
            InputError: wrong count, shape or dtype, with the argument's name; or values that the program refuses.
            TargetError: the device fails, or has too little memory; or this process is the child of a fork, and the
                program has state and worker threads.
        """
        if len(args) != len(self._inputs):
            names = ", ".join(f"{n}: {s}" for n, s in self.signature.inputs)
            raise InputError(f"{self.name} takes {len(self._inputs)} arguments ({names}), but got {len(args)}")
        if self._program._forks != forks():
            self._program._load_again()
        inputs = self._list(len(args))
        upload = None if self._transfers is None else Upload()
        torch_result = False
        arrays: list[Array] = []
        for i, arg in enumerate(args):
            if type(arg) is not np.ndarray:
                torch_result = torch_result or is_torch(arg)
                arg = self._array(i, arg)
            arrays.append(arg)
            try:
                inputs.push_ref(self._buffer(i, arg, upload))
            except RuntimeError as e:
                raise self._not_copied(i, arg, e) from None
        for one, axis, other, other_axis, size in self._same:
            wanted = arrays[one].shape[axis]
            if arrays[other].shape[other_axis] != (wanted if size is None else size.of(wanted)):
                raise self._disagreement(arrays)
        for one, axis, limit in self._limits:
            if not limit.holds(arrays[one].shape[axis]):
                raise self._beyond(arrays)
        for one, axis, size in self._multiples:
            if not size.can_be(arrays[one].shape[axis]):
                raise self._beyond(arrays)
        for one, part, least, most in self._ranges:
            numbers = arrays[one][part] if part else arrays[one]
            if 0 not in numbers.shape and (numbers.min() < least or numbers.max() > most):
                raise self._outside(arrays)
        outputs = self._list(len(self._outputs))
        try:
            if upload is not None:
                upload.wait()
            self._context.invoke(self._function, inputs, outputs)
        except (RuntimeError, ValueError) as e:
            outputs = self._retry(e, args, inputs)
        results = self._results(outputs, args, torch_result)
        if upload is not None and self._transfers is not None:
            self._transfers.give_back(upload, everything=not self._program.manifest.has_state)
        return results[0] if len(results) == 1 else tuple(results)

    def _retry(self, e: Exception, args: tuple[object, ...], inputs: VmVariantList) -> VmVariantList:
        """The results of a second attempt if a device without memory has idle buffers; otherwise raise the error."""
        full = _NO_MEMORY in str(e) and not self._program.manifest.has_state
        if full and self._transfers is not None and self._transfers.clear():
            outputs = self._list(len(self._outputs))
            try:
                self._context.invoke(self._function, inputs, outputs)
                return outputs
            except (RuntimeError, ValueError) as second:
                e = second
        reason = f"{self.name} failed: {with_position(runtime_reason(e), args)}"
        raise (TargetError if _DEVICE_FAILURE.search(str(e)) else InputError)(reason) from None

    def _array(self, i: int, arg: object) -> Array:
        """An argument that is not a numpy array in the form that `_buffer` takes."""
        return to_numpy(arg, self.signature.inputs[i][0])

    def _results(self, outputs: VmVariantList, args: tuple[object, ...], torch_result: bool) -> Results:
        """The results as arrays, or as torch tensors if `torch_result`."""
        results = [self._result(outputs, i) for i in range(len(self._outputs))]
        if len(results) > 1 and self._transfers is None:
            _unshare(results)
        return [to_torch(r) for r in results] if torch_result else results

    def _not_copied(self, i: int, array: Array, e: RuntimeError) -> TargetError:
        """The error for an argument that cannot be copied to the device."""
        name, spec = self.signature.inputs[i]
        return TargetError(
            f"cannot copy argument {i} ({name!r}: {spec}, {array.nbytes:,} bytes) of {self.name} to the device of "
            f"{self._program.device_driver}: {runtime_reason(e)}"
        )

    def _disagreement(self, arrays: Sequence[Array]) -> InputError:
        """The error for the first two arguments whose sizes must agree and do not."""
        names = [name for name, _ in self.signature.inputs]
        for a in self.signature.agreements:
            has, known = arrays[a.other].shape, arrays[a.argument].shape
            if has[a.other_axis] != (wanted := a.size.of(known[a.axis])):
                form = "" if a.size.plain else f", {a.size} with"
                return InputError(
                    f"argument {a.other} ({names[a.other]!r}) of {self.name} must be "
                    f"{self.signature.inputs[a.other][1]}, but has shape {shape_text(has)}: axis {a.other_axis} has "
                    f"{has[a.other_axis]} elements and must have {wanted}{form}, as axis {a.axis} of argument "
                    f"{a.argument} ({names[a.argument]!r}: {shape_text(known)})"
                )
        raise AssertionError("every agreement holds")

    def _beyond(self, arrays: Sequence[Array]) -> InputError:
        """The error for the first argument with a size that the program is not compiled for."""
        limits = [(x.argument, x.axis, x.holds, str(x)) for x in self.signature.limits]
        multiples = [(i, axis, size.can_be, str(size)) for i, axis, size in self.signature.multiples]
        for i, axis, allowed, text in (*limits, *multiples):
            has = arrays[i].shape
            if not allowed(has[axis]):
                name, spec = self.signature.inputs[i]
                return InputError(
                    f"argument {i} ({name!r}: {spec}) of {self.name} has shape {shape_text(has)}: axis {axis} has "
                    f"{has[axis]} elements, and the program is for {text}"
                )
        raise AssertionError("the program is for every size")

    def _outside(self, arrays: Sequence[Array]) -> InputError:
        """The error for the first value that is outside of the table that it indexes."""
        for r in self.signature.ranges:
            numbers = to_numpy(arrays[r.argument], self.signature.inputs[r.argument][0])
            part = numbers[r.slices]
            bad = np.argwhere((part < r.least) | (part > r.most))
            if len(bad):
                starts = [s.start or 0 for s in r.slices] or [0] * numbers.ndim
                at = tuple(int(b) + s for b, s in zip(bad[0], starts, strict=True))
                name, spec = self.signature.inputs[r.argument]
                place = f"{name}[{', '.join(map(str, at))}]" if at else name
                return InputError(
                    f"argument {r.argument} ({name!r}: {spec}) of {self.name} holds {place} = {numbers[at]}, which is "
                    f"outside of [{r.least}, {r.most}]: {self.signature.numbers(r)} is an index into a table"
                )
        raise AssertionError("every number is in its range")

    def _buffer(self, i: int, array: Array, upload: Upload | None) -> HalBufferView:
        """A device buffer with the argument's data, checked against the signature."""
        want, shape, element, _, _ = self._inputs[i]
        if array.shape == shape and array.dtype == want and array.flags.c_contiguous:  # most arguments
            if i in self._zero_copy and array.nbytes >= _LEAST_ZERO_COPY and array.flags.writeable:
                lent = self._allocator.import_host_allocation(array, self._memory, self._usage)
                return self._view(lent, shape, element)
            return self._copied(array, element, upload)
        if array.dtype != want:
            dtype = self.signature.inputs[i][1].dtype
            array = restored(array, dtype)
            if is_sub_byte(array.dtype) and from_numpy(array.dtype) == dtype:
                array = stored_codes(array)
        if array.dtype != want:
            raise self._refused(i, f"dtype {_dtype_name(array.dtype)}")
        self._check_shape(i, array.shape)
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        if want.kind == "V" or want.name not in _PLAIN:
            array = array.view(f"u{want.itemsize}")  # numpy arrays of small floats do not support the buffer protocol
        if array.size == 0:
            return self._empty(array.shape, element)
        return self._copied(array, element, upload)

    def _check_shape(self, i: int, sizes: tuple[int, ...]) -> None:
        _, _, _, rank, fixed = self._inputs[i]
        if len(sizes) != rank or any(sizes[axis] != size for axis, size in fixed):
            raise self._refused(i, f"shape {shape_text(sizes)}")

    def _copied(self, array: Array, element: int, upload: Upload | None) -> HalBufferView:
        if upload is None or self._transfers is None or not self._transfers.shares:
            return self._allocator.allocate_buffer_copy(self._memory, self._usage, self._device, array, element)
        return self._view(self._transfers.upload(array, upload), array.shape, element)

    def _refused(self, i: int, has: str) -> InputError:
        name, spec = self.signature.inputs[i]
        return InputError(f"argument {i} ({name!r}) of {self.name} must be {spec}, but has {has}")

    def _empty(self, shape: tuple[int, ...], element: int) -> HalBufferView:
        buffer = self._allocator.allocate_buffer(self._memory, self._usage, 1)
        return self._view(buffer, list(shape), element)

    def _result(self, outputs: VmVariantList, i: int) -> Array:
        shape, dtype, raw = self._outputs[i]
        view = outputs.get_as_object(i, self._view)
        if shape is None:
            shape = tuple(view.shape)
        if 0 in shape:
            return np.zeros(shape, dtype)
        if self._transfers is None:
            array = np.ndarray(shape, raw, view.map())  # views of the array keep the mapping alive too
        else:
            try:
                array = self._transfers.download(view.get_buffer(), shape, raw)
            except RuntimeError as e:
                raise TargetError(
                    f"cannot copy result {i} of {self.name} from the device: {runtime_reason(e)}"
                ) from None
        return array if raw is dtype else array.view(dtype)


class EmulatedFunction(Function):
    """A function of a program on an emulated device."""

    def __call__(self, *args: object) -> Any:
        """As `Function.__call__`.

        Raises:
            EmulationError: a kernel has a fault, such as an access out of bounds, or the device would refuse it.
        """
        call = super().__call__
        with self._emulated.running():
            return self._emulated.driver.interruptible(lambda: call(*args))

    @property
    def _emulated(self) -> Emulated:
        found = self._program.emulated
        assert found is not None
        return found

    def _buffer(self, i: int, array: Array, upload: Upload | None) -> HalBufferView:
        view = super()._buffer(i, array, upload)
        name, spec = self.signature.inputs[i]
        self._emulated.driver.name_allocation(name, spec.dtype, tuple(view.shape), self._inputs[i][0].itemsize)
        return view

    def _copied(self, array: Array, element: int, upload: Upload | None) -> HalBufferView:
        return super()._copied(array, element, None)  # in new memory, so that reads of unwritten bytes are noticed

    def _result(self, outputs: VmVariantList, i: int) -> Array:
        found = super()._result(outputs, i)
        dtype = self.signature.outputs[i].dtype
        self._emulated.driver.check_read(f"result {i} of {self.name}", dtype, found.shape, found.itemsize)
        return found


_Input = tuple[NumpyType, tuple[int, ...] | None, int, int, tuple[tuple[int, int], ...]]


def _input(spec: TensorSpec) -> _Input:
    """The dtype, the one shape whose arrays need no conversion (None if there is no such shape), the HAL's element
    type, the rank, and the static axes with their sizes."""
    want = DTYPES[spec.dtype].numpy
    fixed = tuple((axis, size) for axis, size in enumerate(spec.shape) if size is not None)
    shape = tuple(size for _, size in fixed)
    easy = want.name in _PLAIN and len(shape) == spec.rank and 0 not in shape
    return want, shape if easy else None, _element_type(spec.dtype), spec.rank, fixed


def shape_text(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _output(spec: TensorSpec) -> tuple[tuple[int, ...] | None, NumpyType, NumpyType]:
    """The shape (None if some size is dynamic), the dtype, and the dtype of `_PLAIN` as which its bits are read."""
    dtype = DTYPES[spec.dtype].numpy
    static = tuple(s for s in spec.shape if s is not None)
    return (
        static if len(static) == len(spec.shape) else None,
        dtype,
        dtype if dtype.name in _PLAIN else np.dtype(f"u{dtype.itemsize}"),
    )


# numpy types that the runtime's bindings accept by the buffer protocol.
_PLAIN = frozenset({"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float16", "float32", "float64"})

_ELEMENT = {
    "i16": "SINT_16", "u16": "UINT_16", "i32": "SINT_32", "u32": "UINT_32", "i64": "SINT_64", "bool": "BOOL_8",
    "f32": "FLOAT_32", "f64": "FLOAT_64", "f16": "FLOAT_16", "bf16": "BFLOAT_16",
    "e4m3": "FLOAT_8_E4M3_FN", "e5m2": "FLOAT_8_E5M2",
    "e4m3fnuz": "FLOAT_8_E4M3_FNUZ", "e5m2fnuz": "FLOAT_8_E5M2_FNUZ", "e8m0": "FLOAT_8_E8M0_FNU",
}  # fmt: skip


def _element_type(dtype: str) -> int:
    """The HAL element type of a dtype. IREE's programs have signless integers, and accept signed and unsigned ones."""
    name = _ELEMENT.get(dtype, "INT_8")
    if name.startswith(("SINT", "UINT")):
        name = name[1:]
    return int(getattr(binding.HalElementType, name))


def _unshare(results: list[Array]) -> None:
    """Copy results that share a buffer, so that writing to one does not change another. IREE returns one buffer for
    equal results."""
    seen: set[int] = set()
    for i, array in enumerate(results):
        address = array.ctypes.data
        if array.size and address in seen:
            results[i] = array.copy()
        else:
            seen.add(address)


def _dtype_name(dtype: NumpyType) -> str:
    try:
        return from_numpy(dtype)
    except KeyError:
        return str(dtype)
