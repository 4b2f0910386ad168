"""Bad input: exit code 1, one clear message with the place, no traceback, nothing half-written.

Most cases run in one process that plays the child of the command line; what concerns the two processes (crashes,
interrupts, timeouts) runs the real command.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import qmlir
from qmlir.errors import QmlirError, UsageError

NAMES = 'operand_names = ["lhs", "rhs"]'
MATMUL = f"""func.func @main(%x: tensor<4x8xi8>, %w: tensor<8x16xi8>) -> tensor<4x16xi32> {{
  %0 = "qmlir.scaled_matmul"(%x, %w) {{{NAMES}}}
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}}
"""
GROUPS = f"""func.func @main(%x: tensor<4x128xi8>, %w: tensor<128x16xi8>, %s: tensor<3x16xf32>) -> tensor<4x16xf32> {{
  %0 = "qmlir.scaled_matmul"(%x, %w, %s) {{{NAMES.replace("]", ', "rhs_scale"]')}}}
      : (tensor<4x128xi8>, tensor<128x16xi8>, tensor<3x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}}
"""
F64 = """func.func @main(%a: tensor<4x8xf64>, %b: tensor<8x16xf64>, %c: tensor<4x16xf64>) -> tensor<4x16xf64> {
  %0 = linalg.matmul ins(%a, %b : tensor<4x8xf64>, tensor<8x16xf64>) outs(%c : tensor<4x16xf64>) -> tensor<4x16xf64>
  return %0 : tensor<4x16xf64>
}
"""
IDENTITY = "func.func @main(%x: TYPE) -> TYPE {\n  return %x : TYPE\n}\n"
NAMED = "func.func @main(%x: tensor<4xi8> {ATTRIBUTE}) -> tensor<4xi8> {\n  return %x : tensor<4xi8>\n}\n"


def edited(*changes: tuple[str, str], text: str = MATMUL) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


@dataclass(frozen=True)
class Case:
    """`words` with `{d}` for the folder of inputs and `{o}` for the folder of outputs."""

    name: str
    words: str
    message: str  # regular expression
    source: str | bytes | None = None  # content of {d}/<name>.mlir
    errors: int = 1  # how often "error:" is said


def compiling(name: str, message: str, source: str | bytes, options: str = "", errors: int = 1) -> Case:
    return Case(name, f"compile {{d}}/{name}.mlir -o {{o}}/{name}.vmfb {options}", message, source, errors)


def running(name: str, message: str, options: str, program: str = "{d}/good.vmfb") -> Case:
    return Case(name, f"run {program} {options}", message)


CASES = [
    # ---- files that are no MLIR
    compiling("text", r"text\.mlir:1:1: error: custom op 'this' is unknown", "this is not MLIR\n"),
    compiling("binary", r"binary\.mlir:1:1: error: the file is not MLIR text", b"\x7fELF\x02\x01\xff\xfe"),
    compiling("nul", r"nul\.mlir:1:1: error: the file is not MLIR text: it holds NUL", b"module {}\0"),
    compiling("bytecode", r"bytecode\.mlir:1:1: error: the file is not MLIR text", b"ML\xefR\x01MLIR\0"),
    compiling("empty", r"empty\.mlir:1:1: error: the program has no public function", ""),
    compiling("comment", r"comment\.mlir:1:1: error: the program has no public function", "// nothing\n"),
    compiling("half", r"half\.mlir:[23]:\d+: error: ", MATMUL[: len(MATMUL) // 2]),
    compiling("no_end", r"no_end\.mlir:\d+:\d+: error: ", MATMUL.rstrip("}\n")),
    compiling("type", r"type\.mlir:2:8: error: .*expected 4 operand|type\.mlir:\d+:\d+: error: use of value",
              edited(("(tensor<4x8xi8>, tensor<8x16xi8>)", "(tensor<4x8xi8>, tensor<8x15xi8>)"))),
    Case("missing", "compile {d}/nowhere.mlir -o {o}/x.vmfb", r"error: cannot read .*nowhere\.mlir: No such file"),
    Case("folder", "compile {d} -o {o}/x.vmfb", r"error: cannot read .*: it is a folder"),
    # ---- valid MLIR, wrong use of the dialect
    compiling("op", r"op\.mlir:2:8: error: 'qmlir\.scaled_matmull' op is not an op of this dialect; did you mean",
              edited(("scaled_matmul", "scaled_matmull"))),
    compiling("attribute", r"attribute\.mlir:2:8: error: .* has no attribute 'activaton'; did you mean 'activation'",
              edited((NAMES, NAMES + ', activaton = "relu"'))),
    compiling("enum", r"enum\.mlir:2:8: error: .*'rounding' is 'half_up', which is not known; did you mean 'half_",
              edited((NAMES, NAMES + ', rounding = "half_up"'))),
    compiling("names", r"names\.mlir:2:8: error: .* operand 'rhs' is missing", edited(('"rhs"', '"rhs_scale"'))),
    compiling("properties", r"properties\.mlir:2:8: error: .* has attributes in <\{\.\.\.\}>",
              edited((f" {{{NAMES}}}", f' <{{rounding = "trunc"}}> {{{NAMES}}}'))),
    compiling("shape", r"shape\.mlir:2:8: error: .* K differs: 'lhs' \[4, 8\] has 8 along axis 1, 'rhs' \[9, 16\]",
              edited(("8x16xi8", "9x16xi8"))),
    compiling("result", r"result\.mlir:2:8: error: .* result has shape \[4, 17\], but the operands give \[4, 16\]",
              edited(("4x16xi32", "4x17xi32"))),
    compiling("dtype", r"dtype\.mlir:2:8: error: .* operand 'lhs' must be a ranked tensor of i8 codes or floats",
              edited(("4x8xi8", "4x8xi16"))),
    compiling("stated", r"stated\.mlir:2:8: error: .*'lhs_dtype' says 'f16', which is stored as f16, but 'lhs' is",
              edited((NAMES, NAMES + ', lhs_dtype = "f16"'))),
    compiling("overflow", r"overflow\.mlir:2:8: error: .* K = 131072 can reach 2147483648, .* exact up to 131071",
              edited(("4x8xi8", "4x131072xi8"), ("8x16xi8", "131072x16xi8"))),
    compiling("groups", r"groups\.mlir:2:8: error: .*'rhs_scale' has shape \[3, 16\].* 3 groups do not divide; "
              r"group sizes that divide 128: 16, 32, 64, 128", GROUPS),
    compiling("no_scale", r"no_scale\.mlir:2:8: error: .*'rhs_scale' has shape \[0, 16\].* 0 groups do not divide",
              edited(("3x16xf32", "0x16xf32"), text=GROUPS)),
    compiling("foreign_op", r"foreign_op\.mlir:2:3: error: 'foreign\.op' was not lowered and is unknown to IREE",
              'func.func @main() {\n  "foreign.op"() : () -> ()\n  return\n}\n'),
    compiling("left_over", r"left_over\.mlir:2:8: error: 'qmlir\.scaled_matmul' was not lowered", MATMUL,
              "--pipeline qmlir-verify"),
    # ---- functions
    compiling("private", r"private\.mlir:1:1: error: the program has no public function", "func.func private @f()\n"),
    compiling("scalar", r"scalar\.mlir:1:1: error: function @main has an argument or result i32; ranked tensors only",
              IDENTITY.replace("TYPE", "i32")),
    compiling("index", r"index\.mlir:1:1: error: function @main has an argument or result tensor<4xindex>",
              IDENTITY.replace("TYPE", "tensor<4xindex>")),
    compiling("complex", r"complex\.mlir:1:1: error: function @main has .* tensor<complex<f32>>",
              IDENTITY.replace("TYPE", "tensor<complex<f32>>")),
    compiling("named", r"named\.mlir:1:1: error: function @main has attribute 'qmlir\.dtype' = 'u9', which is not "
              r"known; did you mean 'u8'", NAMED.replace("ATTRIBUTE", 'qmlir.dtype = "u9"')),
    compiling("named_kind", r"named_kind\.mlir:1:1: error: .*'qmlir\.name' = 5 : i64, which must be a string",
              NAMED.replace("ATTRIBUTE", "qmlir.name = 5")),
    compiling("named_float", r"named_float\.mlir:1:1: error: .* says 'qmlir\.dtype' = 'f16', .* type is tensor<4xi8>",
              NAMED.replace("ATTRIBUTE", 'qmlir.dtype = "f16"')),
    # ---- what IREE refuses
    compiling("iree", r"error: IREE could not compile the program:\n\S*iree\.mlir:2:8: error: failed to legalize "
              r"operation 'math\.erf'[^%]*\n\S*iree\.mlir:2:8: error: failed to run translation[^#]*\n$",
              "func.func @main(%x: tensor<4xf64>) -> tensor<4xf64> {\n  %0 = math.erf %x : tensor<4xf64>\n"
              "  return %0 : tensor<4xf64>\n}\n", errors=3),
    compiling("external", r"error: IREE could not compile the program:\n\S*external\.mlir:5:1: error: .* unscoped `@f`",
              IDENTITY.replace("TYPE", "tensor<4xi8>").replace("return %x", "%0 = func.call @f(%x) : (tensor<4xi8>) -> "
              "tensor<4xi8>\n  return %0") + "func.func private @f(tensor<4xi8>) -> tensor<4xi8>\n", errors=2),
    # ---- targets and options
    compiling("target", r"error: unknown target 'vulcan:lavapipe'; did you mean 'vulkan:lavapipe'", MATMUL,
              "-t vulcan:lavapipe"),
    compiling("target_name", r"error: unknown target 'rocm:gfx943'; did you mean 'rocm:gfx942'", MATMUL,
              "-t rocm:gfx943"),
    compiling("target_backend", r"error: unknown target 'metal'; a target is one of cpu, cuda, rocm, vulkan", MATMUL,
              "-t metal"),
    compiling("f64", r"f64\.mlir:2:8: error: no strategy of vulkan:lavapipe compiles this matmul of f64 x f64 -> f64:"
              r"(.|\n)* stock: vulkan:lavapipe has no f64 arithmetic \(lhs\) \(use one of i8",
              F64, "-t vulkan:lavapipe"),
    compiling("flag", r"error: IREE does not take the flags --iree-no-such-flag", MATMUL,
              "--flags=--iree-no-such-flag"),
    compiling("pass", r"error: unknown pass 'qmlir-flod'; did you mean 'qmlir-fold'", MATMUL, "--pipeline qmlir-flod"),
    compiling("no_parameters", r"error: cannot read the parameter file .*none\.irpa: No such file", MATMUL,
              "--parameters a={d}/none.irpa"),
    compiling("no_scope", r"error: the program has no parameters of scope 'a'; its scopes: none", MATMUL,
              "--parameters a={d}/no_scope.mlir"),
    # ---- outputs that cannot be written
    Case("out_missing", "compile {d}/good.mlir -o {o}/none/x.vmfb",
         r"error: cannot write .*: there is no folder .*none"),
    Case("out_folder", "compile {d}/good.mlir -o {o}", r"error: cannot write .*: it is a folder"),
    Case("out_proc", "compile {d}/good.mlir -o /proc/x.vmfb", r"error: cannot write /proc/x\.vmfb: "),
    Case("stages_file", "compile {d}/good.mlir -o {o}/x.vmfb --dump-stages {d}/good.mlir",
         r"error: cannot make the folder .*good\.mlir: "),
    Case("opt_missing", "opt {d}/good.mlir -o {o}/none/x.mlir",
         r"qmlir-opt: error: cannot write .*none/x\.mlir: No such"),
    Case("opt_input", "opt {d}/nowhere.mlir", r"qmlir-opt: error: cannot read .*nowhere\.mlir: No such file"),
    Case("opt_binary", "opt {d}/binary.mlir", r"qmlir-opt: error: cannot read .*binary\.mlir: it is not text"),
    # ---- programs that are none
    running("run_missing", r"error: cannot read .*nowhere\.vmfb: No such file", "", "{d}/nowhere.vmfb"),
    running("run_folder", r"error: cannot read .*: Is a directory", "", "{d}"),
    running("run_text", r"error: .*good\.mlir is truncated or not a \.vmfb", "", "{d}/good.mlir"),
    running("run_empty", r"error: .*empty\.mlir is not a \.vmfb: it has 0 bytes", "", "{d}/empty.mlir"),
    running("run_truncated", r"error: .*truncated\.vmfb is truncated or not a \.vmfb", "", "{d}/truncated.vmfb"),
    running("run_flipped", r"error: .*flipped\.vmfb is damaged: the checksum of its part", "", "{d}/flipped.vmfb"),
    running("run_foreign", r"error: .*foreign\.vmfb was not made by qmlir", "", "{d}/foreign.vmfb"),
    running("run_archive", r"error: .*xw\.npz is not a \.vmfb: it is an archive without a module", "", "{d}/xw.npz"),
    # ---- inputs that do not fit
    running("count_none", r"error: main takes 2 arguments \(x: i8\[4, 8\], w: i8\[8, 16\]\), but got 0", ""),
    running("count_one", r"error: main takes 2 arguments .*, but got 1", "-i {d}/x.npy"),
    running("count_three", r"error: main takes 2 arguments .*, but got 3", "-i {d}/xw.npz -i {d}/x.npy"),
    running("in_shape", r"error: argument 1 \('w'\) of main must be i8\[8, 16\], but has shape \[4, 8\]",
            "-i {d}/x.npy -i {d}/x.npy"),
    running("in_rank", r"error: argument 0 \('x'\) of main must be i8\[4, 8\], but has shape \[32\]",
            "-i {d}/flat.npy -i {d}/w.npy"),
    running("in_dtype", r"error: argument 0 \('x'\) of main must be i8\[4, 8\], but has dtype f32",
            "-i {d}/float.npy -i {d}/w.npy"),
    running("in_sign", r"error: argument 0 \('x'\) of main must be i8\[4, 8\], but has dtype u8",
            "-i {d}/unsigned.npy -i {d}/w.npy"),
    running("in_complex", r"error: argument 0 .* must be i8\[4, 8\], but has dtype complex128",
            "-i {d}/complex.npy -i {d}/w.npy"),
    running("in_missing", r"error: cannot read .*none\.npy: there is no such file", "-i {d}/none.npy -i {d}/w.npy"),
    running("in_pickle", r"error: cannot read .*object\.npy: .*\(Python objects in it are not read\)",
            "-i {d}/object.npy -i {d}/w.npy"),
    running("in_pickle_npz", r"error: cannot read .*object\.npz: .*\(Python objects in it are not read\)",
            "-i {d}/object.npz"),
    running("in_truncated", r"error: cannot read .*short\.npy: it is damaged", "-i {d}/short.npy -i {d}/w.npy"),
    running("in_truncated_npz", r"error: cannot read .*short\.npz: it is damaged", "-i {d}/short.npz"),
    running("in_flipped_npz", r"error: cannot read .*flipped\.npz: it is damaged", "-i {d}/flipped.npz"),
    running("in_text", r"error: cannot read .*good\.mlir: it is damaged", "-i {d}/good.mlir -i {d}/w.npy"),
    running("in_huge", r"error: cannot read .*huge\.npy: it is damaged", "-i {d}/huge.npy -i {d}/w.npy"),
    running("function", r"error: .*good\.vmfb has no function 'mian'; it has main", "-f mian"),
    running("device", r"error: the program was compiled for cpu \(local-task\), not for 'cuda://0'",
            "-i {d}/xw.npz --device cuda://0"),
    running("y_missing", r"error: cannot write .*none/y\.npy: there is no folder", "-i {d}/xw.npz -o {o}/none/y.npy"),
    running("y_folder", r"error: cannot write .*: it is a folder", "-i {d}/xw.npz -o {o}"),
    running("y_count", r"error: main has 1 results, but -o names 2 files", "-i {d}/xw.npz -o {o}/a.npy -o {o}/b.npy"),
]  # fmt: skip

DRIVER = """
import contextlib, io, json, os, sys
os.environ["QMLIR_IN_CHILD"] = sys.argv[1]
from qmlir.cli import main, opt
results = []
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = opt.main(words[1:]) if words[0] == "opt" else main(words)
        except SystemExit as e:
            code = e.code
    results.append([code, out.getvalue(), err.getvalue()])
sys.stdout.write(json.dumps(results))
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Batch:
    inputs: Path
    outputs: Path
    results: dict[str, Result]


def environment(folder: Path) -> dict[str, str]:
    """Every file that a command may leave goes below `folder`."""
    for name in ("cache", "reports", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    return {**os.environ, "QMLIR_CACHE_DIR": str(folder / "cache"), "QMLIR_REPRODUCER_DIR": str(folder / "reports"),
            "TMPDIR": str(folder / "tmp")}  # fmt: skip


def command(*words: str, program: str = "qmlir") -> list[str]:
    return [sys.executable, "-m", "qmlir" if program == "qmlir" else "qmlir.cli.opt", *words]


def write_inputs(d: Path) -> None:
    for case in CASES:
        if case.source is not None:
            path = d / f"{case.name}.mlir"
            path.write_bytes(case.source if isinstance(case.source, bytes) else case.source.encode())
    x, w = np.zeros((4, 8), np.int8), np.ones((8, 16), np.int8)
    np.save(d / "x.npy", x)
    np.save(d / "w.npy", w)
    np.savez(d / "xw.npz", x=x, w=w)
    np.save(d / "flat.npy", x.ravel())
    np.save(d / "float.npy", x.astype(np.float32))
    np.save(d / "unsigned.npy", x.astype(np.uint8))
    np.save(d / "complex.npy", x.astype(complex))
    np.save(d / "object.npy", np.array([float("nan"), None], object), allow_pickle=True)
    np.savez(d / "object.npz", x=np.array([None], object), w=w)
    (d / "short.npy").write_bytes((d / "x.npy").read_bytes()[:-5])
    whole = (d / "xw.npz").read_bytes()
    (d / "short.npz").write_bytes(whole[: len(whole) // 2])
    with zipfile.ZipFile(d / "xw.npz") as archive:
        start = archive.getinfo("x.npy").header_offset
    flipped = bytearray(whole)
    flipped[start + 100] ^= 0xFF
    (d / "flipped.npz").write_bytes(flipped)
    huge = (d / "x.npy").read_bytes().replace(b"(4, 8), }               ", b"(4, 88888888888888888), }")
    assert b"88888888888888888" in huge
    (d / "huge.npy").write_bytes(huge)


def write_programs(d: Path, env: dict[str, str]) -> None:
    (d / "good.mlir").write_text(edited(("%x: tensor<4x8xi8>", '%x: tensor<4x8xi8> {qmlir.name = "x"}'),
                                        ("%w: tensor<8x16xi8>", '%w: tensor<8x16xi8> {qmlir.name = "w"}')))  # fmt: skip
    subprocess.run(command("compile", "-q", str(d / "good.mlir")), env=env, check=True)
    good = (d / "good.vmfb").read_bytes()
    (d / "truncated.vmfb").write_bytes(good[: len(good) * 2 // 3])
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 0x10
    (d / "flipped.vmfb").write_bytes(flipped)
    (d / "plain.mlir").write_text(IDENTITY.replace("TYPE", "tensor<4xf32>"))
    flags = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=vmvx"]
    tool = str(Path(sys.executable).parent / "iree-compile")
    subprocess.run([tool, *flags, str(d / "plain.mlir"), "-o", str(d / "foreign.vmfb")], check=True)


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """Every case, run once, in one process."""
    folder = tmp_path_factory.mktemp("bad")
    d, o = folder / "in", folder / "out"
    d.mkdir()
    o.mkdir()
    env = environment(folder)
    write_inputs(d)
    write_programs(d, env)
    words = [[w.replace("{d}", str(d)).replace("{o}", str(o)) for w in case.words.split()] for case in CASES]
    done = subprocess.run([sys.executable, "-c", DRIVER, str(folder / "crumb")], input=json.dumps(words), env=env,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, f"a case ended the process: {done.stderr}"
    results = [Result(*r) for r in json.loads(done.stdout)]
    return Batch(d, o, dict(zip([case.name for case in CASES], results, strict=True)))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_message(case: Case, batch: Batch) -> None:
    result = batch.results[case.name]
    assert result.code == 1, result
    assert re.search(case.message, result.err), result.err
    assert "Traceback" not in result.err
    assert "internal error" not in result.err
    assert result.out == "", "a failed command writes nothing to stdout"
    # One message: it is not repeated, and no IR is dumped into it.
    assert result.err.count("error:") == case.errors, result.err
    assert len(result.err) < 2500, result.err


def test_nothing_is_left(batch: Batch) -> None:
    assert list(batch.outputs.iterdir()) == []
    assert [p.name for p in batch.inputs.parent.rglob("*.tmp")] == []
    assert [p.name for p in batch.inputs.parent.rglob("*.lock")] == []


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


# ------------------------------------------------------------------------------------------- two processes


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "good.mlir"
    path.write_text(MATMUL)
    (tmp_path / "out").mkdir()
    return path


def leftovers(folder: Path) -> list[str]:
    """Files that no command should leave: outputs, partial files, locks, temporary folders."""
    found = [*(folder / "out").rglob("*"), *(folder / "tmp").iterdir()]
    found += [p for p in (folder / "cache").rglob("*") if p.is_file() and p.suffix not in (".vmfb", ".sha256")]
    return [str(p.relative_to(folder)) for p in found]


def run(folder: Path, *words: str, program: str = "qmlir", **kw: Any) -> Result:
    done = subprocess.run(command(*words, program=program), env=environment(folder), capture_output=True, text=True,
                          check=False, cwd=folder, **kw)  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


# A module pass of IREE under func.func aborts the process: a crash that needs no defect of ours.
CRASH = "func.func(iree-abi-transformation-pipeline)"


@pytest.mark.parametrize("program", ["qmlir", "qmlir-opt"])
def test_crash_of_the_compiler(program: str, source: Path, tmp_path: Path) -> None:
    words = ["compile", str(source), "-o", "out/x.vmfb", "--no-cache", "--pipeline", CRASH]
    if program == "qmlir-opt":
        words = [str(source), "-o", "out/x.mlir", "--pass-pipeline", CRASH]
    result = run(tmp_path, *words, program=program)
    assert result.code == 1
    assert re.match(rf"{program}: error: \S*good\.mlir: the compiler crashed \(SIG\w+\) in ", result.err), result.err
    assert "Traceback" not in result.err
    assert len(result.err.splitlines()) == 3, "the crash, how to repeat it, where the details are"
    details = re.search(r"^details: (.*)$", result.err, re.M)
    assert details
    text = Path(details[1]).read_text()
    assert CRASH in text
    assert "signal: SIG" in text
    repeat = re.search(r"^reproducer: python (.*)$", result.err, re.M)
    assert repeat
    again = subprocess.run(f"{sys.executable} {repeat[1]}", shell=True, cwd=tmp_path, env=environment(tmp_path),
                           capture_output=True, text=True, check=False)  # fmt: skip
    assert again.returncode == 1
    assert "the compiler crashed" in again.stderr
    assert leftovers(tmp_path) == []


def test_timeout(source: Path, tmp_path: Path) -> None:
    result = run(tmp_path, "compile", str(source), "-o", "out/x.vmfb", "--timeout", "0.05")
    assert result.code == 1
    assert result.err == f"qmlir: error: {source}: the compiler did not finish in 0.05 s\n"
    assert leftovers(tmp_path) == []


def interrupted(folder: Path, source: Path, delay: float, number: int, whole_group: bool) -> Result:
    """Compile, and send a signal `delay` seconds after the child's folder appeared."""
    process = subprocess.Popen(
        command("compile", str(source), "-o", "out/x.vmfb"), env=environment(folder), cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while not any((folder / "tmp").iterdir()) and process.poll() is None:
        time.sleep(0.002)
    time.sleep(delay)
    if process.poll() is None:
        if whole_group:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return Result(process.returncode, out, err)


def test_interrupt_leaves_nothing(source: Path, tmp_path: Path) -> None:
    codes = []
    # Both ways in which an interrupt comes: from the terminal to both processes, from a supervisor to one.
    ways = ((signal.SIGINT, True), (signal.SIGTERM, False))
    for i in range(10):
        result = interrupted(tmp_path, source, 0.12 * i, *ways[i % 2])
        codes.append(result.code)
        assert "Traceback" not in result.err
        if result.code == 0:  # it had finished
            (tmp_path / "out" / "x.vmfb").unlink()
        else:
            assert (result.code, result.err) == (130, "qmlir: interrupted\n")
        assert leftovers(tmp_path) == []
    assert codes[0] == 130, codes


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").chmod(0o500)
    result = run(tmp_path, "compile", str(source), "-o", "out/x.vmfb")
    (tmp_path / "out").chmod(0o700)
    assert result.code == 1
    assert re.match(r"qmlir: error: cannot write out/x\.vmfb: no permission in out\n", result.err)
    assert leftovers(tmp_path) == []


def test_existing_output_survives_a_failure(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "x.vmfb").write_bytes(b"before")
    source.write_text(edited(("8x16xi8", "9x16xi8")))
    result = run(tmp_path, "compile", str(source), "-o", "out/x.vmfb")
    assert result.code == 1
    assert f"{source}:2:8: error: 'qmlir.scaled_matmul' op K differs" in result.err
    assert (tmp_path / "out" / "x.vmfb").read_bytes() == b"before"


def test_standard_input_of_qmlir_opt(tmp_path: Path) -> None:
    result = run(tmp_path, "-", "--pass-pipeline=qmlir-verify", program="qmlir-opt",
                 input=edited(("8x16xi8", "9x16xi8")))  # fmt: skip
    assert result.code == 1
    assert result.err.startswith("<stdin>:2:8: error: 'qmlir.scaled_matmul' op K differs")


# ------------------------------------------------------------------------------------- parameters at load time

WEIGHTS = """
util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<2x3xi8>
util.global private @s = #flow.parameter.named<"model"::"s"> : tensor<f32>
func.func @main(%x: tensor<4x2xi8>) -> tensor<4x3xf32> {
  %w = util.global.load @w : tensor<2x3xi8>
  %s = util.global.load @s : tensor<f32>
  %0 = "qmlir.scaled_matmul"(%x, %w, %s) {
    operand_names = ["lhs", "rhs", "rhs_scale"]
  } : (tensor<4x2xi8>, tensor<2x3xi8>, tensor<f32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}
"""
W, S = np.arange(6, dtype=np.int8).reshape(2, 3), np.array(0.5, np.float32)
X = np.ones((4, 2), np.int8)


@pytest.fixture(scope="module")
def kept() -> Any:
    """A program that loads its weights when it is loaded."""
    return qmlir.compile(WEIGHTS)


@pytest.mark.parametrize("suffix", ["safetensors", "irpa"])
def test_parameters_baked_in_and_loaded_agree(suffix: str, kept: Any, tmp_path: Path) -> None:
    path = str(parameter_file(tmp_path, suffix, {"w": W, "s": S}))
    expected = X.astype(np.float32) @ W.astype(np.float32) * S
    np.testing.assert_array_equal(qmlir.load(kept, parameters={"model": path}).main(X), expected)
    baked = qmlir.compile(WEIGHTS, parameters={"model": path})
    np.testing.assert_array_equal(qmlir.load(baked).main(X), expected)


def parameter_file(folder: Path, suffix: str, arrays: dict[str, Any]) -> Path:
    path = folder / "p.safetensors"
    save_file(arrays, path)
    if suffix == "irpa":
        tool = str(Path(sys.executable).parent / "iree-convert-parameters")
        subprocess.run([tool, f"--parameters={path}", f"--output={folder / 'p.irpa'}"], check=True, capture_output=True)
    return folder / f"p.{suffix}"


@pytest.mark.parametrize(
    ("suffix", "arrays", "message"),
    [
        ("safetensors", {"W": W, "s": S}, r"p\.safetensors has no parameter 'w'; known: s, W"),
        ("safetensors", {"w": W[:1], "s": S}, r"'w' of .* is I8 \[1, 3\], but the program declares 2x3xi8"),
        ("safetensors", {"w": W.T.copy(), "s": S}, r"'w' of .* is I8 \[3, 2\], but the program declares 2x3xi8"),
        ("safetensors", {"w": W.astype(np.int32), "s": S}, r"'w' of .* is I32 \[2, 3\], but the program declares"),
        ("safetensors", {"w": W, "s": S.astype(np.int32)}, r"'s' of .* is I32 \[\], but the program declares f32"),
        ("irpa", {"W": W, "s": S}, r"p\.irpa has no parameter 'w'; known: s, W"),
        ("irpa", {"w": W[:1], "s": S}, r"'w' of .*p\.irpa has 3 bytes, but the program declares 2x3xi8"),
        ("irpa", {"w": W, "s": S.astype(np.float64)}, r"'s' of .*p\.irpa has 8 bytes, but the program declares f32"),
    ],
)
def test_parameters_that_do_not_fit(
    suffix: str, arrays: dict[str, Any], message: str, kept: Any, tmp_path: Path
) -> None:
    path = parameter_file(tmp_path, suffix, arrays)
    with pytest.raises(UsageError, match=message):
        qmlir.load(kept, parameters={"model": str(path)})
    with pytest.raises(QmlirError, match=r"-:5:\d+: error: .*p\.\w+ has no|-:\d:\d+: error: parameter '[ws]' "):
        qmlir.compile(WEIGHTS, parameters={"model": str(path)})


def test_parameter_files_that_are_none(kept: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs a parameter file for scope 'model'.*--parameters model=FILE"):
        qmlir.load(kept)
    with pytest.raises(UsageError, match=r"cannot read the parameter file .*none\.irpa"):
        qmlir.load(kept, parameters={"model": str(tmp_path / "none.irpa")})
    for name in ("junk.safetensors", "junk.irpa", "junk.gguf", "junk.txt"):
        (tmp_path / name).write_bytes(b"junk")
        with pytest.raises(UsageError, match=rf"cannot read the parameter file .*{name}"):
            qmlir.load(kept, parameters={"model": str(tmp_path / name)})
    whole = parameter_file(tmp_path, "safetensors", {"w": W, "s": S})
    with pytest.raises(UsageError, match="the program loads no parameters of scope 'extra'"):
        qmlir.load(kept, parameters={"model": str(whole), "extra": str(whole)})
    whole.write_bytes(whole.read_bytes()[:-3])
    with pytest.raises(UsageError, match=r"cannot read the parameter file .*p\.safetensors"):
        qmlir.load(kept, parameters={"model": str(whole)})


LHS, RHS, IMAGE = np.ones((2, 8), np.int8), np.ones((8, 4), np.int8), np.ones((1, 5, 5, 2), np.int8)
PRODUCT = ("scaled_matmul", (LHS, RHS))
ARGUMENTS = {
    # Cut to an integer they would give other numbers.
    "rhs_zero_point=2.7": (*PRODUCT, {"rhs_zero_point": 2.7}, "must be integer in mode 'int'"),
    "out_zero_point=1.5": (*PRODUCT, {"out_zero_point": 1.5, "out_dtype": "i8"}, "'out_zero_point'"),
    "zero_point=1.9": ("quantize", (LHS.astype(np.float32), 0.5, 1.9), {}, "'zero_point' must be a ranked tensor"),
    "a zero point of nan": ("dequantize", (LHS, 0.5, float("nan")), {}, "must be integer in mode 'int'"),
    "a wide zero point": (*PRODUCT, {"rhs_zero_point": 2**40}, "rhs_zero_point=1099511627776 is"),
    "group_size=4.5": (*PRODUCT, {"group_size": 4.5}, "group_size=4.5 must be an integer"),
    "groups=1.2": ("conv2d_q", (IMAGE, IMAGE), {"groups": 1.2}, "groups=1.2 must be an integer"),
    "strides=2": ("conv2d_q", (IMAGE, IMAGE), {"strides": 2}, "strides=2 must be an array of 2 i64 integers"),
    "strides=(1.5, 1)": ("conv2d_q", (IMAGE, IMAGE), {"strides": (1.5, 1)}, "must be an array of 2 i64 integers"),
    "clamp=(-3.5, 3.5)": (*PRODUCT, {"clamp": (-3.5, 3.5)}, "must be an array of 2 i64 integers"),
    "act_clamp=('a', 'b')": (*PRODUCT, {"act_clamp": ("a", "b")}, "must be an array of 2 f64 floats"),
    "alpha='2'": (*PRODUCT, {"alpha": "2"}, "alpha='2' must be a float"),
    "rhs_transposed='false'": (*PRODUCT, {"rhs_transposed": "false"}, "must be a bool"),
    "topk=True": ("route", (LHS.astype(np.float32),), {"topk": True}, "topk=True must be an integer"),
    "activation=3": (*PRODUCT, {"activation": 3}, "activation=3 is not known; known: none, relu"),
    "out_dtype='i3'": (*PRODUCT, {"out_dtype": "i3"}, "out_dtype='i3' is not known; did you mean 'i32'"),
}  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_not_converted_silently(name: str) -> None:
    operation, arrays, more, message = ARGUMENTS[name]
    with pytest.raises(QmlirError, match=re.escape(message)):
        qmlir.ops.BY_NAME[operation if operation != "dequantize" else "dequant"](*arrays, **more)


def test_attributes_may_be_arrays() -> None:
    image, weight = np.ones((1, 4, 4, 8), np.int8), np.ones((8, 3, 3, 8), np.int8)
    expected = qmlir.reference.conv2d_q(image, weight, strides=(2, 1), padding=(1, 1, 1, 1), out_dtype="i32")
    for strides in (np.array([2, 1]), [2, 1], [np.int32(2), 1]):
        found = qmlir.ops.conv2d_q(image, weight, strides=strides, padding=np.ones(4, np.int64), out_dtype=np.int32)
        assert np.array_equal(found, expected)


def test_the_reference_cuts_no_zero_point() -> None:
    for call in (
        lambda: qmlir.reference.scaled_matmul(LHS, RHS, rhs_zero_point=2.7),
        lambda: qmlir.reference.dequantize(LHS, 0.5, 1.5),
        lambda: qmlir.reference.quantize(LHS.astype(np.float32), 0.5, 1.9),
        lambda: qmlir.reference.grouped_matmul(LHS, RHS[None], expert_ids=np.zeros((2, 1), np.float32)),
    ):
        with pytest.raises(ValueError, match="holds integers, but is float"):
            call()
