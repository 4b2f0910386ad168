"""The overhead of a cached eager call over the bare runtime call, and the time of `import qmlir`.

    python -m benchmarks.overhead [--json OUT] [--quick]

The bare call is `VmContext.invoke` of the same program with buffer views made in advance, without reading the result.
The eager call, with arrays of numpy and with tensors of torch where it is installed, alternates with it in one process,
so that both run under the same load. Times are microseconds: median, 10 % and 90 %.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.harness import alternate, environment, summary

# Goals.
LIMIT_CALL_US = 5.0
LIMIT_IMPORT_S = 0.3
LIMIT_SIZES_US = 0.2

_M, _N, _K = 1, 64, 64


def _same(array: Any) -> Any:
    return array


def calls(convert: Callable[[Any], Any] = _same) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The eager call and the bare call of the same w8a8 product with per-token and per-channel scales. `convert` makes
    the arguments of the eager call from numpy arrays."""
    import numpy as np
    from iree import runtime as rt

    import qmlir

    rng = np.random.default_rng(0)
    lhs = rng.integers(-128, 128, (_M, _K), dtype=np.int8)
    rhs = rng.integers(-128, 128, (_K, _N), dtype=np.int8)
    lhs_scale = rng.uniform(0.01, 0.02, (_M, 1)).astype(np.float32)
    rhs_scale = rng.uniform(0.01, 0.02, (1, _N)).astype(np.float32)

    a, b, a_scale, b_scale = (convert(array) for array in (lhs, rhs, lhs_scale, rhs_scale))

    def eager() -> Any:
        return qmlir.ops.scaled_matmul(a, b, lhs_scale=a_scale, rhs_scale=b_scale)

    T = qmlir.TensorSpec
    artifact = qmlir.ops.scaled_matmul.compile(
        T((_M, _K), "i8"), T((_K, _N), "i8"), lhs_scale=T((_M, 1), "f32"), rhs_scale=T((1, _N), "f32")
    )
    instance = rt.VmInstance()
    device = rt.get_driver("local-sync").create_default_device()
    module = rt.VmModule.copy_buffer(instance, artifact.vmfb)
    context = rt.VmContext(instance, modules=[rt.create_hal_module(instance, device), module])
    function = module.lookup_function("main")
    inputs = rt.VmVariantList(4)
    kinds = (rt.HalElementType.INT_8, rt.HalElementType.INT_8, rt.HalElementType.FLOAT_32, rt.HalElementType.FLOAT_32)
    views = [
        device.allocator.allocate_buffer_copy(
            rt.MemoryType.DEVICE_LOCAL, rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING, device, array, kind
        )
        for array, kind in zip((lhs, rhs, lhs_scale, rhs_scale), kinds, strict=True)
    ]
    for view in views:
        inputs.push_ref(view)
    outputs_of, invoke = rt.VmVariantList, context.invoke

    def bare() -> Any:
        outputs = outputs_of(1)
        invoke(function, inputs, outputs)
        return outputs

    expected = qmlir.reference.scaled_matmul(lhs, rhs, lhs_scale=lhs_scale, rhs_scale=rhs_scale)
    np.testing.assert_array_equal(eager(), expected)
    result = bare().get_as_object(0, rt.HalBufferView)
    np.testing.assert_array_equal(result.map().asarray((_M, _N), np.dtype(np.float32)), expected)
    return eager, bare


def sizes_overhead(count: int) -> dict[str, Any]:
    """The cost per call of comparing the dynamic sizes that its arguments share: the README's program, which has one
    pair of them, against the same program without named sizes. Least CPU time of a call of each, measured in turn."""
    import time
    import timeit
    from dataclasses import replace

    import numpy as np

    import qmlir

    T = qmlir.TensorSpec
    weight, scale = np.ones((256, 64), np.int8), np.full((1, 64), 0.01, np.float32)
    named = qmlir.ops.scaled_matmul.compile(
        T((None, 256), "i8"), weight, lhs_scale=T((None, 1), "f32"), rhs_scale=scale
    )
    signature = named.manifest.functions["main"]
    shapes = [tuple(None if isinstance(size, str) else size for size in s.shape) for _, s in signature.inputs]
    inputs = tuple((n, T(shape, s.dtype)) for (n, s), shape in zip(signature.inputs, shapes, strict=True))
    nameless = replace(named, manifest=replace(named.manifest, functions={"main": replace(signature, inputs=inputs)}))
    arrays = (np.ones((1, 256), np.int8), np.ones((1, 1), np.float32))
    calls = [qmlir.load(a, device="local-sync").main for a in (named, nameless)]
    timers = [timeit.Timer(lambda f=f: f(*arrays), timer=time.process_time) for f in calls]
    rounds = [[t.timeit(200) / 200 for t in timers] for _ in range(count // 200)]
    least = [min(r[i] for r in rounds) * 1e6 for i in range(2)]
    over = least[0] - least[1]
    return {"compared_us": least[0], "uncompared_us": least[1], "overhead_us": over, "limit_us": LIMIT_SIZES_US,
            "ok": over < LIMIT_SIZES_US}  # fmt: skip


def call_overhead(count: int, convert: Callable[[Any], Any] = _same) -> dict[str, Any]:
    """Times of the eager and the bare call, and the overhead of the eager one."""
    eager, bare = calls(convert)
    alternate(eager, bare, count // 10 + 1)  # warm
    eager_us, bare_us = alternate(eager, bare, count)
    found = {"eager_us": summary(eager_us), "bare_us": summary(bare_us)}
    over = found["eager_us"]["median"] - found["bare_us"]["median"]
    return {
        "product": f"{_M}x{_K}x{_N} i8 x i8 -> f32, scales per token and per channel",
        "driver": "local-sync",
        "count": count,
        **found,
        "overhead_us": over,
        "limit_us": LIMIT_CALL_US,
        "ok": over < LIMIT_CALL_US,
    }


def import_time(count: int) -> dict[str, Any]:
    """Seconds that `import qmlir` takes in a new process, without the start of the interpreter."""
    code = "import time; t = time.perf_counter(); import qmlir; print(time.perf_counter() - t)"
    command = [sys.executable, "-c", code]
    times = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(count)]
    median = statistics.median(times)
    return {
        "count": count,
        "median_s": median,
        "min_s": min(times),
        "max_s": max(times),
        "limit_s": LIMIT_IMPORT_S,
        "ok": median < LIMIT_IMPORT_S,
    }


def measure(quick: bool) -> dict[str, Any]:
    """All measurements and the environment."""
    count = 2_000 if quick else 20_000
    torch_call = {}
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch_call = {"torch call": call_overhead(count, torch.from_numpy)}
    return {
        "environment": environment(),
        "call": call_overhead(count),
        **torch_call,
        "sizes": sizes_overhead(count),
        "import": import_time(5 if quick else 15),
    }


def text(result: dict[str, Any]) -> str:
    """The result as text."""
    sizes, imported, e = result["sizes"], result["import"], result["environment"]
    rows = [f"{result['call']['product']}, {result['call']['driver']}, {result['call']['count']} calls of each in turn"]
    for kind, what in (("call", "numpy"), ("torch call", "torch")):
        if kind in result:
            call = result[kind]
            rows += [
                f"{name:11} {s['median']:7.1f} us   (p10 {s['p10']:.1f}, p90 {s['p90']:.1f})"
                for name, s in ((f"call, {what}", call["eager_us"]), ("bare call", call["bare_us"]))
            ]
            rows.append(_row("overhead", f"{call['overhead_us']:7.1f}", "us", call["limit_us"], call["ok"]))
    return "\n".join([
        *rows,
        _row("sizes", f"{sizes['overhead_us']:7.2f}", "us", sizes["limit_us"], sizes["ok"]),
        _row("import", f"{imported['median_s'] * 1e3:7.1f}", "ms", imported["limit_s"] * 1e3, imported["ok"]),
        f"{e['cpu']}, {e['cpus']} CPUs, {e['threads']} threads, load {e['load']:.2f}; Python {e['python']}, "
        f"qmlir {e['qmlir']}, IREE {e['iree-base-runtime']}, numpy {e['numpy']}",
    ])  # fmt: skip


def _row(name: str, figure: str, unit: str, limit: float, ok: bool) -> str:
    return f"{name:11} {figure} {unit}   (goal {limit:g} {unit}: {'kept' if ok else 'missed'})"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures to a file")
    parser.add_argument("--quick", action="store_true", help="a tenth of the calls")
    args = parser.parse_args(argv)
    result = measure(args.quick)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")
    print(text(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
