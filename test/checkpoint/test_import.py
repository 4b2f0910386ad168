"""Programs from checkpoints against a float64 evaluation of the same dequantised weights: token for token."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoint import decoders, writers as w

import qmlir
from qmlir.checkpoint import Checkpoint
from qmlir.cli import main
from qmlir.core.mlir import context, func, ir
from qmlir.errors import CheckpointError, InputError, UsageError
from qmlir.importing.config import config_of
from qmlir.importing.program import Imported, ParameterGlobals
from qmlir.importing.weights import rows

PROMPT = [3, 5, 7, 11, 13]


def loaded(
    path: Path, folder: Path, target: str = "cpu", keep: bool = False, mapped: bool = False, **options: Any
) -> Any:
    """The program of a checkpoint, saved to its files, compiled and loaded."""
    imported = qmlir.importing.decoder(qmlir.checkpoint.open(path), **options)
    program, weights = folder / "imported.mlir", folder / "imported.safetensors"
    imported.save(program, weights)
    files = {"model": str(weights)}
    artifact = qmlir.compile(program, target=target, parameters=files, keep_parameters=keep, map_parameters=mapped)
    return qmlir.load(artifact, parameters=files if keep or mapped else None)


def check(program: Any, model: decoders.Model, prompt: list[int], steps: int = 64) -> list[int]:
    got, logits = decoders.greedy(program.prefill, program.decode, prompt, steps)
    assert decoders.judge(model, prompt, got, logits) < 1e-3
    return got


def test_gguf_decoder(tmp_path: Path) -> None:
    model = decoders.write_gguf(tmp_path / "m.gguf", decoders.Sizes(layers=1))
    program = loaded(tmp_path / "m.gguf", tmp_path)
    with pytest.raises(InputError, match=r"there is no sequence to go on with \(prefill starts one\)"):
        program.decode(np.array([1], np.int32))
    check(program, model, PROMPT)
    said = check(program, model, PROMPT[:1], 5)  # a new sequence keeps nothing of the old one
    for tokens, match in (
        ([1, 97], r"tokens\[1\] = 97, which is outside of \[0, 96\]"),
        ([-1], r"tokens\[0\] = -1, which is outside of \[0, 96\]"),
        ([], r"has shape \[0\]: axis 0 has 0 elements, and the program is for 1 to 128"),
        ([0] * 129, r"has shape \[129\]: axis 0 has 129 elements, and the program is for 1 to 128"),
    ):
        with pytest.raises(InputError, match=match):
            program.prefill(np.array(tokens, np.int32))
    # Refused calls leave the sequence as it was.
    expected = model.logits([*PROMPT[:1], *said[:4], 9])[-1]
    np.testing.assert_allclose(program.decode(np.array([9], np.int32)), expected, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Q4_1", "Q5_0", "Q8_0", "MXFP4"])
def test_gguf_decoder_of_each_type_that_gguf_writes(kind: str, tmp_path: Path) -> None:
    model = decoders.write_gguf(tmp_path / "m.gguf", decoders.Sizes(), kind)
    check(loaded(tmp_path / "m.gguf", tmp_path), model, PROMPT)


@pytest.mark.slow
def test_gptq_decoder_in_activation_order_with_a_tied_head(tmp_path: Path) -> None:
    model = decoders.write_gptq(tmp_path / "m", decoders.Sizes(layers=1), act_order=True, tied=True)
    check(loaded(tmp_path / "m", tmp_path, context_length=80), model, PROMPT)


@pytest.mark.slow
@pytest.mark.parametrize("act_order", [False, True])
def test_gptq_decoder(act_order: bool, tmp_path: Path) -> None:
    model = decoders.write_gptq(tmp_path / "m", decoders.Sizes(), act_order=act_order)
    check(loaded(tmp_path / "m", tmp_path), model, PROMPT)


@pytest.mark.slow
def test_decoder_on_vulkan(lavapipe: str, tmp_path: Path) -> None:
    """Attention sums over a sequence of dynamic length."""
    model = decoders.write_gguf(tmp_path / "m.gguf", decoders.Sizes(layers=1))
    check(loaded(tmp_path / "m.gguf", tmp_path, lavapipe), model, PROMPT)


@pytest.mark.sweep(slow=40)
@pytest.mark.slow
@pytest.mark.parametrize("stored", ["keep", "mapped", "baked"])
@pytest.mark.parametrize("container", ["gguf", "gptq"])
def test_decoder_of_a_hundred_million_parameters(container: str, stored: str, tmp_path: Path) -> None:
    if container == "gguf":
        path = tmp_path / "m.gguf"
        model = decoders.write_gguf(path, decoders.LARGE)
    else:
        path = tmp_path / "m"
        model = decoders.write_gptq(path, decoders.LARGE, act_order=True)
    opened = qmlir.checkpoint.open(path)
    assert sum(np.prod(opened.shape(n)) for n in opened) > 95e6
    prompt = np.random.default_rng(1).integers(0, decoders.LARGE.vocabulary, 16).tolist()
    check(loaded(path, tmp_path, keep=stored == "keep", mapped=stored == "mapped"), model, prompt)


# ------------------------------------------------------------------------------------------------- linear layers


def test_linear_layer_with_a_bias(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    codes, scales, zeros = rng.integers(0, 16, (64, 48)), rng.random((2, 48)), rng.integers(0, 16, (2, 48))
    tensors = {**w.awq_layer("a", codes, scales, zeros), "a.bias": rng.random(48).astype(np.float16)}
    model = qmlir.checkpoint.open(w.write_folder(tmp_path, tensors, w.awq_config()))
    qmlir.importing.linear(model, "a.weight").save(tmp_path / "l.mlir", tmp_path / "l.safetensors")
    files = {"model": str(tmp_path / "l.safetensors")}
    program = qmlir.load(qmlir.compile(tmp_path / "l.mlir", parameters=files))
    x = rng.standard_normal((3, 64)).astype(np.float32)
    real = w.awq_real(codes, scales.astype(np.float16), zeros)
    np.testing.assert_allclose(program.main(x), x @ real.T + tensors["a.bias"], rtol=1e-4, atol=1e-4)


TOKEN = {"num_bits": 8, "strategy": "token", "dynamic": True}
TENSOR = {"num_bits": 8, "strategy": "tensor"}


def quantised_layer(folder: Path, inputs: dict[str, Any], dtype: Any = np.int8, **more: Any) -> Any:
    """A checkpoint of one 8-bit layer, whose input is quantised too."""
    rng = np.random.default_rng(3)
    codes = (rng.standard_normal((48, 64)) * 40).astype(dtype)
    kind = "int" if dtype is np.int8 else "float"
    said = w.ct_config(
        f"{kind}-quantized", {"num_bits": 8, "strategy": "channel", "type": kind}, {**inputs, "type": kind}
    )
    tensors = {"a.weight": codes, "a.weight_scale": rng.random((48, 1)).astype(np.float32)}
    tensors |= {f"a.{name}": value for name, value in more.items()}
    return qmlir.checkpoint.open(w.write_folder(folder, tensors, said))


def run_quantised(model: Any, folder: Path, x: Any) -> tuple[Any, Any]:
    """The result of the imported layer, and the dtypes of its product."""
    qmlir.importing.linear(model, "a.weight", quantize_activations=True).save(
        folder / "l.mlir", folder / "l.safetensors"
    )
    artifact = qmlir.compile(folder / "l.mlir", parameters={"model": str(folder / "l.safetensors")})
    return qmlir.load(artifact).main(x), [(s["lhs"], s["rhs"]) for s in artifact.manifest.schemes]


X = np.random.default_rng(4).standard_normal((5, 64)).astype(np.float32)


def test_linear_layer_with_quantised_activations_is_a_product_of_codes(tmp_path: Path) -> None:
    model = quantised_layer(tmp_path, TOKEN)
    got, dtypes = run_quantised(model, tmp_path, X)
    assert dtypes == [("i8", "i8")]
    q, s, _ = qmlir.reference.dynamic_quantize(X, recipe="torchao")
    expected = qmlir.reference.scaled_matmul(q, lhs_scale=s, **model["a.weight"])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_linear_layer_whose_input_is_quantised_by_token(kind: str, tmp_path: Path) -> None:
    decoders.write_gguf(tmp_path / "m.gguf", decoders.Sizes(layers=1), kind)
    model, name = qmlir.checkpoint.open(tmp_path / "m.gguf"), "blk.0.ffn_up.weight"
    qmlir.importing.linear(model, name, quantize_activations="token").save(
        tmp_path / "l.mlir", tmp_path / "l.safetensors"
    )
    artifact = qmlir.compile(tmp_path / "l.mlir", parameters={"model": str(tmp_path / "l.safetensors")})
    assert [s["lhs"] for s in artifact.manifest.schemes] == ["i8"]
    q, s, _ = qmlir.reference.dynamic_quantize(X, recipe="torchao")
    expected = qmlir.reference.scaled_matmul(q, lhs_scale=s, **model[name])
    np.testing.assert_allclose(qmlir.load(artifact).main(X), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_decoder_with_quantised_inputs_says_nearly_what_the_model_says(tmp_path: Path) -> None:
    model = decoders.write_gguf(tmp_path / "m.gguf", decoders.Sizes(layers=1))
    program = loaded(tmp_path / "m.gguf", tmp_path, quantize_activations="token")
    tokens, logits = decoders.greedy(program.prefill, program.decode, PROMPT, 8)
    exact = model.logits([*PROMPT, *tokens[:-1]])[len(PROMPT) - 1 :]
    got = np.stack(logits)
    cosine = (got * exact).sum(-1) / np.linalg.norm(got, axis=-1) / np.linalg.norm(exact, axis=-1)
    assert cosine.min() > 0.999
    assert np.abs(got - exact).max() > 1e-3  # the inputs are quantised


@pytest.mark.slow
@pytest.mark.parametrize("symmetric", [True, False])
def test_linear_layer_with_static_activations(symmetric: bool, tmp_path: Path) -> None:
    more: dict[str, Any] = {"input_scale": np.float32([0.03])}
    told: dict[str, Any] = {"lhs_scale": np.float32(0.03)}
    if not symmetric:
        more["input_zero_point"] = np.int8([5])
        told |= {"lhs_zero_point": np.int32(5), "lhs_zero_mode": "int"}
    model = quantised_layer(tmp_path, {**TENSOR, "symmetric": symmetric}, **more)
    got, _ = run_quantised(model, tmp_path, X)
    q = qmlir.reference.quantize(X, np.float32(0.03), None if symmetric else np.int32(5))
    np.testing.assert_array_equal(got, qmlir.reference.scaled_matmul(q, **told, **model["a.weight"]))


@pytest.mark.slow
def test_linear_layer_of_float8(tmp_path: Path) -> None:
    model = quantised_layer(tmp_path, TOKEN, ml_dtypes.float8_e4m3fn)
    got, dtypes = run_quantised(model, tmp_path, X)
    assert dtypes == [("e4m3", "e4m3")]
    real = X @ model["a.weight"].dequantize().T
    assert np.abs(got - real).max() < 0.05 * np.abs(real).max()  # 3 bits of mantissa


def test_float8_activations_with_a_scale_of_their_own(tmp_path: Path) -> None:
    model = quantised_layer(tmp_path, TENSOR, ml_dtypes.float8_e4m3fn, input_scale=np.float32([0.03]))
    with pytest.raises(
        CheckpointError, match=r"the input of 'a.weight' is e4m3 with a scale of its own; known: i8, and"
    ):
        qmlir.importing.linear(model, "a.weight", quantize_activations=True)


def test_input_scales_that_are_several(tmp_path: Path) -> None:
    """Regression: the error was numpy's, from a reshape."""
    model = quantised_layer(tmp_path, TENSOR, input_scale=np.float32([0.03, 0.03]))
    with pytest.raises(CheckpointError, match=r"'a.input_scale' has shape \[2\], but must be one number"):
        model["a.weight"]


@pytest.mark.parametrize("kind", ["int", "float"])
def test_embeddings_with_scales_of_blocks(kind: str, tmp_path: Path) -> None:
    """Regression: rows got the scales of other rows, or scales read beyond their end; rows of one-byte floats were
    refused with "dtype='f32' is not known"."""
    rng = np.random.default_rng(7)
    codes = (rng.standard_normal((48, 64)) * 40).astype(np.int8 if kind == "int" else ml_dtypes.float8_e4m3fn)
    said = w.ct_config(f"{kind}-quantized", {"num_bits": 8, "type": kind, "strategy": "block",
                                             "block_structure": [32, 32]})  # fmt: skip
    tensors = {"a.weight": codes, "a.weight_scale": rng.random((2, 2)).astype(np.float32)}
    weight = qmlir.checkpoint.open(w.write_folder(tmp_path, tensors, said)).quantized("a.weight")
    with context():
        module = ir.Module.create()
        parameters, dynamic = ParameterGlobals(module), ir.ShapedType.get_dynamic_size()
        with ir.InsertionPoint(module.body):
            ids = ir.RankedTensorType.get([dynamic], ir.IntegerType.get_signless(32))
            f = func.FuncOp("main", ([ids], [ir.RankedTensorType.get([dynamic, 64], ir.F32Type.get())]))
        with ir.InsertionPoint(f.add_entry_block()):
            func.ReturnOp([rows(f.arguments[0], "a.weight", weight, parameters)])
        imported = Imported(str(module), parameters.arrays)
    imported.save(tmp_path / "e.mlir", tmp_path / "e.safetensors")
    artifact = qmlir.compile(tmp_path / "e.mlir", parameters={"model": str(tmp_path / "e.safetensors")})
    at = np.array([0, 40, 31, 47, 5], np.int32)
    np.testing.assert_array_equal(qmlir.load(artifact).main(at), weight.dequantize()[at])


# ------------------------------------------------------------------------------------------------------ refusals


def test_names_that_differ_in_punctuation_are_two_parameters() -> None:
    with context():
        module = ir.Module.create()
        parameters = ParameterGlobals(module)
        f32 = ir.RankedTensorType.get([2], ir.F32Type.get())
        with ir.InsertionPoint(module.body):
            f = func.FuncOp("main", ([], [f32, f32]))
        with ir.InsertionPoint(f.add_entry_block()):
            loads = [parameters.load(key, np.zeros(2, np.float32))[0] for key in ("a.b", "a_b")]
            func.ReturnOp(loads)
        assert module.operation.verify()
        assert len({v.owner.attributes["global"].value for v in loads}) == 2


def hf(folder: Path, **change: Any) -> Path:
    decoders.write_gptq(folder, decoders.Sizes(layers=1))
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**said, **change}))
    return folder


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"model_type": "gpt2"}, "the architecture 'gpt2' .model_type. is not supported; supported are llama"),
        ({"model_type": "qwen3"}, "the architecture 'qwen3' .* is not supported; supported are .*qwen2"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; known: 'silu'"),
        ({"sliding_window": 4096}, "sliding_window is 4096; known: null"),
        ({"model_type": "mistral"}, "sliding_window is not stated, which means 4096; known: null"),
        ({"model_type": "mistral", "sliding_window": 64, "use_sliding_window": False}, "sliding_window is 64; known"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_type is 'yarn'; known: default, linear, llama3"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "the factor of rope_scaling is 0"),
        ({"num_hidden_layers": 2}, "has no tensor 'model.layers.1.input_layernorm.weight'; did you mean"),
        ({"num_hidden_layers": "1"}, "num_hidden_layers is '1', which must be an integer"),
        ({"num_hidden_layers": -1}, "the configuration says layers = -1"),
        ({"num_attention_heads": 0}, "the configuration says heads = 0"),
        ({"num_key_value_heads": 3}, "4 query heads do not share 3 key heads evenly"),
        ({"vocab_size": 98}, r"'model.embed_tokens.weight' has shape \[97, 64\], but the configuration gives \[98"),
        ({"head_dim": 15}, "RoPE turns 15 of 15 numbers of a head"),
        ({"rope_theta": -1.0}, "rope_theta is -1.0"),
        ({"rms_norm_eps": None, "intermediate_size": 128}, r"tensor 'model.layers.0.mlp.gate_proj.weight' has shape"),
    ],
)  # fmt: skip
def test_models_that_are_not_imported(change: Any, match: str, tmp_path: Path) -> None:
    model = qmlir.checkpoint.open(hf(tmp_path, **change))
    with pytest.raises(CheckpointError, match=match):
        qmlir.importing.decoder(model)


def test_rope_of_gguf_is_scaled_as_llama_cpp_scales_it() -> None:
    """Regression: a factor without a type, which llama.cpp takes as linear, was ignored. So were the factor under the
    key of older converters, and other keys that change the attention."""
    said = {"general.architecture": "llama", "llama.attention.head_count": 4, "llama.embedding_length": 64,
            "llama.block_count": 1, "llama.feed_forward_length": 96, "llama.vocab_size": 97}  # fmt: skip

    def made(**more: Any) -> Any:
        more = {f"llama.{name.replace('__', '.')}": value for name, value in more.items()}
        return config_of(Checkpoint(Path("m.gguf"), "gguf", {**said, **more}, {})).inverse_frequencies

    plain = made()
    for quarter in (
        {"rope__scaling__factor": 4.0}, {"rope__scale_linear": 4.0},
        {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0},
    ):  # fmt: skip
        np.testing.assert_array_equal(made(**quarter), plain / 4)
    np.testing.assert_array_equal(made(rope__scaling__type="none", rope__scaling__factor=4.0), plain)
    np.testing.assert_array_equal(made(rope__scaling__type="linear"), plain)
    for change, match in (
        ({"rope__scaling__attn_factor": 0.5}, "attn_factor, which scales what RoPE turns, is not known"),
        ({"attention__causal": False}, "llama.attention.causal is false; known: attention to all that came before"),
    ):
        with pytest.raises(CheckpointError, match=match):
            made(**change)


def test_llama3_frequencies_are_those_of_its_paper() -> None:
    """Low frequencies are divided by the factor, high ones are kept, and those between lie between these bounds."""
    from qmlir.importing.config import _frequencies, _scaled

    plain = _frequencies(500000.0, 128)
    said = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}  # fmt: skip
    scaled = _scaled(plain, said, "config.json")
    wavelength = 2 * np.pi / plain
    np.testing.assert_allclose(scaled[wavelength < 8192 / 4], plain[wavelength < 8192 / 4])
    np.testing.assert_allclose(scaled[wavelength > 8192], plain[wavelength > 8192] / 8)
    assert (np.diff(scaled) < 0).all()


def test_linear_layers_that_are_not_imported(tmp_path: Path) -> None:
    model = qmlir.checkpoint.open(hf(tmp_path))
    with pytest.raises(CheckpointError, match=r"has no tensor 'q_proj'"):
        qmlir.importing.linear(model, "q_proj")
    with pytest.raises(UsageError, match=r"'model.norm.weight' has shape \[64\]; a linear layer's weight is a matrix"):
        qmlir.importing.linear(model, "model.norm.weight")
    with pytest.raises(UsageError, match=r"'lm_head.weight' is not quantised, so that its input cannot be either"):
        qmlir.importing.linear(model, "lm_head.weight", quantize_activations="token")
    name = "model.layers.0.mlp.up_proj.weight"
    with pytest.raises(UsageError, match=f"does not say how the input of '{name}' is quantised; 'token' quantises it"):
        qmlir.importing.linear(model, name, quantize_activations=True)
    with pytest.raises(UsageError, match=r"parameters go to a .safetensors file"):
        qmlir.importing.linear(model, "lm_head.weight").save(tmp_path / "x.mlir", tmp_path / "x.irpa")


# ------------------------------------------------------------------------------------------------ the command line


def test_import_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decoders.write_gguf(tmp_path / "m.gguf", replace(decoders.Sizes(), layers=1))
    path = str(tmp_path / "m.gguf")
    assert main(["import", path, "--list"]) == 0
    assert "blk.0.attn_q.weight: Q4_0 64x64" in capsys.readouterr().out.splitlines()
    out = str(tmp_path / "l.mlir")
    assert main(["import", path, "--linear", "blk.0.ffn_up.weight", "-o", out]) == 0
    told = capsys.readouterr().out
    assert f"qmlir compile {out} --parameters model={tmp_path / 'l.safetensors'}" in told
    assert main(["import", path, "-o", str(tmp_path / "d.mlir"), "--context-length", "32", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tensors"] > 10
    assert "tensor<32x2x16xf32>" in (tmp_path / "d.mlir").read_text()
    for words, match in (
        (["--linear", "nothing"], "has no tensor 'nothing'"),
        (["--linear", "blk.0.ffn_up.weight", "--context-length", "5"], "--context-length applies to decoders"),
        (["-o", str(tmp_path / "missing" / "x.mlir")], "there is no folder"),
    ):
        assert main(["import", path, *words]) == 1
        assert match in capsys.readouterr().err
    folder = hf(tmp_path / "hf")
    assert main(["import", str(folder), "-o", str(folder / "model.mlir")]) == 1
    assert "model.safetensors is the checkpoint itself; choose another name" in capsys.readouterr().err
    assert os.listdir(folder).count("model.mlir") == 0
