"""Random models of one quantised operator each, for comparisons with onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]
Made = tuple[Any, dict[str, Array]]  # a model and its inputs
MICROSOFT = "com.microsoft"


def model(
    nodes: Sequence[Any], inputs: Mapping[str, Array], outputs: Sequence[str], constants: Mapping[str, Any],
    opset: int = 17, dynamic: bool = False,
) -> Any:  # fmt: skip
    """An `onnx.ModelProto`. `dynamic`: the first axis of each input has no static size."""

    def shape(a: Array) -> list[Any]:
        return [("N" if dynamic and i == 0 else s) for i, s in enumerate(a.shape)]

    graph = helper.make_graph(
        list(nodes), "graph",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), shape(a))
         for n, a in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


class Random:
    """Codes, scales and zero points of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.signed = bool(self.rng.integers(2))

    def codes(self, *shape: int, signed: bool | None = None) -> Array:
        dtype = np.int8 if (self.signed if signed is None else signed) else np.uint8
        info = np.iinfo(dtype)
        return self.rng.integers(info.min, info.max + 1, shape).astype(dtype)

    def zero(self) -> Array:
        return self.codes().reshape(())

    def scale(self, *shape: int, times: float = 1.0) -> Array:
        return np.asarray((self.rng.random(shape) * 0.05 + 0.005) * times, np.float32)

    def bias(self, n: int) -> Array:
        return self.rng.integers(-1000, 1000, n).astype(np.int32)

    def floats(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def size(self, lo: int, hi: int) -> int:
        return int(self.rng.integers(lo, hi + 1))


def node(op: str, inputs: Sequence[str], domain: str = MICROSOFT, **attributes: Any) -> Any:
    return helper.make_node(op, list(inputs), ["y"], name=op, domain=domain, **attributes)


def _unary(op: str, **attributes: Any) -> Callable[[Random], Made]:
    def make(r: Random) -> Made:
        x = r.codes(r.size(1, 3), r.size(1, 6), r.size(2, 6), r.size(2, 7))
        parts = {"xs": r.scale(), "xz": r.zero(), "ys": r.scale(), "yz": r.zero()}
        if op == "QLinearSoftmax":
            parts |= {"ys": np.float32(1 / 256), "yz": np.asarray(-128 if r.signed else 0, x.dtype)}
        return model([node(op, ["x", *parts], **attributes)], {"x": x}, ["y"], parts), {"x": x}

    return make


def _binary(op: str) -> Callable[[Random], Made]:
    def make(r: Random) -> Made:
        shape = (r.size(1, 3), r.size(1, 6), r.size(1, 9))
        a, b = r.codes(*shape), r.codes(*(s if r.size(0, 2) else 1 for s in shape))
        parts = {"as": r.scale(), "az": r.zero(), "bs": r.scale(), "bz": r.zero(), "ys": r.scale(times=2.0),
                 "yz": r.zero()}  # fmt: skip
        made = node(op, ["a", "as", "az", "b", "bs", "bz", "ys", "yz"])
        return model([made], {"a": a, "b": b}, ["y"], parts), {"a": a, "b": b}

    return make


def concat(r: Random) -> Made:
    a, b = r.codes(2, r.size(1, 4), 5), r.codes(2, r.size(1, 4), 5)
    parts = {"ys": r.scale(), "yz": r.zero(), "as": r.scale(), "az": r.zero(), "bs": r.scale(), "bz": r.zero()}
    made = node("QLinearConcat", ["ys", "yz", "a", "as", "az", "b", "bs", "bz"], axis=1)
    return model([made], {"a": a, "b": b}, ["y"], parts), {"a": a, "b": b}


def qgemm(r: Random) -> Made:
    m, k, n, transposed = r.size(1, 6), r.size(1, 70), r.size(1, 20), bool(r.size(0, 1))
    a, b = r.codes(m, k), r.codes(*((n, k) if transposed else (k, n)), signed=True)
    parts = {"as": r.scale(), "az": r.zero(), "b": b, "bs": r.scale(n), "bz": np.zeros(n, np.int8), "c": r.bias(n),
             "ys": r.scale(times=30.0), "yz": r.zero()}  # fmt: skip
    return model([node("QGemm", ["a", *parts], transB=int(transposed), alpha=1.0)], {"a": a}, ["y"], parts), {"a": a}


def qlinear_matmul(r: Random) -> Made:
    m, k, n = r.size(1, 6), r.size(1, 70), r.size(1, 20)
    a, b = r.codes(2, m, k), r.codes(k, n, signed=True)
    parts = {"as": r.scale(), "az": r.zero(), "b": b, "bs": r.scale(n), "bz": np.zeros(n, np.int8),
             "ys": r.scale(times=30.0), "yz": r.zero()}  # fmt: skip
    return model([node("QLinearMatMul", ["a", *parts], "")], {"a": a}, ["y"], parts), {"a": a}


def qlinear_conv(r: Random) -> Made:
    depthwise = bool(r.size(0, 1))
    c, f = r.size(1, 6), r.size(1, 8)
    kh, kw = r.size(1, 3), r.size(1, 3)
    x = r.codes(r.size(1, 2), c, r.size(4, 9), r.size(4, 9))
    w = r.codes(c if depthwise else f, 1 if depthwise else c, kh, kw, signed=True)
    parts = {"xs": r.scale(), "xz": r.zero(), "w": w, "ws": r.scale(len(w)), "wz": np.zeros(len(w), np.int8),
             "ys": r.scale(times=8.0), "yz": r.zero(), "bias": r.bias(len(w))}  # fmt: skip
    geometry = {"pads": [r.size(0, 1) for _ in range(4)], "strides": [r.size(1, 2), r.size(1, 2)]}
    made = node("QLinearConv", ["x", *parts], "", group=c if depthwise else 1, **geometry)
    return model([made], {"x": x}, ["y"], parts), {"x": x}


def matmul_nbits(r: Random) -> Made:
    bits, block = 4, [16, 32][r.size(0, 1)]
    k, n = r.size(1, 4) * 16 + 16 * r.size(0, 1), r.size(1, 20)
    blocks = -(-k // block)
    a = r.floats(r.size(1, 5), k)
    parts: dict[str, Array] = {"b": r.codes(n, blocks, block * bits // 8, signed=False), "s": r.scale(n * blocks)}
    inputs = ["a", "b", "s", "", ""]
    more = r.size(0, 2)
    if more == 1:
        parts["z"] = r.codes(n * -(-blocks * bits // 8), signed=False)
        inputs[3] = "z"
    if more == 2:  # without zero points, which onnxruntime 1.31 ignores if there is a g_idx
        parts["g"] = r.rng.permutation(np.arange(k) // block).astype(np.int32)
        inputs[4] = "g"
    while not inputs[-1]:
        inputs.pop()
    made = node("MatMulNBits", inputs, K=k, N=n, bits=bits, block_size=block)
    return model([made], {"a": a}, ["y"], parts), {"a": a}


def dynamic_quantize_matmul(r: Random) -> Made:
    k, n = r.size(2, 70), r.size(1, 20)
    a = r.floats(2, r.size(1, 5), k)
    parts = {"b": r.codes(k, n, signed=True), "bs": r.scale(n), "bz": np.zeros(n, np.int8), "bias": r.floats(n)}
    return model([node("DynamicQuantizeMatMul", ["a", *parts])], {"a": a}, ["y"], parts), {"a": a}


def where(r: Random) -> Made:
    shape = (r.size(1, 3), r.size(1, 6), r.size(1, 9))
    condition = r.rng.integers(0, 2, shape).astype(bool)
    a, b = r.codes(*shape), r.codes(*(s if r.size(0, 2) else 1 for s in shape))
    parts = {"as": r.scale(), "az": r.zero(), "bs": r.scale(), "bz": r.zero(), "ys": r.scale(), "yz": r.zero()}
    made = node("QLinearWhere", ["k", "a", "as", "az", "b", "bs", "bz", "ys", "yz"])
    inputs = {"k": condition, "a": a, "b": b}
    return model([made], inputs, ["y"], parts), inputs


def matmul_integer_to_float(r: Random) -> Made:
    k, n = r.size(2, 70), r.size(1, 20)
    a = r.codes(2, r.size(1, 5), k, signed=False)
    zero = np.zeros(n, np.int8) if r.size(0, 1) else r.codes(n, signed=True)
    parts = {"b": r.codes(k, n, signed=True), "as": r.scale(), "bs": r.scale(n),
             "az": r.codes(signed=False).reshape(()), "bz": zero, "bias": r.floats(n)}  # fmt: skip
    return model([node("MatMulIntegerToFloat", ["a", *parts])], {"a": a}, ["y"], parts), {"a": a}


def matmul_integer(r: Random) -> Made:
    k, n = r.size(1, 70), r.size(1, 20)
    a = r.codes(r.size(1, 3), r.size(1, 5), k, signed=False)
    parts = {
        "b": r.codes(k, n, signed=True),
        "az": r.codes(signed=False).reshape(()),
        "bz": np.asarray(r.codes(signed=True).reshape(())),
    }
    return model([node("MatMulInteger", ["a", *parts], "")], {"a": a}, ["y"], parts), {"a": a}


def conv_integer(r: Random) -> Made:
    c, f = r.size(1, 6), r.size(1, 8)
    x = r.codes(r.size(1, 2), c, r.size(4, 9), r.size(4, 9), signed=False)
    parts = {
        "w": r.codes(f, c, r.size(1, 3), r.size(1, 3), signed=False),
        "xz": r.codes(signed=False).reshape(()),
        "wz": np.uint8(r.size(0, 255)),
    }
    geometry = {"pads": [r.size(0, 1) for _ in range(4)], "strides": [r.size(1, 2), r.size(1, 2)]}
    return model([node("ConvInteger", ["x", *parts], "", **geometry)], {"x": x}, ["y"], parts), {"x": x}


def dynamic_quantize_linear(r: Random) -> Made:
    x = r.floats(r.size(1, 4), r.size(1, 40)) * r.size(1, 50)
    made = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"], name="DynamicQuantizeLinear")
    return model([made], {"x": x}, ["y"], {}), {"x": x}


def gather_block_quantized(r: Random) -> Made:
    rows, block = r.size(1, 20), [16, 32][r.size(0, 1)]
    width = block * r.size(1, 4)
    bits = [4, 8][r.size(0, 1)]
    indices = r.rng.integers(0, rows, (r.size(1, 3), r.size(1, 5))).astype(np.int64)
    blocks = width // block
    parts: dict[str, Array] = {"d": r.codes(rows, width * bits // 8, signed=False), "s": r.scale(rows, blocks)}
    names = ["d", "i", "s"]
    if r.size(0, 1):
        parts["z"] = r.codes(rows, -(-blocks * bits // 8), signed=False)
        names.append("z")
    made = node("GatherBlockQuantized", names, bits=bits, block_size=block, gather_axis=0, quantize_axis=1)
    return model([made], {"i": indices}, ["y"], parts), {"i": indices}


# By operator: the function that makes a model, and by how many codes a result may differ (None: floats, within the
# bound of semantics.md, section 5). If both compute in integers, the codes are equal. If f32 is in between,
# onnxruntime's own kernels differ by a code between processors (its vectorised loops round in another order than its
# scalar ones).
OPERATORS: dict[str, tuple[Callable[[Random], Made], int | None]] = {
    "QLinearMatMul": (qlinear_matmul, 0),
    "QLinearConv": (qlinear_conv, 0),
    "QGemm": (qgemm, 0),
    "QLinearMul": (_binary("QLinearMul"), 0),
    "QLinearAdd": (_binary("QLinearAdd"), 1),
    "QLinearConcat": (concat, 1),
    "QLinearLeakyRelu": (_unary("QLinearLeakyRelu", alpha=0.1), 1),
    "QLinearSigmoid": (_unary("QLinearSigmoid"), 1),
    "QLinearSoftmax": (_unary("QLinearSoftmax", axis=-1, opset=13), 1),
    "QLinearGlobalAveragePool": (_unary("QLinearGlobalAveragePool"), 1),
    "QLinearAveragePool": (_unary("QLinearAveragePool", kernel_shape=[2, 2], strides=[2, 1], pads=[1, 0, 0, 1]), 1),
    "QLinearWhere": (where, 1),
    "MatMulInteger": (matmul_integer, 0),
    "ConvInteger": (conv_integer, 0),
    "DynamicQuantizeLinear": (dynamic_quantize_linear, 0),
    "MatMulIntegerToFloat": (matmul_integer_to_float, None),
    "GatherBlockQuantized": (gather_block_quantized, None),
    "MatMulNBits": (matmul_nbits, None),
    "DynamicQuantizeMatMul": (dynamic_quantize_matmul, None),
}


def check_model(made: Any) -> None:
    onnx.checker.check_model(made)
