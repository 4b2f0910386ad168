"""Tests whether the kernels for AMX give right results on this host. Small products are compiled, run and compared with
numpy in a separate process, once per machine, version of its operating system's kernel and version of this package. The
outcome is kept in the compilation cache; features that fail are not used (`targets/cpu/host.py`)."""

from __future__ import annotations

import json
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial

import numpy as np

from ..core.cache import Cache, key_of
from ..core.files import write_atomically
from ..core.iree import compiler_version
from ..dialect.dtypes import DTYPES, Array
from ..errors import QmlirError, UsageError
from ..runtime.program import load
from ..targets.cpu import host
from .compilation import compile

_SECONDS = 120.0
_ONE_AT_A_TIME = threading.Lock()


def tested(features: frozenset[str]) -> Mapping[str, str]:
    """For each feature of this host the reason not to use it, "" if its kernels pass."""
    try:
        compiler_version()
    except UsageError:  # this host only runs and measures programs that others have compiled
        return dict.fromkeys(features, "without IREE's compiler its kernels cannot be tested")
    with _ONE_AT_A_TIME:
        return known_or_tested(features)


@cache
def known_or_tested(features: frozenset[str]) -> Mapping[str, str]:
    """`tested` without its lock. The outcome is cached in this process and in the compilation cache."""
    named = sorted(features & _TESTS.keys())
    machine = [host.host_name(), sorted(host.host_features()), platform.release(), platform.version()]
    file = Cache().tests(key_of([machine, named]))
    with suppress(OSError, ValueError):
        known = json.loads(file.read_text())
        if isinstance(known, dict) and known.keys() == set(named) and all(isinstance(v, str) for v in known.values()):
            return known
    found = _in_process(named)
    with suppress(OSError, UsageError):  # otherwise the next process tests again
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(found).encode())
    return found


def _in_process(features: list[str]) -> dict[str, str]:
    command = [sys.executable, "-c", f"import {__name__} as test; test.main({features})"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        last = "".join(done.stderr.strip().splitlines()[-1:])
        ended = f"its test ended with {_name(done.returncode)}{f', {last}' if last else ''}"
        said = done.stdout
    except (OSError, subprocess.TimeoutExpired) as e:
        ended, said = f"its test could not be run: {e}", ""
    found = dict.fromkeys(features, ended)
    for line in said.splitlines():
        feature, _, reason = line.partition(" ")
        found[feature] = reason
    return found


def _name(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def main(features: list[str]) -> None:
    """In the separate process: print each feature on a line, followed by the reason if its test fails."""
    host.tester = lambda _: {}
    for feature in features:
        print(feature, _TESTS[feature](), flush=True)


def _int8() -> str:
    """A product whose rows are not a multiple of a tile's rows, and whose K is not a multiple of a step's."""
    rng = np.random.default_rng(0)
    lhs, rhs = (rng.integers(-128, 128, (rows, 200), np.int8) for rows in (40, 70))
    program = f"""
      func.func @main(%lhs: tensor<40x200xi8>) -> tensor<40x70xi32> {{
        %rhs = arith.constant dense<"0x{rhs.tobytes().hex()}"> : tensor<70x200xi8>
        %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {{
          operand_names = ["lhs", "rhs"], lhs_dtype = "i8", rhs_dtype = "i8", out_dtype = "i32", rhs_transposed = true
        }} : (tensor<40x200xi8>, tensor<70x200xi8>) -> tensor<40x70xi32>
        return %0 : tensor<40x70xi32>
      }}"""
    return _wrong(program, "amx-int8", lhs, lhs.astype(np.int32) @ rhs.T.astype(np.int32))


def _half(element: str, strategy: str) -> str:
    """A product of 16-bit floats and 4-bit codes: integers and a scale, so that the results are exact."""
    rng = np.random.default_rng(1)
    lhs = rng.integers(-8, 9, (40, 192)).astype(DTYPES[element].numpy)
    rhs = rng.integers(-8, 8, (64, 192), np.int8)
    program = f"""
      func.func @main(%lhs: tensor<40x192x{element}>) -> tensor<40x64xf32> {{
        %rhs = arith.constant dense<"0x{rhs.tobytes().hex()}"> : tensor<64x192xi8>
        %scale = arith.constant dense<5.0e-01> : tensor<64x3xf32>
        %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %scale) {{
          operand_names = ["lhs", "rhs", "rhs_scale"], lhs_dtype = "{element}", rhs_dtype = "i4", out_dtype = "f32",
          compute_dtype = "f32", rhs_transposed = true
        }} : (tensor<40x192x{element}>, tensor<64x192xi8>, tensor<64x3xf32>) -> tensor<40x64xf32>
        return %0 : tensor<40x64xf32>
      }}"""
    return _wrong(program, strategy, lhs, (lhs.astype(np.float32) @ rhs.T.astype(np.float32)) * np.float32(0.5))


def _bf16() -> str:
    """A product of bf16 and 4-bit codes, and one of bf16 and bf16."""
    rng = np.random.default_rng(2)
    lhs, rhs = (rng.integers(-8, 9, (rows, 100)).astype(DTYPES["bf16"].numpy) for rows in (40, 70))
    program = f"""
      #x = affine_map<(m, n, k) -> (m, k)>
      #w = affine_map<(m, n, k) -> (n, k)>
      #y = affine_map<(m, n, k) -> (m, n)>
      func.func @main(%lhs: tensor<40x100xbf16>) -> tensor<40x70xf32> {{
        %rhs = arith.constant dense<"0x{rhs.tobytes().hex()}"> : tensor<70x100xbf16>
        %zero = arith.constant 0.0 : f32
        %empty = tensor.empty() : tensor<40x70xf32>
        %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<40x70xf32>) -> tensor<40x70xf32>
        %0 = linalg.generic {{indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]}}
            ins(%lhs, %rhs : tensor<40x100xbf16>, tensor<70x100xbf16>) outs(%start : tensor<40x70xf32>) {{
        ^bb0(%a: bf16, %b: bf16, %s: f32):
          %l = arith.extf %a : bf16 to f32
          %r = arith.extf %b : bf16 to f32
          %p = arith.mulf %l, %r : f32
          %t = arith.addf %s, %p : f32
          linalg.yield %t : f32
        }} -> tensor<40x70xf32>
        return %0 : tensor<40x70xf32>
      }}"""
    expected = lhs.astype(np.float32) @ rhs.T.astype(np.float32)
    return _half("bf16", "amx-bf16") or _wrong(program, "amx-bf16-plain", lhs, expected)


def _wrong(program: str, strategy: str, lhs: Array, expected: Array) -> str:
    try:
        artifact = compile(program, target="cpu", choice={"strategy": strategy}, cache=False)
        chosen = artifact.manifest.strategies[0]["chosen"]
        if chosen != strategy:
            return f"its test was compiled by {chosen}"
        got = np.asarray(load(artifact).main(lhs))
    except QmlirError as e:
        return f"its test failed: {str(e).splitlines()[0]}"
    return "" if np.array_equal(got, expected) else "its kernel gives wrong results"


_TESTS: dict[str, Callable[[], str]] = {
    "amx-int8": _int8,
    "amx-bf16": _bf16,
    "amx-fp16": partial(_half, "f16", "amx-fp16"),
}
