"""Opens a GGUF file, lists its tensors, compiles its linear layers and compares them with the reference.

    python samples/09_checkpoint/run.py
    python samples/09_checkpoint/run.py --target vulkan:lavapipe

Needs the package gguf (`pip install 'qmlir[checkpoint]'`), which writes a small model here. A real model is opened the
same way, and `qmlir import model.gguf` makes a program of the whole model. Prints a table; exits with 1 when a product
is wrong.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from report import Report, target_option, terms

import qmlir

IN, OUT = 512, 768
TYPES = ("Q4_0", "Q8_0", "MXFP4")


def write_model(path: Path) -> None:
    """Write three layers of random weights, each in a different GGUF format, and a norm."""
    import gguf

    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    for i, name in enumerate(TYPES):
        kind = gguf.GGMLQuantizationType[name]
        weight = (rng.standard_normal((OUT, IN)) / np.sqrt(IN)).astype(np.float32)
        writer.add_tensor(f"blk.{i}.ffn_up.weight", gguf.quants.quantize(weight, kind), raw_dtype=kind)
    writer.add_tensor("output_norm.weight", np.ones(IN, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> int:
    """The sample; returns the exit code."""
    target = target_option(__doc__)
    report = Report("Linear layers of a GGUF file", target)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_model(path)
        model = qmlir.checkpoint.open(path)
        for name in model:
            value = model[name]
            what = value if isinstance(value, qmlir.checkpoint.QuantizedWeight) else f"{value.dtype}, not quantised"
            print(f"{name}: {model.kind(name)}: {what}")
        x = np.random.default_rng(1).standard_normal((4, IN)).astype(np.float32)
        for i, kind in enumerate(TYPES):
            name = f"blk.{i}.ffn_up.weight"
            program, weights = Path(folder) / f"{i}.mlir", Path(folder) / f"{i}.safetensors"
            qmlir.importing.linear(model, name).save(program, weights)
            layer = qmlir.load(qmlir.compile(program, target=target, parameters={"model": str(weights)})).main
            real = model.quantized(name).dequantize()
            expected = x.astype(np.float64) @ real.T
            report.close(kind, f"f32[4, {IN}] x {kind}[{OUT}, {IN}]", lambda f=layer: f(x), expected, terms(x, real))
        return report.finish()


if __name__ == "__main__":
    sys.exit(main())
