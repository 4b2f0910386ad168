"""LSTM, GRU and RNN: one product before the loop over the steps computes the inputs' contribution to all gates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....core.mlir import arith, ir, tensor
from ....ir.build import (
    Arg,
    dims,
    elementwise,
    filled,
    index,
    loop_index,
    scalar,
)
from ....kernels.recurrence import ACTIVATIONS, GATES, GRU, LSTM, RNN, Activation, Recurrence
from ....spec import TensorSpec
from ...raising import NotQuantised, Tensor, raises
from ...recurrence import recurrent
from ...tensors import drop_axis, in_rows, new_axis
from ..model import refuse
from ..node import Node
from .common import ints, narrowed, onnx_op, quantised_input

_DEFAULTS = {LSTM: ("sigmoid", "tanh", "tanh"), GRU: ("sigmoid", "tanh"), RNN: ("tanh",)}
# Default parameters of activations; None if the defaults of ONNX and onnxruntime differ.
_ALPHA = {
    "affine": None,
    "thresholdedrelu": None,
    "scaledtanh": None,
    "leakyrelu": 0.01,
    "hardsigmoid": 0.2,
    "elu": 1.0,
}
_BETA = {"affine": None, "scaledtanh": None, "hardsigmoid": 0.5}


@raises("onnx.LSTM", "onnx.GRU", "onnx.RNN")
def recurrent_layer(op: Node) -> list[Tensor]:
    """Built in f32. A warning names nodes with dequantised operands, because they have no integer form."""
    x, w, r = (op.operand(i) for i in range(3))
    if x.dtype != "f32" or None in (*w.shape, *r.shape):
        raise NotQuantised
    op.plain = True
    if any(quantised_input(op, i) is not None for i in range(len(op.proto.input))):
        op.left(f"{op.op_type} of dequantised values has no integer form")
    return _Layer(op, op.op_type.lower()).results()


class _Layer:
    """The import of one node. With `layout` 1 the batch is the first axis of its operands and results."""

    def __init__(self, op: Node, cell: str) -> None:
        self.op, self.cell = op, cell
        self.directions, _, self.hidden = (s or 0 for s in op.operand(2).shape)
        self.gates = GATES[cell]
        self.batch_first = bool(op.attributes.get("layout", 0))
        self.x = narrowed(op, self._moved(op.operand(0)), [None, None, op.operand(1).shape[2]])
        self.late_reset = cell == GRU and bool(op.attributes.get("linear_before_reset", 0))
        self.bias = op.optional(3)
        self.lengths = self._lengths()
        self.peepholes = op.optional(7) if cell == LSTM else None

    def results(self) -> list[Tensor]:
        a = self.op.attributes
        direction = a.get("direction", "forward")
        backward = [direction == "reverse", True][: self.directions]
        if len(backward) != self.directions or (direction == "bidirectional") != (self.directions == 2):
            raise refuse(f"{self.op.op_type} has weights of {self.directions} directions, and direction {direction!r}",
                         self.op.where)  # fmt: skip
        # If rows have their own lengths, the loop runs forward, and a reverse direction gets reversed rows and reverses
        # its results.
        reverse = [d for d in range(self.directions) if backward[d] and self.lengths is not None]
        layer = Recurrence(
            self.cell, self.hidden, tuple(b and d not in reverse for d, b in enumerate(backward)), self._activations(),
            late_reset=self.late_reset, coupled=self.cell == LSTM and bool(a.get("input_forget", 0)),
            clip=float(a.get("clip", 0.0)), peepholes=self.peepholes is not None, lengths=self.lengths is not None,
        )  # fmt: skip
        inputs = self._inputs()
        if reverse:
            width = self.gates * self.hidden
            parts = [self._part(inputs, 2, d * width, (d + 1) * width) for d in range(self.directions)]
            parts = [self._reversed(p) if d in reverse else p for d, p in enumerate(parts)]
            inputs = onnx_op(self.op, "Concat", *parts, axis=2)
        operands = {"inputs": inputs, "weights": self.op.operand(2), "h": self._state(5)}
        if self.cell == LSTM:
            operands["c"] = self._state(6)
        if self.late_reset:
            operands["bias"] = self._late_bias()
        if self.peepholes is not None:
            operands["peepholes"] = self.peepholes
        if self.lengths is not None:
            operands["lengths"] = self.lengths
        steps, batch = self.x.shape[:2]
        shape = (self.directions, batch, self.hidden)
        y, *states = recurrent(layer, {name: t.value for name, t in operands.items()})
        whole = Tensor(TensorSpec((steps, *shape), "f32"), y)
        if reverse:
            parts = [self._part(whole, 1, d, d + 1) for d in range(self.directions)]
            parts = [new_axis(self._reversed(drop_axis(p, 1)), 1) if d in reverse else p for d, p in enumerate(parts)]
            whole = onnx_op(self.op, "Concat", *parts, axis=1)
        found = [whole, *(Tensor(TensorSpec(shape, "f32"), s) for s in states)]
        if not self.batch_first:
            return found
        return [onnx_op(self.op, "Transpose", found[0], perm=[2, 0, 1, 3]), *(self._moved(s) for s in found[1:])]

    # ---- operands

    def _inputs(self) -> Tensor:
        """The inputs' contribution to the gates at all steps, `[T, B, D * G * H]`."""
        op, w = self.op, self.op.operand(1)
        size = w.shape[2] or 0
        if w.array is not None:
            weights = Tensor.constant(np.ascontiguousarray(w.array.reshape(-1, size).T))
        else:
            weights = onnx_op(op, "Transpose", onnx_op(op, "Reshape", w, ints([-1, size])), perm=[1, 0])
        flat, unflatten = in_rows(self.x)
        product = onnx_op(op, "MatMul", flat, weights)
        if self.bias is not None:
            product = onnx_op(op, "Add", product, self._input_bias(self.bias))
        return unflatten(product)

    def _input_bias(self, bias: Tensor) -> Tensor:
        """The sum of both biases of each gate; only the input's bias if the state's is added inside the loop."""
        width = self.gates * self.hidden
        both = 2 * self.hidden if self.late_reset else width
        total = onnx_op(self.op, "Add", self._part(bias, 1, 0, both), self._part(bias, 1, width, width + both))
        if both < width:
            total = onnx_op(self.op, "Concat", total, self._part(bias, 1, both, width), axis=1)
        return onnx_op(self.op, "Reshape", total, ints([-1]))

    def _late_bias(self) -> Tensor:
        if self.bias is None:
            return Tensor.constant(np.zeros((self.directions, self.hidden), np.float32))
        return self._part(self.bias, 1, 5 * self.hidden, 6 * self.hidden)

    def _lengths(self) -> Tensor | None:
        """The lengths of the rows; None if all rows have all steps."""
        found = self.op.optional(4)
        steps = self.x.shape[0]
        whole = found is not None and found.array is not None and steps is not None and (found.array >= steps).all()
        return None if whole else found

    def _state(self, i: int) -> Tensor:
        given = self.op.optional(i)
        if given is not None:
            return self._moved(given)
        batch = self.x.shape[1]
        sizes = [self.directions, dims(self.x.value)[1], self.hidden]
        zeros = filled(sizes, scalar(0.0, ir.F32Type.get()))
        return Tensor(TensorSpec((self.directions, batch, self.hidden), "f32"), zeros)

    def _activations(self) -> tuple[tuple[Activation, ...], ...]:
        a, usual = self.op.attributes, _DEFAULTS[self.cell]
        given: Sequence[bytes] = a.get("activations", [])
        names = [name.decode().lower() for name in given] or list(usual) * self.directions
        unknown = [name for name in names if name not in ACTIVATIONS]
        if unknown or len(names) != len(usual) * self.directions:
            raise refuse(f"{self.op.op_type} with activations {names} is not imported", self.op.where)
        # The lists have an element for each activation with such a parameter.
        alphas, betas = iter(a.get("activation_alpha", [])), iter(a.get("activation_beta", []))
        made = []
        for name in names:
            alpha = next(alphas, _ALPHA[name]) if name in _ALPHA else 0.0
            beta = next(betas, _BETA[name]) if name in _BETA else 0.0
            if alpha is None or beta is None:
                raise refuse(f"{self.op.op_type} with an activation {name} has to state its parameters", self.op.where)
            made.append(Activation(name, alpha, beta))
        return tuple(tuple(made[d * len(usual) : (d + 1) * len(usual)]) for d in range(self.directions))

    # ---- transposes, slices and reversals

    def _moved(self, t: Tensor) -> Tensor:
        """Exchange the first two axes if the node has the batch first."""
        return onnx_op(self.op, "Transpose", t, perm=[1, 0, 2]) if self.batch_first else t

    def _part(self, t: Tensor, axis: int, start: int, end: int) -> Tensor:
        return onnx_op(self.op, "Slice", t, ints([start]), ints([end]), ints([axis]))

    def _reversed(self, t: Tensor) -> Tensor:
        """`[T, B, N]` with the steps of each row within its length reversed and later steps unchanged."""
        assert self.lengths is not None
        sizes = dims(t.value)

        def body(length: ir.Value) -> ir.Value:
            step, steps = loop_index(0), arith.index_cast(ir.IndexType.get(), length)
            last_first = arith.subi(arith.subi(steps, index(1)), step)
            inside = arith.cmpi(arith.CmpIPredicate.slt, step, steps)
            return tensor.extract(t.value, [arith.select(inside, last_first, step), loop_index(1), loop_index(2)])

        made = elementwise([Arg(self.lengths.value, (1,))], sizes, ir.F32Type.get(), body)
        return Tensor(t.spec, made)
