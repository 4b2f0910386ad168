"""The properties of the present Vulkan devices, read from the Vulkan loader through ctypes.

IREE's runtime reports only a device's name. Constants and layouts are those of the Vulkan 1.3 specification's C API.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise


@dataclass(frozen=True)
class Properties:
    """The properties of one device that compilation needs. Sizes are in bytes."""

    name: str
    subgroup: int
    subgroups: tuple[int, int]  # the smallest and the largest size that a pipeline may request
    shared_memory: int
    threads: int
    workgroup_sizes: tuple[int, int, int]
    workgroup_counts: tuple[int, int, int]
    features: frozenset[str]  # of `FEATURES`
    matrices: tuple[str, ...] = ()  # cooperative matrices of a subgroup, spelled for `gpu.parse_mma`

    def runs(self, sizes: tuple[int, ...]) -> bool:
        """Whether programs compiled for one of these subgroup sizes are correct on the device."""
        return any(self.subgroups[0] <= size <= self.subgroups[1] for size in sizes)


# Feature -> the structure that contains it (VkStructureType), and its index among the structure's flags.
_FEATURES = 1000059000
FEATURES = {
    "fp64": (_FEATURES, 39),
    "int64": (_FEATURES, 40),
    "int16": (_FEATURES, 41),
    "8-bit storage": (1000177000, 0),
    "fp16": (1000082000, 0),
    "int8": (1000082000, 1),
    "int8 dot product": (1000280000, 0),
    "cooperative matrix": (1000506000, 0),
}
# VkComponentTypeKHR, for the types that programs have.
_COMPONENTS = {0: "F16", 1: "F32", 3: "I8", 5: "I32"}
_SUBGROUP = 3  # VkScopeKHR


class _ApplicationInfo(c.Structure):
    _fields_ = (
        ("type", c.c_uint32), ("next", c.c_void_p), ("name", c.c_char_p), ("version", c.c_uint32),
        ("engine", c.c_char_p), ("engine_version", c.c_uint32), ("api", c.c_uint32),
    )  # fmt: skip


class _InstanceInfo(c.Structure):
    _fields_ = (
        ("type", c.c_uint32), ("next", c.c_void_p), ("flags", c.c_uint32), ("application", c.c_void_p),
        ("layers", c.c_uint32), ("layer_names", c.c_void_p), ("extensions", c.c_uint32), ("names", c.c_void_p),
    )  # fmt: skip


class _Limits(c.Structure):
    """VkPhysicalDeviceLimits: the fields that are read, in a structure of its size."""

    _fields_ = (
        ("images", c.c_uint32 * 11), ("granularity", c.c_uint64), ("sparse", c.c_uint64), ("others", c.c_uint32 * 38),
        ("shared_memory", c.c_uint32), ("counts", c.c_uint32 * 3), ("threads", c.c_uint32), ("sizes", c.c_uint32 * 3),
        ("rest", c.c_uint64 * 32),
    )  # fmt: skip


class _Properties2(c.Structure):
    _fields_ = (
        ("type", c.c_uint32), ("next", c.c_void_p), ("numbers", c.c_uint32 * 5), ("name", c.c_char * 256),
        ("cache", c.c_uint8 * 16), ("limits", _Limits), ("sparse", c.c_uint32 * 5), ("spare", c.c_uint64 * 8),
    )  # fmt: skip


class _Matrix(c.Structure):
    """VkCooperativeMatrixPropertiesKHR."""

    _fields_ = (
        ("type", c.c_uint32), ("next", c.c_void_p), ("m", c.c_uint32), ("n", c.c_uint32), ("k", c.c_uint32),
        ("components", c.c_uint32 * 4), ("saturates", c.c_uint32), ("scope", c.c_uint32),
    )  # fmt: skip


class _Chained(c.Structure):
    """Any structure of a chain whose members are 32-bit integers."""

    _fields_ = (("type", c.c_uint32), ("next", c.c_void_p), ("values", c.c_uint32 * 64))


def _chain(types: tuple[int, ...]) -> list[_Chained]:
    links = [_Chained(type=t) for t in types]
    for link, following in pairwise(links):
        link.next = c.addressof(following)
    return links


def _matrices(vulkan: c.CDLL, instance: c.c_void_p, device: c.c_void_p) -> tuple[str, ...]:
    """The cooperative matrices, of types that programs have, of a device with that feature."""
    find = vulkan.vkGetInstanceProcAddr
    find.restype, find.argtypes = c.c_void_p, [c.c_void_p, c.c_char_p]
    address = find(instance, b"vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR")
    if not address:
        return ()
    ask = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(c.c_uint32), c.POINTER(_Matrix))(address)
    count = c.c_uint32()
    ask(device, c.byref(count), None)
    found = (_Matrix * count.value)(*[_Matrix(type=1000506001) for _ in range(count.value)])
    ask(device, c.byref(count), found)
    names = []
    for matrix in found[: count.value]:
        *types, result = (_COMPONENTS.get(t) for t in matrix.components)
        usable = None not in types and result == types[2] and not matrix.saturates and matrix.scope == _SUBGROUP
        if usable and types[0] == types[1]:
            names.append(f"KHR_{types[2]}_{matrix.m}x{matrix.n}x{matrix.k}_{types[0]}")
    return tuple(names)


def _properties_of(vulkan: c.CDLL, instance: c.c_void_p, device: c.c_void_p) -> Properties:
    subgroup, control = _chain((1000094000, 1000225000))
    base = _Properties2(type=1000059001, next=c.addressof(subgroup))
    vulkan.vkGetPhysicalDeviceProperties2(device, c.byref(base))
    chain = _chain(tuple(dict.fromkeys(kind for kind, _ in FEATURES.values())))
    vulkan.vkGetPhysicalDeviceFeatures2(device, c.byref(chain[0]))
    flags = {link.type: link.values for link in chain}
    size = int(subgroup.values[0])
    least, most = int(control.values[0]) or size, int(control.values[1]) or size
    limits = base.limits
    has = frozenset(name for name, (kind, at) in FEATURES.items() if flags[kind][at])
    x, y, z = (int(n) for n in limits.sizes)
    i, j, k = (min(int(n), 2**31 - 1) for n in limits.counts)
    return Properties(
        name=bytes(base.name).decode(errors="replace"),
        subgroup=size,
        subgroups=(least, most),
        shared_memory=int(limits.shared_memory),
        threads=int(limits.threads),
        workgroup_sizes=(x, y, z),
        workgroup_counts=(i, j, k),
        features=has,
        matrices=_matrices(vulkan, instance, device) if "cooperative matrix" in has else (),
    )


def _all_properties() -> Iterator[Properties]:
    vulkan = c.CDLL("libvulkan.so.1")
    application = _ApplicationInfo(type=0, api=(1 << 22) | (3 << 12))
    info = _InstanceInfo(type=1, application=c.addressof(application))
    instance = c.c_void_p()
    if vulkan.vkCreateInstance(c.byref(info), None, c.byref(instance)):
        return
    try:
        count = c.c_uint32()
        vulkan.vkEnumeratePhysicalDevices(instance, c.byref(count), None)
        found = (c.c_void_p * count.value)()
        vulkan.vkEnumeratePhysicalDevices(instance, c.byref(count), found)
        for device in found[: count.value]:
            yield _properties_of(vulkan, instance, c.c_void_p(device))
    finally:
        vulkan.vkDestroyInstance(instance, None)


@cache
def properties() -> tuple[Properties, ...]:
    """The properties of every present device; () without a Vulkan loader or driver."""
    try:
        return tuple(_all_properties())
    except (OSError, AttributeError):
        return ()


def of(name: str) -> Properties | None:
    """The properties of the present device with this name; None if there is none."""
    return next((p for p in properties() if p.name == name), None)
