"""Programs with dynamic sizes, called with other sizes than the example's, against eager torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.torch_models import Called

import qmlir
from qmlir.errors import FrontEndError
from qmlir.frontends.torch.program import fingerprint
from qmlir.frontends.torch.rules import RULES

Function = Callable[..., Any]


def compiled(function: Function, example: Sequence[Any], sizes: Any = None) -> Any:
    with torch.no_grad():
        shapes = None if sizes is None else (tuple(sizes),)
        return qmlir.load(qmlir.compile(torch.export.export(Called(function), tuple(example), dynamic_shapes=shapes)))


def judge(function: Function, calls: Sequence[Sequence[Any]], sizes: Any = None) -> None:
    """Compile for the first of `calls`, and compare the results of each call with torch's."""
    program = compiled(function, calls[0], sizes)
    for args in calls:
        torch.testing.assert_close(program.main(*args), function(*args), rtol=1e-5, atol=1e-5)


BATCH, LENGTH, MORE = (torch.export.Dim(name, min=4) for name in ("batch", "length", "more"))


FILTERS, OFFSETS = torch.randn(4, 1, 3, 3, 3), torch.randn(4)
MASK, FILLED = torch.tensor([True, False, True, True, False, True]), torch.randn(500, 3)
SQUARE = torch.randn(6, 6)


def last_set(x: Any) -> Any:
    y = x.clone()
    y[:, -1] = 0
    return y


DYNAMIC: dict[str, tuple[Function, dict[int, Any]]] = {
    "fourier of one axis": (lambda x: torch.fft.ifft(torch.fft.fft(x)).real, {0: BATCH, 1: LENGTH}),
    "fourier of two axes": (lambda x: torch.view_as_real(torch.fft.fftn(x, dim=(-2, -1))), {1: LENGTH, 2: MORE}),
    "fourier and back": (
        lambda x: (torch.view_as_real(torch.fft.fftn(x)), torch.fft.ifft(torch.fft.fft(x)).real),
        {0: BATCH, 1: LENGTH, 2: MORE},
    ),
    "windows with padding": (lambda x: F.unfold(x[None], 3, padding=1), {1: LENGTH}),
    "the last of an axis is set": (last_set, {0: BATCH}),
    "mirrored": (lambda x: F.pad(x[None], (2, 1, 1, 3), mode="reflect"), {1: LENGTH, 2: MORE}),
    "padded by the edge": (lambda x: F.pad(x, (2, 1), mode="replicate"), {1: LENGTH, 2: MORE}),
    "padded around": (lambda x: F.pad(x, (2, 1), mode="circular"), {2: MORE}),
    "uneven windows": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), {0: BATCH, 1: LENGTH, 2: MORE}),
    "grid": (
        lambda x: torch.stack(torch.meshgrid(torch.arange(x.shape[0]), torch.arange(x.shape[1]), indexing="ij")),
        {0: BATCH, 1: LENGTH},
    ),
    "parts": (lambda x: x.split([2, x.shape[0] - 2])[1] + sum(p.sum() for p in x.split([2, 3, 3], 2)), {0: BATCH}),
    "channels by themselves": (
        lambda x: F.conv3d(x[None, None].expand(-1, 4, -1, -1, -1), FILTERS, OFFSETS, (2, 1, 2), 1, groups=4),
        {0: BATCH, 1: LENGTH},
    ),
    "smaller with a wide filter": (
        lambda x: F.interpolate(x[None], size=(3, 5), mode="bicubic", antialias=True),
        {0: BATCH},
    ),
    "larger with a wide filter": (
        lambda x: F.interpolate(x[None], size=(13, 5), mode="bilinear", antialias=True, align_corners=True),
        {0: BATCH},
    ),
    "several indices": (lambda x: x[torch.arange(x.shape[0]), (x[:, :, 0] > 0).int().argmax(-1)], {0: BATCH}),
    "several indices apart": (lambda x: x[torch.arange(x.shape[0])[:, None], :, x[0, :4].argmax(-1) - 8], {0: BATCH}),
    "indices of 32 bits": (lambda x: x[:, x[0, :, 0].int() * 0 - 1], {0: BATCH, 1: LENGTH}),
    "filled in by a mask": (lambda x: x.masked_scatter(x[:, :, :1] > 0, FILLED), {0: BATCH}),
    "a constant mask": (lambda x: (x[:, MASK] @ FILLED[:8, :2]).reshape(x.shape[0] * 2, -1), {0: BATCH}),
    "cut and padded": (lambda x: F.pad(x, (-1, 2, 1, -2, -1, 0), value=2.0), {0: BATCH, 1: LENGTH}),
    "shifted in time": (torch.nn.ZeroPad2d((0, 0, 1, -1)), {0: BATCH, 1: LENGTH}),
}


@pytest.mark.sweep(fast=21, slow=60)
@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_sizes_stay_dynamic(name: str) -> None:
    function, sizes = DYNAMIC[name]
    torch.manual_seed(0)
    example = torch.randn(5, 6, 8)
    others = [torch.randn([n + step if axis in sizes else n for axis, n in enumerate(example.shape)])
              for step in (3, -1)]  # fmt: skip
    judge(function, [[example], *([x] for x in others)], [sizes])


def test_cut_by_negative_padding() -> None:
    judge(lambda x: (F.pad(x, (-1, 2, -2, 1)), F.pad(x, (-1, -2))), [[torch.randn(4, 6)]])


@pytest.mark.slow
def test_elements_that_a_constant_mask_chooses() -> None:
    """The number of elements is known, unlike that of a computed mask."""
    mask = torch.rand(4, 6, generator=torch.Generator().manual_seed(0)) > 0.5
    judge(lambda x: (x[mask] * 2, torch.masked_select(x, mask), x[:, MASK].sum(1)), [[torch.randn(4, 6)]])


@pytest.mark.slow
def test_rows_and_columns_that_constant_masks_choose() -> None:
    """Regression: the number of columns was taken to be that of the rows."""
    rows = torch.tensor([True, False, True, True])
    judge(lambda x: x[rows][:, MASK] + 1, [[torch.randn(4, 6)]])


def test_branches_are_part_of_what_a_program_is() -> None:
    """Regression: programs that only differ in a branch had one digest, and the cache gave the first for the second."""
    calls = (lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)),
             lambda x: torch.cond(x.sum() > 0, lambda x: x + 5, lambda x: x * 2, (x,)))  # fmt: skip
    assert len({fingerprint(torch.export.export(Called(f), (torch.randn(5, 6),))) for f in calls}) == 2


def test_programs_of_other_strides_are_others() -> None:
    """`as_strided` gathers elements by their positions in memory."""
    x = torch.randn(4, 4)
    programs = [torch.export.export(Called(lambda x: x.as_strided((2, 2), (1, 2))), (given,)) for given in (x, x.t())]
    assert fingerprint(programs[0]) != fingerprint(programs[1])


@pytest.mark.parametrize(
    "view",
    [lambda x: x.as_strided((2, 3), (3, 1), 0), lambda x: x.as_strided((3, 2), (2, 1), 0)],
    ids=["same sizes", "other sizes"],
)
def test_strides_from_before_a_tensor(view: Function) -> None:
    """Regression: an explicit offset counts from the memory of which a tensor is a part, and was taken for its own."""
    x = torch.arange(9.0).reshape(3, 3)
    assert torch.equal(compiled(lambda x: view(x[1:]) * 1, (x,)).main(x), view(x[1:]))


@pytest.mark.slow
def test_conditions_are_choices() -> None:
    x = torch.randn(5, 6)
    judge(lambda x: torch.cond(x.sum() > 0, lambda x: (x + 1, x.sum()), lambda x: (x * 2, x.amax()), (x,)), [[x], [-x]])

    def inner(x: Any) -> Any:
        return torch.cond(x[0, 0] > 0, lambda x: x + 5, lambda x: x @ SQUARE, (x,))

    calls = [[x.abs()], [-x.abs()], [torch.cat([-x[:1].abs(), x[1:].abs() + 3])]]
    judge(lambda x: torch.cond(x.sum() > 0, lambda x: inner(x), lambda x: x * 2, (x,)), calls)


def test_angles() -> None:
    x, y = torch.randn(2, 9), torch.randn(2, 9)
    judge(lambda x, y: (torch.angle(torch.complex(x, y)), torch.angle(x)), [[x, y]])


@pytest.mark.slow
def test_norm_of_weights_along_the_last_axis() -> None:
    """HuBERT's and wav2vec's positional embeddings have such a norm."""
    torch.manual_seed(0)
    layer = torch.nn.Conv1d(8, 8, 4, padding=2, groups=2)
    torch.nn.utils.parametrizations.weight_norm(layer, dim=2)
    with torch.no_grad():
        judge(layer.eval(), [[torch.randn(2, 8, 9)]])


WRITES: dict[str, tuple[Function, list[Any]]] = {
    "constant": (lambda x: x.index_put((torch.tensor([-1, 0]),), torch.ones(2, 6)), []),
    "argument": (lambda x, i: x.index_put((i,), torch.ones(2, 6)), [torch.tensor([-2, 1])]),
    "added": (lambda x, i: x.index_put((i,), torch.ones(2, 6), accumulate=True), [torch.tensor([-1, -1])]),
    "two axes": (lambda x, i, j: x.index_put((i, j), torch.ones(2)), [torch.tensor([-1, 1]), torch.tensor([0, -6])]),
}


@pytest.mark.sweep(fast=12, slow=60)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_elements_counted_from_the_end_are_written(name: str, dynamic: bool) -> None:
    function, indices = WRITES[name]
    calls = [[torch.randn(n, 6), *indices] for n in ((5, 4, 9) if dynamic else (5,))]
    judge(function, calls, [{0: BATCH}, *(None for _ in indices)] if dynamic else None)


def test_a_decomposition_for_the_example_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: `int(x.shape[0])` in a rule is the example's size, and the program was right for that size only."""
    made = torch.library.custom_op("qmlirtest::head_of", torch.clone, mutates_args=(), schema="(Tensor x) -> Tensor")
    made.register_fake(torch.empty_like)
    monkeypatch.setitem(RULES, torch.ops.qmlirtest.head_of.default, lambda x: x[: int(x.shape[0])] * 1)
    with pytest.raises(
        FrontEndError, match=r"head_of.* can be decomposed only under an assumption on dynamic sizes \(s\d+ == 5\)"
    ):
        compiled(torch.ops.qmlirtest.head_of, [torch.randn(5, 4)], [{0: BATCH}])
    judge(torch.ops.qmlirtest.head_of, [[torch.randn(5, 4)]])
