"""NVIDIA architectures through CUDA.

IREE 3.13's target flag fails for sm_90, and IREE has no int8 MMA kind at all, so the descriptions here are complete
for every architecture. The shared memory is the size that one block may opt in to (CUDA programming guide, table
"Technical specifications per compute capability").
"""

from __future__ import annotations

import re

from ...ir.barriers import Reason
from ..base import (
    BOUND_OPERANDS,
    EMULATED,
    EXPAND_FUNCTIONS,
    FLOAT8,
    FUSE_ROWS,
    INDEX_SLICES,
    INDEX_SUMS,
    MEASURED,
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
from ..gpu import Gpu

AMPERE = (
    "NV_MMA_SYNC_F32_16x8x16_F16",
    "NV_MMA_SYNC_F16_16x8x16_F16",
    "NV_MMA_SYNC_F32_16x8x16_BF16",
    "NV_WMMA_F32_16x16x16_F16",
    "NV_WMMA_F16_16x16x16_F16",
)
ADA = (*AMPERE[:3], "NV_MMA_SYNC_F32_16x8x32_F8E4M3FN", "NV_MMA_SYNC_F32_16x8x32_F8E5M2", *AMPERE[3:])
_DTYPES = ("i4", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", *FLOAT8)


def _peak(
    product: str, units: int, rates: tuple[tuple[str, float], ...], bandwidth: float, lanes: int | None = 128
) -> Peak:
    """The figures of one product, `rates` in tera-operations per second, `bandwidth` in GB/s. The figures that all
    multiprocessors share are from the CUDA programming guide (arithmetic instructions, shared memory); 40 to 64 bytes
    per clock from L2 were measured on A100 and H100. 1024 of a multiprocessor's 1536 or 2048 threads have 64 registers
    each. No clock is given: the cost model assumes one that a product sustains, which is below the advertised clock."""
    named = tuple((dtype, rate * 1e12) for dtype, rate in rates)
    return Peak(
        product, named, bandwidth * 1e9, units, lanes=lanes, dots=64, shared_bytes=128, cache_bytes=48, threads=1024
    )


# Dense rates with f32 (int32) accumulation; multiprocessors from NVIDIA's whitepapers. A100: NVIDIA A100 datasheet.
# RTX 3090: GA102 whitepaper, table 9. RTX 4090: Ada whitepaper, appendix A. H100 SXM: H100 datasheet, without sparsity.
# RTX 5090: RTX Blackwell whitepaper, appendix A.
# An A100 has 64 f32 lanes and 64 i32 lanes, which may or may not issue in the same clock: `lanes` is left out.
_A100 = _peak("A100 40GB", 108, (("f16", 312), ("bf16", 312), ("i8", 624)), 1555, lanes=None)
_RTX3090 = _peak("RTX 3090", 82, (("f16", 71), ("bf16", 71), ("i8", 284)), 936)
_RTX4090 = _peak(
    "RTX 4090",
    128,
    (("f16", 165.2), ("bf16", 165.2), ("i8", 660.6), ("f8E4M3FN", 330.3), ("f8E5M2", 330.3)),
    1008,
)
_H100 = _peak("H100 SXM", 132, (("f16", 989), ("bf16", 989), ("i8", 1979), ("f8E4M3FN", 1979), ("f8E5M2", 1979)), 3350)
_RTX5090 = _peak(
    "RTX 5090", 170, (("f16", 209.5), ("bf16", 209.5), ("i8", 838), ("f8E4M3FN", 419), ("f8E5M2", 419)), 1792
)


_MEASURED = ("sm_90a",)


def _cuda(
    compute_capability: tuple[int, int],
    suffix: str,
    summary: str,
    ptx: int,
    shared_kib: int,
    mma: tuple[str, ...],
    peak: Peak,
    *features: str,
    passes: tuple[str, ...] = (),
    scaled_mma: tuple[str, ...] = (),
) -> Target:
    """A target. `suffix`: "a" for code that uses features that later architectures may lack, so that it runs only on
    its own architecture."""
    name = f"sm_{compute_capability[0]}{compute_capability[1]}{suffix}"
    gpu = Gpu(
        device="cuda",
        executable='"cuda", "cuda-nvptx-fb"',
        arch=name,
        features=f"+ptx{ptx}",
        subgroup_sizes=(32,),
        shared_memory=shared_kib * 1024,
        mma=mma,
        workgroup_sizes=(1024, 1024, 64),
    )
    return Target(
        backend="cuda",
        name=name,
        driver="cuda",
        summary=summary,
        status=MEASURED if name in _MEASURED else EMULATED,
        device_attribute=gpu.attribute(),
        capabilities=Capabilities(
            _DTYPES,
            int8_dot=True,
            mma=mma,
            scaled_mma=scaled_mma,
            features=features,
            subgroup_sizes=gpu.subgroup_sizes,
            shared_memory=gpu.shared_memory,
            static_shared_memory=48 * 1024,
            unit_registers=1 << 16,
            compute_capability=compute_capability,
            own_code_only=suffix == "a",
            peak=peak,
        ),
        # IREE 3.13 does not convert one-byte floats for NVIDIA, and launches empty grids, which CUDA refuses.
        barriers=(Reason.INDEXED_READS,),
        passes=(
            FUSE_ROWS,
            INDEX_SLICES,
            INDEX_SUMS,
            EXPAND_FUNCTIONS,
            decode_pass(),
            *passes,
            NEUTRAL_ELEMENTS,
            SPREAD_SCANS,
            "qmlir-store-wide",
            ORDER_CONVOLUTIONS,
            BOUND_OPERANDS,
            "qmlir-guard-empty",
        ),
        source_passes=("qmlir-bound-unit-sums", ORDER_CONVOLUTIONS, "qmlir-order-results", START_AT_ZERO),
        code_passes=("qmlir-shared-memory",),
    )


TARGETS: tuple[Target, ...] = (
    _cuda((8, 0), "", "NVIDIA A100", 76, 163, AMPERE, _A100),
    _cuda((8, 6), "", "NVIDIA RTX 30, A10, A40", 76, 99, AMPERE, _RTX3090),
    _cuda((8, 9), "", "NVIDIA RTX 40, L4, L40", 84, 99, ADA, _RTX4090),
    _cuda((9, 0), "", "NVIDIA H100, H200", 84, 227, ADA, _H100),
    # IREE 3.13 parses the architecture's number to learn whether it has `max.NaN`, and finds none in "sm_90a".
    _cuda((9, 0), "a", "NVIDIA H100, H200, with wgmma", 84, 227, ADA, _H100, "wgmma", passes=("qmlir-keep-nan",)),
    _cuda((12, 0), "", "NVIDIA RTX 50", 87, 99, ADA, _RTX5090),
    _cuda(
        (12, 0), "a", "NVIDIA RTX 50, with scaled mma", 87, 99, ADA, _RTX5090, passes=("qmlir-keep-nan",),
        scaled_mma=("mxf8f6f4", "mxf4nvf4"),
    ),
)  # fmt: skip


def names_for(device: Device) -> tuple[str, ...]:
    """The names of the targets that run on a device, best first. PTX of an older architecture runs on a newer device;
    PTX of an `a` architecture runs only on its own."""
    match = re.match(r"sm_(\d+)(\d)", device.arch)
    if match is None:
        return ()
    own = int(match[1]), int(match[2])

    def order(target: Target) -> tuple[tuple[int, int], bool]:
        return target.capabilities.compute_capability or (0, 0), target.capabilities.own_code_only

    fitting = [t for t in TARGETS if (order(t)[0] == own if order(t)[1] else order(t)[0] <= own)]
    return tuple(t.name for t in sorted(fitting, key=order, reverse=True))


def target_for(device: Device) -> Target | None:
    """See `backends.Description`."""
    return first_named(TARGETS, names_for(device))
