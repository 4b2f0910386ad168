"""Compiles the digits model and classifies the held-out digits.

    python samples/01_digits/run.py                              # this machine's CPU
    python samples/01_digits/run.py --target vulkan:lavapipe     # Mesa's software Vulkan device

Prints the accuracy and the time per image. Exits with 1 when the accuracy is below 97 %.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dataset
import numpy as np
from safetensors import safe_open

sys.path.append(str(Path(__file__).resolve().parent.parent))
from report import median_seconds

import qmlir

HERE = Path(__file__).resolve().parent
WEIGHTS = HERE / "digits.safetensors"
REQUIRED_ACCURACY = 0.97


def compile_model(target: str, out: Path) -> float:
    """Compiles `digits.mlir` for `target` with the command line; returns the seconds that it took."""
    command = [sys.executable, "-m", "qmlir", "compile", str(HERE / "digits.mlir")]
    command += ["--parameters", f"digits={WEIGHTS}", "--target", target, "-o", str(out)]
    start = time.perf_counter()
    done = subprocess.run(command, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return time.perf_counter() - start


def main() -> int:
    """The sample; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu", help="what to compile for (default: cpu)")
    parser.add_argument("-o", "--output", type=Path, help="keep the compiled program in this file")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as scratch:
        vmfb = arguments.output or Path(scratch) / "digits.vmfb"
        seconds = compile_model(arguments.target, vmfb)
        print(f"compiled for {arguments.target} in {seconds:.1f} s: {vmfb.stat().st_size / 1024:.0f} KiB")
        program = qmlir.load(vmfb)

    _, held_out = dataset.load()
    images = dataset.encode(held_out.images)
    correct = int(np.sum(np.asarray(program.main(images)).argmax(1) == held_out.labels))
    accuracy = correct / len(images)

    with safe_open(WEIGHTS, framework="np") as file:
        trained = json.loads(file.metadata()["evaluation"])
    print(f"accuracy on {len(images)} held-out digits: {accuracy:.2%} in int8 ({correct} right)", end="")
    print(f", {trained['float_accuracy']:.2%} for the float model it was quantised from")

    one = median_seconds(lambda: program.main(images[:1]))
    batch = median_seconds(lambda: program.main(images)) / len(images)
    print(f"time per image: {one * 1e6:.0f} us one by one, {batch * 1e6:.1f} us in a batch of {len(images)}")

    if accuracy < REQUIRED_ACCURACY:
        print(f"the accuracy is below {REQUIRED_ACCURACY:.0%}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
