"""Whole programs on emulated devices: several kernels that depend on each other, initialisers, state, dynamic sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulation.test_programs import TARGETS, saved

import qmlir

pytestmark = pytest.mark.sweep(slow=60)

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
DIGITS = SAMPLES / "01_digits"


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_digits(target: str) -> None:
    """Three convolutions and a product; each layer's codes are those of the reference."""
    report = qmlir.check(
        DIGITS / "digits.mlir", target=target, emulate=True, size=3, layers=True,
        parameters={"digits": str(DIGITS / "digits.safetensors")},
    )  # fmt: skip
    assert report.ok, report.text()


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_decoder_of_two_layers(target: str, tmp_path: Path) -> None:
    """A prompt, then one token: the second call reads the caches that the first one wrote."""
    from checkpoint import decoders

    model = decoders.write_gguf(tmp_path / "m.gguf", decoders.Sizes(layers=2))
    imported = qmlir.importing.decoder(qmlir.checkpoint.open(tmp_path / "m.gguf"))
    imported.save(tmp_path / "m.mlir", tmp_path / "m.safetensors")
    made = qmlir.compile(tmp_path / "m.mlir", target=target, parameters={"model": str(tmp_path / "m.safetensors")})
    program = qmlir.load(saved(made, tmp_path), emulate=True)
    prompt = [3, 5, 7, 11, 13]
    tokens, logits = decoders.greedy(program.prefill, program.decode, prompt, 2)
    assert decoders.judge(model, prompt, tokens, logits) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_mixture_of_experts(target: str, tmp_path: Path) -> None:
    """The layer of sample 07 with small sizes: a router, the quantisation of the tokens, and experts, one of which gets
    no token; for several numbers of tokens."""
    hidden, experts, inner = 64, 8, 96
    text = (SAMPLES / "07_moe" / "layer.mlir").read_text().replace("512", str(hidden)).replace("2048", str(inner))
    (tmp_path / "layer.mlir").write_text(text)
    program = qmlir.load(saved(qmlir.compile(tmp_path / "layer.mlir", target=target), tmp_path), emulate=True)
    rng = np.random.default_rng(0)
    # Small integers, so that the logits are exact sums and every target routes each token alike.
    router = rng.integers(-8, 9, (hidden, experts)).astype(np.float32) / 64
    router[:, 5] = -8
    w1, w2 = (rng.integers(-127, 128, (experts, k, n), np.int8) for k, n in ((hidden, inner), (inner, inner)))
    s1, s2 = ((rng.random((experts, 1, inner)) * 0.01).astype(np.float32) for _ in range(2))
    for count in (1, 9, 40):
        tokens = np.abs(rng.integers(-64, 65, (count, hidden))).astype(np.float32) / 32
        ids, weights = qmlir.reference.route(tokens @ router, topk=2, renormalize=True)
        assert 5 not in ids
        codes, scale, _ = qmlir.reference.dynamic_quantize(tokens)

        def layer(ids: Any, weights: Any, given: Any = (codes, scale)) -> Any:
            return qmlir.reference.moe(given[0], w1, w2, ids, weights, input_scale=given[1], w1_scale=s1, w2_scale=s2,
                                       activation="relu", intermediate_dtype="i8")  # fmt: skip

        # The weights differ from numpy's by the error of the device's exp, a few units in the last place. Each expert's
        # result is off by that share of its weighted value.
        each = [layer(ids[:, k : k + 1], np.ones((count, 1), np.float32)) for k in (0, 1)]
        bound = 2.0**-19 * sum(weights[:, k : k + 1] * np.abs(each[k]) for k in (0, 1))
        want = layer(ids, weights)
        got = np.asarray(program.main(tokens, router, w1, s1, w2, s2))
        assert (np.abs(got - want) <= bound + 2.0**-22 * np.abs(want)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("model", "scheme"), [("encoder", "int8-weight"), ("block", "int4-weight")])
@pytest.mark.parametrize("target", TARGETS)
def test_models_with_attention(target: str, model: str, scheme: str, tmp_path: Path) -> None:
    """An encoder of two blocks, and a single block, against torch, with other sizes than at export."""
    from support import torch_models

    module = torch_models.quantised(model, scheme)
    axes = torch_models.MODELS[model][2]
    made = qmlir.compile(torch_models.exported(module, torch_models.example(model), axes), target=target)
    program = qmlir.load(saved(made, tmp_path), emulate=True)
    for sizes in ((2, 5), (3, 9)):
        x = torch_models.example(model, *sizes)
        want = module(x).detach().numpy()
        np.testing.assert_allclose(np.asarray(program.main(x.numpy())), want, atol=2e-3)


@pytest.mark.sweep(slow=108)
@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_a_convolutional_network(target: str, dynamic: bool) -> None:
    """Convolutions of every kind that PyTorch's networks have, in f32, f16 and bf16, against torch in f64."""
    import torch

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 8, 3, 2, 1, bias=False)
            self.norm = torch.nn.BatchNorm2d(8)
            self.depthwise = torch.nn.Conv2d(8, 8, 3, 1, 1, groups=8)
            self.point = torch.nn.Conv2d(8, 16, 1)
            self.grouped = torch.nn.Conv2d(16, 16, 3, groups=2)
            self.patch = torch.nn.Conv2d(16, 12, 2, 2)
            self.up = torch.nn.ConvTranspose2d(12, 6, 2, 2)
            self.line = torch.nn.Conv1d(6, 5, 3)
            self.head = torch.nn.Linear(5, 7)

        def forward(self, x: Any) -> Any:
            f = torch.nn.functional
            x = f.hardswish(self.depthwise(torch.relu(self.norm(self.stem(x)))))
            x = f.max_pool2d(self.grouped(f.silu(self.point(x))), 3, 2, 1)
            x = self.line(self.up(self.patch(x)).flatten(2))
            return torch.tanh(self.head(f.adaptive_avg_pool1d(x, 1).flatten(1)))

    torch.manual_seed(0)
    network, x = Network().eval(), torch.randn(2, 3, 24, 24)
    want = network.double()(x.double()).detach().numpy()
    for dtype, bound in ((torch.float32, 1e-6), (torch.float16, 1e-3), (torch.bfloat16, 1e-2)):
        shapes = ({0: torch.export.Dim("n")},) if dynamic else None
        exported = torch.export.export(network.to(dtype), (x.to(dtype),), dynamic_shapes=shapes)
        got = qmlir.load(qmlir.compile(exported, target=target), emulate=True).main(x.to(dtype))
        np.testing.assert_allclose(torch.as_tensor(got).double().numpy(), want, atol=bound)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_by_the_number_of_rows(target: str, tmp_path: Path) -> None:
    """One program with a kernel for few rows, for more and for many, called on both sides of each bound."""
    from kernels.gpu_products import Product, check, codes_of, values

    for product in (Product(64, 1024, codes_of("i8")), Product(264, 1008, codes_of("u4", zeros=True, lhs="u8"))):
        arguments = product.arguments(None)
        made = qmlir.ops.scaled_matmul.compile(target=target, **arguments)
        program = qmlir.load(saved(made, tmp_path), emulate=True)
        for rows in (0, 1, 7, 8, 9, 64, 65, 130):
            given = values(arguments, rows)
            check(product, program.main(*given.values()), qmlir.reference.scaled_matmul(**{**arguments, **given}))
            assert len(program.emulated.kernels) == (rows > 0)
