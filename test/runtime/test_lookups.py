"""Indices into a table, and sizes that a program was compiled for: values outside are refused, for which programs
formerly read past the end of the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qmlir
from qmlir.errors import InputError
from qmlir.ir.piecewise import Piecewise, add, compare, greatest, least, multiply, select, unknown
from qmlir.runtime import inputs
from qmlir.spec import Limit, Range, Signature

# An embedding of wrapped ids, as ONNX's Gather is: -5 to 4 are rows of the table.
WRAPPED = """
func.func @main(%ids: tensor<2x?xi64> {qmlir.name = "ids"}, %table: tensor<5x3xf32>) -> tensor<2x?x3xf32> {
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0 : i64
  %rows = arith.constant 5 : i64
  %n = tensor.dim %ids, %c1 : tensor<2x?xi64>
  %e = tensor.empty(%n) : tensor<2x?x3xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(a, b, c) -> (a, b)>, affine_map<(a, b, c) -> (a, b, c)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%ids : tensor<2x?xi64>) outs(%e : tensor<2x?x3xf32>) {
  ^bb0(%id: i64, %o: f32):
    %negative = arith.cmpi slt, %id, %zero : i64
    %behind = arith.addi %id, %rows : i64
    %at = arith.select %negative, %behind, %id : i64
    %i = arith.index_cast %at : i64 to index
    %c = linalg.index 2 : index
    %v = tensor.extract %table[%i, %c] : tensor<5x3xf32>
    linalg.yield %v : f32
  } -> tensor<2x?x3xf32>
  return %r : tensor<2x?x3xf32>
}"""

# Two columns that are indices into two tables.
COLUMNS = """
#at = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<?x2xi32> {qmlir.name = "pairs"}, %users: tensor<9xf32>, %items: tensor<4xf32>)
    -> (tensor<?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x2xi32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %user = tensor.extract_slice %x[0, 0] [%n, 1] [1, 1] : tensor<?x2xi32> to tensor<?x1xi32>
  %u = tensor.collapse_shape %user [[0, 1]] : tensor<?x1xi32> into tensor<?xi32>
  %item = tensor.extract_slice %x[0, 1] [%n, 1] [1, 1] : tensor<?x2xi32> to tensor<?x1xi32>
  %i = tensor.collapse_shape %item [[0, 1]] : tensor<?x1xi32> into tensor<?xi32>
  %a = linalg.generic {indexing_maps = [#at, #at], iterator_types = ["parallel"]}
      ins(%u : tensor<?xi32>) outs(%e : tensor<?xf32>) {
  ^bb0(%in: i32, %o: f32):
    %k = arith.index_cast %in : i32 to index
    %v = tensor.extract %users[%k] : tensor<9xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  %b = linalg.generic {indexing_maps = [#at, #at], iterator_types = ["parallel"]}
      ins(%i : tensor<?xi32>) outs(%e : tensor<?xf32>) {
  ^bb0(%in: i32, %o: f32):
    %k = arith.index_cast %in : i32 to index
    %v = tensor.extract %items[%k] : tensor<4xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  return %a, %b : tensor<?xf32>, tensor<?xf32>
}"""

# Positions along an axis are indices into a table, so the axis is at most as long as the table.
POSITIONS = """
func.func @main(%x: tensor<?x3xf32> {qmlir.name = "x", qmlir.sizes = ["S", ""]}, %table: tensor<6x3xf32>)
    -> tensor<?x3xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x3xf32>
  %e = tensor.empty(%n) : tensor<?x3xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<?x3xf32>) outs(%e : tensor<?x3xf32>) {
  ^bb0(%in: f32, %o: f32):
    %i = linalg.index 0 : index
    %c = linalg.index 1 : index
    %p = tensor.extract %table[%i, %c] : tensor<6x3xf32>
    %s = arith.addf %in, %p : f32
    linalg.yield %s : f32
  } -> tensor<?x3xf32>
  return %r : tensor<?x3xf32>
}"""


def test_ids_outside_of_the_table_are_refused(tmp_path: Path) -> None:
    """Regression: reads outside the table ended the process or gave arbitrary values."""
    program = qmlir.load(qmlir.compile(WRAPPED, target="cpu").save(tmp_path / "ids.vmfb"))
    assert str(program.main.signature).endswith("where ids are in [-5, 4]")
    table = np.arange(15, dtype=np.float32).reshape(5, 3)
    ids = np.array([[0, 4, -5], [1, -1, 2]])
    np.testing.assert_array_equal(program.main(ids, table), table[ids])
    for wrong in (5, -6, 2**62, -(2**63)):
        ids[1, 2] = wrong
        message = (
            rf"argument 0 \('ids': i64\[2, D\]\) of main holds ids\[1, 2\] = {wrong}, which is outside of \[-5, 4\]: "
            "ids is an index into a table"
        )
        with pytest.raises(InputError, match=message):
            program.main(ids, table)
    assert program.main(np.zeros((2, 0), np.int64), table).shape == (2, 0, 3)


def test_each_column_has_its_own_table() -> None:
    main = qmlir.load(qmlir.compile(COLUMNS, target="cpu")).main
    assert str(main.signature).endswith("where pairs[:, 0:1] are in [0, 8], pairs[:, 1:2] are in [0, 3]")
    tables = np.arange(9, dtype=np.float32), np.arange(4, dtype=np.float32) * 10
    users, items = main(np.array([[8, 3], [1, 0]], np.int32), *tables)
    np.testing.assert_array_equal([users, items], [[8, 1], [30, 0]])
    with pytest.raises(InputError, match=r"holds pairs\[1, 1\] = 8, which is outside of \[0, 3\]: pairs\[:, 1:2\] is"):
        main(np.array([[8, 3], [1, 8]], np.int32), *tables)


def test_an_axis_is_no_longer_than_the_table_of_its_positions(tmp_path: Path) -> None:
    saved = qmlir.compile(POSITIONS, target="cpu").save(tmp_path / "positions.vmfb")
    main, table = qmlir.load(saved).main, np.ones((6, 3), np.float32)
    assert str(main.signature).endswith("where S is at most 6")
    assert main(np.zeros((6, 3), np.float32), table).sum() == 18
    message = r"argument 0 \('x': f32\[S, 3\]\) of main has shape \[7, 3\]: axis 0 has 7 elements, .* for at most 6"
    with pytest.raises(InputError, match=message):
        main(np.zeros((7, 3), np.float32), table)
    tool = str(Path(sys.executable).parent / "iree-run-module")
    words = [
        tool,
        f"--module={saved}",
        "--device=local-sync",
        "--function=main",
        "--input=7x3xf32=0",
        "--input=6x3xf32=1",
    ]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode
    assert "the size of axis 0 of argument 0 ('x') must be at most 6" in done.stderr


def test_values_are_made_up_inside_of_the_tables() -> None:
    """Regression: `bench` and `check` made up ids from -1000 to 1000."""
    for source in (WRAPPED, COLUMNS, POSITIONS):
        main = qmlir.load(qmlir.compile(source, target="cpu")).main
        main(*inputs.make(main.signature, size=40))
    size = qmlir.TensorSpec(("N*4", None, "M"), "f32")
    limits = (Limit(0, 0, 20, 40), Limit(0, 1, 7, None), Limit(0, 2, 0, 3))
    signature = Signature((("x", size),), (size,), (), limits)
    for default, shape in ((4, (20, 7, 3)), (8, (32, 8, 3)), (50, (40, 50, 3)), (2, (20, 7, 2))):
        assert inputs.make(signature, size=default)[0].shape == shape
    pairs = inputs.make(qmlir.load(qmlir.compile(COLUMNS, target="cpu")).main.signature, size=200)[0]
    assert pairs.min(axis=0).tolist() == [0, 0]
    assert pairs.max(axis=0).tolist() == [8, 3]


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize(
    "body",
    [
        "%k = arith.select %o, %in, %zero : i32",  # it is not known which elements are indices
        "%k = arith.remui %in, %in : i32",
        "%k = arith.muli %in, %in : i32",
    ],
)
def test_what_is_computed_otherwise_is_left_out(body: str) -> None:
    text = f"""
#at = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<7xi32>, %m: tensor<7xi1>, %t: tensor<9xf32>) -> tensor<7xf32> {{
  %e = tensor.empty() : tensor<7xf32>
  %zero = arith.constant 0 : i32
  %a = linalg.generic {{indexing_maps = [#at, #at, #at], iterator_types = ["parallel"]}}
      ins(%x, %m : tensor<7xi32>, tensor<7xi1>) outs(%e : tensor<7xf32>) {{
  ^bb0(%in: i32, %o: i1, %out: f32):
    {body}
    %i = arith.index_cast %k : i32 to index
    %v = tensor.extract %t[%i] : tensor<9xf32>
    linalg.yield %v : f32
  }} -> tensor<7xf32>
  return %a : tensor<7xf32>
}}"""
    assert qmlir.load(qmlir.compile(text, target="cpu")).main.signature.ranges == ()


def test_two_numbers_of_an_argument_are_not_one() -> None:
    """Two elements of an argument are different unknowns: x[i] - x[j] is not 0."""
    text = """
func.func @main(%x: tensor<4xi32>, %t: tensor<9xf32>) -> tensor<4x4xf32> {
  %e = tensor.empty() : tensor<4x4xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a)>, affine_map<(a, b) -> (b)>,
      affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %x : tensor<4xi32>, tensor<4xi32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%p: i32, %q: i32, %out: f32):
    %d = arith.subi %p, %q : i32
    %s = arith.addi %d, %p : i32
    %i = arith.index_cast %s : i32 to index
    %v = tensor.extract %t[%i] : tensor<9xf32>
    linalg.yield %v : f32
  } -> tensor<4x4xf32>
  return %a : tensor<4x4xf32>
}"""
    assert qmlir.load(qmlir.compile(text, target="cpu")).main.signature.ranges == ()


# ------------------------------------------------------------------------------------- front ends


def _embeddings() -> tuple[type, type]:
    torch = pytest.importorskip("torch")

    class Sliced(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = torch.nn.Embedding(100, 8), torch.nn.Embedding(32, 8)
            self.register_buffer("order", torch.arange(32)[None])

        def forward(self, ids):  # type: ignore[no-untyped-def]
            return self.words(ids) + self.places(self.order[:, : ids.shape[1]])

    class Counted(Sliced):
        def forward(self, ids):  # type: ignore[no-untyped-def]
            return self.words(ids) + self.places(torch.arange(ids.shape[1]))

    return Sliced, Counted


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("which", [0, 1])
def test_a_torch_model_keeps_to_its_vocabulary_and_its_length(which: int) -> None:
    """Regression: 33 positions with a table of 32 ended the process, and so did an id of 5000."""
    torch = pytest.importorskip("torch")
    model = _embeddings()[which]().eval()
    ids = torch.randint(0, 100, (2, 8))
    auto = torch.export.Dim.AUTO
    exported = torch.export.export(model, (ids,), dynamic_shapes={"ids": {0: auto, 1: auto}})
    main = qmlir.load(qmlir.compile(exported, target="cpu")).main
    for length in (1, 32):
        ids = torch.randint(0, 100, (3, length))
        torch.testing.assert_close(main(ids), model(ids))
    with pytest.raises(InputError, match=r"has shape \[3, 33\]: axis 1 has 33 elements, .* for at most 32"):
        main(torch.randint(0, 100, (3, 33)))
    for wrong in (100, -1):  # torch does not accept negative ids either
        ids[2, 5] = wrong
        with pytest.raises(InputError, match=rf"holds ids\[2, 5\] = {wrong}, which is outside of \[0, 99\]"):
            main(ids)


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("dynamo", [True, False])
def test_an_onnx_model_keeps_to_its_vocabulary_and_its_length(dynamo: bool, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript" if dynamo else "onnx")
    model, ids = _embeddings()[1]().eval(), torch.randint(0, 100, (2, 8))
    sizes = {"dynamic_shapes": {"ids": {1: "s"}}} if dynamo else {"dynamic_axes": {"ids": {1: "s"}}}
    torch.onnx.export(model, (ids,), tmp_path / "m.onnx", input_names=["ids"], dynamo=dynamo, **sizes)
    main = qmlir.load(qmlir.compile(tmp_path / "m.onnx", target="cpu")).main
    torch.testing.assert_close(main(ids - 100), model(ids))  # ONNX counts negative indices from the end
    # The old exporter computes the number of positions from a list of sizes: the program itself checks it.
    said = r"has shape \[2, 33\]: axis 1 has 33 elements, .* for at most 32"
    said = said if dynamo else r"there are more than the 32 positions that a table is for \(.*m\.onnx:/places/Gather"
    with pytest.raises(InputError, match=said):
        main(torch.randint(0, 100, (2, 33)))
    ids[1, 3] = 10**6
    with pytest.raises(InputError, match=r"holds ids\[1, 3\] = 1000000, which is outside of \[-100, 99\]"):
        main(ids)


@pytest.mark.slow
def test_sizes_that_a_torch_program_was_exported_for(tmp_path: Path) -> None:
    """Regression: with 6 rows the result was that of the first 4."""
    torch = pytest.importorskip("torch")

    class Fours(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x):  # type: ignore[no-untyped-def]
            return x.reshape(x.shape[0] // 4, 4, -1).sum(1)

    fours = {"x": {0: 4 * torch.export.Dim("k", max=10)}}
    exported = torch.export.export(Fours(), (torch.zeros(8, 3),), dynamic_shapes=fours)
    main = qmlir.load(qmlir.compile(exported, target="cpu").save(tmp_path / "fours.vmfb")).main
    assert main(torch.ones(4, 3)).shape == (1, 3)
    with pytest.raises(InputError, match=r"has shape \[6, 3\]: axis 0 has 6 elements, and the program is for D\*4"):
        main(torch.ones(6, 3))
    with pytest.raises(InputError, match=r"axis 0 has 44 elements, and the program is for at most 40"):
        main(torch.ones(44, 3))

    class Cut(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x):  # type: ignore[no-untyped-def]
            return x[:, 5:] * x[:, 4:5]

    auto = {"x": {1: torch.export.Dim.AUTO}}
    exported = torch.export.export(Cut(), (torch.zeros(2, 9),), dynamic_shapes=auto)
    main = qmlir.load(qmlir.compile(exported, target="cpu")).main
    [known] = exported.range_constraints.values()
    with pytest.raises(InputError, match=rf"axis 1 has 4 elements, and the program is for at least {known.lower}"):
        main(torch.ones(2, 4))


# ------------------------------------------------------------------------------------- the arithmetic


def test_functions_in_pieces_are_what_they_compute() -> None:
    """Piecewise functions against the same arithmetic on integers."""
    rng = np.random.default_rng(0)
    xs = range(-20, 21)
    for _ in range(300):
        forms = [(unknown("x", -20, 20), list(xs)), (int(rng.integers(-9, 9)), None)]
        forms[1] = (forms[1][0], [forms[1][0]] * len(xs))
        for _ in range(6):
            (a, p), (b, q) = (forms[int(i)] for i in rng.integers(0, len(forms), 2))
            predicate = str(rng.choice(["eq", "ne", "slt", "sle", "sgt", "sge"]))
            holds = {"eq": int.__eq__, "ne": int.__ne__, "slt": int.__lt__, "sle": int.__le__, "sgt": int.__gt__,
                     "sge": int.__ge__}[predicate]  # fmt: skip
            condition, truth = compare(predicate, a, b), [int(holds(s, t)) for s, t in zip(p, q, strict=True)]
            assert condition is not None
            made = [
                (add(a, b), [s + t for s, t in zip(p, q, strict=True)]),
                (add(a, b, -1), [s - t for s, t in zip(p, q, strict=True)]),
                (multiply(a, b), [s * t for s, t in zip(p, q, strict=True)]),
                (least(a, b), list(map(min, p, q))),
                (greatest(a, b), list(map(max, p, q))),
                (condition, truth),
                (select(condition, b, a), [t if c else s for c, s, t in zip(truth, p, q, strict=True)]),
            ]
            forms += [(f, v) for f, v in made if f is not None]
        for form, values in forms:
            low, high = sorted(rng.integers(-30, 30, 2).tolist())
            inside = [x for x, v in zip(xs, values, strict=True) if low <= v <= high]
            if isinstance(form, Piecewise):
                assert [x for first, last in form.where(low, high) for x in range(first, last + 1)] == inside
            else:
                assert [form] * len(xs) == values
    assert compare("ult", 1, 2) is None
    assert multiply(unknown("x", 0, 9), unknown("x", 0, 9)) is None
    assert add(unknown("x", 0, 9), unknown("y", 0, 9)) is None


def test_a_signature_says_in_a_file_what_it_asks_for() -> None:
    spec = qmlir.TensorSpec(("N", 2), "i64")
    signature = Signature((("x", spec),), (spec,), (Range(0, -3, 2, (None, (0, 1))),), (Limit(0, 0, 2, None),))
    assert Signature.from_json(signature.to_json()) == signature
    assert str(signature).endswith("where N is at least 2, x[:, 0:1] are in [-3, 2]")
    assert str(Limit(0, 0, 2, 5)) == "2 to 5"
    plain = Signature((("x", spec),), (spec,))
    assert set(plain.to_json()) == {"inputs", "outputs"}
    for damage in (
        {"ranges": [{"argument": 1, "least": 0, "most": 1, "part": []}]},
        {"ranges": [{"argument": 0, "least": 0, "most": 1, "part": [None]}]},
        {"ranges": [{"argument": 0, "least": "0", "most": 1, "part": []}]},
        {"limits": [{"argument": 0, "axis": 2, "least": 0, "most": None}]},
        {"limits": [{"argument": -1, "axis": 0, "least": 0, "most": None}]},
    ):
        with pytest.raises((KeyError, TypeError, ValueError)):
            Signature.from_json({**plain.to_json(), **damage})
