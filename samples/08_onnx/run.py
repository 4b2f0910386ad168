"""A convolutional network from ONNX: trained on scikit-learn's digits, quantised by onnxruntime's static quantiser in
both of its formats, compiled, and compared with onnxruntime on every image.

    pip install "qmlir[onnx]" onnxruntime scikit-learn
    python samples/08_onnx/run.py                              # this machine's CPU
    python samples/08_onnx/run.py --target vulkan:lavapipe     # Mesa's software Vulkan device

Prints what the quantised operators became, the accuracy, and whether the predictions are the same. Exits with 1
when a prediction differs, an operator is left, or the accuracy is below 96 %.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import train
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import qmlir

REQUIRED_ACCURACY = 0.96
# Format, type of the activations; weights are int8, one scale per filter.
FORMS = (("QDQ", "QUInt8"), ("QOperator", "QUInt8"), ("QDQ", "QInt8"))


class Batches(CalibrationDataReader):  # type: ignore[misc]
    """Digits to calibrate with."""

    def __init__(self, images: train.Array) -> None:
        self._rest: Iterator[train.Array] = iter(images[i : i + 64] for i in range(0, 512, 64))

    def get_next(self) -> dict[str, train.Array] | None:
        batch = next(self._rest, None)
        return None if batch is None else {"image": batch}


def quantised(model: Path, images: train.Array, form: str, activations: str) -> Path:
    """The model quantised by onnxruntime, in a file next to it."""
    path = model.with_name(f"digits_{form}_{activations}.onnx")
    logging.disable(logging.WARNING)  # it recommends a preprocessing that this small model does not need
    quantize_static(str(model), str(path), Batches(images), quant_format=QuantFormat[form], per_channel=True,
                    activation_type=QuantType[activations], weight_type=QuantType.QInt8)  # fmt: skip
    return path


def peer(path: Path, images: train.Array) -> Any:
    """The logits of onnxruntime."""
    return onnxruntime.InferenceSession(str(path)).run(None, {"image": images})[0]


def main() -> int:
    """The sample; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu", help="what to compile for (default: cpu)")
    target: str = parser.parse_args().target
    images, labels, held_out, held_out_labels = train.digits()
    every = np.concatenate([images, held_out])
    network = train.train(images, labels)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "digits.onnx"
        onnx.save(train.to_onnx(network), model)
        accuracy = float(np.mean(peer(model, held_out).argmax(1) == held_out_labels))
        print(f"float: accuracy {accuracy:.2%} on {len(held_out)} held-out digits")
        for form, activations in FORMS:
            path = quantised(model, images, form, activations)
            artifact = qmlir.compile(path, target=target)
            report = artifact.import_report
            assert report is not None
            logits, theirs = np.asarray(qmlir.load(artifact).main(every)), peer(path, every)
            same = int(np.sum(logits.argmax(1) == theirs.argmax(1)))
            accuracy = float(np.mean(logits[len(images) :].argmax(1) == held_out_labels))
            became = Counter(e["became"] for e in report["raised"])
            print(f"{form} {activations}: accuracy {accuracy:.2%}, same prediction as onnxruntime on {same} of "
                  f"{len(every)} digits, logits equal on {int(np.sum((logits == theirs).all(1)))}")  # fmt: skip
            print(f"  {len(report['raised'])} operators raised ({', '.join(f'{n} {k}' for k, n in became.items())}), "
                  f"{len(report['fused'])} fused into another, {len(report['left'])} left")  # fmt: skip
            if same != len(every) or accuracy < REQUIRED_ACCURACY or report["left"]:
                wrong += 1
    if wrong:
        print(f"{wrong} of {len(FORMS)} models are not as they should be", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
