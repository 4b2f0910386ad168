"""What is used of the runtime by its public name."""

from ._binding import (
    HalBuffer as HalBuffer,
    HalBufferView as HalBufferView,
    HalDevice as HalDevice,
    HalDriver as HalDriver,
    HalFence as HalFence,
    MappedMemory as MappedMemory,
    ParameterIndex as ParameterIndex,
    ParameterIndexEntry as ParameterIndexEntry,
    ParameterProvider as ParameterProvider,
    VmContext as VmContext,
    VmFunction as VmFunction,
    VmInstance as VmInstance,
    VmModule as VmModule,
    VmVariantList as VmVariantList,
)

def get_driver(device_uri: str) -> HalDriver: ...
