"""Functions of programs on a CUDA device: torch tensors stay on the device, and any thread may call them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from ..core.cuda import context_of
from ..dialect.arrays import numpy_type, to_torch, torch_type
from ..dialect.dtypes import DTYPES, Array
from ..errors import InputError, TargetError, runtime_reason
from ..spec import Signature
from .abi import ALIGNMENT
from .function import Function, Loaded, Results
from .staging import Staging
from .transfers import Upload

if TYPE_CHECKING:
    import torch
    from iree.runtime import HalBuffer, HalBufferView, HalFence, VmFunction, VmVariantList


def on_cuda(value: object) -> TypeGuard[torch.Tensor]:
    """Whether a value is a torch tensor on a CUDA device."""
    return bool(getattr(value, "is_cuda", False)) and hasattr(value, "data_ptr")


class CudaFunction(Function):
    """A function of a program on a CUDA device."""

    def __init__(self, name: str, signature: Signature, program: Loaded, vm_function: VmFunction) -> None:
        super().__init__(name, signature, program, vm_function)
        self._cuda = context_of(program._device)
        self._ordinal = 0 if self._cuda is None else self._cuda.ordinal

    def __call__(self, *args: object) -> Any:
        """As `Function.__call__`. Torch tensors on the program's device are read in place, and if an argument is one,
        the results are tensors on that device.

        Raises:
            InputError: also for a tensor on another CUDA device.
        """
        if self._cuda is not None:
            self._cuda.enter()
        return super().__call__(*args)

    def _array(self, i: int, arg: object) -> Array | torch.Tensor:
        if not on_cuda(arg):
            return super()._array(i, arg)
        name, spec = self.signature.inputs[i]
        if arg.device.index != self._ordinal:
            raise InputError(
                f"argument {i} ({name!r}) of {self.name} is on {arg.device}, but the program runs on "
                f"cuda:{self._ordinal}: {name}.to('cuda:{self._ordinal}'), or load the program with "
                f"device='cuda://{arg.device.index}'"
            )
        if numpy_type(arg.dtype) == DTYPES[spec.dtype].numpy:
            return arg.detach().resolve_neg()
        return super()._array(i, arg)  # codes in another type than their storage type, or a wrong dtype

    def _buffer(self, i: int, array: Array | torch.Tensor, upload: Upload | None) -> HalBufferView:
        if not on_cuda(array):
            return super()._buffer(i, array, upload)
        shape, element = tuple(array.shape), self._inputs[i].element
        self._check_shape(i, shape)
        if 0 in shape:
            return self._empty(shape, element)
        import torch

        array = array.contiguous()
        if array.data_ptr() % ALIGNMENT:  # a slice of a tensor may be less aligned
            array = array.clone()
        # IREE's stream does not wait for torch's, on which the tensor may still be computed.
        torch.cuda.current_stream(array.device).synchronize()
        return self._view(self._imported(array.reshape(-1).view(torch.uint8)), shape, element)

    def _imported(self, tensor: torch.Tensor) -> HalBuffer:
        """An IREE buffer over the memory of a tensor of bytes. It keeps the tensor alive."""
        from torch.utils.dlpack import to_dlpack

        return self._device.from_dlpack_capsule(to_dlpack(tensor)).get_buffer()

    def _results(
        self, outputs: VmVariantList, args: tuple[object, ...], torch_result: bool, staging: Staging | None
    ) -> Results:
        device = next((arg.device for arg in args if on_cuda(arg)), None)
        if device is None:
            return super()._results(outputs, args, torch_result, staging)
        results: list[torch.Tensor] = []
        fences = []
        try:
            for i in range(len(self._outputs)):
                made, fence = self._tensor(outputs, i, device)
                results.append(made)
                fences.append(fence)
            for fence in fences:
                if fence is not None:
                    fence.wait()
        except RuntimeError as e:  # also raised by torch if it is out of memory
            raise TargetError(
                f"cannot make a tensor on {device} of the results of {self.name}: {runtime_reason(e)}"
            ) from None
        return results

    def _tensor(self, outputs: VmVariantList, i: int, device: torch.device) -> tuple[torch.Tensor, HalFence | None]:
        """A result as a tensor on the device, and the fence to wait for before it is read, None if there is none.

        The tensor is a copy: IREE does not export buffers of the pool that it allocates results from.
        """
        import torch

        shape, dtype, _ = self._outputs[i]
        kind = torch_type(dtype)
        view = outputs.get_as_object(i, self._view)
        if shape is None:
            shape = tuple(view.shape)
        if kind is None:
            return to_torch(self._result(outputs, i)).to(device), None
        if 0 in shape:
            return torch.empty(shape, dtype=kind, device=device), None
        source = view.get_buffer()
        memory = torch.empty(source.byte_length(), dtype=torch.uint8, device=device)
        # Torch may have allocated memory that was freed while work on its stream still uses it.
        torch.cuda.current_stream(device).synchronize()
        assert self._transfers is not None
        fence = self._transfers.copy(source, self._imported(memory))
        return memory[: view.byte_length].view(kind).reshape(shape), fence
