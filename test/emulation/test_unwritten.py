"""Results that nobody wrote, and accesses beyond an argument: the messages to the user of a whole program."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from emulation.test_programs import TARGETS

import qmlir
from qmlir.emulation.driver import Driver
from qmlir.emulation.memory import ArgumentTensor, Memory

RESULT = """
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %e = flow.tensor.alloca : tensor<4x8xf32>
  return %e : tensor<4x8xf32>
}
"""
SUM = """
#same = affine_map<(a, b) -> (a, b)>
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %e = flow.tensor.alloca : tensor<4x8xf32>
  %i = tensor.empty() : tensor<4x8xf32>
  %r = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x, %e : tensor<4x8xf32>, tensor<4x8xf32>) outs(%i : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}
"""


def call(text: str, target: str, folder: Path) -> None:
    (folder / "m.mlir").write_text(text)
    program = qmlir.load(qmlir.compile(folder / "m.mlir", target=target), emulate=True)
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    np.testing.assert_array_equal(program.main(x), x + x)


@pytest.mark.parametrize("target", [t for t in ("cuda:sm_80", "rocm:gfx1100") if t in TARGETS])
def test_a_result_that_nobody_writes(target: str, tmp_path: Path) -> None:
    message = r"element \[0, 0\] of result 0 of main, f32\[4, 8\] is read before it is written"
    with pytest.raises(qmlir.EmulationError, match=message):
        call(RESULT, target, tmp_path)


@pytest.mark.parametrize("target", [t for t in ("rocm:gfx942", "rocm:gfx1201") if t in TARGETS])
def test_a_result_of_what_nobody_wrote(target: str, tmp_path: Path) -> None:
    call(SUM.replace("ins(%x, %e :", "ins(%x, %x :"), target, tmp_path)
    message = (
        r"of result 0 of main, f32\[4, 8\] is read, and main_dispatch_0\w* stored an unwritten value there, which "
        r"comes from byte 0 of argument 1 \(element 0 of 4 bytes\), which nobody wrote"
    )
    with pytest.raises(qmlir.EmulationError, match=message):
        call(SUM, target, tmp_path)


def test_elements_are_named_beyond_the_end_too() -> None:
    tensor = ArgumentTensor("lhs", "f16", (4, 3), 2)
    assert tensor.element(0) == "element [0, 0] of lhs, f16[4, 3]"
    assert tensor.element(10) == "element [1, 2] of lhs, f16[4, 3]"
    assert tensor.element(24) == "element [4, 0] of lhs, f16[4, 3]"
    assert tensor.element(-2) == "element [-1, 2] of lhs, f16[4, 3]"
    assert ArgumentTensor("scale", "f32", (), 4).element(4) == "element [1] of scale, f32[]"


def test_an_argument_without_elements_has_no_name_to_give() -> None:
    """Nothing is allocated for it, so the newest allocation is that of the argument before it."""
    memory = Memory()
    data = np.zeros(16, np.float32)
    lhs = memory.add(data.ctypes.data, data.nbytes)
    driver = SimpleNamespace(memory=memory, _update_memory=lambda: None)
    Driver.name_allocation(driver, "lhs", "f32", (4, 4), 4)  # type: ignore[arg-type]
    Driver.name_allocation(driver, "rows", "f32", (4, 0), 4)  # type: ignore[arg-type]
    assert lhs.tensor == ArgumentTensor("lhs", "f32", (4, 4), 4)


def test_accesses_beyond_an_argument_name_its_element() -> None:
    """An AMD kernel and a CUDA kernel that read one element after the end of an argument of the program."""
    from emulation import ptx_programs
    from emulation.test_cuda_faults import EXCHANGE

    x = np.arange(64, dtype=np.int32)
    cuda = ptx_programs.Device()
    source, target = cuda.buffer(x), cuda.buffer(x)
    held = cuda.memory.find(source)
    assert held is not None
    held.tensor = ArgumentTensor("lhs", "i32", (4, 16), 4)
    with pytest.raises(qmlir.EmulationError, match=r"4 bytes at 256 .*: element \[4, 0\] of lhs, i32\[4, 16\]"):
        cuda.launch(EXCHANGE.replace("[%d4];", "[%d4+4];"), source, target, threads=64, shared=256)

    pytest.importorskip("tinygrad")
    from emulation import amd_kernels
    from emulation.test_amd_faults import exchange

    amd = amd_kernels.Device("gfx1100")
    source, target = amd.buffer(x[:60]), amd.buffer(x)
    held = amd.memory.find(source)
    assert held is not None
    held.tensor = ArgumentTensor("lhs", "i32", (4, 15), 4)
    code = amd_kernels.code_object("gfx1100", list(exchange("gfx1100").values()), lds=256, lanes=32)
    with pytest.raises(qmlir.EmulationError, match=r"byte 240 of argument 0 .*: element \[4, 0\] of lhs, i32\[4, 15\]"):
        amd.launch(code, source, target, threads=64)
