"""How contractions are compiled for CPUs.

Data tiling (a flag of every CPU target) packs the operands of a matmul and lowers int8 to the vector dot product.
It does not apply to convolutions, which would run as scalar loops; they become matmuls of their patches. Measured on
one core of a Zen 5: 3x3, 56x56, 64 -> 64 channels, 58 ms as a convolution and 2.9 ms as a matmul; 3x3, 7x7,
512 -> 100 channels, batch 8, 91 ms and 3.5 ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ..base import Target
from ..im2col import Im2colStrategy
from ..stock import StockStrategy
from ..strategy import Contraction, GroupStrategy, Knob, Strategy
from ..widened import WidenedStrategy
from .host import TILE_LOOPS
from .kernels import arm_float, arm_micro, float_depthwise, float_micro, integer_depthwise, integer_micro, plain
from .kernels.attention import NEON as NEON_REGISTERS, REGISTERS
from .kernels.attention_strategy import AttentionStrategy
from .kernels.convolution_strategy import CpuConvolutionStrategy
from .kernels.depthwise_strategy import DepthwiseStrategy
from .kernels.float_micro import FloatMicro, Half
from .kernels.rows import LANES, NEON
from .kernels.strategy import CpuProductStrategy, CpuWeightOnlyStrategy, HalfStrategy, KernelStrategy, PlainStrategy

if TYPE_CHECKING:
    from ...kernels.attention import Attention
    from ...kernels.code_pooling import CodePooling
    from ...kernels.pointwise import Pointwise
    from ...kernels.recurrence import RecurrenceCall
    from ...kernels.rows import RowGroup


def instruction(target: Target, c: Contraction) -> str:
    """The instruction with which IREE 3.13 multiplies the operands on this CPU."""
    features = set(target.capabilities.cpu_features)
    if not c.lhs.endswith("i8") or not c.rhs.endswith("i8"):
        return "vector multiply-add"
    for feature, name in (("avx512vnni", "vpdpwssd"), ("i8mm", "smmla"), ("dotprod", "sdot"), ("avx2", "vpmaddwd")):
        if feature in features:
            return name
    return "widening multiply-add"


def stock_facts(target: Target, c: Contraction) -> dict[str, str]:
    """How IREE compiles the contraction with the target's flags."""
    if c.kind == "matmul":
        tiled = "--iree-opt-data-tiling" in target.compiler_flags
        return {"codegen": f"{'data tiling' if tiled else 'vector loops'}, {instruction(target, c)}"}
    if c.kind == "depthwise_conv2d":
        return {"codegen": "vectorised loops over the window"}
    return {"codegen": "scalar loops", "slow": "the size of the image is dynamic"}


_Product = TypeVar("_Product", bound=CpuProductStrategy)

# IREE 3.13's options on CPUs, which apply to the whole program. An untuned program is compiled with the first value.
_FLAGS: dict[str, dict[str, tuple[str, ...]]] = {
    "data_tiling": {"target": (), "off": ("--iree-opt-data-tiling=false",)},
    "ukernels": {"target": (), "all": ("--iree-llvmcpu-enable-ukernels=all",)},
    "opt_level": {"O0": (), "O2": ("--iree-opt-level=O2",), "O3": ("--iree-opt-level=O3",)},
}
KNOBS = tuple(Knob(name, tuple(values)) for name, values in _FLAGS.items())


def stock_flags(knob: str, value: int | str) -> tuple[str, ...]:
    """IREE's flags for a knob's value; none for a knob of another strategy."""
    return _FLAGS.get(knob, {}).get(str(value), ())


# Vectors of depthwise convolutions, best first.
_X86 = (integer_depthwise.AVX512, float_depthwise.AVX512, float_depthwise.AVX2)
_NEON = (integer_depthwise.NEON, float_depthwise.NEON)


def strategies(target: Target) -> tuple[Strategy, ...]:
    """The strategies for contractions, best first."""
    stock = StockStrategy(target, stock_facts, knobs=KNOBS, flags=stock_flags)
    micros = arm_micro.INTEGER_KERNELS if _is_arm(target) else integer_micro.INTEGER_KERNELS
    integer = [KernelStrategy(target, kernel) for kernel in micros]
    kernels = tuple(_with_rivals(integer))
    floats_by_floats = _floats_by_floats(target)
    convolutions = tuple(CpuConvolutionStrategy(kernel) for kernel in (*kernels, *floats_by_floats))
    floats: list[CpuProductStrategy] = [
        HalfStrategy(target, kernel) if isinstance(kernel, Half) else CpuWeightOnlyStrategy(target, kernel)
        for kernel in _float_kernels(target)
    ]
    weight_only = tuple(_with_rivals(floats))
    return (
        *kernels,
        *convolutions,
        *(DepthwiseStrategy(target, vectors) for vectors in (_NEON if _is_arm(target) else _X86)),
        *weight_only,
        *floats_by_floats,
        Im2colStrategy((stock,), keep=False),
        WidenedStrategy("f32", (stock,)),
        stock,
    )


def _floats_by_floats(target: Target) -> list[PlainStrategy]:
    return [PlainStrategy(target, kernel) for kernel in ((plain.NEON_F32,) if _is_arm(target) else plain.X86_KERNELS)]


def convolved_floats(target: Target) -> tuple[str, ...]:
    """See `Backend`. IREE compiles bf16 convolutions to code that works element by element."""
    has_kernel = any(s.lacks() is None and s.micro.lhs_bytes == 4 for s in _floats_by_floats(target))
    return ("bf16", "f32") if has_kernel else ("bf16",)


def _is_arm(target: Target) -> bool:
    return "neon" in target.capabilities.cpu_features


def _float_kernels(target: Target) -> list[FloatMicro]:
    """The float micro-kernels, best first. CPUs that have AMX take longer for `vdpbf16ps` than for two multiply-adds of
    f32 (8 rows by 4096x4096 on Sapphire Rapids: 2.6 and 1.7 ms)."""
    if _is_arm(target):
        return list(arm_float.FLOAT_KERNELS)
    slow = "amx-tile" in target.capabilities.cpu_features
    return sorted(float_micro.FLOAT_KERNELS, key=lambda kernel: slow and kernel.name == float_micro.AVX512_BF16.name)


def _with_rivals(products: Sequence[_Product]) -> Iterator[_Product]:
    """The strategies, best first. The rival of each that uses AMX's tiles is the best that does not."""
    for product in products:
        vectors = next(other for other in products if other.name not in TILE_LOOPS)
        yield replace(product, rival=vectors) if product.name in TILE_LOOPS else product


def attention_strategies(target: Target) -> tuple[GroupStrategy[Attention], ...]:
    """Kernels for attention, best first."""
    of_target = (NEON_REGISTERS,) if _is_arm(target) else REGISTERS
    return tuple(AttentionStrategy(target, registers) for registers in of_target)


def recurrence_strategies(target: Target) -> tuple[GroupStrategy[RecurrenceCall], ...]:
    """Kernels for recurrent layers, best first."""
    from .kernels.recurrence import ARM, X86
    from .kernels.recurrence_strategy import RecurrenceStrategy

    of_target = (ARM,) if _is_arm(target) else X86
    return tuple(RecurrenceStrategy(target, registers) for registers in of_target)


def codes_strategies(target: Target) -> tuple[GroupStrategy[Pointwise | CodePooling], ...]:
    """Kernels from codes to codes, best first."""
    from .kernels.pointwise import PointwiseStrategy
    from .kernels.pooling import PoolingStrategy

    return (*(PointwiseStrategy(target, lanes) for lanes in LANES), PoolingStrategy(target))


def rows_strategies(target: Target) -> tuple[GroupStrategy[RowGroup], ...]:
    """Kernels for rows, best first."""
    from .kernels.rows_strategy import CpuRowsStrategy

    return tuple(CpuRowsStrategy(target, lanes) for lanes in ((NEON,) if _is_arm(target) else LANES))
