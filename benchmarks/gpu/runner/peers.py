"""The peers, in torch: each on random data, with several sets of operands in turn, timed with the device's events."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Burst = Callable[[float], list[float]]
L2_BYTES = 60 << 20


class Peers:
    """Makes the peers of a work. `absent` is the reason why there are none, or empty."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._copy = seconds, None
        self.absent = ""
        try:
            import torch
        except ImportError as e:
            self.torch, self.absent = None, f"no torch: {e}"
            return
        self.torch = torch
        if not torch.cuda.is_available():
            self.absent = "torch has no CUDA device"
        else:
            torch.manual_seed(0)
            torch.set_grad_enabled(False)

    def make(self, name: str, work: dict[str, Any]) -> tuple[Burst | None, str]:
        """A function that measures a peer at a work, or None and the reason."""
        if self.absent:
            return None, self.absent
        try:
            run, count = _MAKERS[name](self.torch, work["problem"])
            run(0)
            self.torch.cuda.synchronize()
        except Exception as e:  # a peer that does not support this product or this device
            return None, f"{type(e).__name__}: {e}".splitlines()[0][:200]
        return self._burst(run, count), ""

    def _burst(self, run: Callable[[int], Any], count: int) -> Burst:
        cuda = self.torch.cuda

        def loop(calls: int) -> float:
            start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            start.record()
            for i in range(calls):
                run(i % count)
            end.record()
            end.synchronize()
            return start.elapsed_time(end) * 1e-3 / calls

        calls = max(count, min(200, math.ceil(4e-3 / max(loop(max(count, 3)), 1e-7))))

        def burst(seconds: float) -> list[float]:
            times = [loop(calls)]
            while sum(times) * calls < seconds:
                times.append(loop(calls))
            return times

        return burst

    def copy_bandwidth(self) -> float | None:
        """Bytes per second, read plus written, of a copy of one gibibyte."""
        if self.absent:
            return None
        if self._copy is None:
            source = self.torch.empty(1 << 30, dtype=self.torch.uint8, device="cuda").random_()
            target = self.torch.empty_like(source)
            run = self._burst(lambda i: target.copy_(source), 1)
            self._copy = 2 * source.numel() / min(run(0.2))
        return self._copy


def _sets(one: int) -> int:
    """How many sets of operands, of `one` bytes each, together exceed the cache."""
    return max(2, min(64, -(-2 * L2_BYTES // max(one, 1))))


def _int8(torch: Any, *shape: int) -> Any:
    return torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")


def _scales(torch: Any, *shape: int) -> Any:
    return torch.rand(shape, device="cuda") * 0.01 + 0.001


def _int_mm(torch: Any, p: dict[str, Any]) -> Any:
    """cuBLASLt's int8 product, then the scales in torch's elementwise code, compiled if possible."""
    m, n, k = p["m"], p["n"], p["k"]
    count = _sets(m * k + n * k)
    x, w = [_int8(torch, m, k) for _ in range(count)], [_int8(torch, n, k) for _ in range(count)]
    sx, sw = _scales(torch, m, 1), _scales(torch, 1, n)

    def scaled(acc: Any, a: Any, b: Any) -> Any:
        return (acc * (a * b)).to(torch.float16)

    epilogue = scaled
    try:
        compiled = torch.compile(scaled)
        compiled(torch._int_mm(x[0], w[0].t()), sx, sw)
        epilogue = compiled
    except Exception:  # no working triton: eager
        epilogue = scaled
    return lambda i: epilogue(torch._int_mm(x[i], w[i].t()), sx, sw), count


def _dense(torch: Any, p: dict[str, Any], dtype: Any) -> Any:
    m, n, k = p["m"], p["n"], p["k"]
    count = _sets(2 * (m * k + n * k))
    x = [torch.randn(m, k, device="cuda", dtype=dtype) for _ in range(count)]
    w = [torch.randn(n, k, device="cuda", dtype=dtype) for _ in range(count)]
    return lambda i: torch.nn.functional.linear(x[i], w[i]), count


def _scaled_mm(torch: Any, p: dict[str, Any]) -> Any:
    m, n, k = p["m"], p["n"], p["k"]
    count = _sets(m * k + n * k)
    x = [torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn) for _ in range(count)]
    w = [torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn) for _ in range(count)]
    sx, sw = _scales(torch, m, 1), _scales(torch, 1, n)
    return lambda i: torch._scaled_mm(x[i], w[i].t(), scale_a=sx, scale_b=sw, out_dtype=torch.bfloat16), count


def _int4pack(torch: Any, p: dict[str, Any]) -> Any:
    m, n, k, group = p["m"], p["n"], p["k"], p["group"]
    count = _sets(n * k // 2)
    x = [torch.randn(m, k, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
    codes = [torch.randint(0, 256, (n, k // 2), device="cuda", dtype=torch.uint8) for _ in range(count)]
    w = [torch._convert_weight_to_int4pack(c, 8) for c in codes]
    zeros = torch.randn(k // group, n, 2, device="cuda", dtype=torch.bfloat16)
    return lambda i: torch._weight_int4pack_mm(x[i], w[i], group, zeros), count


def _gemlite(torch: Any, p: dict[str, Any]) -> Any:
    from gemlite.core import DType, GemLiteLinear  # type: ignore[import-not-found]

    m, n, k, group = p["m"], p["n"], p["k"], p["group"]
    count = _sets(n * k // 2)
    x = [torch.randn(m, k, device="cuda", dtype=torch.float16) for _ in range(count)]
    layers = []
    for _ in range(count):
        layer = GemLiteLinear(W_nbits=4, group_size=group, in_features=k, out_features=n, input_dtype=DType.FP16,
                              output_dtype=DType.FP16)  # fmt: skip
        codes = torch.randint(0, 16, (n, k), device="cuda", dtype=torch.uint8)
        scales = torch.rand(n * k // group, 1, device="cuda", dtype=torch.float16)
        layer.pack(codes, scales, torch.full_like(scales, 8), None)
        layers.append(layer)
    return lambda i: layers[i](x[i]), count


def _triton(torch: Any, p: dict[str, Any]) -> Any:
    from triton_int8 import multiply

    m, n, k = p["m"], p["n"], p["k"]
    count = _sets(m * k + n * k)
    x, w = [_int8(torch, m, k) for _ in range(count)], [_int8(torch, n, k) for _ in range(count)]
    sx, sw = _scales(torch, m), _scales(torch, n)
    return lambda i: multiply(x[i], w[i], sx, sw), count


def _conv(torch: Any, p: dict[str, Any]) -> Any:
    batch, size, c, f, kernel = (p[name] for name in ("batch", "size", "c", "f", "kernel"))
    count = _sets(2 * (batch * size * size * c + f * kernel * kernel * c))
    last = torch.channels_last

    def random(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=torch.float16).to(memory_format=last)

    x, w = [random(batch, c, size, size) for _ in range(count)], [random(f, c, kernel, kernel) for _ in range(count)]
    bias = torch.randn(f, device="cuda", dtype=torch.float16)
    torch.backends.cudnn.benchmark = True
    pad, stride = kernel // 2, p["stride"]
    return lambda i: torch.relu_(torch.nn.functional.conv2d(x[i], w[i], bias, stride, pad)), count


def _experts(torch: Any, p: dict[str, Any]) -> Any:
    """For each expert, gathers its rows and multiplies them. The indices of the rows are computed in advance."""
    tokens, experts, topk, n, k = (p[name] for name in ("tokens", "experts", "topk", "n", "k"))
    x = torch.randn(tokens, k, device="cuda", dtype=torch.float16)
    w = torch.randn(experts, n, k, device="cuda", dtype=torch.float16)
    ids = torch.argsort(torch.rand(tokens, experts, device="cuda"), dim=1)[:, :topk]
    where = [(ids == e).nonzero(as_tuple=True) for e in range(experts)]
    used = [(e, rows, slots) for e, (rows, slots) in enumerate(where) if len(rows)]
    out = torch.empty(tokens, topk, n, device="cuda", dtype=torch.float16)

    def run(i: int) -> Any:
        for e, rows, slots in used:
            out[rows, slots] = torch.nn.functional.linear(x[rows], w[e])
        return out

    return run, 1


_MAKERS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "torch._int_mm + scales": _int_mm,
    "torch f16": lambda torch, p: _dense(torch, p, torch.float16),
    "torch bf16": lambda torch, p: _dense(torch, p, torch.bfloat16),
    "torch._scaled_mm": _scaled_mm,
    "torch._weight_int4pack_mm": _int4pack,
    "gemlite": _gemlite,
    "triton int8": _triton,
    "torch f16 channels-last": _conv,
    "loop of torch f16": _experts,
}
