"""Passes that work around faults and limits of IREE and of the drivers below it, one package per version of IREE."""

from __future__ import annotations

import importlib
import pkgutil

from ...core.faults import Fault
from . import iree_3_13

# Modules of lowerings, targets and front ends that work around faults as well, in addition to the passes.
HOOKS = (
    "core.cuda",
    "core.hal",
    "core.mlir",
    "ir.barriers",
    "ir.build",
    "ir.limits",
    "ir.products",
    "ir.resources",
    "ir.scalars",
    "ir.util_globals",
    "kernels.attention",
    "targets.detach",
    "targets.row_masks",
    "targets.tile_and_fuse",
    "targets.transposed",
    "targets.cpu.data_layout",
    "targets.cpu.threads.atomics",
    "targets.cuda.exact_f16",
    "targets.gpu_kernels.executable",
    "targets.rocm.kernels.machine",
    "frontends.onnx.patterns.pooled",
    "frontends.onnx.patterns.remainder",
    "frontends.torch_mlir",
)


def workarounds() -> list[tuple[str, tuple[Fault, ...]]]:
    """The modules that work around faults of the supported version of IREE, each with the faults that it states."""
    found = []
    root = __name__.partition(".")[0]
    passes = [f"passes.workarounds.iree_3_13.{m.name}" for m in pkgutil.iter_modules(iree_3_13.__path__) if not m.ispkg]
    for name in (*passes, *HOOKS):
        module = importlib.import_module(f"{root}.{name}")
        found.append((module.__name__, module.FAULTS))
    return found
