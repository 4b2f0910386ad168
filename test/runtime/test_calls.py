"""Calling programs: lifetimes, types in and out, small and large work."""

from __future__ import annotations

import concurrent.futures
import gc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir import TensorSpec
from qmlir.errors import InputError

pytestmark = pytest.mark.sweep(fast=3, slow=40)

R = qmlir.reference


@pytest.fixture(scope="module")
def program() -> Any:
    w = np.arange(-32, 32, dtype=np.int8).reshape(8, 8)
    artifact = qmlir.ops.scaled_matmul.compile(
        TensorSpec((None, 8), "i8"), w, lhs_scale=TensorSpec((None, 1), "f32"), out_dtype="bf16"
    )
    return qmlir.load(artifact)


@pytest.mark.slow
def test_a_slice_of_a_result_outlives_it(program: Any) -> None:
    """Regression: the memory behind views of a result was freed with the array that the runtime returned."""
    x, s = np.full((64, 8), 3, np.int8), np.ones((64, 1), np.float32)
    expected = R.scaled_matmul(x, np.arange(-32, 32, dtype=np.int8).reshape(8, 8), lhs_scale=s, out_dtype="bf16")
    kept = [program.main(x, s)[1:3].view(np.uint16) for _ in range(50)]
    gc.collect()
    junk = [np.random.default_rng(0).random(1000) for _ in range(200)]
    assert all(np.array_equal(k, expected[1:3].view(np.uint16)) for k in kept)
    del junk


def test_arguments_need_not_be_contiguous(program: Any) -> None:
    wide = np.arange(-64, 64, dtype=np.int8).reshape(8, 16)
    s = np.ones((8, 2), np.float32)
    same = program.main(np.ascontiguousarray(wide[:, ::2]), np.ascontiguousarray(s[:, :1]))
    assert np.array_equal(program.main(wide[:, ::2], s[:, :1]), same)


def test_unsigned_types_come_back_unsigned() -> None:
    x = np.array([[0, 255], [128, 7]], np.uint8)
    w = np.eye(2, dtype=np.int8)
    y = qmlir.ops.scaled_matmul(x, w, out_dtype="u8")
    assert y.dtype == np.uint8
    assert np.array_equal(y, x)


def test_dlpack_in(program: Any) -> None:
    class Foreign:
        def __init__(self, array: Any) -> None:
            self._array = array

        def __dlpack__(self, **kw: Any) -> Any:
            return self._array.__dlpack__(**kw)

        def __dlpack_device__(self) -> Any:
            return self._array.__dlpack_device__()

    x, s = np.ones((2, 8), np.int8), np.ones((2, 1), np.float32)
    assert np.array_equal(program.main(Foreign(x), s), program.main(x, s))


def test_torch_in_and_out(program: Any) -> None:
    torch = pytest.importorskip("torch")
    x, s = torch.ones((2, 8), dtype=torch.int8), torch.ones((2, 1))
    y = program.main(x, s)
    assert y.dtype == torch.bfloat16
    assert np.array_equal(y.float().numpy(), program.main(x.numpy(), s.numpy()).astype(np.float32))


def test_torch_tensors_of_every_kind(program: Any) -> None:
    """Regression: torch.nn parameters, tensors that lazily negate their memory, and tensors without plain memory raised
    torch's own errors."""
    torch = pytest.importorskip("torch")
    x, s = torch.arange(16, dtype=torch.int8).reshape(2, 8), torch.full((2, 1), 0.5)
    same = program.main(x, s)
    for scales in (torch.nn.Parameter(s), torch._neg_view(-s)):
        y = program.main(x.numpy(), scales)
        assert torch.equal(y, same)
    floats = x.to(torch.bfloat16)
    w = np.ones((8, 4), np.int8)
    expected = qmlir.ops.scaled_matmul(floats, w, rhs_scale=np.float32(1))
    for lhs in (torch.nn.Parameter(floats), torch._neg_view(-floats)):
        assert torch.equal(qmlir.ops.scaled_matmul(lhs, w, rhs_scale=np.float32(1)), expected)
    for there_is_none in (s.to("meta"), s.to_sparse()):
        with pytest.raises(InputError, match="is a torch tensor without plain memory: "):
            program.main(x, there_is_none)


def test_small_programs_run_on_the_calling_thread() -> None:
    small = qmlir.ops.scaled_matmul.compile(TensorSpec((1, 64), "i8"), TensorSpec((64, 64), "i8"), out_dtype="i32")
    assert qmlir.load(small).device_driver == "local-sync"
    assert qmlir.load(small, device="local-task").device_driver == "local-task"


def test_large_programs_use_the_worker_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMLIR_THREADS", "2")
    large = qmlir.ops.scaled_matmul.compile(TensorSpec((256, 256), "f32"), TensorSpec((256, 256), "f32"))
    assert qmlir.load(large).device_driver == "local-task", "the work is IREE's: kernels of ours share theirs"


def test_threads_call_one_program_at_once(program: Any) -> None:
    rng = np.random.default_rng(1)
    cases = [rng.integers(-128, 128, (m, 8), dtype=np.int8) for m in range(1, 41)]
    w = np.arange(-32, 32, dtype=np.int8).reshape(8, 8)

    def check(x: Any) -> bool:
        s = np.ones((len(x), 1), np.float32)
        return bool(np.array_equal(program.main(x, s), R.scaled_matmul(x, w, lhs_scale=s, out_dtype="bf16")))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(check, cases * 5))


@pytest.mark.parametrize("on", ["cpu", "vulkan:lavapipe"])
def test_parts_are_of_the_arguments_of_their_call(on: str, request: pytest.FixtureRequest) -> None:
    """Regression: on Vulkan, copies were recorded once, with the buffers of the first call, but calls of other threads
    have other buffers."""
    torch = pytest.importorskip("torch")
    target = on if on == "cpu" else request.getfixturevalue("lavapipe")

    class Parts(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, y: Any) -> Any:
            return x[4:8], y[1:2], torch.stack([x[0], y[1]])

    module = Parts()
    given = torch.zeros(32, 16), torch.zeros(32, 16)
    main = qmlir.load(qmlir.compile(torch.export.export(module, given), target=target)).main

    def check(seed: int) -> bool:
        generator = torch.Generator().manual_seed(seed)
        given = torch.randn(32, 16, generator=generator), torch.randn(32, 16, generator=generator)
        return all(map(torch.equal, main(*given), module(*given)))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(check, range(100)))


@pytest.fixture(scope="module")
def borrowing() -> Any:
    """A program whose argument only a built-in kernel reads."""
    w = np.random.default_rng(0).integers(-9, 9, (128, 8), dtype=np.int8)
    artifact = qmlir.ops.scaled_matmul.compile(TensorSpec((None, 128), "i8"), w, out_dtype="i32", target="cpu")
    assert artifact.manifest.zero_copy == {"main": [0]}
    return qmlir.load(artifact), w


@pytest.mark.parametrize("rows", [1, 5, 700])
@pytest.mark.parametrize("offset", [0, 1, 16, 63])
def test_arguments_are_read_where_they_lie(borrowing: Any, rows: int, offset: int) -> None:
    """Arguments may have any address and be read-only, and the result is not a view of them."""
    program, w = borrowing
    memory = np.zeros(128 * rows + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    x = memory[begin : begin + 128 * rows].view(np.int8).reshape(rows, 128)
    x[...] = np.random.default_rng(offset).integers(-128, 128, (rows, 128), dtype=np.int8)
    want = x.astype(np.int32) @ w
    got = program.main(x)
    assert np.array_equal(got, want)
    x.flags.writeable = False
    assert np.array_equal(program.main(x), want)
    memory[:] = 0
    assert np.array_equal(got, want)


@pytest.mark.parametrize("offset", [4, 32])
def test_a_kernel_of_one_chunk_asks_for_no_alignment(offset: int) -> None:
    """Regression: inlined into code in which LLVM assumed the alignment of IREE's own buffers, it faulted."""
    artifact = qmlir.ops.dynamic_quantize.compile(TensorSpec((48, 64), "f32"), granularity="token", target="cpu")
    assert artifact.manifest.zero_copy == {"main": [0]}
    memory = np.zeros(48 * 64 * 4 + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    x = memory[begin : begin + 48 * 64 * 4].view(np.float32).reshape(48, 64)
    x[...] = np.random.default_rng(0).standard_normal((48, 64))
    for got, want in zip(qmlir.load(artifact).main(x), R.dynamic_quantize(x, granularity="token"), strict=False):
        assert np.array_equal(got, want)


def test_an_argument_that_a_body_reads_by_an_index_is_copied() -> None:
    text = """func.func @main(%x: tensor<64x512xf32>, %i: tensor<8xi32>) -> (tensor<64x512xi8>, tensor<8x512xf32>) {
  %q:2 = "qmlir.dynamic_quantize"(%x) {granularity = "token"} : (tensor<64x512xf32>)
      -> (tensor<64x512xi8>, tensor<64x1xf32>)
  %e = tensor.empty() : tensor<8x512xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]} ins(%i : tensor<8xi32>) outs(%e : tensor<8x512xf32>) {
  ^bb0(%row: i32, %o: f32):
    %r = arith.index_cast %row : i32 to index
    %c = linalg.index 1 : index
    %v = tensor.extract %x[%r, %c] : tensor<64x512xf32>
    linalg.yield %v : f32
  } -> tensor<8x512xf32>
  return %q#0, %g : tensor<64x512xi8>, tensor<8x512xf32>
}"""
    assert 0 not in qmlir.compile(text, target="cpu").manifest.zero_copy.get("main", [])


def test_a_long_chain_of_ops_is_compiled() -> None:
    """Regression: the search for the readers of an argument recursed along its uses."""
    names = [f"%x{i}" for i in range(401)]
    ops = [f"  {b} = arith.addf {a}, {a} : tensor<4x8xf32>" for a, b in pairwise(names)]
    head = "func.func @main(%x0: tensor<4x8xf32>) -> tensor<4x8xf32> {"
    text = "\n".join([head, *ops, f"  return {names[-1]} : tensor<4x8xf32>", "}"])
    assert qmlir.compile(text, target="cpu").manifest.zero_copy == {}


def test_an_argument_that_is_returned_is_copied() -> None:
    text = """func.func @main(%x: tensor<64x512xi8>) -> (tensor<64x512xi8>, tensor<8x64x64xi8>) {
      %y = tensor.expand_shape %x [[0], [1, 2]] output_shape [64, 8, 64] : tensor<64x512xi8> into tensor<64x8x64xi8>
      %z = tensor.empty() : tensor<8x64x64xi8>
      %t = linalg.transpose ins(%y : tensor<64x8x64xi8>) outs(%z : tensor<8x64x64xi8>) permutation = [1, 0, 2]
      return %x, %t : tensor<64x512xi8>, tensor<8x64x64xi8>
    }"""
    artifact = qmlir.compile(text, target="cpu", start="linalg")
    assert artifact.manifest.zero_copy == {}
    x = np.random.default_rng(0).integers(-128, 128, (64, 512), dtype=np.int8)
    same, _ = qmlir.load(artifact).main(x)
    assert not np.shares_memory(same, x)
    assert np.array_equal(same, x)


def test_equal_results_are_two_arrays() -> None:
    text = """func.func @main(%x: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
      %y = arith.addf %x, %x : tensor<64xf32>
      %z = arith.addf %x, %x : tensor<64xf32>
      return %y, %z : tensor<64xf32>, tensor<64xf32>
    }"""
    y, z = qmlir.load(qmlir.compile(text)).main(np.ones(64, np.float32))
    y += 1
    assert np.array_equal(z, np.full(64, 2, np.float32))


def test_results_that_are_kept_are_not_written_again(borrowing: Any) -> None:
    """The memory of results comes from a pool."""
    program, w = borrowing
    xs = [np.full((300, 128), i, np.int8) for i in range(20)]
    kept = [program.main(x) for x in xs]
    for x in xs:
        program.main(x + np.int8(1))
    assert all(np.array_equal(y, x.astype(np.int32) @ w) for x, y in zip(xs, kept, strict=True))


SEVERAL = """
func.func @main(%x: tensor<?x?x8xf32>) -> (tensor<?x?x8xf32>, tensor<?x?x8xf32>, tensor<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = tensor.dim %x, %c0 : tensor<?x?x8xf32>
  %b = tensor.dim %x, %c1 : tensor<?x?x8xf32>
  %n = arith.muli %a, %b : index
  %y = arith.addf %x, %x : tensor<?x?x8xf32>
  %z = arith.mulf %y, %x : tensor<?x?x8xf32>
  %f = flow.tensor.reshape %z : tensor<?x?x8xf32>{%a, %b} -> tensor<?x8xf32>{%n}
  return %z, %y, %f : tensor<?x?x8xf32>, tensor<?x?x8xf32>, tensor<?x8xf32>
}
"""


def test_results_of_dynamic_shape_each_have_their_own_values(target: str) -> None:
    """Regression: on Vulkan, results that share an allocation were read from the place of another result."""
    main = qmlir.load(qmlir.compile(SEVERAL, target=target)).main
    for rows in (3, 0) if target.startswith("cpu") else (3,):
        x = np.arange(rows * 5 * 8, dtype=np.float32).reshape(rows, 5, 8)
        z, y, f = main(x)
        assert np.array_equal(y, x + x)
        assert np.array_equal(z, (x + x) * x)
        assert np.array_equal(f, z.reshape(-1, 8))


def test_arithmetic_on_whole_tensors_takes_empty_ones(target: str) -> None:
    """Regression: the shapes of `arith` on tensors were found by running it, which Vulkan refuses for empty tensors."""
    text = "func.func @main(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {\n  %y = arith.addf %x, %x : tensor<?x8xf32>\n"
    main = qmlir.load(qmlir.compile(f"{text}  return %y : tensor<?x8xf32>\n}}\n", target=target)).main
    assert main(np.zeros((0, 8), np.float32)).shape == (0, 8)
    assert np.array_equal(main(np.ones((2, 8), np.float32)), np.full((2, 8), 2))


PADDED = """
func.func @main(%x: tensor<?x4xf32> {qmlir.name = "x"}) -> (tensor<?x4xf32>, tensor<?x6xf32>) {
  %zero = arith.constant 0.0 : f32
  %0 = arith.addf %x, %x : tensor<?x4xf32>
  %1 = tensor.pad %0 low[0, 1] high[0, 1] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<?x4xf32> to tensor<?x6xf32>
  return %0, %1 : tensor<?x4xf32>, tensor<?x6xf32>
}
"""


def test_results_that_are_not_empty_take_no_empty_tensors(lavapipe: str) -> None:
    """Regression: the result was the previous content of its memory."""
    program = """
func.func @main(%x: tensor<?x4xf32> {qmlir.name = "x"}, %y: tensor<?x4xf32> {qmlir.name = "y"}) -> tensor<?x4xf32> {
  %0 = tensor.concat dim(0) %x, %y : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
"""
    main = qmlir.load(qmlir.compile(program, target=lavapipe)).main
    rows, none = np.ones((2, 4), np.float32), np.ones((0, 4), np.float32)
    np.testing.assert_array_equal(main(rows, rows), np.ones((4, 4), np.float32))
    with pytest.raises(InputError, match=r"axis 0 of x is empty: .* a program whose results are not empty takes no"):
        main(none, rows)
    assert main(none, none).shape == (0, 4)


def test_several_results_take_no_empty_tensors(lavapipe: str) -> None:
    """With a separate branch for empty tensors, IREE confused the results of the two branches in some of these
    programs, and refused calls of others."""
    main = qmlir.load(qmlir.compile(PADDED, target=lavapipe)).main
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    doubled, padded = main(x)
    np.testing.assert_array_equal(doubled, 2 * x)
    np.testing.assert_array_equal(padded, np.pad(2 * x, ((0, 0), (1, 1))))
    with pytest.raises(InputError, match=r"axis 0 of x is empty: .* \(skip the call, or .* separately\)"):
        main(x[:0])


def sorted_program(tensor: str) -> str:
    return f"""
func.func @main(%x: {tensor}) -> {tensor} {{
  %0 = iree_linalg_ext.sort dimension(0) outs(%x : {tensor}) {{
  ^bb0(%a: f32, %b: f32):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  }} -> {tensor}
  return %0 : {tensor}
}}
"""


@pytest.mark.slow
def test_loops_that_llvmpipe_leaves_early_are_refused(lavapipe: str) -> None:
    """Regression: the sum of seven million ones was 524280. (300 values were partly sorted: sorts are stages now.)"""
    x = np.random.default_rng(0).standard_normal(257, dtype=np.float32)
    for size in "?", "257":
        main = qmlir.load(qmlir.compile(sorted_program(f"tensor<{size}xf32>"), target=lavapipe)).main
        np.testing.assert_array_equal(main(x), np.sort(x))
    text = """
func.func @main(%x: tensor<?xf32>) -> tensor<f32> {
  %zero = arith.constant dense<0.0> : tensor<f32>
  %0 = linalg.reduce {arith.addf} ins(%x : tensor<?xf32>) outs(%zero : tensor<f32>) dimensions = [0]
  return %0 : tensor<f32>
}
"""
    main = qmlir.load(qmlir.compile(text, target=lavapipe)).main
    assert main(np.ones(65535, np.float32)) == 65535
    with pytest.raises(InputError, match="a sum is longer than the 65535 elements that a loop of this device can have"):
        main(np.ones(65536, np.float32))
