"""Buffers that a program changes: caches of decoders, counters. They are state of the loaded program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...core.mlir import arith, ir
from ...dialect.dtypes import DTYPES
from ...ir import build
from ...ir.util_globals import declare, load_global, store_global
from .dtypes import FROM_TORCH, to_numpy

if TYPE_CHECKING:
    from ...core.mlir import OpLike


@dataclass(frozen=True)
class HeldBuffer:
    """A buffer that each call reads, and leaves to the next.

    Attributes:
        name: as the module calls it.
        argument: the placeholder that stands for it in the graph.
        value: what it holds when the program is loaded.
        result: the number of the graph's result that it holds after a call.
    """

    name: str
    argument: str
    value: torch.Tensor
    result: int


def hold_state(module: ir.Module, f: OpLike, arguments: Sequence[str], buffers: Sequence[HeldBuffer]) -> None:
    """Have `f`, whose arguments are called `arguments`, load its buffers and store them, in the place of taking them as
    arguments and giving them as results."""
    if not buffers:
        return
    block = f.regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1]
    numbers = [arguments.index(b.argument) for b in buffers]
    for number, buffer in zip(numbers, buffers, strict=True):
        argument = block.arguments[number]
        with ir.InsertionPoint.at_block_begin(module.body), f.location:
            _declare(_symbol(buffer), argument.type, buffer.value, number)
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


def _declare(symbol: str, t: ir.Type, value: torch.Tensor, number: int) -> None:
    """A global that starts with `value` in a buffer of its own. IREE 3.13 makes one of globals that start with the same
    number everywhere, and writes to it in place; so each such number is computed, of an operand that no other has."""
    name = FROM_TORCH[value.dtype]
    initial = build.elements(to_numpy(value), name if DTYPES[name].kind == "float" else None)
    declare(symbol, t, initial, mutable=True)
    nothing = ir.TypeAttr.get(ir.FunctionType.get([], []))
    initializer = ir.Operation.create("util.initializer", regions=1, attributes={"function_type": nothing})
    with ir.InsertionPoint(initializer.regions[0].blocks.append()):
        one = value.reshape(-1)[:1]
        if value.numel() and bool((value == one).all()):
            start = _everywhere(t, one.item(), number)
        else:
            constant = arith.constant(t, initial)
            start = ir.Operation.create("flow.tensor.clone", results=[t], operands=[constant]).result
        store_global(symbol, start)
        ir.Operation.create("util.return")


def _everywhere(t: ir.Type, value: float, number: int) -> ir.Value:
    """A tensor of one number, as nobody else computes it."""
    mark = build.dense(np.full((), number, np.int32))
    mark = ir.Operation.create("util.optimization_barrier", results=[mark.type], operands=[mark]).result

    def chosen(found: ir.Value) -> ir.Value:
        same = arith.cmpi(arith.CmpIPredicate.eq, found, build.scalar(number, found.type))
        return arith.select(same, build.scalar(value, t.element_type), build.scalar(not value, t.element_type))

    return build.elementwise([build.Arg(mark, ())], list(t.shape), t.element_type, chosen)
