"""Sizes that arguments share: they are derived from the rules of each operation, and a call in which they differ is
refused, by the Python call and by the program itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import qmlir
from qmlir import TensorSpec as T, ops
from qmlir.dialect.dtypes import from_numpy
from qmlir.dialect.ods import OPS, problem, view_of
from qmlir.dialect.sizes import Size
from qmlir.errors import InputError, ParseError, UsageError, VerifyError
from qmlir.ops.arguments import normalized

pytestmark = pytest.mark.sweep(fast=3, slow=40)

F, I8, I32 = np.float32, np.int8, np.int32


def test_the_program_of_the_readme_refuses_a_scale_of_other_rows(tmp_path: Path) -> None:
    """Regression: x [4, 256] with scale [2, 1] read past the end of the scale."""
    w = np.ones((256, 64), I8)
    artifact = ops.scaled_matmul.compile(
        T((None, 256), "i8"), w, lhs_scale=T((None, 1), "f32"), rhs_scale=np.full((1, 64), 0.01, F), target="cpu"
    )
    program = qmlir.load(artifact.save(tmp_path / "product.vmfb"))
    assert str(program.main.signature) == "(lhs: i8[M, 256], lhs_scale: f32[M, 1]) -> (f32[M, 64])"
    x = np.ones((4, 256), I8)
    for rows in (2, 1, 5):
        message = (
            rf"argument 1 \('lhs_scale'\) of main must be f32\[M, 1\], but has shape \[{rows}, 1\]: axis 0 has {rows} "
            r"elements and must have 4, as axis 0 of argument 0 \('lhs': \[4, 256\]\)"
        )
        with pytest.raises(InputError, match=message):
            program.main(x, np.ones((rows, 1), F))
    assert program.main(x, np.ones((4, 1), F)).shape == (4, 64)


# ------------------------------------------------------------------------------------- every operation


def full(shape: tuple[int, ...], dtype: Any = F) -> Any:
    return np.ones(shape, dtype)


# Operands of each operation that share axes, and attributes. The verifier decides which sizes may be dynamic.
PRODUCT = {
    "lhs_scale": full((2, 4, 1)), "rhs_scale": full((2, 1, 24)), "lhs_zero_point": full((2, 4, 1), I32),
    "rhs_zero_point": full((2, 1, 24), I32), "bias": full((2, 4, 24)), "c": full((2, 4, 24)), "beta": 1.0,
    "act_scale": full((2, 4, 1)), "out_multiplier": full((2, 4, 24)), "out_zero_point": full((24,), I32),
    "out_dtype": "i8",
}  # fmt: skip
ROUTES = {"expert_ids": full((4, 2), I32), "routing_weights": full((4, 2))}
CASES: dict[str, dict[str, Any]] = {
    "scaled_matmul": {"lhs": full((2, 4, 32), I8), "rhs": full((2, 32, 24), I8), **PRODUCT},
    "scaled_matmul of floats": {
        "lhs": full((4, 32)), "rhs": full((24, 32)), "bias": full((24,)), "c": full((4, 24)), "beta": 1.0,
        "rhs_transposed": True,
    },
    "grouped_matmul": {
        "lhs": full((8, 32), I8), "rhs": full((3, 32, 24), I8), "group_sizes": np.array([4, 3, 1], I32),
        "lhs_scale": full((8, 1)), "rhs_scale": full((3, 1, 24)), "bias": full((3, 24)), "c": full((8, 24)),
        "beta": 1.0,
    },
    "grouped_matmul routed": {
        "lhs": full((4, 2, 32), I8), "rhs": full((3, 32, 24), I8), **ROUTES, "lhs_scale": full((4, 2, 1)),
        "rhs_scale": full((3, 1, 24)), "bias": full((24,)),
    },
    "sparse_matmul": {
        "lhs": full((4, 8), I8), "values": full((3,), I8), "indices": np.array([0, 2, 5], I32),
        "indptr": np.array([0, 1, 2, 2, 3], I32), "format": "csr", "rhs_shape": (4, 8), "rhs_transposed": True,
        "lhs_scale": full((4, 1)), "bias": full((4,)), "c": full((4, 4)), "beta": 1.0,
    },
    "conv2d_q": {
        "input": full((2, 7, 6, 8), I8), "weight": full((8, 3, 3, 8), I8), "weight_scale": full((8,)),
        "bias": full((8,)), "strides": (2, 1), "padding": (1, 1, 1, 1), "c": full((2, 4, 6, 8)), "beta": 1.0,
    },
    "dequant": {"input": full((4, 6), I8), "scale": full((4, 1)), "zero_point": full((4, 6), I32), "zero_mode": "int"},
    "dequant packed": {
        "input": full((4, 3), np.uint8), "scale": full((4, 6)), "dtype": "i4", "packing": "low_first",
    },
    "quantize": {"input": full((4, 6)), "scale": full((6,)), "zero_point": full((4, 1), I32)},
    "dynamic_quantize": {"input": full((4, 6))},
    "unpack": {"input": full((4, 6), I8), "dtype": "i4"},
    "route": {"logits": full((4, 6)), "topk": 2},
    "moe_align_block_size": {"expert_ids": full((4, 2), I32), "experts": 3, "block_size": 2},
    "moe": {
        "input": full((4, 32), I8), "w1": full((3, 32, 16), I8), "w2": full((3, 16, 24), I8), **ROUTES,
        "input_scale": full((4, 1)), "w1_scale": full((3, 1, 16)), "w2_scale": full((3, 1, 24)),
    },
}  # fmt: skip
ALONE = ("dynamic_quantize", "unpack", "route", "moe_align_block_size")  # have one tensor, which shares no size


def test_every_operation_is_here() -> None:
    assert {f"qmlir.{name.split()[0]}" for name in CASES} == set(OPS)


class Place(NamedTuple):
    operand: str
    axis: int


class Dynamic(NamedTuple):
    """An operation with every size dynamic that its verifier allows to be dynamic."""

    operation: Any
    arrays: dict[str, Any]
    specs: dict[str, T]
    attributes: dict[str, Any]
    shared: dict[str, list[Place]]  # size -> the axes of arguments that have it or are computed from it


def _dynamic(name: str, most: int = 99) -> Dynamic:
    """Return the operation of a case with at most `most` dynamic sizes."""
    from qmlir.core.mlir import context

    operation = ops.BY_NAME[name.split()[0]]
    case = CASES[name]
    arrays = {n: case[n] for n in operation.operands if n in case}
    attributes = {n: v for n, v in case.items() if n not in arrays}

    def specs(dynamic: set[Place]) -> dict[str, T]:
        return {
            n: T([None if (n, i) in dynamic else s for i, s in enumerate(a.shape)], from_numpy(a.dtype))
            for n, a in arrays.items()
        }

    def built(dynamic: set[Place]) -> Any:
        given = specs(dynamic)
        module = operation.module(given, {}, normalized(operation.definition, given, attributes))
        return module, next(o.operation for f in module.body.operations for o in f.body.blocks[0].operations)

    with context():
        module, op = built(set())
        assert problem(op) == ""
        shared: dict[str, list[Place]] = {}
        for field, axes in view_of(op).sizes().items():
            for axis, size in enumerate(axes):
                if not isinstance(size, int | None) and field in arrays:
                    shared.setdefault(size.name if isinstance(size, Size) else size, []).append(Place(field, axis))
        dynamic: set[Place] = set()
        for size, places in shared.items():
            if size == "topk":
                continue  # the lowering requires it to be static
            if len({s for s, p in shared.items() if set(p) <= dynamic}) >= most:
                break
            try:
                module, op = built(dynamic | set(places))
            except UsageError:
                continue
            if problem(op) == "":
                dynamic |= set(places)
        del module
    found = {k: v for k, v in shared.items() if set(v) <= dynamic}
    return Dynamic(operation, arrays, specs(dynamic), attributes, found)


@pytest.mark.parametrize("name", CASES)
def test_the_operations_rules_say_what_arguments_share(name: str) -> None:
    """No rule is missing: every dynamic size occurs in at least two arguments."""
    made = _dynamic(name)
    lonely = [places for places in made.shared.values() if len({p.operand for p in places}) < 2]
    assert not lonely or len(made.arrays) == 1
    assert made.shared
    assert (name in ALONE) == (len(made.arrays) == 1)


def _resized(array: Any, axis: int, size: int) -> Any:
    shape = tuple(size if i == axis else s for i, s in enumerate(array.shape))
    return np.resize(array, shape)


# In the fast tier, only a product and an elementwise operation run on lavapipe: all targets refuse the same calls.
@pytest.mark.sweep(fast=12, slow=40)
@pytest.mark.parametrize(
    ("name", "on"),
    [pytest.param(n, on, marks=() if on == "cpu" or n in ("scaled_matmul", "quantize") else pytest.mark.slow)
     for n in CASES if n not in ALONE for on in ("cpu", "vulkan:lavapipe")],
)  # fmt: skip
def test_arguments_that_disagree_are_refused(
    name: str, on: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    target = on if on == "cpu" else request.getfixturevalue("lavapipe")
    # Each dynamic size takes 8 bytes of a dispatch's push constants for every operand that has it, and older lavapipes
    # have 128.
    made = _dynamic(name, most=1 if target.startswith("vulkan") else 99)
    every = {**made.specs, **made.attributes}
    artifact = ops.Operation.compile(made.operation, **every, target=target)
    program = qmlir.load(artifact.save(tmp_path / "program.vmfb"))
    main, plain = program.main, _without_our_checks(program, tmp_path / "program.vmfb")
    names = [n for n, _ in main.signature.inputs]
    arrays = [made.arrays[n] for n in names]
    main(*arrays)
    plain(arrays)
    for places in made.shared.values():
        for place in places:
            number = names.index(place.operand)
            for size in (arrays[number].shape[place.axis] + 2, 1):
                wrong = [*arrays]
                wrong[number] = _resized(arrays[number], place.axis, size)
                with pytest.raises(InputError) as refused:
                    main(*wrong)
                fixed = main.signature.inputs[number][1].shape[place.axis] is not None  # by an operation
                assert f"({place.operand!r}" in str(refused.value), "named as one of the two"
                assert sum(f"({n!r}" in str(refused.value) for n in names) == (1 if fixed else 2)
                with pytest.raises(
                    (RuntimeError, ValueError), match=r"the size of axis|dimension . mismatch"
                ) as failed:
                    plain(wrong)
                assert f"('{place.operand}')" in str(failed.value) or fixed
    main(*arrays)


def _without_our_checks(program: Any, path: Path) -> Any:
    """Return a function that calls the program in IREE's own runtime, without the checks of `qmlir.runtime`."""
    from iree import runtime as rt

    from qmlir.core.hal import vm_instance
    from qmlir.runtime.abi import Input

    instance, device = vm_instance(), program._device
    module = rt.VmModule.copy_buffer(instance, path.read_bytes())
    context = rt.VmContext(instance, modules=[rt.create_hal_module(instance, device), module])
    function = module.lookup_function("main")
    kinds = [Input.of(spec).element for _, spec in program.main.signature.inputs]

    def call(arrays: list[Any]) -> None:
        inputs = rt.VmVariantList(len(arrays))
        usage = int(rt.BufferUsage.DEFAULT)
        for array, kind in zip(arrays, kinds, strict=True):
            view = device.allocator.allocate_buffer_copy(
                int(rt.MemoryType.DEVICE_LOCAL), usage, device, np.ascontiguousarray(array), kind
            )
            inputs.push_ref(view)
        context.invoke(function, inputs, rt.VmVariantList(1))

    return call


# ------------------------------------------------------------------------------------- programs of several operations

SEVERAL = """
func.func private @scaled(%x: tensor<?x32xi8>, %s: tensor<?x1xf32>) -> tensor<?x8xf32> {
  %w = arith.constant dense<1> : tensor<32x8xi8>
  %y = "qmlir.scaled_matmul"(%x, %w, %s) {
      operand_names = ["lhs", "rhs", "lhs_scale"]
  } : (tensor<?x32xi8>, tensor<32x8xi8>, tensor<?x1xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
func.func @main(%a: tensor<?x32xi8>, %s: tensor<?x1xf32>, %b: tensor<?x32xi8>, %t: tensor<?x1xf32>, %r: tensor<?xf32>,
                %free: tensor<?xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xf32>) {
  %0 = call @scaled(%a, %s) : (tensor<?x32xi8>, tensor<?x1xf32>) -> tensor<?x8xf32>
  %1 = call @scaled(%b, %t) : (tensor<?x32xi8>, tensor<?x1xf32>) -> tensor<?x8xf32>
  %f = tensor.collapse_shape %1 [[0, 1]] : tensor<?x8xf32> into tensor<?xf32>
  %2 = arith.addf %f, %r : tensor<?xf32>
  %c8 = arith.constant 8 : index
  %c0 = arith.constant 0 : index
  %n = tensor.dim %free, %c0 : tensor<?xf32>
  %o = arith.divui %n, %n : index
  %3 = tensor.expand_shape %2 [[0, 1]] output_shape [%o, 8] : tensor<?xf32> into tensor<?x8xf32>
  return %0, %3, %free : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xf32>
}
"""


def test_sizes_are_followed_through_operations_and_calls() -> None:
    """Two calls of one function have separate sizes; a size related to no other has no name (shown as D)."""
    [signature] = [s for n, s in _signatures(SEVERAL).items() if n == "main"]
    assert str(signature) == (
        "(arg0: i8[M, 32], arg1: f32[M, 1], arg2: i8[M2, 32], arg3: f32[M2, 1], arg4: f32[M2*8], arg5: f32[D]) -> "
        "(f32[M, 8], f32[M2, 8], f32[D])"
    )


def _signatures(text: str) -> dict[str, Any]:
    from qmlir.core.mlir import context, ir
    from qmlir.ir.signature import function_signatures

    with context():
        return function_signatures(ir.Module.parse(text))


GENERIC = """
#rows = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>
func.func @main(%x: tensor<?x?xf32>, %r: tensor<?xf32>, %k: tensor<4x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %0 = linalg.generic {indexing_maps = [#all, #rows, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %r, %k : tensor<?x?xf32>, tensor<?xf32>, tensor<4x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    %t = arith.addf %s, %c : f32
    linalg.yield %t : f32
  } -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
"""


def test_a_dynamic_size_that_an_operation_fixes_is_checked(tmp_path: Path) -> None:
    """Argument 2 has four rows, so all arguments have."""
    artifact = qmlir.compile(GENERIC, target="cpu")
    program = qmlir.load(artifact.save(tmp_path / "generic.vmfb"))
    assert str(program.main.signature).startswith("(arg0: f32[4, D], arg1: f32[4], arg2: f32[4, D])")
    good = [full((4, 3)), full((4,)), full((4, 3))]
    assert program.main(*good).shape == (4, 3)
    with pytest.raises(InputError, match=r"argument 1 \('arg1'\) of main must be f32\[4\], but has shape \[1\]"):
        program.main(good[0], full((1,)), good[2])
    plain = _without_our_checks(program, tmp_path / "generic.vmfb")
    with pytest.raises((RuntimeError, ValueError), match=r"mismatch; expected 4 but have 1|'arg1'\) must be 4"):
        plain([good[0], full((1,)), good[2]])


# ------------------------------------------------------------------------------------- names


def test_names_relate_what_no_operation_does() -> None:
    spec = T(("B", 4), "f32")
    assert (spec.shape, spec.symbols, str(spec)) == ((None, 4), ("B", None), "f32[B, 4]")
    assert T.from_json(spec.to_json()) == spec
    assert T.from_json({"shape": [None, 4], "dtype": "f32"}) == T((None, 4), "f32"), "of an older manifest"
    for wrong in ("", "2B", "a b", "B+", "(B"):
        with pytest.raises(UsageError, match="is not a name"):
            T((wrong,), "f32")
    text = """func.func @main(%x: tensor<?xf32> {qmlir.sizes = ["S"]}, %y: tensor<?xf32> {qmlir.sizes = ["S"]})
        -> (tensor<?xf32>, tensor<?xf32>) { return %x, %y : tensor<?xf32>, tensor<?xf32> }"""
    assert str(_signatures(text)["main"]) == "(arg0: f32[S], arg1: f32[S]) -> (f32[S], f32[S])"
    with pytest.raises(ParseError, match=r"'qmlir.sizes' with 2 names for 1 axes"):
        _signatures(text.replace('["S"]', '["S", ""]', 1))
    with pytest.raises(ParseError, match=r"'qmlir.sizes', in which '1' is not the name of a size"):
        _signatures(text.replace('["S"]', '["1"]', 1))
    with pytest.raises(ParseError, match=r"'qmlir.sizes' = 1 : i64, which must be a list of strings"):
        _signatures(text.replace('["S"]', "1", 1))


@pytest.mark.parametrize("text", ["M", "M*2", "M//2", "(M + 1)//2", "(M*4 - 3)//2", "M - 1"])
def test_a_size_is_read_as_it_is_shown(text: str) -> None:
    assert str(Size.parse(text)) == text


# ------------------------------------------------------------------------------------- short groups along K


def test_a_scale_for_each_channel_is_not_read_as_short_groups() -> None:
    """Regression: [1, N] for a weight [N, K] gave N groups of K / N along K, silently."""
    x, w = np.ones((4, 256), I8), np.ones((64, 256), I8)
    kw: dict[str, Any] = {"rhs_transposed": True, "target": "cpu"}
    meant = (
        r"groups of 4 along K of 'rhs' \[64, 256\]; did you mean \[64, 1\], one value per channel\? .* group_size = 4"
    )
    with pytest.raises(VerifyError, match=meant):
        ops.scaled_matmul(x, w, rhs_scale=full((1, 64)), **kw)
    with pytest.raises(VerifyError, match=r"'rhs_zero_point' \[1, 64\] makes groups of 4"):
        ops.scaled_matmul(x, w, rhs_zero_point=full((1, 64), I32), **kw)
    with pytest.raises(VerifyError, match=r"groups of 8 along K of 'rhs' \[32, 256\]; did you mean \[32, 1\]"):
        ops.scaled_matmul(x, w[:32], rhs_scale=full((1, 32)), **kw)
    with pytest.raises(VerifyError, match="groups of fewer than 8 have to be stated: group_size = 4"):
        ops.scaled_matmul(x, w, rhs_scale=full((64, 64)), **kw)
    with pytest.raises(VerifyError, match=r"makes groups of 4 along K .*, but 'group_size' is 8"):
        ops.scaled_matmul(x, w, rhs_scale=full((1, 64)), group_size=8, **kw)
    with pytest.raises(VerifyError, match=r"'lhs_scale' \[1, 4\] makes .* did you mean \[4, 1\], one value per token"):
        ops.scaled_matmul(x[:, :16], w[:, :16], lhs_scale=full((1, 4)), **kw)
    scale = np.random.default_rng(0).uniform(0.5, 1, (1, 64)).astype(F)
    stated = ops.scaled_matmul(x, w, rhs_scale=scale, group_size=4, **kw)
    want = qmlir.reference.scaled_matmul(x, w, rhs_scale=scale, group_size=4, rhs_transposed=True)
    np.testing.assert_array_equal(stated, want)


@pytest.mark.parametrize("name", ["grouped_matmul", "sparse_matmul", "moe"])
def test_every_product_refuses_short_groups(name: str) -> None:
    field, shape = {"grouped_matmul": ("rhs_scale", (3, 8, 24)), "sparse_matmul": ("rhs_scale", (4, 2)),
                    "moe": ("w2_scale", (3, 4, 24))}[name]  # fmt: skip
    operation, case = ops.BY_NAME[name], {**CASES[name], field: full(shape)}
    specs = {n: T(case[n].shape, from_numpy(case[n].dtype)) for n in operation.operands if n in case}
    attributes = {n: v for n, v in case.items() if n not in specs}
    with pytest.raises(VerifyError, match=rf"'{field}' .* makes groups of 4 along K .* group_size = 4"):
        ops.Operation.compile(operation, **specs, **attributes, target="cpu")
