"""`torch.compile(model, backend="qmlir")`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import torch_models as models
from torch import nn

from qmlir.errors import QmlirError
from qmlir.frontends.torch import backend


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    backend._warned.clear()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def compiled_count(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The list to which each compiled subgraph is added."""
    made: list[Any] = []
    original = backend.Subgraph._compile
    monkeypatch.setattr(backend.Subgraph, "_compile", lambda self, args: (made.append(self), original(self, args))[1])
    return made


def test_torch_finds_the_backend() -> None:
    assert "qmlir" in torch._dynamo.list_backends()


def test_quantised_model(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled_count(monkeypatch)
    model = models.quantised("mlp", "int8-dynamic")
    compiled = torch.compile(model, backend="qmlir")
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", backend.EagerFallbackWarning)
        for batch in (4, 5, 6, 9):  # the second size makes the batch dynamic, as with every backend
            x = torch.randn(batch, 7, 64)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert len(made) == 2


class Decoder(nn.Module):
    """Tokens [B, T] to logits [B, T, 40]: one layer of the Llama family, as transformers writes it (a bool mask made
    of positions, keys and values repeated by a view with five axes, rotated halves)."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(40, 32), nn.Linear(32, 40, bias=False)
        self.q, self.k, self.v, self.o = (nn.Linear(32, n, bias=False) for n in (32, 16, 16, 32))
        self.norm, self.gate, self.up, self.down = nn.RMSNorm(32), *(nn.Linear(32, 48) for _ in "gu"), nn.Linear(48, 32)
        self.register_buffer("frequencies", 1.0 / 10000 ** (torch.arange(0, 8, 2) / 8), persistent=False)

    def forward(self, tokens: Any) -> Any:
        b, t = tokens.shape
        places = torch.arange(t)
        angles = (self.frequencies[None, :, None] * places[None, None, :].float()).transpose(1, 2)
        cos, sin = (f(torch.cat((angles, angles), -1))[:, None] for f in (torch.cos, torch.sin))
        x = self.tokens(tokens)
        y = self.norm(x)
        q, k, v = (f(y).view(b, t, -1, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = (z * cos + torch.cat((-z[..., 4:], z[..., :4]), -1) * sin for z in (q, k))
        k, v = (z[:, :, None].expand(b, 2, 2, t, 8).reshape(b, 4, t, 8) for z in (k, v))
        mask = (places[:, None] >= places[None, :])[None, None].expand(b, 1, t, t)
        a = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, -1))
        y = self.norm(x)
        return self.head(x + self.down(nn.functional.silu(self.gate(y)) * self.up(y)))


@pytest.mark.slow
def test_decoder_of_dynamic_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch and sequence are dynamic from the first call on."""
    made = compiled_count(monkeypatch)
    torch.manual_seed(0)
    model = Decoder().eval()
    compiled = torch.compile(model, backend="qmlir", dynamic=True, options={"strict": True})
    for sizes in ((2, 7), (3, 12)):
        tokens = torch.randint(0, 40, sizes)
        torch.testing.assert_close(compiled(tokens), model(tokens), rtol=1e-5, atol=1e-5)
    assert len(made) == 1


UNSIMPLIFIED: dict[str, Any] = {
    "guarded to be one": lambda x: x * 2 + x[:, : x.shape[1] // 8],
    "guarded to be less than two": lambda x: x * x[:, : x.shape[1] // 16 + 1].sum(1, keepdim=True),
    "of all elements": lambda x: x.flatten().cumsum(0) + x.reshape(-1),
    "said by a view": lambda x: F.pad(x, (0, -x.shape[1] % 8)).reshape(x.shape[0], -1, 8).sum(2),
}


@pytest.mark.parametrize("name", UNSIMPLIFIED)
def test_sizes_that_torch_does_not_simplify(name: str) -> None:
    """Regression: what is repeated was read as if it were not, and memory behind it; a program of other sizes was found
    in the cache, whose graph differs only in what torch checks before it calls it."""
    function = UNSIMPLIFIED[name]
    compiled = torch.compile(function, backend="qmlir", dynamic=True, options={"strict": True})
    for rows, n in ((4, 9), (3, 12), (5, 17), (2, 32), (1, 10)):
        x = torch.rand(rows, n)
        if name != "guarded to be one" or n < 16:
            torch.testing.assert_close(compiled(x), function(x))


FILTERS, NORM = torch.randn(8, 16, 1, 1), (torch.randn(8), torch.randn(8))
GUARDED: dict[str, Any] = {
    "2x2 of every fourth": lambda x: x[:, ::4].contiguous().view(x.shape[0], 2, 2) * 2,
    "2x2 of means": lambda x: F.avg_pool1d(x[:, None], 4, 4).flatten(1).reshape(-1, 2, 2).sum(1),
    "norms of one pixel": lambda x: F.group_norm(F.conv2d(x[:, :, None, None], FILTERS), 2, *NORM),
}


@pytest.mark.parametrize("name", GUARDED)
def test_sizes_that_views_say(name: str) -> None:
    """Regression: the graph ran eagerly, because a size was not known of which a view says that it is 2x2, or is the
    whole tensor (LeViT, MobileViT, BiT)."""
    compiled = torch.compile(GUARDED[name], backend="qmlir", dynamic=True, options={"strict": True})
    for rows in (3, 5, 1):
        x = torch.rand(rows, 16)
        torch.testing.assert_close(compiled(x), GUARDED[name](x))


def counts(x: Any) -> tuple[Any, ...]:
    """Tensors whose sizes are functions of the sizes of `x`."""
    n, m = x.shape
    sizes = (n + m + 2 * n, torch.sym_sum([n, m, 3]), abs(n - m) + 1, n**2, n**3 // m, (n << 1) + 1, (n >> 1) + 1,
             math.ceil(n / 3), math.floor(m / 3) + 1, int(n * 1.5), int(m / 4) + 1, (-n) % 8 + 1, max(n, m, 4),
             min(n, m))  # fmt: skip
    return tuple(x.new_zeros(size) + x.sum() for size in sizes)


def test_functions_of_sizes() -> None:
    """Regression: torch writes a sum of more than two sizes as `sym_sum`, which torch-mlir does not know, nor most of
    the others: what held one ran eagerly (LeViT, MobileViT)."""
    compiled = torch.compile(counts, backend="qmlir", dynamic=True, options={"strict": True})
    for sizes in ((3, 5), (7, 4), (6, 11)):
        x = torch.arange(math.prod(sizes), dtype=torch.float32).reshape(sizes) / 8
        for got, want in zip(compiled(x), counts(x), strict=True):
            assert torch.equal(got, want)


def test_a_function_of_sizes_that_is_not_supported() -> None:
    compiled = torch.compile(lambda x: x.new_zeros(round(x.shape[0] / 3)), backend="qmlir", dynamic=True)
    with pytest.warns(backend.EagerFallbackWarning, match="(?s)Unsupported builtin function for symbolic types.*round"):
        assert compiled(torch.ones(5)).shape == (2,)


@pytest.mark.slow
def test_weights_that_change_are_seen() -> None:
    layer = nn.Linear(8, 8).eval()
    compiled = torch.compile(layer, backend="qmlir")
    x = torch.randn(3, 8)
    torch.testing.assert_close(compiled(x), layer(x))
    layer.weight.mul_(2)
    torch.testing.assert_close(compiled(x), layer(x))
    layer.weight.data.mul_(2)  # torch's version counter does not see this
    torch._dynamo.reset()
    torch.testing.assert_close(compiled(x), layer(x))


def test_a_buffer_that_a_model_changes_is_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the buffer was a constant, and every call compiled a program."""

    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x * self.count

    made = compiled_count(monkeypatch)
    model, x = Counter().eval(), torch.randn(3, 2)
    compiled = torch.compile(model, backend="qmlir", options={"strict": True})
    for i in range(3):
        torch.testing.assert_close(compiled(x), x * (i + 1))
    assert len(made) == 1


@pytest.mark.slow
def test_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward are compiled once, because trained weights are arguments."""
    made = compiled_count(monkeypatch)
    torch.manual_seed(0)
    layer, x = nn.Linear(8, 4), torch.randn(5, 8)
    with torch.enable_grad():
        compiled = torch.compile(layer, backend="qmlir")
        for _ in range(2):
            layer.zero_grad()
            layer(x).square().sum().backward()
            expected = layer.weight.grad.clone()
            layer.zero_grad()
            compiled(x).square().sum().backward()
            torch.testing.assert_close(layer.weight.grad, expected)
            with torch.no_grad():
                layer.weight.add_(layer.weight.grad, alpha=-0.01)
    assert len(made) == 2
    assert not any(s.eager for s in made)


@pytest.mark.slow
def test_graph_breaks() -> None:
    class Broken(models.Mlp):
        def forward(self, x: Any) -> Any:
            y = self.up(x)
            torch._dynamo.graph_break()
            return self.down(torch.relu(y))

    model = Broken().eval()
    x = torch.randn(4, 64)
    torch.testing.assert_close(torch.compile(model, backend="qmlir")(x), model(x), rtol=1e-5, atol=1e-5)


def test_what_does_not_compile_runs_eagerly() -> None:
    def model(x: Any) -> Any:
        return torch.linalg.eigvalsh(x @ x.T) + 1

    x = torch.randn(4, 4)
    with pytest.warns(backend.EagerFallbackWarning, match="a subgraph runs eagerly, because it does not compile"):
        torch.testing.assert_close(torch.compile(model, backend="qmlir")(x), model(x))
    with warnings.catch_warnings():  # the second time does not warn
        warnings.simplefilter("error", backend.EagerFallbackWarning)
        torch.compile(model, backend="qmlir")(x)


def test_options() -> None:
    layer = nn.Linear(8, 8)
    with pytest.raises(Exception, match="backend 'qmlir' has no option 'tarqet'; did you mean 'target'"):
        torch.compile(layer, backend="qmlir", options={"tarqet": "cpu"})(torch.randn(2, 8))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="unknown target 'cuda:sm_8'; did you mean"):
        torch.compile(layer, backend="qmlir", options={"target": "cuda:sm_8"})(torch.randn(2, 8))
    torch._dynamo.reset()
    strict = torch.compile(lambda x: torch.linalg.eigvalsh(x), backend="qmlir", options={"strict": True})
    with pytest.raises((QmlirError, RuntimeError), match=r"linalg_eigh"):
        strict(torch.eye(4))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "scheme"), [("block", "int8-dynamic"), ("conv", "x86-static"), ("mlp", "int4-weight")]
)
def test_models(model: str, scheme: str) -> None:
    module, x = models.quantised(model, scheme), models.example(model)
    found = torch.compile(module, backend="qmlir")(x)
    expected = module(x)
    assert (found - expected).abs().max() <= 0.02 * expected.abs().max()


SIZES = ((4, 7), (5, 7), (5, 9), (2, 3), (4, 7), (9, 12))  # batch and sequence; image networks only have a batch


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "scheme"),
    [("mlp", "int8-dynamic"), ("mlp", "x86-dynamic"), ("conv", "x86-static"), ("block", "int8-dynamic"),
     ("block", "x86-static"), ("encoder", "int8-dynamic"), ("encoder", "x86-dynamic")],
)  # fmt: skip
def test_compiles_no_more_often_than_torchs_own_backends(
    model: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    module = models.quantised(model, scheme)
    axes = len(models.MODELS[model][2])
    inputs = [models.example(model, *sizes[:axes], seed=i) for i, sizes in enumerate(SIZES)]
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(module, backend=counter)
    for x in inputs:
        compiled(x)
    torch._dynamo.reset()
    made = compiled_count(monkeypatch)
    compiled = torch.compile(module, backend="qmlir")
    with warnings.catch_warnings():
        warnings.simplefilter("error", backend.EagerFallbackWarning)
        for x in inputs:
            found, expected = compiled(x), module(x)
            assert (found - expected).abs().max() <= 0.02 * expected.abs().max()
    assert not any(s.eager for s in made)
    assert len(made) <= counter.frame_count


@pytest.mark.slow
def test_a_transformer_layer_of_torch_is_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: in inference the layer is one torch operator, at which dynamo cut its graph, and K was unknown."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval(), torch.randn(1, 6, 32)
    made = compiled_count(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error", backend.EagerFallbackWarning)
        torch.testing.assert_close(torch.compile(model, backend="qmlir")(x), model(x), rtol=1e-5, atol=1e-5)
    assert len(made) == 1
