"""Lower bounds of a contraction's time: the larger of the times of its arithmetic and its memory traffic at peak."""

from __future__ import annotations

import re
from math import prod

from ..kernels.description import Kernel
from .base import Target
from .strategy import Contraction, Estimate


def element_bytes(dtype: str) -> float:
    """Bytes of one element of an MLIR element type (`i8`, `f16`, `f8E4M3FN`, `bf16`)."""
    match = re.match(r"[a-z]+(\d+)", dtype)
    return int(match.group(1)) / 8 if match else 4.0


def roofline(target: Target, c: Contraction, *, rate_dtype: str = "", extra_bytes: float = 0) -> Estimate:
    """The bound for `c` on the device whose figures the target has.

    `rate_dtype` is the type whose arithmetic rate applies if it is not the operands' own (an int8
    matmul computed in f16); `extra_bytes` is traffic that the plan adds.
    """
    peak = target.capabilities.peak
    if peak is None:
        return Estimate(None, "no published peak figures for this target")
    sizes = [*c.batch, c.m, c.n, c.k]
    if any(size is None for size in sizes):
        return Estimate(None, "a size is dynamic")
    m, n, k, batch = (float(x or 0) for x in (c.m, c.n, c.k, prod(b or 0 for b in c.batch)))
    traffic = batch * (m * k * element_bytes(c.lhs) + k * n * element_bytes(c.rhs)) + extra_bytes
    traffic += batch * m * n * element_bytes(c.acc)
    memory = traffic / peak.bandwidth
    rate = peak.rate(rate_dtype or c.lhs)
    if rate is None:
        return Estimate(memory, f"memory traffic alone, {peak.product}")
    compute = 2 * batch * m * n * k / rate
    side = "compute" if compute > memory else "memory"
    return Estimate(max(compute, memory), f"{side} bound at the peak of {peak.product}")


def kernel_estimate(target: Target, kernel: Kernel, weight_bits: int, *, dot: bool = False) -> Estimate:
    """The bound for a built-in kernel, which reads its weight once, in its stored form, and writes its result once.

    `dot`: the kernel uses no matrix instruction, so the bound is that of memory traffic alone.
    """
    peak = target.capabilities.peak
    if peak is None:
        return Estimate(None, "no published peak figures for this target")
    products = 1 if kernel.batch is None else kernel.batch.size
    if kernel.m is None or products is None:
        return Estimate(None, "a size is dynamic")
    matrices = 1 if kernel.batch is None else min(products, kernel.batch.matrices)
    m, n, k = float(kernel.m * products), float(kernel.n), float(kernel.k)
    lhs = str(kernel.lhs.value.type.element_type)
    traffic = m * k * element_bytes(lhs) + matrices * n * k * weight_bits / 8
    traffic += m * n * element_bytes(str(kernel.result_type))
    memory = traffic / peak.bandwidth
    rate = None if dot else peak.rate(lhs)
    if rate is None or 2 * m * n * k / rate < memory:
        return Estimate(memory, f"memory bound at the peak of {peak.product}")
    return Estimate(2 * m * n * k / rate, f"compute bound at the peak of {peak.product}")
