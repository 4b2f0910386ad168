"""f32 text models that torch exports to ONNX, with dynamic batch and sequence: qmlir against onnxruntime, on one thread
each, in alternating bursts of calls.

    python -m benchmarks.sequences [--only bert] [--sizes 1x13,1x128,4x77] [--layers 2] [--rounds 15]

Weights are random: a BERT with 12 heads of 64, and a Llama with 12 query heads that share 4 key-value heads. Times are
milliseconds: the median, and the fastest call, which other processes disturb less. Needs transformers, onnxscript and
onnxruntime.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("QMLIR_THREADS", "1")

import numpy as np

from benchmarks.harness import race

_COMMON = {"vocab_size": 1000, "hidden_size": 768, "num_attention_heads": 12, "max_position_embeddings": 512,
           "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
MODELS: dict[str, tuple[str, str, dict[str, int]]] = {
    "bert": ("bert", "AutoModel", {**_COMMON, "intermediate_size": 3072}),
    "llama": ("llama", "AutoModelForCausalLM", {**_COMMON, "intermediate_size": 2048, "num_key_value_heads": 4}),
}


def exported(name: str, layers: int, file: Path) -> None:
    """Writes the model `name` as an ONNX file."""
    import torch

    from benchmarks.models.architectures import Outputs, library

    transformers = library("transformers")
    kind, auto, settings = MODELS[name]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, num_hidden_layers=layers, **settings)
    model = getattr(transformers, auto).from_config(config).eval()
    causal = auto == "AutoModelForCausalLM"
    result, options = ("logits", {"use_cache": False}) if causal else ("last_hidden_state", {})
    inputs = ("input_ids", "attention_mask")
    dynamic = torch.export.Dim.DYNAMIC
    args = (torch.ones(2, 12, dtype=torch.int64), torch.ones(2, 12, dtype=torch.int64))
    with torch.no_grad():
        made = torch.onnx.export(
            Outputs(model, inputs, result, options), args, dynamo=True, input_names=list(inputs),
            dynamic_shapes=(tuple({0: dynamic, 1: dynamic} for _ in args),), verbose=False,
        )  # fmt: skip
    made.save(str(file))


def measured(file: Path, sizes: Sequence[tuple[int, int]], rounds: int) -> list[str]:
    """One line of times for each (batch, sequence length)."""
    import qmlir
    from qmlir.checking.onnxruntime import session

    ours, theirs = qmlir.load(qmlir.compile(str(file))).main, session(file, threads=1)
    names = [i.name for i in theirs.get_inputs()]
    rng, lines = np.random.default_rng(0), []
    for batch, length in sizes:
        mask = np.ones((batch, length), np.int64)
        mask[1:, length - length // 3 :] = 0
        ids = rng.integers(3, 1000, (batch, length))
        given = [mask if "mask" in name else ids for name in names]

        def run(given: Sequence[Any] = given) -> Any:
            return theirs.run(None, dict(zip(names, given, strict=True)))[0]

        apart = float(np.abs(np.asarray(ours(*given)) - run()).max())
        found = race({"qmlir": lambda given=given: ours(*given), "onnxruntime": run}, rounds)
        text = ", ".join(f"{n} {t.median() * 1e3:.2f} (fastest {min(t.all()) * 1e3:.2f})" for n, t in found.items())
        ratio = found["qmlir"].ratio(found["onnxruntime"])["median"]
        lines.append(f"{batch}x{length}: {text}; ratio {ratio:.2f}, largest difference {apart:.1e}")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(MODELS))
    parser.add_argument("--sizes", default="1x1,1x13,1x128,4x77")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args(argv)
    sizes = [(int(b), int(s)) for b, s in (each.split("x") for each in args.sizes.split(","))]
    with tempfile.TemporaryDirectory() as folder:
        for name in [args.only] if args.only else MODELS:
            file = Path(folder) / f"{name}.onnx"
            exported(name, args.layers, file)
            for line in measured(file, sizes, args.rounds):
                print(name, line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
