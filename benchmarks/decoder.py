"""A Llama-shaped decoder of about 100 million parameters from a GGUF file: qmlir against llama.cpp.

    python -m benchmarks.decoder [--threads 1,2] [--types Q4_0,Q8_0] [--prompt 128] [--steps 32] [--rounds 9]
                                 [--json OUT]
    python -m benchmarks.decoder --profile [--types Q4_0]       # the time of each dispatch of qmlir's programs

The gguf package writes a file with random weights, which both read. `prefill` is the time of a prompt up to the logits
of its last token; `decode` is the time of one following token (the median of `--steps` tokens, with a growing cache).
qmlir has two programs: `f32` keeps float activations, so its logits are those of the dequantised weights; `int8`
quantises each layer's input, as llama.cpp does. llama.cpp is llama-cpp-python, built from source without AMX
(cpu/peers/llama.py), with and without flash attention, weights repacked for this CPU. Needs the extra `checkpoint`
(pip install -e '.[checkpoint]').
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .harness import SETTLE_S, Timing

ROOT = Path(__file__).resolve().parents[1]
GOALS = {"prefill": 0.5, "decode": 0.9}
PACKAGES = ("llama-cpp-python", "gguf")
LEAST_COSINE = 0.99  # of a candidate's last logits with those of qmlir's f32 program
Array = Any


@dataclass(frozen=True)
class Sizes:
    layers: int = 12
    hidden: int = 768
    inner: int = 2048
    heads: int = 12
    kv_heads: int = 4
    vocabulary: int = 16000
    context: int = 1024


def write(path: Path, sizes: Sizes, kind: str) -> int:
    """Writes a GGUF file whose matrices all have the type `kind`. Returns the number of weights."""
    import gguf

    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(sizes.layers)
    writer.add_context_length(sizes.context)
    writer.add_embedding_length(sizes.hidden)
    writer.add_feed_forward_length(sizes.inner)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(sizes.hidden // sizes.heads)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(sizes.vocabulary)
    quantised = gguf.GGMLQuantizationType[kind]
    weights = 0

    def matrix(name: str, rows: int, columns: int) -> None:
        nonlocal weights
        weights += rows * columns
        real = (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(real, quantised), raw_dtype=quantised)

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", rng.uniform(0.5, 1.5, sizes.hidden).astype(np.float32))

    wide, shared = sizes.hidden, sizes.hidden // sizes.heads * sizes.kv_heads
    matrix("token_embd", sizes.vocabulary, wide)
    for i in range(sizes.layers):
        for part, rows, columns in (
            ("attn_q", wide, wide), ("attn_k", shared, wide), ("attn_v", shared, wide), ("attn_output", wide, wide),
            ("ffn_gate", sizes.inner, wide), ("ffn_up", sizes.inner, wide), ("ffn_down", wide, sizes.inner),
        ):  # fmt: skip
            matrix(f"blk.{i}.{part}", rows, columns)
        norm(f"blk.{i}.attn_norm")
        norm(f"blk.{i}.ffn_norm")
    norm("output_norm")
    matrix("output", sizes.vocabulary, wide)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


@dataclass(frozen=True)
class Candidate:
    """`prefill(tokens)` starts a sequence and `decode(token)` continues it; both return the last token's logits."""

    prefill: Callable[[Array], Array]
    decode: Callable[[Array], Array]


def compiled(path: Path, context: int, activations: bool, begun: int = 0) -> Any:
    """qmlir's program. Its position starts at `begun` tokens, so that `decode` can be profiled alone."""
    import qmlir

    imported = qmlir.importing.decoder(
        qmlir.checkpoint.open(path), context_length=context, quantize_activations="token" if activations else False
    )
    with tempfile.TemporaryDirectory() as folder:
        program, weights = Path(folder) / "model.mlir", Path(folder) / "model.safetensors"
        imported.save(program, weights)
        program.write_text(program.read_text().replace("@position = 0 : i64", f"@position = {begun} : i64"))
        return qmlir.compile(program, parameters={"model": str(weights)})


def ours(path: Path, context: int, activations: bool) -> Candidate:
    import qmlir

    loaded = qmlir.load(compiled(path, context, activations))
    return Candidate(loaded.prefill, loaded.decode)


def profile(kind: str, prompt: int) -> None:
    """Prints the dispatches of both phases of qmlir's programs, on one thread."""
    from .dispatches import dispatches, show

    calls = 50
    with tempfile.TemporaryDirectory() as folder:
        path, program = Path(folder) / f"{kind}.gguf", Path(folder) / "program.vmfb"
        write(path, Sizes(), kind)
        for activations in (False, True):
            # Room for four times as many calls: warm-up calls also advance the position.
            compiled(path, prompt + 4 * calls, activations, prompt).save(program)
            for phase, tokens, count in (("prefill", prompt, 5), ("decode", 1, calls)):
                print(f"{kind}, {'int8' if activations else 'f32'}, {phase}:")
                show(dispatches(program, phase, [f"{tokens}xi32=5"], count))


def llama(path: Path, context: int, threads: int, flash: bool) -> Candidate:
    import ctypes

    import llama_cpp as ll

    quiet = ll.llama_log_callback(lambda level, text, data: None)
    _kept.append(quiet)
    ll.llama_log_set(quiet, None)
    ll.llama_backend_init()
    of_model = ll.llama_model_default_params()
    model = ll.llama_model_load_from_file(str(path).encode(), of_model)
    if not model:
        raise RuntimeError(f"llama.cpp cannot load {path}")
    p = ll.llama_context_default_params()
    p.n_ctx, p.n_batch, p.n_ubatch = context, context, context
    p.n_threads = p.n_threads_batch = threads
    p.flash_attn_type = int(flash)  # LLAMA_FLASH_ATTN_TYPE_DISABLED, _ENABLED
    made = ll.llama_init_from_model(model, p)
    if not made:
        raise RuntimeError("llama.cpp cannot make a context")
    words = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    memory = ll.llama_get_memory(made)

    def step(tokens: Array) -> Array:
        pointer = tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        code = ll.llama_decode(made, ll.llama_batch_get_one(pointer, len(tokens)))
        if code:
            raise RuntimeError(f"llama_decode returned {code}")
        return np.ctypeslib.as_array(ll.llama_get_logits_ith(made, -1), (words,))

    def prefill(tokens: Array) -> Array:
        ll.llama_memory_clear(memory, False)
        return step(tokens)

    return Candidate(prefill, step)


_kept: list[Any] = []  # callbacks that C refers to


def race(
    found: Mapping[str, Candidate], prompt: Array, steps: int, rounds: int
) -> tuple[dict[str, dict[str, Timing]], dict[str, Array]]:
    """Timings of each candidate, by `prefill` and `decode`, and its last logits. In each round the candidates, in a new
    order, run the prompt and the following tokens, after a prompt as warm-up."""
    times = {name: {phase: Timing() for phase in GOALS} for name in found}
    logits: dict[str, Array] = {}
    order = list(found)
    shuffle = random.Random(0)
    tokens = np.random.default_rng(1).integers(0, 1000, (steps, 1)).astype(np.int32)
    for _ in range(rounds):
        shuffle.shuffle(order)
        for name in order:
            one = found[name]
            time.sleep(SETTLE_S)
            one.prefill(prompt)
            start = time.perf_counter()
            one.prefill(prompt)
            times[name]["prefill"].rounds.append([time.perf_counter() - start])
            taken = []
            for token in tokens:
                start = time.perf_counter()
                last = one.decode(token)
                taken.append(time.perf_counter() - start)
            times[name]["decode"].rounds.append(taken)
            logits[name] = np.array(last)
    return times, logits


def worker(kind: str, threads: int, prompt: int, steps: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Yields the rows of one type and thread count. A process runs this once: thread pools are sized once."""
    sizes = Sizes()
    context = prompt + steps
    absent: dict[str, str] = {}
    found: dict[str, Candidate] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{kind}.gguf"
        weights = write(path, sizes, kind)
        found["ours, f32"] = ours(path, context, False)
        found["ours, int8"] = ours(path, context, True)
        for flash in (False, True):
            name = f"llama.cpp{', flash attention' if flash else ''}"
            try:
                found[name] = llama(path, context, threads, flash)
            except (ModuleNotFoundError, RuntimeError) as e:
                absent[name] = str(e)
        tokens = np.random.default_rng(0).integers(0, sizes.vocabulary, prompt).astype(np.int32)
        times, logits = race(found, tokens, steps, rounds)
    exact = logits["ours, f32"]
    cosine = {n: float(a @ exact / np.linalg.norm(a) / np.linalg.norm(exact)) for n, a in logits.items()}
    for name in [n for n in found if cosine[n] < LEAST_COSINE]:
        absent[name] = f"its logits are not the model's: cosine {cosine[name]:.3f}"
        del times[name]
    for phase, goal in GOALS.items():
        peers = {n: t[phase].median() for n, t in times.items() if n.startswith("llama")}
        best = min(peers, key=peers.__getitem__, default=None)
        for name in [n for n in times if n.startswith("ours")]:
            per = prompt if phase == "prefill" else 1
            yield {
                "type": kind, "phase": phase, "threads": threads, "ours": name, "weights": weights, "prompt": prompt,
                "ours_tokens_s": per / times[name][phase].median(), "goal": goal, "peer": best,
                "peer_tokens_s": per / peers[best] if best else None,
                "ratio": times[name][phase].ratio(times[best][phase]) if best else None,
                "times_ms": {n: t[phase].to_json() for n, t in times.items()}, "cosine": cosine, "absent": absent,
            }  # fmt: skip


def table(rows: Sequence[Mapping[str, Any]]) -> Any:
    from rich.table import Table

    made = Table("file", "phase", "threads", "program", "tokens/s", "best peer", "its tokens/s", "ratio", "p10", "p90",
                 "goal", "")  # fmt: skip
    for r in rows:
        ratio = r["ratio"] or {}
        numbers = [f"{ratio[n]:.2f}" if ratio else "" for n in ("median", "p10", "p90")]
        verdict = "no peer" if not ratio else "[green]kept" if ratio["median"] <= r["goal"] else "[red]missed"
        theirs = "" if r["peer_tokens_s"] is None else f"{r['peer_tokens_s']:.0f}"
        made.add_row(r["type"], r["phase"], str(r["threads"]), _named(r["ours"]), f"{r['ours_tokens_s']:.0f}",
                     r["peer"] or "", theirs, *numbers, f"{r['goal']:.2f}", verdict)  # fmt: skip
    return made


SECTION = """
## Decoders against llama.cpp

`python -m benchmarks.decoder`: a Llama-shaped decoder of {weights:.0f} million parameters, a prompt of {prompt} tokens
(`prefill`) and the following tokens (`decode`), on {cpu}; {versions}. `qmlir, f32` keeps float activations;
`qmlir, int8` quantises each layer's input, as llama.cpp does. `ratio` is of times. At {commit}, load {load:.1f}.

| file | phase | threads | program | tokens/s | best peer | its tokens/s | ratio | p10 | p90 | goal |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def _named(program: str) -> str:
    """The name of a program in tables; in result files qmlir is called `ours`."""
    return program.replace("ours", "qmlir")


def section(result: Mapping[str, Any]) -> str:
    """The decoder section of docs/benchmarks-cpu.md."""
    rows, e = result["rows"], result["environment"]
    used = ", ".join(f"{n} {e[n]}" for n in (*PACKAGES, "iree-base-compiler") if n in e)
    text = SECTION.format(weights=rows[0]["weights"] / 1e6, prompt=rows[0]["prompt"], cpu=e["cpu"], versions=used,
                          commit=result["commit"], load=e["load"])  # fmt: skip
    for r in rows:
        ratio = r["ratio"] or {}
        kept = bool(ratio) and ratio["median"] <= r["goal"]
        numbers = [f"{ratio[n]:.2f}" if ratio else "" for n in ("median", "p10", "p90")]
        if kept:
            numbers[0] = f"**{numbers[0]}**"
        theirs = "" if r["peer_tokens_s"] is None else f"{r['peer_tokens_s']:.0f}"
        cells = (r["type"], r["phase"], r["threads"], _named(r["ours"]), f"{r['ours_tokens_s']:.0f}",
                 r["peer"] or "none", theirs, *numbers, f"{r['goal']:.2f}")  # fmt: skip
        text += "| " + " | ".join(map(str, cells)) + " |\n"
    return text


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--types", default="Q4_0,Q8_0", help="of the file's matrices (default: Q4_0,Q8_0)")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--profile", action="store_true", help="show where our time goes instead")
    parser.add_argument("--worker", nargs=2, metavar=("TYPE", "THREADS"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.worker:
        kind, threads = args.worker
        for row in worker(kind, int(threads), args.prompt, args.steps, args.rounds):
            print(json.dumps(row), flush=True)
        sys.stdout.flush()
        os._exit(0)  # a normal exit may hang or crash in the thread pools of two libraries
    if args.profile:
        for kind in args.types.split(","):
            profile(kind, args.prompt)
        return 0

    from qmlir.cli import arguments

    from .harness import commit, environment, versions

    rows: list[dict[str, Any]] = []
    for count in args.threads.split(","):
        for kind in args.types.split(","):
            command = [sys.executable, "-m", "benchmarks.decoder", "--worker", kind, count, "--prompt",
                       str(args.prompt), "--steps", str(args.steps), "--rounds", str(args.rounds)]  # fmt: skip
            done = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False,
                env={**os.environ, "QMLIR_THREADS": count, "OMP_NUM_THREADS": count},
            )  # fmt: skip
            if done.returncode:
                return 1
            rows += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    arguments.console().print(table(rows))
    for name, why in {n: w for r in rows for n, w in r["absent"].items()}.items():
        print(f"absent: {name}: {why}")
    if args.json:
        found = {"environment": {**environment(), **versions(PACKAGES)}, "commit": commit(), "rows": rows}
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
