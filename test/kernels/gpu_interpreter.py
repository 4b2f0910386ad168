"""Runs GPU kernels in numpy: the IR that is handed to IREE, one workgroup at a time, all of its threads together.

Faults of a kernel are errors: reading or writing past a tensor's end, a barrier that not all threads reach, reading
shared memory that another thread wrote or writing memory that another read without a barrier between. Matrix
instructions follow the layouts of AMD's ISA guides: CDNA3 section 7 and the matrix instruction calculator for MFMA,
RDNA3 and RDNA4 section 7.9 for WMMA.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from kernels import gpu_effects, gpu_pure  # noqa: F401  (fill the tables of ops)
from kernels.gpu_workgroup import Array, Memory, Workgroup, element

from qmlir.core.mlir import ir


def _memory(array: Array, kind: Any) -> Memory:
    """A tensor's bytes, accessed through a memref type."""
    dtype, lanes = element(kind.element_type)
    flat = np.ascontiguousarray(array).reshape(-1).view(dtype)
    sizes = [-1 if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank)]
    return Memory(flat.reshape([*sizes, lanes] if lanes else sizes), lanes)


def run(
    module: Any, inputs: Sequence[Array], result: Array | Sequence[Array], *sizes: int, entry: str | None = None
) -> Mapping[str, int]:
    """Run the executable `entry` of a module, or its only one. Writes `result` (or results), and returns how often each
    op ran (counted once per workgroup).

    Args:
        inputs: the operands of the dispatch, without the dynamic sizes.
        sizes: the dynamic sizes, the number of rows first.
    """
    executables = [o.operation for o in module.body.operations if o.operation.name == "hal.executable.source"]
    (made,) = (o for o in executables if entry in (None, o.attributes["sym_name"].value))
    body = made.regions[0].blocks[0]
    inner = next(o.operation for o in body.operations if o.operation.name == "builtin.module")
    export = _launched(body, sizes[0] if sizes else 0)
    name = export.attributes["sym_name"].value
    functions = [o.operation for o in inner.regions[0].blocks[0].operations]
    function = next(f for f in functions if f.attributes["sym_name"].value == name)
    info = str(function.attributes["translation_info"])
    threads = int(info.split("workgroup_size = [")[1].split(",")[0])
    subgroup = int(info.split("subgroup_size = ")[1].split(">")[0])
    entry = function.regions[0].blocks[0]
    spans = [o.operation for o in entry.operations if o.operation.name == "hal.interface.binding.subspan"]
    kinds = {int(ir.IntegerAttr(o.attributes["binding"]).value): ir.MemRefType(o.results[0].type) for o in spans}
    results = [result] if isinstance(result, np.ndarray) else list(result)
    buffers = [_memory(array, kinds[i]) for i, array in enumerate([*inputs, *results])]
    grid = _grid(export, sizes[0] if sizes else 0)
    counts: dict[str, int] = {}
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                group = Workgroup((x, y, z), threads, subgroup, buffers, sizes)
                group.run(entry, group.everyone)
                for name, count in group.counts.items():
                    counts[name] = counts.get(name, 0) + count
    assert math.prod(grid) > 0
    return counts


def _launched(body: Any, rows: int) -> Any:
    """The export that the host launches for this number of rows: starting at the first, an export whose condition does
    not hold is replaced by its fallback."""
    exports = [o.operation for o in body.operations if o.operation.name == "hal.executable.export"]
    by_name = {o.attributes["sym_name"].value: o for o in exports}
    export = exports[0]
    while len(export.regions) > 1 and list(export.regions[1].blocks) and not _host(export.regions[1], rows)[0]:
        export = by_name[ir.FlatSymbolRefAttr(export.attributes["condition_fallback"]).value]
    return export


def _grid(export: Any, rows: int) -> tuple[int, int, int]:
    x, y, z = _host(export.regions[0], rows)
    return x, y, z


def _host(region: Any, rows: int) -> list[int]:
    """The values that a region of an export returns for this number of rows."""
    block = region.blocks[0]
    group = Workgroup((0, 0, 0), 1, 1, [], [rows])
    for argument in list(block.arguments)[1:]:
        group.values[argument] = np.array([rows])
    for op in block.operations:
        if op.operation.name == "hal.return":
            return [int(group.get(v)[0]) for v in op.operation.operands]
        group.one(op.operation, group.everyone)
    raise AssertionError("an export without a count")
