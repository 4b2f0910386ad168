"""Bad input of the command line: exit code 1, one clear message with the place, no traceback, nothing half-written.

The commands run in one process that takes the role of the command line's child process (`run_all`). Tests of the two
processes (crashes, interrupts, timeouts) run the real command (`test_command.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from robustness.case import Case, Feed
from support.caches import own_cache

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


class CommandError(Exception):
    """What a command that ended with exit code 1 wrote to stderr."""


@dataclass(frozen=True)
class Command:
    """`words` with `{d}` for the folder of inputs and `{o}` for the folder of outputs."""

    words: str
    source: str | bytes | None = None  # content of {d}/<name>.mlir
    errors: int = 1  # how often stderr has "error:"


def command_case(
    name: str, words: str, message: str, source: str | bytes | None = None, errors: int = 1
) -> Case:  # fmt: skip
    return Case("command", name, Command(words, source, errors), CommandError, message)


def compiling(name: str, message: str, source: str | bytes, options: str = "", errors: int = 1) -> Case:
    return command_case(name, f"compile {{d}}/{name}.mlir -o {{o}}/{name}.vmfb {options}", message, source, errors)


def running(name: str, message: str, options: str, program: str = "{d}/good.vmfb") -> Case:
    return command_case(name, f"run {program} {options}", message)


CASES = [
    # ---- files that are not MLIR
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
    command_case("missing", "compile {d}/nowhere.mlir -o {o}/x.vmfb",
                 r"error: cannot read .*nowhere\.mlir: No such file"),
    command_case("folder", "compile {d} -o {o}/x.vmfb", r"error: cannot read .*: it is a folder"),
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
    # ---- programs that IREE refuses
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
    command_case("out_missing", "compile {d}/good.mlir -o {o}/none/x.vmfb",
         r"error: cannot write .*: there is no folder .*none"),
    command_case("out_folder", "compile {d}/good.mlir -o {o}", r"error: cannot write .*: it is a folder"),
    command_case("out_proc", "compile {d}/good.mlir -o /proc/x.vmfb", r"error: cannot write /proc/x\.vmfb: "),
    command_case("stages_file", "compile {d}/good.mlir -o {o}/x.vmfb --dump-stages {d}/good.mlir",
         r"error: cannot make the folder .*good\.mlir: "),
    command_case("opt_missing", "opt {d}/good.mlir -o {o}/none/x.mlir",
         r"qmlir-opt: error: cannot write .*none/x\.mlir: No such"),
    command_case("opt_input", "opt {d}/nowhere.mlir", r"qmlir-opt: error: cannot read .*nowhere\.mlir: No such file"),
    command_case("opt_binary", "opt {d}/binary.mlir", r"qmlir-opt: error: cannot read .*binary\.mlir: it is not text"),
    # ---- files that are not programs
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
    errors: int = 1  # how often stderr must have "error:"


def environment(folder: Path) -> dict[str, str]:
    """Return environment variables that put every file that a command may leave below `folder`."""
    for name in ("cache", "reports", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    own_cache(folder / "cache")
    return {**os.environ, "QMLIR_CACHE_DIR": str(folder / "cache"), "QMLIR_REPRODUCER_DIR": str(folder / "reports"),
            "TMPDIR": str(folder / "tmp")}  # fmt: skip


def command(*words: str, program: str = "qmlir") -> list[str]:
    return [sys.executable, "-m", "qmlir" if program == "qmlir" else "qmlir.cli.opt", *words]


def write_inputs(d: Path) -> None:
    for case in CASES:
        if (source := case.given.source) is not None:
            (d / f"{case.name}.mlir").write_bytes(source if isinstance(source, bytes) else source.encode())
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


def run_all(folder: Path) -> dict[str, Result]:
    """Run every case once, in one process. Inputs are in `folder / "in"`, outputs in `folder / "out"`.

    Returns the results by the names of the cases.
    """
    d, o = folder / "in", folder / "out"
    d.mkdir()
    o.mkdir()
    env = environment(folder)
    write_inputs(d)
    write_programs(d, env)
    words = [[w.replace("{d}", str(d)).replace("{o}", str(o)) for w in case.given.words.split()] for case in CASES]
    done = subprocess.run([sys.executable, "-c", DRIVER, str(folder / "crumb")], input=json.dumps(words), env=env,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, f"a case ended the process: {done.stderr}"
    found = zip(CASES, json.loads(done.stdout), strict=True)
    return {case.name: Result(*result, case.given.errors) for case, result in found}


def judged(result: Result, _: Path) -> None:
    """Check the result of a failed command, and raise its stderr."""
    assert result.code == 1, result
    assert "internal error" not in result.err
    assert result.out == "", "a failed command writes nothing to stdout"
    # One message: it is not repeated.
    assert result.err.count("error:") == result.errors, result.err
    raise CommandError(result.err)


FEEDS: dict[str, Feed] = {"command": judged}
