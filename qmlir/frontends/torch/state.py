"""Buffers that a program changes (caches of decoders, counters), held as state of the loaded program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ...core.mlir import ir
from ...ir import build
from ...ir.util_globals import declare_state, load_global, store_global
from .dtypes import FROM_TORCH, to_numpy

if TYPE_CHECKING:
    from ...core.mlir import OpLike


@dataclass(frozen=True)
class HeldBuffer:
    """A buffer that each call reads and updates for the next.

    Attributes:
        name: its name in the module.
        argument: the name of its placeholder in the graph.
        value: its value when the program is loaded.
        result: the index of the graph's result that is stored to it after a call.
    """

    name: str
    argument: str
    value: torch.Tensor
    result: int


def hold_state(module: ir.Module, f: OpLike, arguments: Sequence[str], buffers: Sequence[HeldBuffer]) -> None:
    """Make `f`, whose arguments have the names `arguments`, load and store its buffers instead of taking them as
    arguments and returning them as results."""
    if not buffers:
        return
    block = f.regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1]
    numbers = [arguments.index(b.argument) for b in buffers]
    for number, buffer in zip(numbers, buffers, strict=True):
        argument = block.arguments[number]
        with ir.InsertionPoint.at_block_begin(module.body), f.location:
            initial = ir.DenseElementsAttr(build.elements(to_numpy(buffer.value), FROM_TORCH[buffer.value.dtype]))
            declare_state(_symbol(buffer), argument.type, initial, number)
        with ir.InsertionPoint.at_block_begin(block), f.location:
            argument.replace_all_uses_with(load_global(_symbol(buffer), argument.type))
        with ir.InsertionPoint(end), f.location:
            store_global(_symbol(buffer), end.operands[buffer.result])
    for number in sorted(numbers, reverse=True):
        block.erase_argument(number)
    stored = {b.result for b in buffers}
    given = [v for i, v in enumerate(end.operands) if i not in stored]
    with ir.InsertionPoint(end), end.location:
        ir.Operation.create(end.name, operands=given)
    end.operation.erase()
    kind = ir.FunctionType.get([a.type for a in block.arguments], [v.type for v in given])
    f.attributes["function_type"] = ir.TypeAttr.get(kind)
    for which, left_out in (("arg_attrs", set(numbers)), ("res_attrs", stored)):
        kept = [a for i, a in enumerate(f.attributes[which]) if i not in left_out]
        f.attributes[which] = ir.ArrayAttr.get(kept)


def _symbol(buffer: HeldBuffer) -> str:
    return f"state.{buffer.name}"
