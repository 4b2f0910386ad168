"""Calls functions of a loaded program: puts arguments into device buffers, and makes arrays of the results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from ..core.bindings import binding
from ..core.drivers import driver_named
from ..core.hal import gone
from ..dialect.arrays import is_torch, to_numpy, to_torch
from ..dialect.dtypes import Array, NumpyType, from_numpy, is_sub_byte, restored, stored_codes
from ..errors import InputError, TargetError
from ..spec import Signature
from .abi import Input, Output
from .manifest import Manifest
from .staging import LEAST_IN_PLACE, Staging, writable
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


Results: TypeAlias = "Sequence[Array] | Sequence[torch.Tensor]"


class Loaded(Protocol):
    """The members of a loaded program that calls of its functions need."""

    manifest: Manifest
    emulated: Emulated | None
    device_driver: str
    _context: VmContext
    _device: HalDevice
    _gone: int

    def _again(self, name: str) -> Function: ...

    def _failure(self, e: Exception) -> str: ...


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
        self._inputs = [Input.of(spec) for _, spec in signature.inputs]
        self._outputs = [Output.of(spec) for spec in signature.outputs]
        self._same = tuple(
            (a.argument, a.axis, a.other, a.other_axis, None if a.size.plain else a.size) for a in signature.agreements
        )
        self._ranges = tuple((r.argument, r.slices, r.least, r.most) for r in signature.ranges)
        self._limits = tuple((x.argument, x.axis, x) for x in signature.limits)
        self._multiples = signature.multiples
        self._transfers = None if local else transfers(program._device, program.device_driver)
        # Arguments that built-in kernels read at any alignment. IREE's own code needs more, and may write to others.
        self._zero_copy = frozenset(program.manifest.zero_copy.get(name, ()) if local else ())
        # A program with state may keep an argument.
        staged = local and not program.manifest.has_state
        staged = staged and all(Staging.takes(x, in_place=i in self._zero_copy) for i, x in enumerate(self._inputs))
        # Shapes and dtypes of the arguments, if all are small.
        self._staged = [(given.shape, given.dtype) for given in self._inputs] if staged else None
        self._stagings: list[Staging] = []  # those that no call uses
        self.__doc__ = f"{name}{signature}"

    def __repr__(self) -> str:
        return f"<qmlir function {self.name}{self.signature}>"

    def __call__(self, *args: object) -> Any:
        """Call with numpy arrays, torch tensors or anything with `__dlpack__`; results are torch tensors if an
        argument is one, otherwise numpy arrays.

        Raises:
            InputError: wrong count, shape or dtype, with the argument's name; or values that the program refuses.
            TargetError: the device fails, or has too little memory; or the program has state, and its device was lost
                in an earlier call, or has worker threads that this process, the child of a fork, does not have.
        """
        if len(args) != len(self._inputs):
            names = ", ".join(f"{n}: {s}" for n, s in self.signature.inputs)
            raise InputError(f"{self.name} takes {len(self._inputs)} arguments ({names}), but got {len(args)}")
        if self._program._gone != gone():
            return self._program._again(self.name)(*args)
        torch_result = False
        arrays: list[Array] = []
        for i, arg in enumerate(args):
            if type(arg) is not np.ndarray:
                torch_result = torch_result or is_torch(arg)
                arg = self._array(i, arg)
            arrays.append(arg)
        upload = None if self._transfers is None else Upload()
        staging = self._staging(arrays)
        inputs = self._buffers(arrays, upload) if staging is None else staging.inputs
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
        results = self._results(outputs, args, torch_result, staging)
        if staging is not None:
            self._stagings.append(staging)
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
        reason = f"{self.name} failed: {with_position(self._program._failure(e), args)}"
        raise (TargetError if _DEVICE_FAILURE.search(str(e)) else InputError)(reason) from None

    def _array(self, i: int, arg: object) -> Array:
        """An argument that is not a numpy array in the form that `_buffer` takes."""
        return to_numpy(arg, self.signature.inputs[i][0])

    def _results(
        self, outputs: VmVariantList, args: tuple[object, ...], torch_result: bool, staging: Staging | None
    ) -> Results:
        """The results as arrays, or as torch tensors if `torch_result`. None is a view of an argument."""
        results = [self._result(outputs, i) for i in range(len(self._outputs))]
        if staging is not None:
            results = [np.array(r) if np.may_share_memory(r, staging.memory) else r for r in results]
        if len(results) > 1 and self._transfers is None:
            _unshare(results)
        return [to_torch(r) for r in results] if torch_result else results

    def _not_copied(self, i: int, array: Array, e: RuntimeError) -> TargetError:
        """The error for an argument that cannot be copied to the device."""
        name, spec = self.signature.inputs[i]
        return TargetError(
            f"cannot copy argument {i} ({name!r}: {spec}, {array.nbytes:,} bytes) of {self.name} to the device of "
            f"{self._program.device_driver}: {self._program._failure(e)}"
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

    def _staging(self, arrays: Sequence[Array]) -> Staging | None:
        """Kept memory with copies of the arguments; None if one of them needs a conversion or is read in place."""
        if self._staged is None:
            return None
        for array, (shape, dtype) in zip(arrays, self._staged, strict=True):
            if array.shape != shape or array.dtype != dtype:
                return None
        try:
            found = self._stagings.pop()
        except IndexError:
            found = Staging(self._device, self._memory, self._usage, self._inputs)
        found.fill(arrays)
        return found

    def _buffers(self, arrays: Sequence[Array], upload: Upload | None) -> VmVariantList:
        """Device buffers with the arguments' data, checked against the signature."""
        inputs = self._list(len(arrays))
        for i, array in enumerate(arrays):
            try:
                inputs.push_ref(self._buffer(i, array, upload))
            except RuntimeError as e:
                raise self._not_copied(i, array, e) from None
        return inputs

    def _buffer(self, i: int, array: Array, upload: Upload | None) -> HalBufferView:
        given = self._inputs[i]
        # IREE's view of a buffer does not keep the array alive; the caller does so with the arrays that it has.
        in_place = i in self._zero_copy and array.nbytes >= LEAST_IN_PLACE
        if array.dtype != given.dtype or not given.plain or not array.flags.c_contiguous:
            array, in_place = self._converted(i, array), False
        if array.shape != given.shape:
            self._check_shape(i, array.shape)
        if array.size == 0:
            return self._empty(array.shape, given.element)
        if in_place:
            lent = self._allocator.import_host_allocation(writable(array), self._memory, self._usage)
            return self._view(lent, array.shape, given.element)
        return self._copied(array, given.element, upload)

    def _converted(self, i: int, array: Array) -> Array:
        """The argument as a contiguous array of a type that the runtime's bindings accept."""
        want, dtype = self._inputs[i].dtype, self.signature.inputs[i][1].dtype
        if array.dtype != want:
            array = restored(array, dtype)
            if is_sub_byte(array.dtype) and from_numpy(array.dtype) == dtype:
                array = stored_codes(array)
        if array.dtype != want:
            raise self._refused(i, f"dtype {_dtype_name(array.dtype)}")
        if not array.flags.c_contiguous:
            self._check_shape(i, array.shape)
            array = np.ascontiguousarray(array)
        return array if self._inputs[i].plain else array.view(f"u{want.itemsize}")

    def _check_shape(self, i: int, sizes: tuple[int, ...]) -> None:
        given = self._inputs[i]
        if len(sizes) != given.rank or any(sizes[axis] != size for axis, size in given.fixed):
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
                reason = self._program._failure(e)
                raise TargetError(f"cannot copy result {i} of {self.name} from the device: {reason}") from None
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
        self._emulated.driver.name_allocation(name, spec.dtype, tuple(view.shape), self._inputs[i].dtype.itemsize)
        return view

    def _copied(self, array: Array, element: int, upload: Upload | None) -> HalBufferView:
        return super()._copied(array, element, None)  # in new memory, so that reads of unwritten bytes are noticed

    def _result(self, outputs: VmVariantList, i: int) -> Array:
        found = super()._result(outputs, i)
        dtype = self.signature.outputs[i].dtype
        self._emulated.driver.check_read(f"result {i} of {self.name}", dtype, found.shape, found.itemsize)
        return found


def shape_text(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


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
