"""Writes commands.md for generate.py: every command with its real output.

Commands run in this process, as the command line runs them in its child process. Output that differs between machines
or runs is masked: times, sizes of files, devices.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

PROGRAM = """\
// A layer: int8 activations with a scale per row, int8 weights with a scale per column, relu.
func.func @main(%x: tensor<?x4xi8>, %x_scale: tensor<?x1xf32>) -> tensor<?x3xi8> {
  %w = arith.constant dense<[[1, -2, 3, -4], [5, 6, -7, 8], [-9, 10, 11, -12]]> : tensor<3x4xi8>
  %w_scale = arith.constant dense<[[0.5], [0.25], [0.125]]> : tensor<3x1xf32>
  %out_scale = arith.constant dense<2.0> : tensor<f32>
  %y = "qmlir.scaled_matmul"(%x, %w, %x_scale, %w_scale, %out_scale) {
    rhs_transposed = true, activation = "relu",
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "out_scale"]
  } : (tensor<?x4xi8>, tensor<3x4xi8>, tensor<?x1xf32>, tensor<3x1xf32>, tensor<f32>) -> tensor<?x3xi8> loc("fc1")
  return %y : tensor<?x3xi8>
}
"""

INTRO = """\
# Command line

*This page is written by `python docs/generate.py`, which runs the commands; a test keeps it up to date. Times, sizes of
files and devices are replaced by `#`.*

Exit codes: 0 ok, 1 failed (or, for `check` and `explain`, the answer is no), 2 wrong usage. `--json` prints data. On a
terminal, work of over two seconds shows a progress bar on stderr, unless `--quiet` is given; `NO_COLOR` is respected;
`--verbose` prints each step. Compilation runs in a child process, so that a crash of the compiler becomes an error
message, and `--timeout` and `--memory` limit it. Pictures need `pip install 'qmlir[plot]'`, completion scripts `pip
install 'qmlir[completion]'`.

The examples use this program, `layer.mlir`:

```mlir
{program}```
"""

# Title, text, commands; a command with a number shows that many lines of its output.
SECTIONS: list[tuple[str, str, list[str | tuple[str, int]]]] = [
    ("qmlir", "", ["qmlir --help", "qmlir --version"]),
    ("compile", "Compiles a program to one `.vmfb`, which includes its manifest.", [
        "qmlir compile --help", "qmlir compile layer.mlir --target cpu:x86-64-v3 -o layer.vmfb",
        ("qmlir compile layer.mlir --stop linalg -o linalg.mlir", 1)]),
    ("run", "Arguments come from `.npy` or `.npz` files, results are printed or written.", [
        "qmlir run --help", "qmlir run layer.vmfb -i x.npy -i x_scale.npy"]),
    ("check", """\
Runs a compiled program and compares its results with another evaluation: in numpy (`reference`), by ONNX Runtime for an
ONNX model, on another target, or by another program. If an output differs, the first layer that differs is named.
Compared with the reference, each layer has two errors: the accumulated error, and the layer's own error on the inputs
that the compiled program computed for it.""", [
        "qmlir check --help", "qmlir check layer.mlir --layers", "qmlir check layer.mlir --against cpu:x86-64",
        "qmlir check layer.mlir --against wrong.mlir"]),
    ("bench", """\
Programs are measured in alternation, in bursts of about a millisecond. The roofline is the limit of the machine:
measured on a CPU, published for a GPU, or given with `--limits`.""", [
        "qmlir bench --help", "qmlir bench layer.vmfb --against wrong.mlir --size 64 --rounds 5 --limits 2e12,30e9"]),
    ("tune", """\
Searches the choices that the strategies of a target leave open ([tuning](tuning.md) has the steps and the gain). `qmlir
compile --tuning tuning.json` then uses the best ones. `--emit DIR` only compiles, and `--measure DIR` only measures,
which needs no compiler. An interrupted search continues when it is started again. `--merge` merges databases and keeps
every record.""", [
        "qmlir tune --help", "qmlir compile layer.mlir --target cpu:x86-64-v3 --tuning tuning.json -o tuned.vmfb"]),
    ("inspect", "Shows the contents of a file, and the text of a program at any level, or of one dispatch.", [
        "qmlir inspect --help", "qmlir inspect layer.vmfb",
        ("qmlir inspect layer.mlir --target cuda:sm_80 --source ptx --dispatch main_dispatch_0", 12),
        "qmlir inspect layer.vmfb --source asm --dispatch dispatch_7"]),
    ("explain", """\
Lists every strategy of a target for every contraction, best first. `qmlir.explain(...)` returns the same, and the
compiler's errors use the same words.""", [
        "qmlir explain --help", "qmlir explain layer.mlir --target rocm:gfx942",
        "qmlir explain wide.mlir --target vulkan:ada"]),
    ("sign", """\
A `.vmfb` holds native code, which can do anything that you can do on your machine. A signature proves who made it:
`qmlir sign` writes one, `qmlir run --verify-key` refuses a program without it, and `--sha256` refuses a program with
another SHA-256. From Python: `qmlir.load(path, sha256=...)`, `qmlir.signing`. Keys are those of
`openssl genpkey -algorithm ed25519`; signing needs `pip install 'qmlir[sign]'`.""", [
        "qmlir sign --help", "qmlir run layer.vmfb -i x.npy -i x_scale.npy --sha256 " + "0" * 64]),
    ("targets", "", ["qmlir targets --help", "qmlir targets rocm"]),
    ("devices", "", ["qmlir devices --help"]),
    ("cache", "", ["qmlir cache --help", "qmlir cache ls"]),
    ("completion", "", ["qmlir completion --help"]),
]  # fmt: skip

WIDE = """\
func.func @main(%x: tensor<4x4xf64>, %y: tensor<4x4xf64>, %z: tensor<4x4xf64>) -> tensor<4x4xf64> {
  %0 = linalg.matmul ins(%x, %y : tensor<4x4xf64>, tensor<4x4xf64>) outs(%z : tensor<4x4xf64>) -> tensor<4x4xf64>
  return %0 : tensor<4x4xf64>
}
"""

_MASKS = [
    (r"\b(?!0{64})[0-9a-f]{64}\b", "#"),
    (r"\b\d[\d,]* bytes", "# bytes"), (r", \d+\.\d+ s$", ", # s"), (r"^ *[\d,]+  #$", "#  #"),
    (r"(?m)^(\S+) +\d\S* [num]?s +\d\S* [num]?s +\d\S* [num]?s.*$", r"\1 #"),
    (r"(?m)^program +median +p10.*$", "program, median, p10, p90, calls/s, roofline, ratio"),
    (r"memory of the process \d+ MiB", "memory of the process # MiB"),
    (r"(?m)^(\d+) threads?,", "# threads,"), (r"(?m)^Python .*$", "Python #"), (r"(?m)^device .*\n?", ""),
]  # fmt: skip


@contextlib.contextmanager
def _place() -> Iterator[Path]:
    """A folder with the examples, as the working directory, with an empty cache and a terminal of 80 columns."""
    kept, before = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "layer.mlir").write_text(PROGRAM)
        (folder / "wrong.mlir").write_text(PROGRAM.replace("[0.25]", "[0.5]"))
        (folder / "wide.mlir").write_text(WIDE)
        (folder / "tuning.json").write_text('{"format": 1, "entries": {}}')
        np.save(folder / "x.npy", np.array([[1, 2, 3, 4], [-1, 0, 5, 100]], np.int8))
        np.save(folder / "x_scale.npy", np.array([[0.5], [0.25]], np.float32))
        os.environ |= {
            "COLUMNS": "80",
            "QMLIR_CACHE_DIR": str(folder / "cache"),
            "QMLIR_IN_CHILD": str(folder / "step"),
        }
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(kept)


def output_of(line: str) -> str:
    """The masked output of a command, of both streams."""
    from qmlir.cli import build_parser, guarded, versions

    words = shlex.split(line)[1:]

    def body() -> int:
        args = build_parser().parse_args(words)
        if args.version:
            print(versions())
            return 0
        args.words = words
        return int(args.run(args))

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), contextlib.suppress(SystemExit):
        guarded(body, "qmlir")
    text = "\n".join(part.rstrip() for part in out.getvalue().splitlines())
    for pattern, masked in _MASKS:
        text = re.sub(pattern, masked, text, flags=re.M)
    return text.rstrip()


def page() -> str:
    """The text of commands.md."""
    parts = [INTRO.format(program=PROGRAM)]
    with _place():
        for title, text, commands in SECTIONS:
            parts.append(f"\n## {title}\n" + (f"\n{text}\n" if text else ""))
            for command in commands:
                line, most = (command, 0) if isinstance(command, str) else command
                lines = output_of(line).splitlines()
                if most and len(lines) > most:
                    lines = [*lines[:most], "..."]
                parts.append("\n```console\n$ " + "\n".join([line, *lines]) + "\n```\n")
    return "".join(parts)
