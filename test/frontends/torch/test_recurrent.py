"""LSTM, GRU and RNN layers against torch in f64; each is one loop, however many steps it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import qmlir

torch = pytest.importorskip("torch")

CELLS: dict[str, Any] = {
    "lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN,
    "rnn_relu": lambda *sizes, **options: torch.nn.RNN(*sizes, nonlinearity="relu", **options),
}  # fmt: skip
FORMS: dict[str, dict[str, Any]] = {
    "one": {},
    "both_ways": {"bidirectional": True, "batch_first": True},
    "deep": {"num_layers": 3, "bidirectional": True, "bias": False},
    "dropout": {"num_layers": 2, "batch_first": True, "dropout": 0.3},
}
HIDDEN = 12


class Layers(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, cell: str, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = CELLS[cell](7, HIDDEN, **options)

    def forward(self, x: Any, *states: Any) -> Any:
        return self.layers(x, states if len(states) > 1 else states[0]) if states else self.layers(x)


def arguments(cell: str, form: str, states: bool) -> tuple[Any, ...]:
    options = FORMS[form]
    x = torch.randn(3, 9, 7)
    first = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    shape = (first, x.shape[0 if options.get("batch_first") else 1], HIDDEN)
    count = 0 if not states else 2 if cell == "lstm" else 1
    return (x, *(torch.randn(shape) for _ in range(count)))


def flat(found: Any) -> list[Any]:
    return [t for f in found for t in flat(f)] if isinstance(found, (tuple, list)) else [found]


def compare(found: Any, model: Any, args: Sequence[Any]) -> None:
    with torch.no_grad():
        expected = flat(model.double()(*(a.double() for a in args)))
    model.float()
    for f, e in zip(flat(found), expected, strict=True):
        np.testing.assert_allclose(np.asarray(f), e.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.sweep(fast=56, slow=60)
@pytest.mark.parametrize("states", [False, True], ids=["zeros", "states"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cell", CELLS)
def test_exported(cell: str, form: str, states: bool) -> None:
    model, args = Layers(cell, **FORMS[form]).eval(), arguments(cell, form, states)
    artifact = qmlir.compile(torch.export.export(model, args))
    layers = [s for s in artifact.manifest.strategies if s["chosen"].startswith("recurren")]
    assert len(layers) == FORMS[form].get("num_layers", 1), artifact.manifest.strategies
    compare(qmlir.load(artifact).main(*args), model, args)


@pytest.mark.slow
@pytest.mark.sweep(slow=60)
@pytest.mark.parametrize(("cell", "form"), [("lstm", "deep"), ("gru", "both_ways"), ("rnn", "one")])
def test_under_torch_compile(cell: str, form: str) -> None:
    """Regression: dynamo left these layers out of its graphs, and they silently ran eagerly."""
    torch._dynamo.reset()
    model, args = Layers(cell, **FORMS[form]).eval(), arguments(cell, form, True)
    compiled = torch.compile(model, backend="qmlir", options={"strict": True})
    with torch.no_grad():
        found = compiled(*args)
    stats = torch._dynamo.utils.counters
    assert not stats["graph_break"], stats["graph_break"]
    compare(found, model, args)


@pytest.mark.slow
def test_a_dynamic_batch() -> None:
    model = Layers("gru", num_layers=2, batch_first=True).eval()
    shapes = ({0: torch.export.Dim("batch")},)
    main = qmlir.load(qmlir.compile(torch.export.export(model, (torch.randn(3, 6, 7),), dynamic_shapes=shapes))).main
    for batch in (1, 2, 17):
        x = torch.randn(batch, 6, 7)
        compare(main(x), model, (x,))


@pytest.mark.slow
def test_many_steps_are_a_loop() -> None:
    """Regression: each step was a separate product, which took time to compile."""
    model, x = Layers("lstm").eval(), torch.randn(500, 1, 7)
    artifact = qmlir.compile(torch.export.export(model, (x,)))
    assert len(artifact.manifest.strategies) == 2, artifact.manifest.strategies
    compare(qmlir.load(artifact).main(x), model, (x,))


@pytest.mark.slow
def test_projected_states_go_step_by_step() -> None:
    model, x = Layers("lstm", proj_size=5).eval(), torch.randn(4, 2, 7)
    compare(qmlir.load(qmlir.compile(torch.export.export(model, (x,)))).main(x), model, (x,))


def test_an_lstm_is_trained_eagerly() -> None:
    """Regression: its gradient failed with torch's RuntimeError about an unexpected scalar type."""
    torch._dynamo.reset()
    model, x = Layers("lstm"), torch.randn(5, 2, 7)
    model(x)[0].sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with pytest.warns(qmlir.frontends.torch.backend.EagerFallbackWarning, match=r"under torch.no_grad\(\)"):
        torch.compile(model, backend="qmlir")(x)[0].sum().backward()
    for p, e in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, e)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="an LSTM whose gradient may be asked for is not traced"):
        torch.compile(model, backend="qmlir", options={"strict": True})(x)
