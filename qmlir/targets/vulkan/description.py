"""Descriptions of devices that are used through Vulkan.

Every description has `dot = dp4xi8toi32` and the device's own subgroup size: if either is missing or wrong, IREE 3.13
compiles int8 programs to silently wrong results. The default of its flag is therefore never used. The size of shared
memory is the one that drivers report (`maxComputeSharedMemorySize`): 48 KiB on NVIDIA, less than CUDA has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ...errors import TargetError
from ...ir.barriers import Reason
from ..base import COMPILED, EXPAND_FUNCTIONS, FLOAT8, INDEX_SUMS, MEASURED, PRESENT, RUNS, Device, Target, decode_pass
from ..capabilities import Capabilities, Peak
from ..cuda.description import ADA, AMPERE
from ..gpu import Gpu, parse_mma
from ..rocm.description import RDNA3, RDNA4
from . import properties
from .properties import Properties

# What NVIDIA's driver lists for i8 from Turing on.
_NVIDIA_INT8 = "KHR_I32_16x16x32_I8"
_AMPERE = (*AMPERE, _NVIDIA_INT8)
_TURING = tuple(kind for kind in _AMPERE if "BF16" not in kind)
_ADA = (*ADA, _NVIDIA_INT8)
# Battlemage and Lunar Lake, as Mesa's driver ANV lists them (`CMAT_XE2_CONFIGURATIONS` in
# src/intel/dev/intel_device_info.c), in subgroups of 16: the instruction behind them (DPAS) has 16 lanes.
_XE2 = ("KHR_I32_8x16x32_I8", "KHR_F32_8x16x16_F16", "KHR_F16_8x16x16_F16", "KHR_F32_8x16x16_BF16")
_AMD_WGP = (
    "max_load_instruction_bits = 128, simds_per_wgp = 4, vgpr_space_bits = 8192, workgroup_memory_bank_count = 64"
)
# No i4: IREE's i4 matmul does not compile to SPIR-V; codes are unpacked from bytes beforehand.
_DTYPES = ("i8", "i16", "i32", "f16", "f32", *FLOAT8)


def _vulkan(
    name: str,
    summary: str,
    arch: str,
    subgroups: tuple[int, ...],
    shared_kib: int,
    mma: tuple[str, ...] = (),
    *,
    status: str = COMPILED,
    compute: str = "fp64|fp32|fp16|int64|int32|int16|int8",
    threads: int = 1024,
    counts: tuple[int, int, int] = (2147483647, 65535, 65535),
    sizes: tuple[int, int, int] | None = None,
    extra: str = "",
    peak: Peak | None = None,
    loop_limit: int | None = None,
    of_present: bool = False,
) -> Target:
    gpu = Gpu(
        device="vulkan",
        executable='"vulkan-spirv", "vulkan-spirv-fb"',
        arch=arch,
        features="spirv:v1.6,cap:Shader",
        subgroup_sizes=subgroups,
        shared_memory=shared_kib * 1024,
        mma=_listed(mma),
        compute=compute,
        threads=threads,
        workgroup_sizes=sizes or (threads, threads, threads),
        workgroup_counts=counts,
        wgp_extra=extra,
    )
    return Target(
        backend="vulkan",
        name=name,
        driver="vulkan",
        of_present=of_present,
        barriers=(Reason.COMPARED, Reason.INDEXED_READS, Reason.ONE_ROW, Reason.POOLED, Reason.SMALL_GATHER),
        passes=(
            "inline",
            f"qmlir-row-kernels{{target=vulkan:{name}}}",
            "qmlir-exact-divisions",  # before functions are expanded to formulas that divide
            f"{EXPAND_FUNCTIONS}{{exp=true double=false}}",
            decode_pass(),
            INDEX_SUMS,
            *(() if loop_limit is None else ("qmlir-cut-loops",)),
            "qmlir-order-loops",
            "qmlir-split-broadcast",
            "qmlir-explicit-sign",
            "qmlir-store-slices",
            "qmlir-store-constants",
            "qmlir-bf16-as-bits",
            "qmlir-guard-empty",
        ),
        source_passes=("qmlir-record-copies",),
        code_passes=("qmlir-coherent-buffers", *(("qmlir-sign-matrix-sums",) if mma else ())),
        summary=summary,
        status=status,
        device_attribute=gpu.attribute(),
        capabilities=Capabilities(
            _DTYPES,
            int8_dot=True,
            mma=mma,
            subgroup_sizes=subgroups,
            shared_memory=gpu.shared_memory,
            loop_limit=loop_limit,
            peak=peak,
        ),
    )


# Mesa's llvmpipe, which lavapipe uses, leaves a loop after this many iterations (LP_MAX_TGSI_LOOP_ITERATIONS).
_LLVMPIPE_LOOP = 65535


def known_to_iree(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """The cooperative matrices that IREE's own route may use.

    For f16 matrices IREE 3.13 converts the operands to f32 before it multiplies, and no device offers f32 matrices; of
    the other kinds it knows only the names of RDNA's.
    """
    return tuple(kind for kind in kinds if kind.startswith("WMMA") and parse_mma(kind).lhs == "i8")


def _listed(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """The cooperative matrices that IREE's target attribute lists. If IREE may use none of the device's, it is one with
    types that no program has, which tells IREE that the built-in kernels may use cooperative matrices."""
    return known_to_iree(kinds) or (("NV_MMA_SYNC_F32_16x8x32_F8E4M3FN",) if kinds else ())


_AMD_COUNTS = (2147483647, 2147483647, 2147483647)
# Figures as in the tables of the vendors' own backends. NVIDIA's int8 is lowered to the dot product instruction here,
# whose rate the whitepapers do not state, so only f16 has a figure.
_RTX2080TI = Peak("RTX 2080 Ti", (("f16", 53.8e12),), 616e9, units=68)  # Turing whitepaper, appendix A
_RTX3090 = Peak("RTX 3090", (("f16", 71e12),), 936e9, units=82)
_RTX4090 = Peak("RTX 4090", (("f16", 165.2e12),), 1008e9, units=128)
_H200 = Peak("H200", (("f16", 989.4e12),), 4800e9, units=132)
_RX7900 = Peak("RX 7900 XTX", (("f16", 122.8e12), ("i8", 122.8e12)), 960e9, units=96)
_RX9070 = Peak("RX 9070 XT", (("f16", 194.6e12), ("i8", 389.1e12)), 640e9, units=64)
_B580 = Peak("Arc B580", (("f16", 116.5e12), ("i8", 233e12)), 456e9, units=20)  # Intel's product page

TARGETS: tuple[Target, ...] = (
    _vulkan(
        "lavapipe",
        "Mesa's Vulkan on the CPU",
        "lavapipe",
        (8,),
        32,
        status=RUNS,
        counts=(65535, 65535, 65535),
        loop_limit=_LLVMPIPE_LOOP,
    ),
    _vulkan("turing", "NVIDIA RTX 20, GTX 16, T4", "sm_75", (32,), 48, _TURING, peak=_RTX2080TI),
    _vulkan("ampere", "NVIDIA RTX 30, A10, A100", "sm_80", (32,), 48, _AMPERE, peak=_RTX3090),
    _vulkan("ada", "NVIDIA RTX 40, L4, L40", "sm_89", (32,), 48, _ADA, peak=_RTX4090),
    _vulkan("hopper", "NVIDIA H100, H200", "sm_90", (32,), 48, _ADA, peak=_H200, status=MEASURED),
    _vulkan(
        "rdna3",
        "AMD RX 7000",
        "rdna3",
        (32, 64),
        64,
        RDNA3,
        counts=_AMD_COUNTS,
        extra=_AMD_WGP,
        peak=_RX7900,
    ),
    _vulkan(
        "rdna4",
        "AMD RX 9000",
        "rdna4",
        (32, 64),
        64,
        RDNA4,
        counts=_AMD_COUNTS,
        extra=_AMD_WGP,
        peak=_RX9070,
    ),
    # Newer versions of ANV offer 128 KiB of shared memory and more (`intel_device_info_get_max_slm_size`).
    _vulkan(
        "xe2",
        "Intel Arc B-series, Lunar Lake",
        "xe2",
        (16,),
        64,
        _XE2,
        counts=(65535, 65535, 65535),
        peak=_B580,
    ),
    _vulkan(
        "valhall4",
        "Arm Mali-G615, G715 and variants",
        "valhall4",
        (16,),
        32,
        compute="fp32|fp16|int32|int16|int8",
        threads=512,
        counts=(65535, 65535, 65535),
    ),
)

# The driver's name of a device -> the description. Proprietary drivers give the product's name, Mesa
# the chip's in brackets ("AMD Radeon RX 7900 XTX (RADV NAVI31)").
_NAMES: tuple[tuple[str, str], ...] = (
    ("lavapipe", r"llvmpipe|lavapipe"),
    ("turing", r"NVIDIA.*(RTX 20\d0|GTX 16\d0|TITAN RTX|\bT4\b|Quadro RTX|T[12]?000\b)"),
    ("ampere", r"NVIDIA.*(RTX 30\d0|RTX A\d{4}|\bA(2|10|16|30|40|100)\b)"),
    ("ada", r"NVIDIA.*(RTX 40\d0|\bL(4|20|40S?)\b|\bAda\b)"),
    ("hopper", r"NVIDIA.*\b(G?H(20|100|200|800))\b"),
    ("rdna3", r"RX 7[6-9]\d0|NAVI3\d|GFX110\d|PRO W7\d00"),
    ("rdna4", r"RX 90\d0|NAVI4\d|GFX120\d|AI PRO R9\d00"),
    ("xe2", r"Arc.*\bB\d{2,3}\b|Arc.*\b1[34]0V\b|\((BMG|LNL)\b"),
    ("valhall4", r"Mali-G(615|715)|Immortalis-G715"),
)


def names_for(device: Device) -> tuple[str, ...]:
    """The descriptions that match the device's name; () if none does."""
    return tuple(name for name, pattern in _NAMES if re.search(pattern, device.name, re.IGNORECASE))


_NEEDED = ("int8", "8-bit storage", "int8 dot product")
_COMPUTE = ("fp64", "fp32", "fp16", "int64", "int32", "int16", "int8")


def properties_of(device: Device) -> Properties | None:
    """The Vulkan loader's properties of a device of the runtime, whose name is the loader's name and the driver's."""
    return next((p for p in properties.properties() if device.name.startswith(p.name)), None)


def described(found: Properties) -> Target:
    """The target of a device, made from its properties.

    Raises:
        TargetError: the device lacks a feature that every program needs.
    """
    missing = [name for name in _NEEDED if name not in found.features]
    if missing:
        raise TargetError(
            f"the present vulkan device {found.name!r} has no {', '.join(missing)}; choose another target"
        )
    compute = [name for name in _COMPUTE if name in found.features or name in ("fp32", "int32")]
    return _vulkan(
        PRESENT,
        found.name,
        PRESENT,
        (found.subgroup,),
        found.shared_memory // 1024,
        found.matrices,
        compute="|".join(compute),
        threads=found.threads,
        sizes=found.workgroup_sizes,
        counts=found.workgroup_counts,
        loop_limit=_LLVMPIPE_LOOP if "llvmpipe" in found.name else None,
        of_present=True,
    )


def target_for(device: Device) -> Target | None:
    """The target of a present device: a named one if its subgroup sizes fit the device and both or neither have
    cooperative matrices, else one made from the device's properties. None if nothing is known of the device."""
    found = properties_of(device)
    for target in TARGETS:
        if target.name in names_for(device) and (found is None or _alike(target, found)):
            return target
    return None if found is None else described(found)


def _alike(target: Target, found: Properties) -> bool:
    return found.runs(target.capabilities.subgroup_sizes) and bool(target.capabilities.mma) == bool(found.matrices)


def unfit(device: Device, subgroup_sizes: tuple[int, ...], matrices: Iterable[str] = ()) -> str:
    """Why programs for these subgroup sizes that multiply these cooperative matrices would give wrong results on a
    present device, or would not run; "" if they run correctly."""
    found = properties_of(device)
    if found is None:
        return ""
    if not found.runs(subgroup_sizes):
        least, most = found.subgroups
        has = str(least) if least == most else f"{least} to {most}"
        wanted = " or ".join(map(str, subgroup_sizes))
        return f"it was compiled for subgroups of {wanted}, and those of {found.name!r} have {has}: sums would be wrong"
    listed = {replace(parse_mma(kind), name="") for kind in found.matrices}
    for kind in matrices:
        wants = parse_mma(kind)
        if replace(wants, name="") not in listed:
            shape = f"{wants.m}x{wants.n}x{wants.k}"
            return f"it multiplies cooperative matrices {shape} of {wants.lhs}, and {found.name!r} lists no such"
    return ""
