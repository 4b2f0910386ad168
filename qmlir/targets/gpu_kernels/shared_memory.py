"""One pool of shared memory for all functions of an executable.

For CUDA, IREE 3.13 concatenates the buffers of all functions of an executable's module and sets the total on every
export: an executable of four kernels requests the memory of all four at each launch, and devices refuse it. Therefore
the functions share one global buffer, whose size is the largest that one of them needs, and their allocations become
views of it. The size that each function needs is an attribute of its export, from which `qmlir-shared-memory` sets the
size that the launch requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...core.mlir import OpLike, ir, memref
from ...ir.walk import collect
from ...kernels import emit as e

# An attribute of `hal.executable.export`: the bytes of shared memory that its function uses.
SHARED_BYTES = "shared_memory_bytes"
_POOL = "shared_memory"
_SPACE = "#gpu.address_space<workgroup>"


def pool(module: OpLike, functions: Sequence[OpLike]) -> list[int]:
    """Replace the shared memory that `functions` of `module` allocate by one pool.

    Returns:
        The bytes that each function uses.
    """
    found = [_allocations(function) for function in functions]
    placed = [_offsets(each) for each in found]
    sizes = [total for _, total in placed]
    if not any(found):
        return sizes
    kind = ir.MemRefType.get([max(sizes)], e.integer(8), memory_space=ir.Attribute.parse(_SPACE))
    alignment = ir.IntegerAttr.get(e.integer(64), max(_alignment(op) for each in found for op in each))
    with ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]):
        memref.GlobalOp(_POOL, kind, sym_visibility="private", initial_value=ir.UnitAttr.get(), alignment=alignment)
    for allocations, (offsets, _) in zip(found, placed, strict=True):
        for op, offset in zip(allocations, offsets, strict=True):
            with ir.InsertionPoint(op), op.location:
                whole = memref.GetGlobalOp(kind, _POOL).result
                view = memref.ViewOp(op.results[0].type, whole, e.index(offset), []).result
            op.results[0].replace_all_uses_with(view)
            op.erase()
    return sizes


def _allocations(function: OpLike) -> list[OpLike]:
    """The `memref.alloc` ops of a function, all of which allocate shared memory."""
    return collect(function, "memref.alloc")


def _offsets(allocations: Sequence[OpLike]) -> tuple[list[int], int]:
    """The offset of each allocation, and the total size; those with the largest alignment come first, to leave fewer
    gaps."""
    offsets, end = [0] * len(allocations), 0
    for i in sorted(range(len(allocations)), key=lambda i: -_alignment(allocations[i])):
        offsets[i] = -(-end // _alignment(allocations[i])) * _alignment(allocations[i])
        end = offsets[i] + _bytes(ir.MemRefType(allocations[i].results[0].type))
    return offsets, end


def _bytes(kind: ir.Type) -> int:
    element, count = kind.element_type, prod(kind.shape)
    if isinstance(element, ir.VectorType):
        element, count = element.element_type, count * prod(element.shape)
    return int(count) * e.bits(element) // 8


def _alignment(op: OpLike) -> int:
    """The alignment of an allocation, at least the 16 bytes of the widest load."""
    return max(16, op.attributes["alignment"].value if "alignment" in op.attributes else 1)
