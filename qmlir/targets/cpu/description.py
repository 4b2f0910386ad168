"""The CPU targets that have a name; the names are LLVM's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ...core.drivers import LOCAL_TASK
from ..base import COMPILED, EMULATED, FLOAT8, FUSE_ROWS, Device, Target, decode_pass
from ..capabilities import Capabilities
from ..strategy import Decline
from .data_layout import natural_alignments

# The limit on stack allocations is raised from 32 KiB because epilogues of large tiles need more, to the size of the
# stacks of the task system's threads (IREE takes powers of two only).
_FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-stack-allocation-limit=131072",
)


def lacks(target: Target, *alternatives: Collection[str]) -> Decline | None:
    """A refusal if the CPU has none of the sets of features completely; it names the features missing from the set that
    lacks fewest."""
    missing = min((sorted(set(needed) - set(target.capabilities.cpu_features)) for needed in alternatives), key=len)
    if not missing:
        return None
    if unused := [
        f"{feature} is not used on this host: {why}" for feature, why in target.withheld if feature in missing
    ]:
        return Decline("; ".join(unused), "name a CPU that has it")
    return Decline(f"{target.spelling} lacks {', '.join(missing)}", "name a CPU that has it")


def flags_for(features: Collection[str]) -> tuple[str, ...]:
    """IREE's flags for a CPU that has these features.

    Data tiling lowers an int8 matmul to VNNI (`vpdpwssd`) or to the AArch64 dot products; without it IREE emits
    `vpmulld`, one lane at a time. For an x86 CPU without AVX, data tiling has no tiles and leaves scalar loops.
    """
    if "neon" in features:
        return (*_FLAGS, "--iree-opt-data-tiling", *natural_alignments())
    return (*_FLAGS, "--iree-opt-data-tiling") if "avx" in features else _FLAGS


DTYPES = ("i4", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", *FLOAT8)

# IREE approximates these well for CPUs.
_EXPAND_FUNCTIONS = "qmlir-expand-functions{{keep=acos|asin|expm1|log1p|remf|tanh wide=true{}}}"


def passes_for(spelling: str, features: Collection[str]) -> tuple[str, ...]:
    """The passes that run after the selection of strategies on a CPU with these features. All one-byte floats are
    converted by `decode_pass`: IREE 3.13's own conversion turns the negative NaN of e4m3 into -480."""
    native = "neon" in features or "avx512bf16" in features
    expand = _EXPAND_FUNCTIONS.format("" if not {"neon", "sse4.1"}.isdisjoint(features) else " trunc=true")
    bf16 = "qmlir-expand-bf16{kernels=false}" if native else "qmlir-expand-bf16"
    kernels = (f"qmlir-row-kernels{{target={spelling}}}", FUSE_ROWS, f"qmlir-code-kernels{{target={spelling}}}")
    tiling = ("qmlir-widen-masks", "qmlir-store-broadcasts", "qmlir-store-batches", "qmlir-choose-data-tiling")
    return ("qmlir-float-convolutions", *kernels, expand, decode_pass(), bf16, *tiling)


_V2 = "sse2 sse3 ssse3 sse4.1 sse4.2 popcnt"
_V3 = f"{_V2} avx avx2 bmi bmi2 f16c fma lzcnt movbe"
_V4 = f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"
_ICELAKE = f"{_V4} avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq gfni vaes vpclmulqdq"
_SAPPHIRERAPIDS = f"{_ICELAKE} avxvnni avx512bf16 avx512fp16 amx-tile amx-int8 amx-bf16"
_GRANITERAPIDS = f"{_SAPPHIRERAPIDS} amx-fp16"
_ZNVER5 = f"{_ICELAKE} avx512bf16 avxvnni avx512vp2intersect"
_NEWER = "avxifma avxneconvert avxvnniint8"
_ARM_DOT = "neon dotprod fullfp16"
_ARM_I8MM = f"{_ARM_DOT} i8mm bf16"
_ARM_SVE = f"{_ARM_I8MM} sve"


def _cpu(name: str, summary: str, features: str, *flags: str) -> Target:
    feature_set = tuple(features.split())
    dot = {"avx512vnni", "avxvnni", "dotprod", "amx-int8"}
    return Target(
        backend="cpu",
        name=name,
        driver=LOCAL_TASK.name,
        summary=summary,
        status=COMPILED,
        compiler_flags=(*flags_for(feature_set), *(flags or (f"--iree-llvmcpu-target-cpu={name}",))),
        capabilities=Capabilities(DTYPES, int8_dot=bool(dot & set(feature_set)), cpu_features=feature_set),
        passes=passes_for(f"cpu:{name}", feature_set),
    )


def _arm(name: str, summary: str, features: str, cpu: str = "") -> Target:
    triple = "--iree-llvmcpu-target-triple=aarch64-unknown-linux-gnu"
    made = _cpu(name, summary, features, triple, f"--iree-llvmcpu-target-cpu={cpu or name}")
    return replace(made, status=EMULATED)


def _zen(name: str, features: str) -> Target:
    """A Zen target without SSE4a: LLVM would shuffle bytes with its `extrq`, which no Intel CPU has and which is not
    faster if there is AVX-512."""
    made = _cpu(f"znver{name}", f"AMD Zen {name}, AVX512-VNNI", features)
    return replace(made, compiler_flags=(*made.compiler_flags, "--iree-llvmcpu-target-cpu-features=-sse4a"))


TARGETS: tuple[Target, ...] = (
    _cpu("x86-64", "any 64-bit x86", "sse2"),
    _cpu("x86-64-v3", "AVX2", _V3),
    _cpu("x86-64-v4", "AVX-512 without VNNI", _V4),
    _cpu("haswell", "Intel Haswell, AVX2", _V3),
    _cpu("skylake-avx512", "Intel Skylake server, AVX-512", _V4),
    _cpu("cascadelake", "Intel Cascade Lake, AVX512-VNNI", f"{_V4} avx512vnni"),
    _cpu("icelake-server", "Intel Ice Lake server, AVX512-VNNI", _ICELAKE),
    _cpu("sapphirerapids", "Intel Sapphire Rapids, AVX512-VNNI and AMX", _SAPPHIRERAPIDS),
    _cpu("graniterapids", "Intel Granite Rapids, AVX512-VNNI and AMX", _GRANITERAPIDS),
    _cpu("diamondrapids", "Intel Diamond Rapids, AVX512-VNNI and AMX", f"{_GRANITERAPIDS} {_NEWER} avxvnniint16"),
    _zen("4", f"{_ICELAKE} avx512bf16"),
    _zen("5", _ZNVER5),
    _zen("6", f"{_ZNVER5} {_NEWER} avx512fp16"),
    _arm("aarch64", "any 64-bit Arm", "neon", "generic"),
    _arm("neoverse-n1", "Arm Neoverse N1 (Graviton2, Altra), dot products", _ARM_DOT),
    _arm("neoverse-n2", "Arm Neoverse N2 (Cobalt 100), i8mm", f"{_ARM_SVE} sve2"),
    _arm("neoverse-v1", "Arm Neoverse V1 (Graviton3), i8mm", _ARM_SVE),
    _arm("neoverse-v2", "Arm Neoverse V2 (Graviton4, Grace), i8mm", f"{_ARM_SVE} sve2"),
    _arm("apple-m1", "Apple M1, dot products", _ARM_DOT),
    _arm("apple-m2", "Apple M2 and newer, i8mm", _ARM_I8MM),
)


def names_for(device: Device) -> tuple[str, ...]:
    """Unused for CPUs: whether a program runs is a matter of features, not of a device's name."""
    return ()


def target_for(device: Device) -> Target | None:
    """Unused for CPUs: see `host.host_target`."""
    return None
