"""Recurrent layers (`kernels/recurrence.py`) as a call of a private function that computes them in linalg, a step in each
turn of a loop. Where a target has a kernel for them, `qmlir-recurrences` puts that in the call's place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.mlir import arith, func, ir, scf, tensor
from ..ir.build import Arg, Extent, as_index, dims, elementwise, empty, filled, generic, generics, index, scalar, static
from ..kernels.recurrence import ATTRIBUTE, LSTM, Phase, Recurrence


def recurrent(layer: Recurrence, operands: Mapping[str, ir.Value]) -> list[ir.Value]:
    """The layer's results at the insertion point, from its operands by their names."""
    given = [operands[name] for name in layer.operands]
    inputs = operands["inputs"].type
    steps, batch = inputs.shape[:2]
    f32, d, h = ir.F32Type.get(), layer.directions, layer.hidden
    shapes = [[steps, d, batch, h], [d, batch, h], *([[d, batch, h]] if layer.cell == LSTM else [])]
    results = [ir.RankedTensorType.get(shape, f32) for shape in shapes]
    caller = ir.InsertionPoint.current.block.owner.operation
    while caller.name != "func.func":
        caller = caller.parent
    with ir.InsertionPoint(caller):
        kind = ir.FunctionType.get([v.type for v in given], results)
        made = func.FuncOp(_unused_name(caller), kind, visibility="private")
        made.attributes[ATTRIBUTE] = layer.attribute()
        made.attributes["no_inline"] = ir.UnitAttr.get()
        for name in caller.attributes:  # the versions of the model, which torch-mlir asks of every function
            if name.startswith("torch."):
                made.attributes[name] = caller.attributes[name]
        with ir.InsertionPoint(made.add_entry_block()):
            func.ReturnOp(_Loops(layer, dict(zip(layer.operands, made.arguments, strict=True))).results())
    return list(func.CallOp(made, given).results)


def _unused_name(caller: ir.Operation) -> str:
    taken = {ir.StringAttr(op.attributes["sym_name"]).value for op in caller.block if "sym_name" in op.attributes}
    return next(name for i in range(len(taken) + 1) if (name := f"recurrence_{i}") not in taken)


class _Loops:
    """The body of such a function."""

    def __init__(self, layer: Recurrence, operands: Mapping[str, ir.Value]) -> None:
        self.layer, self.operands = layer, operands
        self.steps, self.batch, _ = dims(operands["inputs"])
        self.f32 = ir.F32Type.get()

    def results(self) -> list[ir.Value]:
        layer = self.layer
        states = ("h", "c") if layer.cell == LSTM else ("h",)
        y = empty([self.steps, layer.directions, self.batch, layer.hidden], self.f32)
        last = {s: empty([layer.directions, self.batch, layer.hidden], self.f32) for s in states}
        for d in range(layer.directions):
            first = [self._of_direction(self.operands[s], d) for s in states]
            op = scf.ForOp(index(0), as_index(self.steps), index(1), [y, *first])
            with ir.InsertionPoint(op.body):
                y, *held = op.inner_iter_args
                scf.YieldOp(self._step(d, op.induction_variable, y, dict(zip(states, held, strict=True))))
            y = op.results[0]
            for s, value in zip(states, list(op.results)[1:], strict=True):
                last[s] = self._insert(value, last[s], [d, 0, 0])
        return [y, *last.values()]

    def _step(self, d: int, number: ir.Value, y: ir.Value, state: dict[str, ir.Value]) -> list[ir.Value]:
        layer, old = self.layer, dict(state)
        t = arith.subi(arith.subi(as_index(self.steps), index(1)), number) if layer.reverse[d] else number
        state = dict(state)
        for phase in layer.phases:
            state.update(self._phase(d, phase, t, state))
        made, kept = state["h"], {s: state[s] for s in old}
        if layer.lengths:
            made = self._while_inside(t, made, filled([self.batch, layer.hidden], scalar(0.0, self.f32)))
            kept = {s: self._while_inside(t, kept[s], old[s]) for s in old}
        return [self._insert(made, y, [t, d, 0, 0]), *kept.values()]

    def _phase(self, d: int, phase: Phase, t: ir.Value, state: Mapping[str, ir.Value]) -> Mapping[str, ir.Value]:
        layer, h = self.layer, self.layer.hidden
        first, count = phase.gates[0], len(phase.gates)  # gates that are neighbours
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

    def _while_inside(self, t: ir.Value, inside: ir.Value, outside: ir.Value) -> ir.Value:
        """Elementwise, by whether the step is one of the row's."""

        def body(length: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
            now = arith.index_cast(length.type, t)
            return arith.select(arith.cmpi(arith.CmpIPredicate.slt, now, length), a, b)

        args = [Arg(self.operands["lengths"], (0,)), Arg(inside, (0, 1)), Arg(outside, (0, 1))]
        return elementwise(args, [self.batch, self.layer.hidden], self.f32, body)

    def _of_direction(self, value: ir.Value, d: int) -> ir.Value:
        sizes: list[Extent] = [self.batch, self.layer.hidden]
        return self._cut(value, [d, 0, 0], [1, *sizes], sizes)

    # ---- slices, without their axes of size one

    def _cut(
        self, value: ir.Value, at: Sequence[Extent], sizes: Sequence[Extent], kept: Sequence[Extent]
    ) -> ir.Value:
        kind = ir.RankedTensorType.get(static(kept), value.type.element_type)
        return tensor.ExtractSliceOp(
            kind, value, _dynamic(at), _dynamic(sizes), [], static(at), static(sizes), [1] * len(at)
        ).result

    def _insert(self, value: ir.Value, into: ir.Value, at: Sequence[Extent]) -> ir.Value:
        sizes = [*[1] * (len(at) - 2), *dims(value)]
        return tensor.InsertSliceOp(
            value, into, _dynamic(at), _dynamic(sizes), [], static(at), static(sizes), [1] * len(at)
        ).result


def _dynamic(extents: Sequence[Extent]) -> list[ir.Value]:
    return [x for x in extents if not isinstance(x, int)]
