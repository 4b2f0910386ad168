"""Plain exported programs with operators that torch-mlir does not convert, against eager torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import qmlir
from qmlir.errors import FrontEndError


class Logic(nn.Module):
    """Masks and counts as transformers' decoders and mixtures of experts write them."""

    def forward(self, x: Any, ids: Any) -> Any:
        inside = (x > -1) & (x < 1)
        new = torch.diff(ids, prepend=ids[:, :1] - 1) != 1
        counts = torch.histc(ids.reshape(-1).float(), bins=8, min=0, max=7)
        x = x * torch.topk(x, 2, sorted=False)[0].sum(-1, keepdim=True)
        return x * (inside ^ (x > 0)), new.cumsum(-1) + ((ids ^ 3) & 5), counts


class Images(nn.Module):
    """A CNN: batch norms with and without a convolution before them, uneven pads and windows, depthwise upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv, self.after = nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.up = nn.ConvTranspose2d(4, 8, 4, 2, 1, output_padding=1, groups=4)
        for norm in (self.norm, self.after):
            for t in (norm.weight, norm.bias, norm.running_mean):
                nn.init.normal_(t)  # type: ignore[arg-type]
            nn.init.uniform_(norm.running_var, 0.5, 2)  # type: ignore[arg-type]

    def forward(self, x: Any) -> Any:
        y = self.after(self.conv(F.pad(self.norm(x), (1, 2, 0, 3), mode="reflect")))
        return F.adaptive_avg_pool2d(self.up(torch.relu(y)), (3, 5)), F.pad(y, (2, 1, 0, 3), mode="replicate")


class Constants(nn.Module):
    """A constant bool mask, and small bf16 constants."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(6, 6).tril().bool())
        self.register_buffer("scale", torch.tensor([0.5, 1.0, 2.0, -1.5]).bfloat16())

    def forward(self, q: Any) -> Any:
        return F.scaled_dot_product_attention(q, q, q, attn_mask=self.mask) * self.scale.float()


class Values(nn.Module):
    """Elementwise operators that torch-mlir computes less exactly than torch."""

    def forward(self, x: Any) -> Any:
        return F.gelu(x, approximate="tanh"), F.gelu(x.bfloat16(), approximate="tanh"), torch.erfc(x)


class ChannelsLast(nn.Module):
    """An average over all pixels of a channels-last input, and elements gathered by their positions in memory."""

    def forward(self, x: Any) -> Any:
        last = x.contiguous(memory_format=torch.channels_last)
        return F.adaptive_avg_pool2d(last, 1) * 2, torch.as_strided(x.relu(), (2, 3, 5), (192, 9, 2), 4)


class Steps(nn.Module):
    """A bidirectional LSTM, which torch exports as oneDNN's layer, and reductions of several axes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Any) -> Any:
        y, (hidden, cell) = self.cell(x)
        return y, hidden, cell, torch.logsumexp(x, (0, 2)), torch.logsumexp(x.sum(), 0)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 32, 16).bfloat16())

    def forward(self, x: Any, ends: Any) -> Any:
        return torch._grouped_mm(x, self.weight, offs=ends)


def _grouped_mm_fallback(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    parts = torch.tensor_split(input, offs.tolist()[:-1])
    return torch.cat([part @ w for part, w in zip(parts, weight, strict=True)])


class FloatExperts(nn.Module):
    """The operator that transformers' experts call if torch's own operator does not support the type."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 32, 16))
        if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
            made = torch.library.custom_op("transformers::grouped_mm_fallback", _grouped_mm_fallback, mutates_args=())
            made.register_fake(lambda input, weight, offs: input.new_empty(input.shape[0], weight.shape[2]))

    def forward(self, x: Any, ends: Any) -> Any:
        return torch.ops.transformers.grouped_mm_fallback(x, self.weight, ends)


class Rotations(torch.nn.Module):
    """DeepSeek-V2's rotary embedding, whose complex numbers are multiplied by a factor."""

    def forward(self, angles: Any, x: Any) -> Any:
        turns = torch.polar(torch.ones_like(angles), angles) * 0.5
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2)


CASES = {
    "rotations": (Rotations, lambda: (torch.randn(2, 5, 4), torch.randn(2, 5, 8))),
    "logic": (Logic, lambda: (torch.randn(2, 6), torch.randint(0, 8, (2, 6)))),
    "images": (Images, lambda: (torch.randn(2, 3, 7, 6),)),
    "constants": (Constants, lambda: (torch.randn(1, 2, 6, 4),)),
    "values": (Values, lambda: (torch.randn(2, 60),)),
    "channels_last": (ChannelsLast, lambda: (torch.randn(2, 3, 8, 8),)),
    "steps": (Steps, lambda: (torch.randn(2, 4, 5),)),
    "float_experts": (FloatExperts, lambda: (torch.randn(12, 32), torch.tensor([3, 5, 5, 12], dtype=torch.int32))),
    "experts": (Experts, lambda: (torch.randn(12, 32).bfloat16(), torch.tensor([3, 5, 5, 12], dtype=torch.int32))),
}


def tuple_of(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.sweep(fast=9, slow=60)
@pytest.mark.parametrize("name", CASES)
def test_exported_as_it_is(name: str) -> None:
    torch.manual_seed(0)
    made, inputs = CASES[name][0]().eval(), CASES[name][1]()
    with torch.no_grad():
        expected = tuple_of(made(*inputs))
    found = tuple_of(qmlir.load(qmlir.compile(torch.export.export(made, inputs))).main(*inputs))
    for got, want in zip(found, expected, strict=True):
        tolerance = {"rtol": 1e-2, "atol": 1e-2} if want.dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(torch.as_tensor(got), want, **tolerance)


def test_batch_norm_is_folded_into_the_convolution() -> None:
    from qmlir.frontends.torch.batch_norm import fold_batch_norms
    from qmlir.frontends.torch.program import prepare

    graph = prepare(torch.export.export(Images().eval(), (torch.randn(2, 3, 7, 6),)))
    fold_batch_norms(graph)
    names = [str(n.target) for n in graph.nodes if n.op == "call_function"]
    assert not [n for n in names if "norm" in n]
    assert names.count("aten.mul.Tensor") == 1  # of the norm before the padding


def test_batch_norm_of_an_image_without_a_batch_is_not_folded() -> None:
    """Regression: without a batch, the norm's channels are the image's second axis, not the convolution's channels. An
    f64 norm is computed in f64."""
    from qmlir.frontends.torch.batch_norm import fold_batch_norms
    from qmlir.frontends.torch.program import prepare

    torch.manual_seed(0)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        norm = nn.BatchNorm1d(4)
        norm.running_mean, norm.running_var = torch.randn(4), torch.rand(4) + 0.5
        model = nn.Sequential(nn.Conv1d(3, 4, 3), norm).eval().to(dtype)
        x = torch.randn(3, 6, dtype=dtype)
        graph = prepare(torch.export.export(model, (x,)))
        fold_batch_norms(graph)
        graph.gm.recompile()
        torch.testing.assert_close(graph.gm(x)[0], model(x), rtol=tolerance, atol=tolerance)


def test_compiled_model_with_batch_norm_is_not_eager() -> None:
    made = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    x = torch.randn(1, 3, 6, 6)
    with torch.no_grad():
        run = torch.compile(made, backend="qmlir", options={"strict": True})
        torch.testing.assert_close(run(x), made(x), rtol=1e-5, atol=1e-5)


class Refused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        return torch.linalg.eigvalsh(x)  # the culprit


def test_refusal_names_the_culprit_and_its_line() -> None:
    """The refusal does not name the embedding's constant, which is the first op that is left."""
    with pytest.raises(FrontEndError) as caught:
        qmlir.compile(torch.export.export(Refused(), (torch.zeros(4, dtype=torch.int64),)))
    message = str(caught.value)
    line = next(i for i, text in enumerate(open(__file__), 1) if text.rstrip().endswith("# the culprit"))  # noqa: SIM115
    assert "aten._linalg_eigh" in message or "aten.linalg_eigvalsh" in message, message
    assert f"{__file__}:{line}" in message, message
    assert "raising pattern" in message
    assert "literal" not in message
