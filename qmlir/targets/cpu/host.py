"""The name and the features of this host's CPU, from the operating system: fast, and without the compiler."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

from ...core.drivers import LOCAL_TASK
from ..base import RUNS, Target
from ..capabilities import Capabilities
from .description import DTYPES, flags_for, passes_for

# Linux's names of CPU features that differ from LLVM's; the rest agree after "_" -> "".
_LINUX_NAMES = {
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "pni": "sse3",
    "abm": "lzcnt",
    "bmi1": "bmi",
    "avx_vnni": "avxvnni",
    "avx512vbmi": "avx512vbmi",
    "avx512_vbmi2": "avx512vbmi2",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
    "amx_fp16": "amx-fp16",
    "asimd": "neon",
    "asimddp": "dotprod",
    "asimdhp": "fullfp16",
}

# The features that code generation makes use of; the others (virtualisation, security) are masked by
# hypervisors now and then and say nothing about whether a program runs.
_CODE_FEATURES = (
    "sse2 sse3 ssse3 sse4a sse4.1 sse4.2 popcnt avx avx2 fma f16c bmi bmi2 lzcnt movbe gfni vaes vpclmulqdq "
    "avxvnni avxvnniint8 avxvnniint16 avxifma avxneconvert avx512f avx512bw avx512cd avx512dq avx512vl avx512ifma "
    "avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq avx512bf16 avx512fp16 avx512vp2intersect "
    "amx-tile amx-int8 amx-bf16 amx-fp16 neon dotprod fullfp16 i8mm bf16 sve sve2"
)
# The features that multiply AMX's tiles, and the micro-kernels (`micro` in a plan's facts) that use them.
TILE_FEATURES = frozenset({"amx-int8", "amx-bf16", "amx-fp16"})
TILE_LOOPS = TILE_FEATURES | {"amx-bf16-plain"}
# Linux on x86-64.
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18
CODE_FEATURES = frozenset(_CODE_FEATURES.split())


def _cpuinfo() -> dict[str, str]:
    """The first processor's entry of /proc/cpuinfo, {} if there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


@cache
def host_name() -> str:
    """The model name of the CPU, for people and manifests."""
    info = _cpuinfo()
    return info.get("model name") or platform.processor() or platform.machine()


@cache
def host_features() -> frozenset[str]:
    """The CPU's features that code generation uses, in LLVM's spelling; empty if they cannot be read."""
    info = _cpuinfo()
    flags = (info.get("flags") or info.get("Features") or "").split()
    names = {_LINUX_NAMES.get(flag, flag.replace("_", "")) for flag in flags}
    return frozenset(names & CODE_FEATURES)


def tiles_refused() -> str:
    """Ask the system for AMX's tile registers, which a Linux process must do once before it uses them
    (`arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`). Returns the reason of a refusal, "" if there is none."""
    if sys.platform != "linux":
        return f"{sys.platform} is not Linux"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0:
        return ""
    return f"arch_prctl: {os.strerror(ctypes.get_errno())}"


# Runs the kernels that use the features on this host; returns for each feature why it must not be used, "" if nothing
# is wrong. Set by the compiler (`compiler/self_test.py`), which depends on the targets.
tester: Callable[[frozenset[str]], Mapping[str, str]] | None = None


def withheld() -> dict[str, str]:
    """The features of this host that programs are not compiled for, and why: those of AMX's tiles until kernels that
    use them have given correct results here."""
    tiles = frozenset(feature for feature in host_features() if feature.startswith("amx-"))
    if not tiles:
        return {}
    if reason := tiles_refused():
        return dict.fromkeys(tiles, f"the system refuses its tiles: {reason}")
    if tester is None:
        return dict.fromkeys(tiles, "its kernels have not been tested here")
    said = tester(tiles)
    return {feature: said[feature] for feature in sorted(tiles) if said.get(feature)}


def missing_features(needed: Iterable[str]) -> list[str]:
    """The features that a program was compiled for and this host lacks; none if the host's cannot be read."""
    have = host_features()
    return sorted(set(needed) - have) if have else []


def host_target() -> Target:
    """The bare target `cpu`: compiled for exactly this host."""
    unused = withheld()
    features = host_features() - unused.keys()
    tested = "; the kernels for AMX have passed their test" if features & TILE_FEATURES else ""
    return Target(
        backend="cpu",
        name="host",
        driver=LOCAL_TASK.name,
        summary=f"this host: {host_name()}{tested}",
        status=RUNS,
        compiler_flags=(*flags_for(features), "--iree-llvmcpu-target-cpu=host"),
        capabilities=Capabilities(
            DTYPES,
            int8_dot=bool(features & {"avx512vnni", "avxvnni", "dotprod"}),
            cpu_features=tuple(sorted(features)),
        ),
        passes=passes_for("cpu", features),
        of_host=True,
        host=host_name(),
        withheld=tuple(unused.items()),
    )
