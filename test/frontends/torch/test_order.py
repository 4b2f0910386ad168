"""Edge cases of operators, against eager torch: NaN and order, no axes or elements, bytes and integers, masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.torch_models import Called

import qmlir

torch.manual_seed(0)
X = torch.randn(3, 5, 4)
NAN = X.clone()
NAN[0, 1, 2], NAN[1, :, 1] = torch.nan, torch.nan
TIES = torch.tensor([[0.0, 1, 1, torch.nan, 2, torch.nan], [2, 0, 2, 1, 1, 3]])
ONE = torch.tensor(1.5)
SHARES = torch.tensor([0.1, 0.5, 1.0])
SIGNS = torch.tensor([0.0, -0.0, 2.0, -3.0])


def put(x: Any, places: Any, values: Any, accumulate: bool = False) -> Any:
    return torch.ops.aten.index_put(x, places, values, accumulate)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    # NaN was not ordered: torch-mlir's comparisons with it were false either way.
    "sorts of NaN": (lambda x: (x.sort(), x.sort(descending=True), x.topk(2), x.topk(2, largest=False)), (TIES,)),
    "stable sorts": (lambda x: (x.sort(stable=True), x.sort(stable=True, descending=True)), (TIES.nan_to_num(1),)),
    "medians": (lambda x: (x.median(1), x.median(), x.nanmedian(1).values, x.nanmedian()), (NAN,)),
    "quantiles": (lambda x: (x.quantile(0.3), x.quantile(SHARES, dim=2), x.quantile(SHARES, keepdim=True),
                             x.nanquantile(0.6, dim=1, keepdim=True)), (NAN,)),
    "between": (lambda x: [x.quantile(0.37, 1, interpolation=i) for i in ("lower", "higher", "midpoint", "nearest")],
                (X,)),
    "running": (lambda x: (x.cummax(1), x.cummin(1), x.cummax(0), x.nan_to_num(7).long().cummin(-1)), (TIES,)),
    "means of two results": (lambda x: (torch.std_mean(x, -1), torch.var_mean(x, 1)), (X,)),
    # softmax and log_softmax never ended.
    "softmax without axes": (lambda x: (x.softmax(0), x.log_softmax(0)), (ONE,)),
    "without axes": (lambda x: (x.amax(), x.cumsum(0), x.max(0), x.sort(), x.argmax(), x.median(0), x.long().argmin(0),
                                F.cosine_similarity(x, x, 0)),
                     (ONE,)),
    "larger of any shapes": (lambda x, y, z: (torch.fmax(x, y), torch.fmin(z, x), torch.addcmul(x, x, z, value=0.3),
                                              torch.addcdiv(z, x, x), torch.broadcast_tensors(x, z)), (NAN, X, ONE)),
    "signs": (lambda x, y, z: (y.signbit(), torch.copysign(x, y), torch.copysign(x, -1), torch.heaviside(y, z)),
              (X, SIGNS, ONE)),
    "diagonals": (lambda x, a, b: (x.diagonal_scatter(a, 1, 1, 2), x.diagonal_scatter(b, -1, 1, 2), x[0].diff(0)),
                  (X, torch.arange(9.0).reshape(3, 3), torch.arange(12.0).reshape(3, 4))),
    "steps that are not whole": (lambda x: x + torch.arange(2.1, -2.9, -1.25), (X,)),
    "nothing to turn": (lambda x: (x.flip(0, 1), x @ x.t()), (torch.randn(5, 0),)),
    # The process crashed on one image without a batch.
    "without a batch": (lambda x: [F.conv2d(x, torch.ones(6, 1, 2, 2), groups=3), F.conv1d(x[0], torch.ones(2, 5, 3)),
                                   F.conv2d(x, torch.ones(2, 3, 3, 3), padding="same"), F.group_norm(x[:0], 1),
                                   F.conv_transpose2d(x, torch.ones(3, 2, 2, 2), stride=2)], (X,)),
    "nothing behind the edge": (lambda x, w: F.conv_transpose3d(x[None, None], w, None, 2, 1, 1, 1, (2, 3, 2)),
                                (X, torch.randn(1, 1, 4, 3, 1))),
    # torch-mlir selects one of two values by a comparison: if one is NaN, it selects the other.
    "larger of NaN": (lambda x, y, z: (torch.maximum(x, y), torch.minimum(y, x), x.clamp(min=y), x.clamp(-0.5, 0.5),
                                       F.relu6(x), F.hardtanh(x), x.clamp(max=z)), (NAN, X, ONE)),
    # Lists with one value for all axes, and a stride that defaults to the window's size.
    "windows in short": (lambda x: (torch.ops.aten.avg_pool2d(x, [2, 2], [], [0]), torch.ops.aten.max_pool2d(x, [2]),
                                    F.max_pool2d(x, 2, 1, 1, return_indices=True),
                                    torch.ops.aten.conv2d(x[None], torch.ones(2, 3, 2, 2), None, [2], [1])), (X,)),
    "no channels": (lambda x: (F.pixel_shuffle(x, 1), F.pixel_unshuffle(x, 1), x.sum(-1)),
                    (torch.ones(2, 0, 2, 2),)),
    "enlarged by a rounded factor": (lambda x: F.interpolate(x, scale_factor=1.7), (X,)),
    "statistics of the program": (lambda x, m: F.batch_norm(x, m, m.abs() + 1, m, eps=0.5), (X, torch.randn(5))),
    "back to the windows": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, 1, return_indices=True), 2, 1),
                            (torch.randn(2, 3, 4, 5),)),
    # torch composes these of operators that write in place.
    "losses": (lambda x, y: (F.cosine_embedding_loss(x, y, torch.ones(3)), F.margin_ranking_loss(x, y, y.sign()),
                             F.hinge_embedding_loss(x, y.sign()),
                             F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=y[0].abs())),
               (X[:, 0], X[:, 1])),
    "by masks": (lambda x, m, v, n: (put(x, (m,), v[0], True), put(x, (m,), v), put(x, (m,), v, True),
                                     put(x, (None, n), v[:1, :1]), put(x, (None, n), v[:1, :3]),
                                     put(x[0], (n,), v[0, :1])),
                 (X, torch.tensor([1, 0, 1]).bool(), torch.randn(2, 5, 4), torch.tensor([1, 0, 0, 1, 1]).bool())),
    "between two": (lambda x, y: (x[0].lerp(x, 0.4), x[0, 0].lerp(x, 0.7), x.lerp(y, 0.3), x[:1].lerp(y, y)),
                    (X, X + 1)),
    "running exponentials": (lambda x, y: (x.logcumsumexp(1), x.half().logcumsumexp(0), y.logcumsumexp(0),
                                          y.cumprod(0, dtype=torch.float64), x[0, 0, 0].prod(0)),
                             (100 * X, torch.tensor([-torch.inf, -1e4, 3.0, torch.inf]))),
    "with reductions": (lambda x, i: (x.scatter(0, i, x, reduce="add"), x.scatter(1, i, 2.0, reduce="multiply"),
                                      x[0, 0].gather(0, i[0, 0]), x[0, 0].scatter_add(0, i[0, 0], x[0, 1])),
                        (X[0], torch.tensor([[0, 0, 1], [1, 0, 1]]))),
    "of too few": (lambda x: (x[:1].std(0), x.var(1), x[:, :1].var(1), torch.std_mean(x[:0], 0),
                              torch.var_mean(x[0, :1, 0]), x[:1].half().var(0, unbiased=False), x[0, 0, 0].std()),
                   (X,)),
    # The process crashed.
    "products of bytes": (lambda x, y: (x @ y.t(), torch.mv(x, y[0]), torch.einsum("ij,kj->ki", x, y), x[0].dot(y[0]),
                                        torch.addmm(x[:, :1], x, y.t(), alpha=3), x[None].bmm(y.t()[None]),
                                        (x + 200).to(torch.uint8) @ y.t().to(torch.uint8), x.long() @ y.long().t()),
                          (torch.arange(-60, 60, 4).to(torch.int8).reshape(6, 5), (30 * X[0].t()).to(torch.int8))),
    "powers of integers": (lambda x, y: (x**y, x**5, 3**y, x.abs(), x.to(torch.int8) ** y.to(torch.int8),
                                         x.abs()[:3] ** 0),
                           (torch.tensor([-8, -3, -1, 0, 1, 2, 7, 3]), torch.tensor([0, 3, -3, 4, -5, 10, -1, 100]))),
    # Each sum was that of one element.
    "sums of numbers": (lambda x: ((x * 0 + 3).sum(1), (x - x + 2).sum(), (~x.isnan()).sum(0),
                                   (x * 0 + 3).float().mean(), x.nanmedian(1)),
                        (torch.tensor([[3, 1, 2], [5, -4, 9]]),)),
    "uneven windows": (lambda x: (F.adaptive_max_pool1d(x, 3, True), F.adaptive_max_pool2d(x, (2, 3), True)), (X,)),
    "norms along the last axis": (lambda x: (x.renorm(2, -1, 0.5), x.renorm(1, 0, 2.0)), (X,)),
    "means of integers": (lambda x, i: x.scatter_reduce(0, i, 3 * x, "mean"),
                          (torch.tensor([-5, 3, 8]), torch.tensor([0, 0, 1]))),
    # 178 became 127.
    "bytes of numbers": (lambda x: (x.to(torch.uint8), x.to(torch.int8), x.long().to(torch.uint8)),
                         (torch.tensor([0.5, 178.9, 255, 127.5, 64.0]),)),
    "even windows": (lambda x: F.conv3d(x[None, None], torch.ones(1, 1, 2, 3, 4), padding="same"), (X,)),
    # The mean was divided by the number of rows, not by the sum of the weights.
    "weighted loss": (lambda x, w, c: (F.cross_entropy(x, c, w), F.cross_entropy(x, c)),
                      (X[0], SIGNS + 3, torch.tensor([0, 3, 1, 1, 2]))),
}  # fmt: skip


@pytest.mark.sweep(fast=40, slow=26)
@pytest.mark.parametrize("name", CASES)
def test_is_torch_s(name: str) -> None:
    f, inputs = CASES[name]
    module = Called(f)
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(module(*inputs))
        found = qmlir.load(qmlir.compile(torch.export.export(module, inputs))).main(*inputs)
    for got, want in zip(torch.utils._pytree.tree_leaves(found), expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(got), want, rtol=1e-5, atol=1e-6, equal_nan=True)
