"""MaxPool of codes on x86: first the maximum of the rows under a window, on vectors of neighbouring columns, then the
maximum along the row, with overlapping loads. Every stride-th result is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....core.mlir import arith, flow, ir, tensor, vector
from ....ir import build
from ....ir.attributes import entry_points
from ....kernels.code_pooling import CodePooling, replace
from ....kernels.outline import function_of, once, unused_name
from ....kernels.pointwise import Pointwise, sizes_of
from ...base import Target
from ...cost import TYPICAL_CORE
from ...strategy import Accept, Decline, Estimate, Facts
from ..description import lacks
from ..threads.cost import a_nanosecond
from ..threads.program import team_of
from . import emit as e
from .chunks import Chunked, executable
from .rows import LANES

if TYPE_CHECKING:
    from ....core.mlir import OpLike

_BYTES = 64
_CHUNK = 16384  # elements
_MAX_ROW = 32768  # bytes of a row on the stack


@dataclass(frozen=True)
class PoolingStrategy:
    """MaxPool of codes with vectors of 64 bytes."""

    target: Target

    @property
    def name(self) -> str:
        return "pooling-avx512"

    def consider(self, group: Pointwise | CodePooling) -> Accept | Decline:
        """See `strategy.GroupStrategy`."""
        if not isinstance(group, CodePooling):
            return Decline("no pooling")
        if declined := lacks(self.target, *LANES[0].features):
            return declined
        channels = sizes_of(group.codes)[1]
        if channels is None or 0 in sizes_of(group.op.results[0]):
            return Decline("dynamic channels, or no elements")
        if max(group.strides) > 8 or (group.image[1] or 0) + sum((group.low[1], group.high[1])) > _MAX_ROW:
            return Decline("a stride over 8, or rows that exceed a thread's stack")
        return Accept(PoolingPlan(group), Estimate(None))


@dataclass(frozen=True)
class PoolingPlan:
    """Replaces the pooling by a dispatch of the kernel, followed by the dequantisation of its codes."""

    pooling: CodePooling

    def apply(self, op: OpLike) -> None:
        """See `strategy.Plan`."""
        source, function = self.pooling.codes, function_of(op)
        result = ir.RankedTensorType.get(ir.RankedTensorType(op.results[0].type).shape, source.type.element_type)
        dynamic = sizes_of(source)[0] is None
        with op.location, ir.InsertionPoint(function):
            name = unused_name(function, "pooling")
            kernel = PoolingKernel(self.pooling)
            sizes: list[int | None] = [None] if dynamic else []
            kinds = [source.type, result]
            entry = executable(name, sizes, kinds, Chunked(kernel.count, kernel.chunk, kernel.cost),
                               [[0] * dynamic] * 2)  # fmt: skip
        entry = once(function.parent, name, entry)
        with op.location, ir.InsertionPoint(op):
            batch = [tensor.dim(source, build.index(0))] if dynamic else []
            call = flow.DispatchOp([result], batch, entry_points(entry), [team_of(op), *batch, source], batch, batch)
            replace(self.pooling, call.results[0])

    def describe(self) -> Facts:
        """See `strategy.Plan`."""
        return {"route": "kernel", "window": list(self.pooling.window)}


class PoolingKernel:
    """The executable of one pooling; a chunk is a few planes `[H, W]`."""

    def __init__(self, pooling: CodePooling) -> None:
        self.pooling = pooling
        batch, self.channels = sizes_of(pooling.codes)[:2]
        self.batch = batch
        self.height, self.width = (s or 0 for s in pooling.image)
        self.out_height, self.out_width = (s or 0 for s in sizes_of(pooling.op.results[0])[2:])
        self.planes_of_chunk = max(1, _CHUNK // (self.height * self.width))
        self.larger = arith.maxui if pooling.unsigned else arith.maxsi
        self.least = 0 if pooling.unsigned else -128

    def _planes(self, dynamic: Sequence[e.Index]) -> e.Index:
        return e.multiply(dynamic[0] if self.batch is None else self.batch, self.channels or 0)

    def count(self, *dynamic: e.Index) -> e.Index:
        return e.divide_up(self._planes(dynamic), self.planes_of_chunk)

    def cost(self, *dynamic: e.Index) -> e.Index:
        """About how many nanoseconds a call takes on one thread."""
        rows = self.pooling.window[0] * self.width + self.pooling.window[1] * self.out_width * self.pooling.strides[1]
        return e.divide(e.multiply(self._planes(dynamic), rows * self.out_height), a_nanosecond(TYPICAL_CORE.pooled))

    def chunk(self, number: ir.Value, dynamic: list[e.Index], buffers: list[e.Buffer]) -> None:
        source, result = buffers
        byte = e.integer(8)
        reach = self.pooling.low[1] + self.width + self.pooling.high[1] + 2 * _BYTES
        length = -(-reach // _BYTES) * _BYTES + _BYTES * self.pooling.strides[1]
        row = e.Buffer(e.pointer(e.scratch([length], byte)), byte, (length,))
        nothing = e.splat(self.least, _BYTES, byte)
        with e.loop(0, length, _BYTES) as block:
            e.store(nothing, e.at(row.address, block.index))
        first = e.multiply(number, self.planes_of_chunk)
        last = e.minimum(e.add(first, self.planes_of_chunk), self._planes(dynamic))
        with e.loop(first, last) as plane, e.loop(0, self.out_height) as line:
            self._down(e.multiply(plane.index, self.height), line.index, source, row)
            begin = e.multiply(e.add(e.multiply(plane.index, self.out_height), line.index), self.out_width)
            self._along(begin, result, row)

    def _down(self, top: e.Index, line: ir.Value, source: e.Buffer, row: e.Buffer) -> None:
        """Store the maximum of each column under the window to `row`. In place of a line outside the image, the nearest
        line of the image is read, which is under the window too."""
        (kernel, _), low, stride = self.pooling.window, self.pooling.low[0], self.pooling.strides[0]
        offsets = []
        for k in range(kernel):
            at = e.add(e.multiply(line, stride), k)  # the line of the image, plus `low`
            at = e.subtract(arith.maxsi(e.index(at), e.index(low)), low)
            at = e.minimum(at, self.height - 1)
            offsets.append(e.multiply(e.add(top, at), self.width))
        flat = e.Buffer(source.address, source.element, (1,))
        target = e.Buffer(row.address, row.element, (1,))

        def columns(x: e.Index, mask: ir.Value | None) -> None:
            value = None
            for offset in offsets:
                loaded = e.load_vector(flat, (e.add(offset, x),), _BYTES, mask)
                value = loaded if value is None else self.larger(value, loaded)
            assert value is not None
            e.store_vector(value, target, (e.add(x, self.pooling.low[1]),), mask)

        whole = self.width // _BYTES * _BYTES
        if whole:
            with e.loop(0, whole, _BYTES) as block:
                columns(block.index, None)
        if whole < self.width:
            columns(whole, e.first_lanes(self.width - whole, _BYTES))

    def _along(self, begin: e.Index, result: e.Buffer, row: e.Buffer) -> None:
        """Store the maximum of each window along `row` to the result's row from `begin` on."""
        kernel, stride = self.pooling.window[1], self.pooling.strides[1]
        lanes = 1 << ((_BYTES // stride).bit_length() - 1)
        wide = e.vector_of(_BYTES, row.element)
        flat = e.Buffer(result.address, result.element, (1,))

        def places(x: e.Index, mask: ir.Value | None) -> None:
            value = None
            for k in range(kernel):
                loaded = e.load(wide, e.at(row.address, e.add(e.multiply(x, stride), k)))
                value = loaded if value is None else self.larger(value, loaded)
            assert value is not None
            if stride > 1:
                value = vector.shuffle(value, value, [i * stride for i in range(lanes)])
            e.store_vector(value, flat, (e.add(begin, x),), mask)

        whole = self.out_width // lanes * lanes
        if whole:
            with e.loop(0, whole, lanes) as block:
                places(block.index, None)
        if whole < self.out_width:
            places(whole, e.first_lanes(self.out_width - whole, lanes))
