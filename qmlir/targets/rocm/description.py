"""AMD architectures through HIP.

The MMA kinds are those that IREE 3.13 knows for the architecture and that qmlir's programs use; fp8 is FNUZ on gfx942
and OCP from gfx950 and gfx12 on.
"""

from __future__ import annotations

from ...ir.barriers import Reason
from ..base import (
    BOUND_OPERANDS,
    EMULATED,
    EXPAND_FUNCTIONS,
    FLOAT8,
    FUSE_ROWS,
    INDEX_SLICES,
    INDEX_SUMS,
    NEUTRAL_ELEMENTS,
    ORDER_CONVOLUTIONS,
    SPREAD_SCANS,
    START_AT_ZERO,
    Device,
    Target,
    decode_pass,
    first_named,
)
from ..capabilities import Capabilities, Peak
from ..gpu import Gpu, parse_mma

_FNUZ = ("F8E5M2FNUZ", "F8E5M2FNUZ_F8E4M3FNUZ", "F8E4M3FNUZ", "F8E4M3FNUZ_F8E5M2FNUZ")
_OCP = ("F8E5M2", "F8E5M2_F8E4M3FN", "F8E4M3FN", "F8E4M3FN_F8E5M2")

_CDNA2 = (
    "MFMA_F32_16x16x8_BF16",
    "MFMA_F32_32x32x4_BF16",
    "MFMA_F64_16x16x4_F64",
    "MFMA_F32_16x16x4_F32",
    "MFMA_F32_16x16x16_F16",
    "MFMA_F32_32x32x8_F16",
    "MFMA_I32_16x16x16_I8",
    "MFMA_I32_32x32x8_I8",
)
_CDNA3 = (
    "MFMA_F32_16x16x16_BF16",
    "MFMA_F32_32x32x8_BF16",
    *(f"MFMA_F32_16x16x32_{kind}" for kind in _FNUZ),
    *(f"MFMA_F32_32x32x16_{kind}" for kind in _FNUZ),
    "MFMA_I32_16x16x32_I8",
    "MFMA_I32_32x32x16_I8",
    "MFMA_F64_16x16x4_F64",
    "MFMA_F32_16x16x4_F32",
    "MFMA_F32_16x16x16_F16",
    "MFMA_F32_32x32x8_F16",
)
_CDNA4 = (
    "MFMA_F32_16x16x32_F16",
    "MFMA_F32_32x32x16_F16",
    "MFMA_F32_16x16x32_BF16",
    "MFMA_F32_32x32x16_BF16",
    *(f"MFMA_F32_16x16x128_{kind}" for kind in _OCP),
    *(f"MFMA_F32_32x32x64_{kind}" for kind in _OCP),
    "MFMA_I32_16x16x64_I8",
    "MFMA_I32_32x32x32_I8",
    "MFMA_F64_16x16x4_F64",
    "MFMA_F32_16x16x4_F32",
)
RDNA3 = (
    "WMMAR3_F32_16x16x16_F16",
    "WMMAR3_F16_16x16x16_F16",
    "WMMAR3_F32_16x16x16_BF16",
    "WMMAR3_BF16_16x16x16_BF16",
    "WMMAR3_I32_16x16x16_I8",
)
RDNA4 = (
    "WMMAR4_F32_16x16x16_F16",
    "WMMAR4_F16_16x16x16_F16",
    "WMMAR4_F32_16x16x16_BF16",
    "WMMAR4_BF16_16x16x16_BF16",
    *(f"WMMAR4_F32_16x16x16_{kind}" for kind in _OCP),
    "WMMAR4_I32_16x16x16_I8",
)


def _peak(product: str, units: int, f16: float, i8: float, fp8: tuple[str, float] | None, bandwidth: float) -> Peak:
    """The figures of one product, from AMD's product pages and data sheets. Rates are in tera-operations per second,
    dense; bandwidth is in GB/s."""
    rates = [("f16", f16 * 1e12), ("bf16", f16 * 1e12), ("i8", i8 * 1e12)]
    if fp8 is not None:
        suffix, rate = fp8
        rates += [(f"f8E4M3{suffix}", rate * 1e12), (f"f8E5M2{suffix.replace('FN', '', 1)}", rate * 1e12)]
    return Peak(product, tuple(rates), bandwidth * 1e9, units)


def _scaled(kinds: tuple[str, ...]) -> str:
    """The `scaled_mma` field of the target attribute, with one entry per instruction and type of codes."""
    if not kinds:
        return ""
    types = ("f8E5M2", "f8E4M3FN", "f4E2M1FN")
    entries = [
        f"<intrinsic = {kind}, lhs_elem_type = {t}, rhs_elem_type = {t}, acc_elem_type = f32>"
        for kind in kinds
        for t in types
    ]
    return f"scaled_mma = [{', '.join(entries)}], "


_SIMDS = 4  # per compute unit


def _rocm(
    name: str,
    summary: str,
    mma: tuple[str, ...],
    peak: Peak,
    *,
    subgroups: tuple[int, ...] = (64,),
    shared_kib: int = 64,
    vgpr_bits: int = 16384,
    banks: int = 32,
    extra: str = "",
    shared_sum_registers: int | None = None,
    scaled_mma: tuple[str, ...] = (),
) -> Target:
    """A target. CDNA has subgroups of 64 threads and separate registers for sums; RDNA is asked for subgroups of 32.
    All other figures of a compute unit are the same for all architectures."""
    mfma = any(kind.startswith("MFMA") for kind in mma)
    sum_registers = 128 if mfma else 64
    gpu = Gpu(
        device="hip",
        executable='"rocm", "rocm-hsaco-fb"',
        arch=name,
        features="",
        subgroup_sizes=subgroups,
        shared_memory=shared_kib * 1024,
        mma=mma,
        workgroup_counts=(2147483647, 2147483647, 2147483647),
        wgp_extra=f"{_scaled(scaled_mma)}max_load_instruction_bits = 128, simds_per_wgp = {_SIMDS}, "
        f"vgpr_space_bits = {vgpr_bits}, "
        f"{extra}workgroup_memory_bank_count = {banks}",
        configuration='abi = "hip", ukernels = "none", iree.encoding.resolver = #iree_gpu.gpu_encoding_resolver<>',
    )
    fp8 = sorted({kind.lhs for kind in map(parse_mma, mma) if kind.lhs.startswith("f8")})
    return Target(
        backend="rocm",
        name=name,
        driver="hip",
        summary=summary,
        status=EMULATED,
        device_attribute=gpu.attribute(),
        capabilities=Capabilities(
            ("i4", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", *FLOAT8),
            int8_dot=True,
            mma=mma,
            scaled_mma=scaled_mma,
            features=("mfma",) if mfma else (),
            subgroup_sizes=subgroups,
            shared_memory=gpu.shared_memory,
            simds=_SIMDS,
            simd_waves=8,
            simd_registers=512,
            sum_registers=sum_registers,
            shared_sum_registers=shared_sum_registers or sum_registers,
            peak=peak,
        ),
        unsigned_mma=False,
        source_passes=(
            "qmlir-bound-unit-sums",
            ORDER_CONVOLUTIONS,
            START_AT_ZERO,
        ),
        barriers=(Reason.INDEXED_READS,),
        passes=(
            f"qmlir-row-kernels{{target=rocm:{name}}}",
            FUSE_ROWS,
            INDEX_SLICES,
            INDEX_SUMS,
            EXPAND_FUNCTIONS,
            decode_pass(*fp8),
            "qmlir-keep-nan",
            NEUTRAL_ELEMENTS,
            f"{SPREAD_SCANS}{{subgroup={subgroups[0]}}}",
            ORDER_CONVOLUTIONS,
            BOUND_OPERANDS,
        ),
    )


TARGETS: tuple[Target, ...] = (
    # An MI250X is two devices; the figures are for one of them.
    _rocm(
        "gfx90a",
        "AMD MI200 series",
        _CDNA2,
        _peak("MI250X, one die", 110, 191.5, 191.5, None, 1638),
        vgpr_bits=8192,
    ),
    _rocm(
        "gfx942",
        "AMD MI300 series",
        _CDNA3,
        _peak("MI300X", 304, 1307.4, 2614.9, ("FNUZ", 2614.9), 5300),
        extra="dma_sizes = [32], ",
    ),
    _rocm(
        "gfx950",
        "AMD MI350 series",
        _CDNA4,
        _peak("MI355X", 256, 2516.6, 5033.2, ("FN", 5033.2), 8000),
        shared_kib=160,
        banks=64,
        extra="dma_sizes = [32, 128], ",
        # Not MFMA_SCALE_F32_32x32x64_B32: its lanes hold one-byte codes in another order (scaled.py).
        scaled_mma=("MFMA_SCALE_F32_16x16x128_B32",),
    ),
    _rocm(
        "gfx1100",
        "AMD RX 7900, W7900",
        RDNA3,
        _peak("RX 7900 XTX", 96, 122.8, 122.8, None, 960),
        subgroups=(32, 64),
        vgpr_bits=8192,
        banks=64,
    ),
    _rocm(
        "gfx1151",
        "AMD Strix Halo",
        RDNA3,
        _peak("Radeon 8060S", 40, 59.4, 59.4, None, 256),
        subgroups=(32, 64),
        vgpr_bits=8192,
        banks=64,
    ),
    _rocm(
        "gfx1201",
        "AMD RX 9070",
        RDNA4,
        _peak("RX 9070 XT", 64, 194.6, 389.1, ("FN", 389.1), 640),
        shared_sum_registers=32,  # with more, LLVM spills
        subgroups=(32, 64),
        vgpr_bits=8192,
        banks=64,
    ),
)


def names_for(device: Device) -> tuple[str, ...]:
    """HSACO runs on exactly its own architecture."""
    return tuple(target.name for target in TARGETS if target.name == device.arch)


def target_for(device: Device) -> Target | None:
    """See `backends.Description`."""
    return first_named(TARGETS, names_for(device))
