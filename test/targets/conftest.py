"""Programs in linalg form, and their compilation for a target with a view of the generated instructions."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qmlir.compiler.device_code import ASSEMBLY, OPCODES, spirv_instructions
from qmlir.core.iree import tool_path
from qmlir.core.mlir import context, ir
from qmlir.passes.base import State
from qmlir.passes.core.contractions import find_contractions
from qmlir.passes.core.select import SelectPass
from qmlir.passes.registry import parse_pass
from qmlir.targets import resolve


def _dims(*sizes: int | None) -> str:
    return "x".join("?" if size is None else str(size) for size in sizes)


class Forms:
    """MLIR text of the forms that the lowering of the dialect produces."""

    @staticmethod
    def matmul(
        m: int | None,
        n: int,
        k: int,
        *,
        dtype: str = "i8",
        transposed: bool = True,
        scale: bool = True,
        attributes: str = "",
        extension: str = "",
    ) -> str:
        """`[m, k] x [n, k]` (or `[k, n]`), then one scale per column."""
        floating = dtype[0] in "fb"
        acc = "f32" if floating else "i32"
        ext = extension or ("arith.extf" if floating else "arith.extsi")
        mul, add = ("arith.mulf", "arith.addf") if floating else ("arith.muli", "arith.addi")
        zero = "0.0" if floating else "0"
        lhs, out = f"tensor<{_dims(m, k)}x{dtype}>", _dims(m, n)
        rhs = f"tensor<{_dims(n, k) if transposed else _dims(k, n)}x{dtype}>"
        result = f"tensor<{out}x{'f32' if scale else acc}>"
        size = "%d" if m is None else ""
        text = f"""
        func.func @f(%x: {lhs}, %w: {rhs}, %s: tensor<{n}xf32>) -> {result} {{
          %zero = arith.constant {zero} : {acc}
          %i0 = arith.constant 0 : index
          %d = tensor.dim %x, %i0 : {lhs}
          %e = tensor.empty({size}) : tensor<{out}x{acc}>
          %f = linalg.fill ins(%zero : {acc}) outs(%e : tensor<{out}x{acc}>) -> tensor<{out}x{acc}>
          %r = linalg.generic {{indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
              affine_map<(m, n, k) -> {"(n, k)" if transposed else "(k, n)"}>, affine_map<(m, n, k) -> (m, n)>],
              iterator_types = ["parallel", "parallel", "reduction"]}}
              ins(%x, %w : {lhs}, {rhs}) outs(%f : tensor<{out}x{acc}>) attrs = {{{attributes}}} {{
          ^bb0(%p: {dtype}, %q: {dtype}, %o: {acc}):
            %a = {ext} %p : {dtype} to {acc}
            %b = {ext} %q : {dtype} to {acc}
            %c = {mul} %a, %b : {acc}
            %t = {add} %o, %c : {acc}
            linalg.yield %t : {acc}
          }} -> tensor<{out}x{acc}>
        """
        if not scale:
            return text + f"return %r : {result} }}"
        convert = "arith.addf %p, %p : f32" if floating else "arith.sitofp %p : i32 to f32"
        return (
            text
            + f"""
          %oe = tensor.empty({size}) : {result}
          %y = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
              affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
              ins(%r, %s : tensor<{out}x{acc}>, tensor<{n}xf32>) outs(%oe : {result}) {{
          ^bb0(%p: {acc}, %sc: f32, %o: f32):
            %v = {convert}
            %t = arith.mulf %v, %sc : f32
            linalg.yield %t : f32
          }} -> {result}
          return %y : {result} }}"""
        )

    @staticmethod
    def k_groups(m: int | None, n: int, groups: int, k: int) -> str:
        """`[m, groups, k] x [n, groups, k] -> [groups, m, n]`: the K groups are a batch dim."""
        lhs, rhs = f"tensor<{_dims(m, groups, k)}xi8>", f"tensor<{_dims(n, groups, k)}xi8>"
        out = f"tensor<{_dims(groups, m, n)}xi32>"
        return f"""
        func.func @f(%x: {lhs}, %w: {rhs}) -> {out} {{
          %zero = arith.constant 0 : i32
          %i0 = arith.constant 0 : index
          %d = tensor.dim %x, %i0 : {lhs}
          %e = tensor.empty({"%d" if m is None else ""}) : {out}
          %f = linalg.fill ins(%zero : i32) outs(%e : {out}) -> {out}
          %r = linalg.generic {{indexing_maps = [affine_map<(g, m, n, k) -> (m, g, k)>,
              affine_map<(g, m, n, k) -> (n, g, k)>, affine_map<(g, m, n, k) -> (g, m, n)>],
              iterator_types = ["parallel", "parallel", "parallel", "reduction"]}}
              ins(%x, %w : {lhs}, {rhs}) outs(%f : {out}) {{
          ^bb0(%p: i8, %q: i8, %o: i32):
            %a = arith.extsi %p : i8 to i32
            %b = arith.extsi %q : i8 to i32
            %c = arith.muli %a, %b : i32
            %t = arith.addi %o, %c : i32
            linalg.yield %t : i32
          }} -> {out}
          return %r : {out} }}"""

    @staticmethod
    def conv(
        n: int | None = 1,
        h: int = 10,
        c: int = 16,
        f: int = 32,
        window: int = 3,
        stride: int = 1,
        groups: int = 0,
    ) -> str:
        """`conv_2d_nhwc_fhwc`, or with `groups` `conv_2d_nhwgc_gfhwc` with `c` and `f` channels per group."""
        o = (h - window) // stride + 1
        g = (groups,) if groups else ()
        x = f"tensor<{_dims(n, h, h, *g, c)}xi8>"
        w = f"tensor<{_dims(*g, f, window, window, c)}xi8>"
        y = f"tensor<{_dims(n, o, o, *g, f)}xi32>"
        op = "conv_2d_nhwgc_gfhwc" if groups else "conv_2d_nhwc_fhwc"
        return _convolution(op, x, w, y, n, stride)

    @staticmethod
    def depthwise(h: int = 10, c: int = 16, window: int = 3) -> str:
        o = h - window + 1
        x, w = f"tensor<1x{_dims(h, h, c)}xi8>", f"tensor<{_dims(window, window, c)}xi8>"
        return _convolution("depthwise_conv_2d_nhwc_hwc", x, w, f"tensor<1x{_dims(o, o, c)}xi32>", 1, 1)


def _convolution(op: str, x: str, w: str, y: str, n: int | None, stride: int) -> str:
    return f"""
    func.func @f(%x: {x}, %w: {w}) -> {y} {{
      %zero = arith.constant 0 : i32
      %i0 = arith.constant 0 : index
      %d = tensor.dim %x, %i0 : {x}
      %e = tensor.empty({"%d" if n is None else ""}) : {y}
      %f = linalg.fill ins(%zero : i32) outs(%e : {y}) -> {y}
      %r = linalg.{op} {{dilations = dense<1> : tensor<2xi64>, strides = dense<{stride}> : tensor<2xi64>}}
          ins(%x, %w : {x}, {w}) outs(%f : {y}) -> {y}
      return %r : {y} }}"""


class Selected:
    """A module after `qmlir-select`, with the decisions and notes of the pass."""

    def __init__(self, text: str, target: str, prefer: str = "") -> None:
        self.target = resolve(target)
        with context():
            module = ir.Module.parse(text)
            state = State()
            SelectPass(target, prefer).run(module, state)
            for text in self.target.passes:  # the passes that follow the selection for this target
                if text.startswith("qmlir-decode"):
                    parse_pass(text).run(module, state)
            assert module.operation.verify()
            self.text = str(module)
        self.decisions = [decision.summary() for decision in state.decisions]
        self.notes = state.notes

    @property
    def chosen(self) -> str:
        return str(self.decisions[0]["chosen"])

    @property
    def plan(self) -> dict[str, Any]:
        answers = self.decisions[0]["answers"]
        plan: dict[str, Any] = next(a["plan"] for a in answers if a["strategy"] == self.chosen)
        return plan

    def instructions(self, folder: Path) -> Instructions:
        """Compile for the target and read the code. The limit of a minute makes forms fail that send the
        compiler into endless unrolling."""
        source = folder / "in.mlir"
        source.write_text(self.text, encoding="utf-8")
        command = [str(tool_path("iree-compile")), str(source), "-o", str(folder / "out.vmfb")]
        command += [f"--iree-hal-dump-executable-files-to={folder}", *self.target.compiler_flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, [line for line in done.stderr.splitlines() if "error" in line][:3]
        return Instructions(folder)


class Instructions:
    """The assembly, or the SPIR-V opcodes, of a compiled program."""

    def __init__(self, folder: Path) -> None:
        files = [f for f in sorted(folder.iterdir()) if f.suffix in ASSEMBLY]
        self.assembly = "\n".join(f.read_text(errors="replace") for f in files)
        self.opcodes: Counter[str] = Counter()
        for spirv in folder.glob("*.spv"):
            self._read_spirv(spirv.read_bytes())

    def _read_spirv(self, data: bytes) -> None:
        widths = {}
        for opcode, words in spirv_instructions(data):
            if opcode == 21:  # OpTypeInt
                widths[words[0]] = f"i{words[1]}"
            if opcode == 4456:  # OpTypeCooperativeMatrixKHR
                self.opcodes[f"cooperative matrix of {widths.get(words[1], 'floats')}"] += 1
            self.opcodes[OPCODES.get(opcode, str(opcode))] += 1

    def count(self, pattern: str) -> int:
        return len(re.findall(pattern, self.assembly)) + self.opcodes[pattern]

    def spills(self) -> int:
        """Bytes of scratch and spilled vector registers over all kernels (AMD metadata)."""
        found = re.findall(r"\.(?:vgpr_spill_count|private_segment_fixed_size): +(\d+)", self.assembly)
        return sum(map(int, found))


def run_on_cpu(text: str) -> Any:
    """Compile a module for this host, whichever target it was selected for; return its `f` as a function of arrays."""
    import iree.compiler
    import iree.runtime

    with context():
        module = ir.Module.parse(text)
        if "hal.device.targets" in module.operation.attributes:
            del module.operation.attributes["hal.device.targets"]
        for contraction in find_contractions(module):
            if "compilation_info" in contraction.op.attributes:
                del contraction.op.attributes["compilation_info"]
        source = str(module)
    flags = [*resolve("cpu").compiler_flags]
    binary = iree.compiler.compile_str(source, extra_args=flags)
    function = iree.runtime.load_vm_flatbuffer(binary, driver="local-sync").f
    return lambda *arguments: np.asarray(function(*arguments).to_host())


@pytest.fixture
def forms() -> type[Forms]:
    return Forms


@pytest.fixture
def select() -> type[Selected]:
    return Selected


@pytest.fixture
def on_cpu() -> Any:
    return run_on_cpu
