"""Whole programs on emulated devices: several kernels that depend on each other, initialisers, state, dynamic sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulation.test_programs import TARGETS, saved

import qmlir

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "01_digits"


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
    """A prompt, and a token behind it: what one call leaves in the caches, the next one reads."""
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
@pytest.mark.parametrize(("model", "scheme"), [("encoder", "int8-weight"), ("block", "int4-weight")])
@pytest.mark.parametrize("target", TARGETS)
def test_models_with_attention(target: str, model: str, scheme: str, tmp_path: Path) -> None:
    """An encoder of two blocks, and a block by itself, against torch: with other sizes than they were exported with."""
    from support import torch_models

    module = torch_models.quantised(model, scheme)
    axes = torch_models.MODELS[model][2]
    made = qmlir.compile(torch_models.exported(module, torch_models.example(model), axes), target=target)
    program = qmlir.load(saved(made, tmp_path), emulate=True)
    for sizes in ((2, 5), (3, 9)):
        x = torch_models.example(model, *sizes)
        want = module(x).detach().numpy()
        np.testing.assert_allclose(np.asarray(program.main(x.numpy())), want, atol=2e-3)


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
