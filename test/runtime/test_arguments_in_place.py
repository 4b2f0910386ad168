"""Arguments of programs for this machine's CPU: large ones are read in place, small ones are copied into memory that is
kept from call to call. Neither is changed, and no result is a view of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir import TensorSpec
from qmlir.errors import InputError, UsageError
from qmlir.runtime.function import Function

_SAME = "func.func @main(%x: tensor<{n}xf32>) -> tensor<{n}xf32> {{ return %x : tensor<{n}xf32> }}"
_REVERSED = """func.func @main(%x: tensor<{n}xf32>, %y: tensor<{n}xf32>) -> (tensor<{n}xf32>, tensor<{n}xf32>) {{
  return %y, %x : tensor<{n}xf32>, tensor<{n}xf32>
}}"""
# The argument is what the op starts from, and IREE would like to write the result over it.
_ADDED = """func.func @main(%x: tensor<{n}xf32>, %y: tensor<{n}xf32>) -> tensor<{n}xf32> {{
  %r = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                        iterator_types = ["parallel"]}}
      ins(%y : tensor<{n}xf32>) outs(%x : tensor<{n}xf32>) {{
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  }} -> tensor<{n}xf32>
  return %r : tensor<{n}xf32>
}}"""
_INSERTED = """func.func @main(%x: tensor<{n}xf32>, %y: tensor<8xf32>) -> tensor<{n}xf32> {{
  %r = tensor.insert_slice %y into %x[2] [8] [1] : tensor<8xf32> into tensor<{n}xf32>
  return %r : tensor<{n}xf32>
}}"""

SMALL, LARGE = 64, 1 << 15  # elements of f32: less than what is copied always, and more than what is read in place


def at_offset(x: np.ndarray[Any, Any], offset: int) -> np.ndarray[Any, Any]:
    """A copy of an array at an address that is `offset` more than a multiple of 64."""
    memory = np.zeros(x.nbytes + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    made = memory[begin : begin + x.nbytes].view(x.dtype).reshape(x.shape)
    made[...] = x
    return made


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes in bytes of the arguments that calls copied into new buffers."""
    sizes: list[int] = []
    real: Callable[..., Any] = Function._copied

    def counted(self: Function, array: np.ndarray[Any, Any], *rest: Any) -> Any:
        sizes.append(array.nbytes)
        return real(self, array, *rest)

    monkeypatch.setattr(Function, "_copied", counted)
    return sizes


def program(text: str, n: int) -> Any:
    return qmlir.load(qmlir.compile(text.format(n=n), target="cpu", start="linalg"))


@pytest.mark.parametrize("n", [SMALL, LARGE])
@pytest.mark.parametrize("writable", [True, False])
def test_a_result_is_no_view_of_an_argument(n: int, writable: bool) -> None:
    main, swapped = program(_SAME, n).main, program(_REVERSED, n).main
    x, y = (at_offset(np.random.default_rng(i).standard_normal(n).astype(np.float32), 0) for i in range(2))
    want_x, want_y = x.copy(), y.copy()
    x.flags.writeable = y.flags.writeable = writable
    first, pair = main(x), swapped(x, y)
    assert not any(np.shares_memory(a, b) for a in (first, *pair) for b in (x, y))
    main(y), swapped(y, x)  # they use the memory of the calls before
    assert np.array_equal(first, want_x)
    assert np.array_equal(pair[0], want_y)
    assert np.array_equal(pair[1], want_x)
    for result in (first, *pair):
        result[...] = 0
    assert np.array_equal(x, want_x)
    assert np.array_equal(y, want_y)
    assert np.array_equal(main(x), want_x)


@pytest.mark.parametrize("n", [SMALL, LARGE])
@pytest.mark.parametrize("offset", [0, 4])
def test_no_argument_is_written(n: int, offset: int) -> None:
    rng = np.random.default_rng(n)
    x, y = (at_offset(rng.standard_normal(n).astype(np.float32), offset) for _ in range(2))
    before = x.copy()
    assert np.array_equal(program(_ADDED, n).main(x, y), x + y)
    inserted = program(_INSERTED, n).main(x, y[:8])
    assert np.array_equal(x, before)
    before[2:10] = y[:8]
    assert np.array_equal(inserted, before)


@pytest.mark.parametrize("rows", [None, 300])
@pytest.mark.parametrize("offset", [0, 1, 63])
@pytest.mark.parametrize("writable", [True, False])
def test_what_a_kernel_reads_is_not_copied(copied: list[int], rows: int | None, offset: int, writable: bool) -> None:
    """Also with a dynamic size, at any address, and read-only."""
    rng = np.random.default_rng(0)
    w = rng.integers(-9, 9, (128, 8), dtype=np.int8)
    artifact = qmlir.ops.scaled_matmul.compile(TensorSpec((rows, 128), "i8"), w, out_dtype="i32", target="cpu")
    x = at_offset(rng.integers(-128, 128, (300, 128), dtype=np.int8), offset)
    x.flags.writeable = writable
    assert np.array_equal(qmlir.load(artifact).main(x), x.astype(np.int32) @ w)
    assert not copied


@pytest.mark.parametrize("form", ["every second row", "columns first", "reversed"])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_large_arguments_with_strides(form: str, kind: str) -> None:
    """Regression: the contiguous copy was read in place, after it had been freed."""
    rng = np.random.default_rng(0)
    w = rng.integers(-9, 9, (128, 8), dtype=np.int8)
    main = qmlir.load(qmlir.ops.scaled_matmul.compile(TensorSpec((None, 128), "i8"), w, out_dtype="i32")).main
    whole = rng.integers(-128, 128, (4000, 128), dtype=np.int8)
    x = {"every second row": whole[::2], "columns first": np.asfortranarray(whole), "reversed": whole[::-1]}[form]
    given: Any = x
    if kind == "torch":
        torch = pytest.importorskip("torch")
        given = {"every second row": torch.from_numpy(whole)[::2], "reversed": torch.from_numpy(whole).flip(0),
                 "columns first": torch.from_numpy(whole).t().contiguous().t()}[form]  # fmt: skip
    for _ in range(3):
        assert np.array_equal(main(given), x.astype(np.int32) @ w)


def test_small_arguments_of_any_form(copied: list[int]) -> None:
    """Strides, torch tensors, and arrays of other types than the program's."""
    torch = pytest.importorskip("torch")
    main = program(_ADDED, SMALL).main
    x, y = (np.random.default_rng(i).standard_normal((SMALL, 3)).astype(np.float32) for i in range(2))
    assert np.array_equal(main(x[:, 1], y[::-1, 2]), x[:, 1] + y[::-1, 2])
    got = main(torch.from_numpy(x)[:, 0], torch.from_numpy(y)[:, 1].requires_grad_())
    assert torch.equal(got, torch.from_numpy(x[:, 0] + y[:, 1]))
    negative = torch.complex(torch.zeros(SMALL), torch.from_numpy(x[:, 0].copy())).conj().imag  # a lazy negation
    assert negative.is_neg()
    assert torch.equal(main(negative, y[:, 1].copy()), torch.from_numpy(-x[:, 0] + y[:, 1]))
    assert not copied
    with pytest.raises(InputError, match=r"must be f32\[64\], but has dtype f64"):
        main(x[:, 0].astype(np.float64), y[:, 0])
    with pytest.raises(InputError, match=r"must be f32\[64\], but has shape \[63\]"):
        main(x[1:, 0], y[1:, 0])


def test_calls_of_several_threads_share_no_memory() -> None:
    main = program(_SAME, SMALL).main
    wrong: list[int] = []

    def call(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal(SMALL).astype(np.float32)
        wrong.extend(seed for _ in range(300) if not np.array_equal(main(x), x))

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_eager_calls_again(kind: str) -> None:
    """A call whose arguments are as those of a call before finds its program by them alone: by their shapes, dtypes,
    names and attributes."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 8, (4, 16), dtype=np.int8), rng.integers(-8, 8, (16, 8), dtype=np.int8)
    s, t = np.float32(2) ** rng.integers(-3, 3, (4, 1)), np.float32(2) ** rng.integers(-3, 3, (1, 8))
    s, t = s.astype(np.float32), t.astype(np.float32)
    given: Callable[[Any], Any] = lambda x: x  # noqa: E731
    if kind == "torch":
        given = pytest.importorskip("torch").from_numpy
    call = qmlir.ops.scaled_matmul
    product = a.astype(np.int32) @ b
    for _ in range(2):
        assert np.array_equal(call(given(a), given(b), out_dtype="i32"), product)
        assert np.array_equal(call(given(a), rhs=given(b), out_dtype="i32"), product)
        assert np.array_equal(call(lhs=given(a), rhs=given(b), lhs_scale=given(s)), product * s)
        assert np.array_equal(call(rhs_scale=given(t), rhs=given(b), lhs=given(a)), product * t)
        assert np.array_equal(call(given(a), given(b), rhs_scale=given(t), lhs_scale=given(s)), product * s * t)
        assert np.array_equal(call(given(a), given(b), lhs_zero_point=3, out_dtype="i32"), product - 3 * b.sum(0))
        assert np.array_equal(call(given(a), given(b), lhs_zero_point=5, out_dtype="i32"), product - 5 * b.sum(0))
    with pytest.raises(UsageError, match="scaled_matmul got 'lhs' twice: by position and by name"):
        call(given(a), given(b), lhs=given(a))
    with pytest.raises(UsageError, match="scaled_matmul got 'rhs' twice: by position and by name"):
        call.compile(TensorSpec((4, 16), "i8"), b, rhs=b)


def test_an_array_given_twice_is_not_taken_for_two() -> None:
    """Regression: the next call of other arrays took one of them for both."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-8, 8, (4, 4), dtype=np.int8) for _ in range(2))
    for a, b in ((x, x), (x, y), (y, x)):
        assert np.array_equal(qmlir.ops.scaled_matmul(a, b, out_dtype="i32"), a.astype(np.int32) @ b)
        assert np.array_equal(qmlir.ops.scaled_matmul(rhs=b, lhs=a, out_dtype="i32"), a.astype(np.int32) @ b)
