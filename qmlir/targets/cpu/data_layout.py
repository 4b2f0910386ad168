"""The data layout that programs for 64-bit Arm are compiled with: LLVM's, without its preferred alignments of short
integers, which MLIR takes as guaranteed."""

from __future__ import annotations

from ...core.faults import Fault

FAULTS = (
    Fault(
        "A load of bytes or 16-bit integers in a loop promises LLVM the alignment that the data layout of 64-bit Arm "
        "prefers, four bytes: every element that is read from a constant of four bytes is its first one.",
        canary="short_constant",
    ),
)

# LLVM's own layout has `-i8:8:32-i16:16:32` after the pointers.
_ARM = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-n32:64-S128-Fn32"


def natural_alignments() -> tuple[str, ...]:
    """IREE's flags for the layout."""
    return (f"--iree-llvmcpu-target-data-layout={_ARM}",)
