"""onnxruntime in its fastest forms: u8 activations x s8 weights, the MatMulIntegerToFloat into which its optimiser
fuses MatMulInteger and the scales, MatMulNBits, and QLinearConv in both layouts. Inputs and outputs are bound in
advance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from ..networks import Network
from ..problems import SCALE, Array, Convolution, GatedMlp, Moe, Product, pack_low_first, unsigned
from ..works import EIGHT_BITS, FOUR_BITS, LOSSY
from . import Absent, Candidate

PACKAGES = ("onnxruntime", "onnx")

F32, U8, S8 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8
ZERO = np.uint8(128)


_shared = False


def prepare(threads: int) -> None:
    """Sets up one pool of spinning threads for the process: pools of several sessions would compete for the cores."""
    global _shared
    onnxruntime.set_global_thread_pool_sizes(threads, 1)
    _shared = True


class Graph:
    """A graph under construction; operands are names or arrays, which become initialisers."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.inputs: dict[str, Array] = {}

    def input(self, name: str, array: Array) -> str:
        self.inputs[name] = array
        return name

    def add(self, op: str, *operands: Any, count: int = 1, **attributes: Any) -> Any:
        names = []
        for value in operands:
            if not isinstance(value, str):
                array = np.asarray(value)
                value = f"w{len(self.initializers)}"
                self.initializers.append(numpy_helper.from_array(array, value))
            names.append(value)
        results = [f"v{len(self.nodes)}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(op, names, results, **attributes))
        return results[0] if count == 1 else results

    def ms(self, op: str, *operands: Any, **attributes: Any) -> Any:
        """Adds an op of onnxruntime's own domain."""
        return self.add(op, *operands, domain="com.microsoft", **attributes)

    def session(self, result: str, kind: int, threads: int, *, dynamic: bool = False) -> Any:
        """A session that computes `result`. With `dynamic`, the first axis of each input is dynamic."""
        inputs = []
        for name, a in self.inputs.items():
            shape: list[Any] = ["rows", *a.shape[1:]] if dynamic else list(a.shape)
            inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), shape))
        output = helper.make_tensor_value_info(result, kind, None)
        graph = helper.make_graph(self.nodes, "g", inputs, [output], self.initializers)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        options = onnxruntime.SessionOptions()
        options.use_per_session_threads = not _shared
        if not _shared:
            options.intra_op_num_threads = threads
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def run(self, result: str, kind: int, threads: int) -> Callable[[], Any]:
        """A function that computes `result` with bound inputs and outputs: a call copies and allocates nothing."""
        session = self.session(result, kind, threads)
        binding = session.io_binding()
        for name, a in self.inputs.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(a))
        binding.bind_output(result, "cpu")

        def run() -> Any:
            session.run_with_iobinding(binding)
            return binding

        return run


def value(binding: Any) -> Array:
    return np.array(binding.get_outputs()[0].numpy())


def candidates(problem: Any, threads: int) -> list[Candidate]:
    return _candidates(problem, threads)


@singledispatch
def _candidates(problem: Any, threads: int) -> list[Candidate]:
    raise Absent(f"no onnxruntime form of a {type(problem).__name__}")


@_candidates.register
def _product(p: Product, threads: int) -> list[Candidate]:
    found = []
    if p.scheme == "w8a8":
        scale = p.weight_scale.reshape(-1)
        if p.dynamic:
            g = Graph()
            codes, s, z = g.add("DynamicQuantizeLinear", g.input("x", p.lhs_real), count=3)
            y = g.ms("MatMulIntegerToFloat", codes, p.weight, s, scale, z)
            run = g.run(y, F32, threads)
            return [Candidate("ort DynamicQuantizeLinear + MatMulIntegerToFloat", EIGHT_BITS, run, value, 0.02)]
        g = Graph()
        y = g.ms("MatMulIntegerToFloat", g.input("x", unsigned(p.lhs)), p.weight, SCALE, scale, ZERO)
        found.append(Candidate("ort MatMulIntegerToFloat u8s8", EIGHT_BITS, g.run(y, F32, threads), value, 1e-5))
        out_scale = np.float32(6 * 74 * 74 * np.sqrt(p.k) * SCALE * 0.0075 / 127)
        g = Graph()
        y = g.add("QLinearMatMul", g.input("x", unsigned(p.lhs)), SCALE, ZERO, p.weight, scale, np.zeros(p.n, np.int8),
                  out_scale, ZERO)  # fmt: skip
        found.append(Candidate("ort QLinearMatMul u8s8 -> u8", EIGHT_BITS, g.run(y, U8, threads),
                               lambda b: (value(b).astype(np.float32) - 128) * out_scale, 0.02))  # fmt: skip
        return found
    codes = pack_low_first(p.weight + 8).reshape(p.n, p.k // p.group, p.group // 2)
    if p.scheme == "w4a8":
        levels = [(4, "quantises activations to int8", FOUR_BITS)]
    else:
        levels = [
            (0, "f32", FOUR_BITS),
            (1, "f32, its level 1", FOUR_BITS),
            (4, "quantises activations to int8", LOSSY),
        ]
    for level, what, kind in levels:
        g = Graph()
        y = g.ms("MatMulNBits", g.input("x", p.lhs_real), codes, p.weight_scale, K=p.k, N=p.n, bits=4,
                 block_size=p.group, accuracy_level=level)  # fmt: skip
        found.append(Candidate(f"ort MatMulNBits 4 ({what})", kind, g.run(y, F32, threads), value, 0.02))
    if p.scheme == "w4a8":
        wide = Product(p.m, p.n, p.k)
        found += [replace(c, problem=wide) for c in _product(wide, threads) if "QLinear" not in c.name]
    return found


@_candidates.register
def _convolution(p: Convolution, threads: int) -> list[Candidate]:
    found = []
    shared = (SCALE, ZERO, np.ascontiguousarray(p.weight.transpose(0, 3, 1, 2)), p.weight_scale,
              np.zeros(p.filters, np.int8), p.out_scale, ZERO)  # fmt: skip
    attributes: dict[str, Any] = {"kernel_shape": [p.kernel] * 2, "strides": [p.stride] * 2, "pads": [p.padding] * 4,
                                  "group": p.groups}  # fmt: skip
    image = unsigned(p.image)

    def real(b: Any) -> Array:
        return (value(b).astype(np.float32) - 128) * p.out_scale

    g = Graph()
    y = g.add("QLinearConv", g.input("x", np.ascontiguousarray(image.transpose(0, 3, 1, 2))), *shared, **attributes)
    found.append(Candidate("ort QLinearConv NCHW u8s8", EIGHT_BITS, g.run(y, U8, threads),
                           lambda b: real(b).transpose(0, 2, 3, 1), 0.02))  # fmt: skip
    g = Graph()
    y = g.ms("QLinearConv", g.input("x", image), *shared, channels_last=1, **attributes)
    found.append(Candidate("ort QLinearConv NHWC u8s8", EIGHT_BITS, g.run(y, U8, threads), real, 0.02))
    return found


def _gated(g: Graph, codes: str, in_scale: Any, up: Array, up_scale: Array, down: Array, down_scale: Array,
           inner_scale: np.float32) -> str:  # fmt: skip
    """`down(swiglu(up(x)))` with codes between the products."""
    h = g.ms("MatMulIntegerToFloat", codes, up, in_scale, up_scale.reshape(-1), ZERO)
    gate, linear = g.add("Split", h, count=2, axis=1, num_outputs=2)
    silu = g.ms("QuickGelu", gate, alpha=1.0)  # x * sigmoid(alpha * x)
    q = g.add("QuantizeLinear", g.add("Mul", silu, linear), inner_scale, ZERO)
    return str(g.ms("MatMulIntegerToFloat", q, down, inner_scale, down_scale.reshape(-1), ZERO))


@_candidates.register
def _mlp(p: GatedMlp, threads: int) -> list[Candidate]:
    g = Graph()
    y = _gated(g, g.input("x", unsigned(p.x)), SCALE, p.up, p.up_scale, p.down, p.down_scale, p.inner_scale)
    return [Candidate("ort MatMulIntegerToFloat chain u8s8", EIGHT_BITS, g.run(y, F32, threads), value, 0.01)]


@_candidates.register
def _moe(p: Moe, threads: int) -> list[Candidate]:
    """A loop over the experts that have tokens, with one session each."""
    x, rows = unsigned(p.x), p.rows()
    sessions = []
    for e, token, _ in rows:
        g = Graph()
        codes = g.input("x", x[token])
        y = _gated(g, codes, SCALE, p.w1[e], p.w1_scale[e], p.w2[e], p.w2_scale[e], p.inner_scale)
        sessions.append(g.session(y, F32, threads, dynamic=True))

    def run() -> Array:
        out = np.zeros((p.tokens, p.hidden), np.float32)
        for session, (_, token, weight) in zip(sessions, rows, strict=True):
            out[token] += weight * session.run(None, {"x": x[token]})[0]
        return out

    return [Candidate("ort loop of MatMulIntegerToFloat", EIGHT_BITS, run, lambda y: y, 0.01)]


@_candidates.register
def _network(p: Network, threads: int) -> list[Candidate]:
    g = Graph()
    zero = np.uint8(0)

    def zero_of(node: int) -> np.uint8:
        return np.uint8(int(p.in_zero) + 128) if node == -1 else zero

    image = np.ascontiguousarray(unsigned(p.image).transpose(0, 3, 1, 2))
    values = {-1: g.input("x", image)}
    for i, n in enumerate(p.nodes):
        source = values[n.source]
        if n.kind == "max_pool":
            values[i] = g.add("MaxPool", source, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        elif n.kind == "average":
            values[i] = g.ms("QLinearGlobalAveragePool", source, n.scale, zero, n.scale, zero, channels_last=0)
        else:
            w = n.layer
            assert w is not None
            # QLinearAdd takes codes: the convolution's result may be negative, so its zero point is in the middle.
            out_zero = zero if n.residual is None else ZERO
            y = g.add("QLinearConv", source, w.in_scale, zero_of(n.source),
                      np.ascontiguousarray(w.weight.transpose(0, 3, 1, 2)), w.scale,
                      np.zeros(len(w.weight), np.int8), w.out_scale, out_zero, w.bias,
                      kernel_shape=[w.weight.shape[1]] * 2, strides=[w.stride] * 2, pads=[w.padding] * 4)  # fmt: skip
            if n.residual is not None:
                other = p.nodes[n.residual].scale
                y = g.ms("QLinearAdd", y, w.out_scale, out_zero, values[n.residual], other, zero, w.out_scale, zero)
            values[i] = y
    w = p.last
    flat = values[len(p.nodes) - 1]
    if p.nodes[-1].kind != "average":
        flat = g.add("Transpose", flat, perm=[0, 2, 3, 1])  # the weight is in NHWC order
    flat = g.add("Flatten", flat)
    weight = np.ascontiguousarray(w.weight.reshape(len(w.weight), -1).T)
    y = g.ms("MatMulIntegerToFloat", flat, weight, w.in_scale, w.scale, zero)
    y = g.add("Add", y, w.real_bias())
    return [Candidate("ort QLinear chain u8s8", EIGHT_BITS, g.run(y, F32, threads), value, 0.05)]
