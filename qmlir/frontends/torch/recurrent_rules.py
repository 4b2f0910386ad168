"""Decompositions of single steps and single layers of LSTM, GRU and RNN; fused layers are loops (`recurrent.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .graph import aten
from .rules import RULES, TorchResult, TorchRule, rule


@rule(aten.mkldnn_rnn_layer.default)
def recurrent_layer(
    x: torch.Tensor, w_in: torch.Tensor, w_hidden: torch.Tensor, b_in: torch.Tensor,
    b_hidden: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, reverse: bool,
    batch_sizes: Sequence[int], mode: int, hidden_size: int, num_layers: int, has_biases: bool, bidirectional: bool,
    batch_first: bool, train: bool,
) -> TorchResult:  # fmt: skip
    """One layer and direction of an LSTM (mode 2) over a static number of steps, `x` [T, B, I], as torch decomposes it
    on other CPUs."""
    from torch._decomp.decompositions import one_layer_lstm

    if mode != 2 or batch_sizes or train or not isinstance(x.shape[0], int):
        return NotImplemented
    weights = [w_in, w_hidden, *([b_in, b_hidden] if has_biases else [])]
    state = (hidden.reshape(hidden.shape[-2:]), cell.reshape(cell.shape[-2:]))
    out, (last, last_cell) = one_layer_lstm(x, state, weights, has_biases, reverse)
    rows = (1, *hidden.shape[-2:])
    return out, last.reshape(rows), last_cell.reshape(rows), x.new_empty(0)


@rule(aten.lstm_cell.default)
def lstm_cell(
    x: torch.Tensor, state: Sequence[torch.Tensor], w_in: torch.Tensor, w_hidden: torch.Tensor,
    b_in: torch.Tensor | None = None, b_hidden: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """One step of an LSTM: torch's own decomposition mutates its intermediate values."""
    hidden, cell = state
    gates = aten.linear.default(x, w_in, b_in) + aten.linear.default(hidden, w_hidden, b_hidden)
    i, f, g, o = gates.chunk(4, 1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


@rule(aten.gru_cell.default)
def gru_cell(
    x: torch.Tensor, hidden: torch.Tensor, w_in: torch.Tensor, w_hidden: torch.Tensor,
    b_in: torch.Tensor | None = None, b_hidden: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """One step of a GRU: torch's own decomposition mutates its intermediate values."""
    a, b = aten.linear.default(x, w_in, b_in).chunk(3, 1), aten.linear.default(hidden, w_hidden, b_hidden).chunk(3, 1)
    reset, update = (a[0] + b[0]).sigmoid(), (a[1] + b[1]).sigmoid()
    new = (a[2] + b[2] * reset).tanh()
    return (hidden - new) * update + new


def _rnn_cell(activation: Callable[[torch.Tensor], torch.Tensor]) -> TorchRule:
    def rule(
        x: torch.Tensor, hidden: torch.Tensor, w_in: torch.Tensor, w_hidden: torch.Tensor,
        b_in: torch.Tensor | None = None, b_hidden: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        return activation(aten.linear.default(x, w_in, b_in) + aten.linear.default(hidden, w_hidden, b_hidden))

    return rule


RULES.update({aten.rnn_tanh_cell.default: _rnn_cell(torch.tanh), aten.rnn_relu_cell.default: _rnn_cell(torch.relu)})
