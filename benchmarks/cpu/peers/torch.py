"""torch on the CPU: oneDNN's quantised operators as inductor emits them, `_int_mm`, and the int4 operators that
torchao's CPU layouts call. Images are channels_last.

torchao's own C++ operators (`torchao::da8w4_linear_cpu`) are not in its published wheels. A build with
`USE_CPU_KERNELS=1` registers them, and they are measured if registered.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
import torch

from qmlir.targets.cpu.host import host_features

from ..networks import Network
from ..problems import SCALE, Array, Convolution, GatedMlp, Moe, Product, unsigned
from ..works import EIGHT_BITS, FOUR_BITS
from . import Absent, Candidate, LeftOut

PACKAGES = ("torch", "torchao")

onednn = torch.ops.onednn


def candidates(problem: Any, threads: int) -> list[Candidate | LeftOut]:
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    if threads > 1 and torch.get_num_threads() != threads:
        raise Absent(f"torch runs on {torch.get_num_threads()} threads")
    return _candidates(problem)


@singledispatch
def _candidates(problem: Any) -> list[Candidate | LeftOut]:
    raise Absent(f"no torch form of a {type(problem).__name__}")


def tensor(a: Array) -> Any:
    return torch.from_numpy(np.ascontiguousarray(a))


def value(t: Any) -> Array:
    return t.to(torch.float32).numpy()


class Linear:
    """A packed int8 weight [N, K] and its scales [N]."""

    def __init__(self, weight: Array, scale: Array, rows: int) -> None:
        self.weight = onednn.qlinear_prepack(tensor(weight), [rows, weight.shape[1]])
        self.scale = tensor(scale.reshape(-1))
        self.zero = torch.zeros(len(weight), dtype=torch.int32)

    def __call__(self, x: Any, scale: float, zero: int, dtype: Any = torch.float32, out_scale: float = 1.0,
                 out_zero: int = 0, bias: Any = None) -> Any:  # fmt: skip
        return onednn.qlinear_pointwise(x, scale, zero, self.weight, self.scale, self.zero, bias, out_scale, out_zero,
                                        dtype, "none", [], "")  # fmt: skip


def _eight_bits(p: Product) -> list[Candidate]:
    linear = Linear(p.weight.T, p.weight_scale, p.m)
    found = []
    scale = float(SCALE)
    if p.dynamic:
        x = tensor(p.lhs_real)
        packed = torch.ops.quantized.linear_prepack(
            torch.quantize_per_channel(
                tensor(p.weight_real()), linear.scale.double(), torch.zeros(p.n, dtype=torch.int64), 0, torch.qint8
            ),
            None,
        )

        def dynamic() -> Any:
            return torch.ops.quantized.linear_dynamic(x, packed, False)

        def per_token() -> Any:
            top = x.abs().amax(dim=-1, keepdim=True)
            s = top * (1 / 127)
            codes = torch.round(x / s).to(torch.int8)
            return torch._int_mm(codes, weight).to(torch.float32) * (s * linear.scale)

        weight = tensor(p.weight.T).t()
        found.append(Candidate("torch quantized.linear_dynamic", EIGHT_BITS, dynamic, value, 0.02))
        found.append(Candidate("torch per token + _int_mm (torchao int8 dynamic)", EIGHT_BITS, per_token, value, 0.02))
        return found
    forms = [("u8s8", unsigned(p.lhs), 128)]
    if "amx-int8" in host_features():
        # Without AMX, oneDNN multiplies s8 x s8 in its reference loop, which takes a minute per call.
        forms.append(("s8s8", p.lhs, 0))
    for name, codes, zero in forms:
        x = tensor(codes)

        def run(x: Any = x, zero: int = zero) -> Any:
            return linear(x, scale, zero)

        found.append(Candidate(f"torch onednn.qlinear {name}", EIGHT_BITS, run, value, 1e-4))
    x, weight = tensor(p.lhs), tensor(p.weight.T).t()  # column-major, for which _int_mm is faster
    scales = float(SCALE) * linear.scale

    def int_mm() -> Any:
        return torch._int_mm(x, weight).to(torch.float32) * scales

    found.append(Candidate("torch _int_mm + scales", EIGHT_BITS, int_mm, value, 1e-4))
    return found


@_candidates.register
def _product(p: Product) -> list[Candidate | LeftOut]:
    if p.scheme == "w8a8":
        return _eight_bits(p)
    found: list[Candidate | LeftOut] = []
    if p.scheme == "w4a8":
        wide = Product(p.m, p.n, p.k)
        found += [replace(c, problem=wide) for c in _eight_bits(wide)]
        try:
            found.append(_torchao_da8w4(p))
        except (NotImplementedError, AttributeError, RuntimeError) as e:
            reason = str(e).strip().splitlines()[0][:160] if str(e).strip() else type(e).__name__
            found.append(LeftOut("torchao da8w4_linear_cpu", f"not in torchao's wheel as it is published: {reason}"))
        return found
    codes = torch.from_numpy((p.weight + 8).astype(np.int32))
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
    scale = torch.from_numpy(np.ascontiguousarray(p.weight_scale.T))  # [K / g, N]
    for dtype in (torch.bfloat16, torch.float32):
        pairs = torch.stack([scale, torch.zeros_like(scale)], dim=2).to(dtype).contiguous()
        x = tensor(p.lhs_real).to(dtype)

        def run(x: Any = x, pairs: Any = pairs) -> Any:
            return torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, p.group, pairs)

        name = f"torch _weight_int4pack_mm_for_cpu {str(dtype)[6:]} (torchao int4)"
        found.append(Candidate(name, FOUR_BITS, run, value, 0.02))
    return found


def _torchao_da8w4(p: Product) -> Candidate:
    """torchao's kernel of int4 weights and int8 activations, if its build has it."""
    import torchao.ops  # noqa: F401  (registers the operators)

    ops = torch.ops.torchao
    codes = torch.from_numpy((p.weight + 8).astype(np.uint8))
    zeros = torch.full(p.weight_scale.shape, 8, dtype=torch.int8)
    weight, scales, zeros, compensation = ops.da8w4_linear_prepack_cpu(codes, tensor(p.weight_scale), zeros)
    x = tensor(unsigned(p.lhs))
    s, z = torch.full((p.m,), float(SCALE)), torch.full((p.m,), 128, dtype=torch.int32)

    def run() -> Any:
        return ops.da8w4_linear_cpu(x, s, z, weight, scales, zeros, compensation, None, torch.float32)

    run()
    return Candidate("torchao da8w4_linear_cpu", FOUR_BITS, run, value, 0.02)


class Conv:
    """A packed convolution; weight [F, KH, KW, C / groups] i8. `into` [N, C, H, W] is the shape of its images."""

    def __init__(self, weight: Array, scale: Array, in_scale: Any, in_zero: int, stride: int, padding: int, groups: int,
                 into: tuple[int, ...], out_scale: Any, out_zero: int, bias: Array | None = None,
                 after: str = "none") -> None:  # fmt: skip
        # `bias` is f32, as inductor passes it: oneDNN adds it after the scales.
        self.bias = None if bias is None else tensor(bias)
        self.scale, self.zero = tensor(scale), torch.zeros(len(weight), dtype=torch.int32)
        self.in_scale, self.in_zero, self.out_scale, self.out_zero = (
            float(in_scale),
            in_zero,
            float(out_scale),
            out_zero,
        )
        self.geometry = ([stride] * 2, [padding] * 2, [1, 1], groups)
        self.after = after
        self.weight = onednn.qconv_prepack(
            tensor(weight.transpose(0, 3, 1, 2)), self.scale, self.in_scale, in_zero, *self.geometry, list(into)
        )

    def __call__(self, x: Any) -> Any:
        return onednn.qconv_pointwise(x, self.in_scale, self.in_zero, self.weight, self.scale, self.zero, self.bias,
                                      *self.geometry, self.out_scale, self.out_zero, torch.uint8, self.after, [],
                                      "")  # fmt: skip

    def add(self, x: Any, other: Any, scale: float, zero: int) -> Any:
        """The convolution plus `other`, then relu. The result overwrites `other`."""
        return onednn.qconv2d_pointwise.binary(
            x, self.in_scale, self.in_zero, self.weight, self.scale, self.zero, other, self.bias, *self.geometry,
            self.out_scale, self.out_zero, torch.uint8, scale, zero, "sum", 1.0, "relu", [], "",
        )  # fmt: skip


def channels_last(image: Array) -> Any:
    """An NHWC array as a tensor of shape NCHW with NHWC strides."""
    return tensor(image).permute(0, 3, 1, 2)


@_candidates.register
def _convolution(p: Convolution) -> list[Candidate]:
    x = channels_last(unsigned(p.image))
    conv = Conv(p.weight, p.weight_scale, SCALE, 128, p.stride, p.padding, p.groups, tuple(x.shape), p.out_scale, 128)

    def real(t: Any) -> Array:
        return (t.permute(0, 2, 3, 1).numpy().astype(np.float32) - 128) * p.out_scale

    return [Candidate("torch onednn.qconv u8s8", EIGHT_BITS, lambda: conv(x), real, 0.02)]


def _gated(up: Linear, down: Linear, x: Any, scale: float, inner: float) -> Any:
    gate, linear = up(x, scale, 128).chunk(2, dim=1)
    h = torch.nn.functional.silu(gate).mul_(linear)
    codes = torch.ops.quantized_decomposed.quantize_per_tensor(h, inner, 128, 0, 255, torch.uint8)
    return down(codes, inner, 128)


def _load_decomposed() -> None:
    import torch.ao.quantization.fx._decomposed  # noqa: F401  (registers quantized_decomposed)


@_candidates.register
def _mlp(p: GatedMlp) -> list[Candidate]:
    _load_decomposed()
    up, down = Linear(p.up.T, p.up_scale, p.m), Linear(p.down.T, p.down_scale, p.m)
    x = tensor(unsigned(p.x))

    def run() -> Any:
        return _gated(up, down, x, float(SCALE), float(p.inner_scale))

    found = [Candidate("torch onednn.qlinear chain", EIGHT_BITS, run, value, 0.01)]
    compiled = torch.compile(run)
    try:
        compiled()
    except Exception:  # whatever is wrong with the C++ compiler, the eager candidate remains
        return found
    found.append(Candidate("torch onednn.qlinear chain, compiled", EIGHT_BITS, compiled, value, 0.01))
    return found


@_candidates.register
def _moe(p: Moe) -> list[Candidate]:
    """A loop over the experts that have tokens."""
    _load_decomposed()
    x = tensor(unsigned(p.x))
    layers = [
        (
            Linear(p.w1[e].T, p.w1_scale[e], len(token)),
            Linear(p.w2[e].T, p.w2_scale[e], len(token)),
            torch.from_numpy(token),
            tensor(weight),
        )
        for e, token, weight in p.rows()
    ]

    def run() -> Any:
        out = torch.zeros(p.tokens, p.hidden)
        for up, down, token, weight in layers:
            y = _gated(up, down, x[token], float(SCALE), float(p.inner_scale))
            out.index_add_(0, token, y.mul_(weight))
        return out

    return [Candidate("torch loop of onednn.qlinear", EIGHT_BITS, run, value, 0.01)]


@_candidates.register
def _network(p: Network) -> list[Candidate]:
    x = channels_last(unsigned(p.image))
    shapes, convs = {-1: tuple(x.shape)}, {}
    for i, n in enumerate(p.nodes):
        batch, channels, h, w = shapes[n.source]
        shapes[i] = shapes[n.source]
        if n.kind == "max_pool":
            shapes[i] = (batch, channels, h // 2, w // 2)
        elif n.kind == "average":
            shapes[i] = (batch, channels, 1, 1)
        elif n.layer is not None:
            c = n.layer
            zero = int(p.in_zero) + 128 if n.source == -1 else 0
            after = "relu" if n.residual is None else "none"
            convs[i] = Conv(c.weight, c.scale, c.in_scale, zero, c.stride, c.padding, 1, shapes[n.source], c.out_scale,
                            0, c.real_bias(), after)  # fmt: skip
            shapes[i] = (batch, len(c.weight), (h - 1) // c.stride + 1, (w - 1) // c.stride + 1)
    last = Linear(p.last.weight.reshape(len(p.last.weight), -1), p.last.scale, len(p.image))
    bias = tensor(p.last.real_bias())

    def run() -> Any:
        values = {-1: x}
        for i, n in enumerate(p.nodes):
            source = values[n.source]
            if n.kind == "max_pool":
                # Only the pooling of quantised tensors accepts u8.
                wrapped = torch._make_per_tensor_quantized_tensor(source, 1.0, 0)
                values[i] = torch.max_pool2d(wrapped, 3, 2, 1).int_repr()
            elif n.kind == "average":
                mean = source.to(torch.float32).mean((2, 3), keepdim=True)
                values[i] = torch.round(mean).to(torch.uint8)
            elif n.residual is not None:
                values[i] = convs[i].add(source, values[n.residual], float(p.nodes[n.residual].scale), 0)
            else:
                values[i] = convs[i](source)
        flat = values[len(p.nodes) - 1].permute(0, 2, 3, 1).reshape(len(p.image), -1)
        return last(flat, float(p.last.in_scale), 0, bias=bias)

    return [Candidate("torch onednn.qconv chain", EIGHT_BITS, run, value, 0.05)]
