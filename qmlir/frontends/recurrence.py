"""Build a recurrent layer (`kernels/recurrence.py`) as a call of a private function that computes it in linalg, one
step per loop iteration. If the target has a kernel for the layer, `qmlir-recurrences` replaces the call by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.mlir import arith, func, ir, scf, tensor
from ..ir.barriers import Reason, fusion_barrier
from ..ir.build import (
    Arg,
    Extent,
    as_index,
    dims,
    elementwise,
    empty,
    filled,
    generic,
    generics,
    index,
    loop_index,
    scalar,
    static,
)  # fmt: skip
from ..kernels.outline import unused_name
from ..kernels.recurrence import ATTRIBUTE, LSTM, Phase, Recurrence

if TYPE_CHECKING:
    from ..core.mlir import OpLike


def recurrent(layer: Recurrence, operands: Mapping[str, ir.Value]) -> list[ir.Value]:
    """The layer's results at the insertion point, from its operands by their names."""
    given = [operands[name] for name in layer.operands]
    inputs = operands["inputs"].type
    steps, batch = inputs.shape[:2]
    f32, d, h = ir.F32Type.get(), layer.directions, layer.hidden
    shapes = [[steps, d, batch, h], [d, batch, h], *([[d, batch, h]] if layer.cell == LSTM else [])]
    results = [ir.RankedTensorType.get(shape, f32) for shape in shapes]
    caller: OpLike = ir.InsertionPoint.current.block.owner.operation
    while caller.name != "func.func":
        caller = caller.parent
    with ir.InsertionPoint(caller):
        kind = ir.FunctionType.get([v.type for v in given], results)
        made = func.FuncOp(unused_name(caller, "recurrence"), kind, visibility="private")
        made.attributes[ATTRIBUTE] = layer.attribute()
        made.attributes["no_inline"] = ir.UnitAttr.get()
        for name in caller.attributes:  # the versions of the model, which torch-mlir needs on every function
            if name.startswith("torch."):
                made.attributes[name] = caller.attributes[name]
        with ir.InsertionPoint(made.add_entry_block()):
            func.ReturnOp(_Loops(layer, dict(zip(layer.operands, made.arguments, strict=True))).results())
    return list(func.CallOp(made, given).results)


class _Loops:
    """The body of the private function: one loop for each direction."""

    def __init__(self, layer: Recurrence, operands: Mapping[str, ir.Value]) -> None:
        self.layer, self.operands = layer, operands
        self.steps, self.batch, _ = dims(operands["inputs"])
        self.f32 = ir.F32Type.get()

    def results(self) -> list[ir.Value]:
        layer = self.layer
        y = empty([self.steps, layer.directions, self.batch, layer.hidden], self.f32)
        last = [empty([layer.directions, self.batch, layer.hidden], self.f32) for _ in self.states]
        for d in range(layer.directions):
            history = self._history(d)
            # `history` has the initial state at one end and the final state at the other.
            first_slot: Extent = 0 if layer.reverse[d] else 1
            end: Extent = 0 if layer.reverse[d] else self.steps
            whole: list[Extent] = [self.steps, self.batch, layer.hidden]
            y = self._insert(self._cut(history, [first_slot, 0, 0, 0], _add_axis(whole, 1), whole), y, [0, d, 0, 0])
            for i in range(len(last)):
                if layer.lengths:
                    value = self._final_state(history, i)
                else:
                    value = self._state(history, end, i)
                last[i] = self._insert(value, last[i], [d, 0, 0])
        return [self._masked(y) if layer.lengths else y, *last]

    @property
    def states(self) -> tuple[str, ...]:
        return ("h", "c") if self.layer.cell == LSTM else ("h",)

    def _history(self, d: int) -> ir.Value:
        """The states before each step and after the last one, `[T + 1, states, B, H]`: the only value that the loop
        carries."""
        layer = self.layer
        slots = arith.addi(as_index(self.steps), index(1)) if not isinstance(self.steps, int) else self.steps + 1
        history = empty([slots, len(self.states), self.batch, layer.hidden], self.f32)
        start: Extent = self.steps if layer.reverse[d] else 0
        for i, name in enumerate(self.states):
            history = self._insert(self._of_direction(self.operands[name], d), history, [start, i, 0, 0])
        history = fusion_barrier(history, Reason.LOOP_START)
        op = scf.ForOp(index(0), as_index(self.steps), index(1), [history])
        with ir.InsertionPoint(op.body):
            number, (history,) = op.induction_variable, op.inner_iter_args
            t, old, new = number, number, arith.addi(number, index(1))
            if layer.reverse[d]:
                old = arith.subi(as_index(self.steps), number)
                t = new = arith.subi(old, index(1))
            state = {name: self._state(history, old, i) for i, name in enumerate(self.states)}
            for phase in layer.phases:
                state.update(self._phase(d, phase, t, state))
            for i, name in enumerate(self.states):
                history = self._insert(state[name], history, [new, i, 0, 0])
            scf.YieldOp([history])
        return op.results[0]

    def _state(self, history: ir.Value, slot: Extent, i: int) -> ir.Value:
        sizes: list[Extent] = [self.batch, self.layer.hidden]
        return self._cut(history, [slot, i, 0, 0], [1, 1, *sizes], sizes)

    def _phase(self, d: int, phase: Phase, t: ir.Value, state: Mapping[str, ir.Value]) -> Mapping[str, ir.Value]:
        layer, h = self.layer, self.layer.hidden
        first, count = phase.gates[0], len(phase.gates)  # a phase's gates are adjacent
        weights = self._cut(self.operands["weights"], [d, first * h, 0], [1, count * h, h], [count * h, h])
        start = filled([self.batch, count * h], scalar(0.0, self.f32))
        products = generic([Arg(state[phase.source], (0, 2)), Arg(weights, (1, 2))], start, (0, 1), 3,
                           lambda x, w, total: arith.addf(total, arith.mulf(x, w)))  # fmt: skip
        args = [Arg(self._cut(products, [0, i * h], [self.batch, h], [self.batch, h]), (0, 1)) for i in range(count)]
        args += [self._start(d, gate, t) for gate in phase.gates]
        args += [self._read(d, name, t, state) for name in phase.reads]

        def body(*xs: ir.Value) -> Sequence[ir.Value]:
            sums = [arith.addf(xs[i], xs[count + i]) for i in range(count)]
            known = dict(zip(phase.reads, xs[2 * count :], strict=False))
            found = layer.computed(d, phase, sums, known.__getitem__)
            return [found[name] for name in phase.writes]

        outs = [empty([self.batch, h], self.f32) for _ in phase.writes]
        return dict(zip(phase.writes, generics(args, outs, (0, 1), 2, body), strict=True))

    def _start(self, d: int, gate: int, t: ir.Value) -> Arg:
        if self.layer.starts_from(gate) == "bias":
            return Arg(self._cut(self.operands["bias"], [d, 0], [1, self.layer.hidden], [self.layer.hidden]), (1,))
        return self._input(d, gate, t)

    def _input(self, d: int, gate: int, t: ir.Value) -> Arg:
        h = self.layer.hidden
        at = (d * self.layer.gates + gate) * h
        return Arg(self._cut(self.operands["inputs"], [t, 0, at], [1, self.batch, h], [self.batch, h]), (0, 1))

    def _read(self, d: int, name: str, t: ir.Value, state: Mapping[str, ir.Value]) -> Arg:
        h = self.layer.hidden
        if name.startswith("p"):
            return Arg(self._cut(self.operands["peepholes"], [d, int(name[1:]) * h], [1, h], [h]), (1,))
        return self._input(d, int(name[1:]), t) if name.startswith("x") else Arg(state[name], (0, 1))

    def _masked(self, y: ir.Value) -> ir.Value:
        """`y` with zeros at the steps past the length of each row."""

        def body(x: ir.Value, length: ir.Value) -> ir.Value:
            steps = arith.index_cast(ir.IndexType.get(), length)
            inside = arith.cmpi(arith.CmpIPredicate.slt, loop_index(0), steps)
            return arith.select(inside, x, scalar(0.0, self.f32))

        return elementwise([Arg(y, (0, 1, 2, 3)), Arg(self.operands["lengths"], (2,))], dims(y), self.f32, body)

    def _final_state(self, history: ir.Value, i: int) -> ir.Value:
        """State `i` after the last step of each row."""

        def body(length: ir.Value) -> ir.Value:
            slot = arith.index_cast(ir.IndexType.get(), length)
            return tensor.extract(history, [slot, index(i), loop_index(0), loop_index(1)])

        args = [Arg(self.operands["lengths"], (0,))]
        return elementwise(args, [self.batch, self.layer.hidden], self.f32, body)

    def _of_direction(self, value: ir.Value, d: int) -> ir.Value:
        sizes: list[Extent] = [self.batch, self.layer.hidden]
        return self._cut(value, [d, 0, 0], [1, *sizes], sizes)

    # ---- slices, whose unit axes are dropped

    def _cut(self, value: ir.Value, at: Sequence[Extent], sizes: Sequence[Extent], kept: Sequence[Extent]) -> ir.Value:
        kind = ir.RankedTensorType.get(static(kept), value.type.element_type)
        return tensor.ExtractSliceOp(
            kind, value, _dynamic(at), _dynamic(sizes), [], static(at), static(sizes), [1] * len(at)
        ).result

    def _insert(self, value: ir.Value, into: ir.Value, at: Sequence[Extent]) -> ir.Value:
        """Insert `value`, which has the last axes of `into`; or the first and the last two if it has three of four."""
        sizes = dims(value)
        sizes = _add_axis(sizes, 1) if len(sizes) == 3 else [*[1] * (len(at) - 2), *sizes]
        return tensor.InsertSliceOp(
            value, into, _dynamic(at), _dynamic(sizes), [], static(at), static(sizes), [1] * len(at)
        ).result


def _add_axis(sizes: Sequence[Extent], axis: int) -> list[Extent]:
    """`sizes` with a unit axis inserted before `axis`."""
    return [*sizes[:axis], 1, *sizes[axis:]]


def _dynamic(extents: Sequence[Extent]) -> list[ir.Value]:
    return [x for x in extents if not isinstance(x, int)]
