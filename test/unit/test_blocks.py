"""Every code block of the README and the documentation is checked: the Python blocks of a page are run in order, and
commands are parsed by the command line that they name. Those of `docs/commands.md` are run to generate the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qmlir.cli import build_parser
from qmlir.cli.opt import build_parser as build_opt_parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "samples").rglob("*.md"))
# Code that runs before the blocks of a page, because the page assumes its results.
GIVEN = {
    # Its examples have to run as it says: no quantised product in floats, no part of a model eagerly.
    "README.md": (
        "import warnings\nfrom qmlir.errors import SlowFallbackWarning\n"
        "warnings.simplefilter('error', SlowFallbackWarning)\nwarnings.filterwarnings('error', '.*runs eagerly')\n"
    ),
    "docs/adding-a-pass.md": (
        "from dataclasses import dataclass\nfrom typing import ClassVar\n"
        "from qmlir.core.mlir import ir\nfrom qmlir.passes.base import Pass, State\n"
    ),
    "docs/checkpoints.md": f"""
import sys
sys.path.insert(0, {str(ROOT / "test" / "checkpoint")!r})
import numpy as np, qmlir, gguf
from gguf import GGMLQuantizationType, quants
writer = gguf.GGUFWriter("model.gguf", "llama")
data = quants.quantize(np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32), GGMLQuantizationType.Q4_0)
writer.add_tensor("blk.0.ffn_up.weight", data, raw_dtype=GGMLQuantizationType.Q4_0)
writer.write_header_to_file(); writer.write_kv_data_to_file(); writer.write_tensors_to_file(); writer.close()
x = np.ones((2, 64), np.float32)
""",
    "docs/compat.md": """
import numpy as np
rng = np.random.default_rng(0)
x, w = rng.integers(-9, 9, (4, 64), dtype=np.int8), rng.integers(-9, 9, (32, 64), dtype=np.int8)
x_scale, w_scale = np.full((4, 1), 0.1, np.float32), np.full((32, 1), 0.1, np.float32)
a, b, bias = x, w, np.zeros(32, np.int32)
f, packed, scales = np.ones((4, 128), np.float32), np.zeros((32, 64), np.uint8), np.ones((1, 32), np.float32)
h, w4 = np.ones((4, 1024), np.float16), np.ones((1024, 1024), np.int8)
""",
    "docs/deployment.md": """
import numpy as np, qmlir
spec = qmlir.TensorSpec((None, 4096), "i8")
qmlir.ops.scaled_matmul.compile(spec, np.ones((4096, 8), np.int8), out_dtype="i32").save("layer.vmfb")
""",
    "docs/torch.md": """
import torch
torch.manual_seed(0)
layers = torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)
model, x = torch.nn.Sequential(*layers).eval(), torch.randn(4, 32)
w, s = torch.ones(8, 32, dtype=torch.int8), torch.ones(8, 1)
""",
}  # fmt: skip
# Models through torch and ONNX: test/frontends tests the same functions. Of the compiled schemes one is enough.
SLOW = {"README.md", "docs/notebook.md", "docs/torch.md", "docs/compat.md", "docs/checkpoints.md"}
SLOW |= {"docs/schemes/asymmetric.md", "docs/schemes/w4a8.md"}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in BLOCK.findall(page.read_text()) if language in languages]


# The blocks of these pages raise errors; `docs/generate.py` runs them to generate the page.
RUN_ELSEWHERE = {"docs/errors.md"}


def with_python() -> Iterator[object]:
    for page in PAGES:
        name = name_of(page)
        if blocks(page, "python") and name not in RUN_ELSEWHERE:
            yield pytest.param(page, id=name, marks=[pytest.mark.slow] if name in SLOW else [])


@pytest.mark.parametrize("page", list(with_python()))
def test_python_runs(page: Path, tmp_path: Path) -> None:
    text = GIVEN.get(name_of(page), "") + "\n".join(blocks(page, "python"))
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", text], cwd=tmp_path, env=dict(os.environ),
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


def commands() -> list[tuple[str, str]]:
    """Every command line, with the page that shows it."""
    found = []
    for page in PAGES:
        lines = [
            line.removeprefix("$ ") for b in blocks(page, "console") for line in b.splitlines() if line[:2] == "$ "
        ]
        lines += [line for b in blocks(page, "sh") for line in b.splitlines()]
        found += [(name_of(page), line) for line in lines if line.strip() and not line.startswith("#")]
    return found


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_commands_exist(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    if words[0] in ("qmlir", "qmlir-opt"):
        parser = build_parser() if words[0] == "qmlir" else build_opt_parser()
        if not {"--help", "--version"} & set(words):
            parser.parse_args(words[1:])
    elif words[0] == "make":
        assert re.search(rf"^(\.PHONY:.* )?{words[1]}\b.*:|^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), line
    elif words[0] in ("python", ".venv/bin/python"):
        script = words[1] if words[1] != "-m" else words[2].replace(".", "/")
        assert (ROOT / script).exists() or (ROOT / f"{script}.py").exists() or words[2] in ("pytest", "pip"), line
    elif words[0] == "pip":
        extras = re.search(r"\[([\w,]+)\]", line)
        declared = (ROOT / "pyproject.toml").read_text()
        assert all(re.search(rf"^{e} = \[", declared, re.M) for e in (extras[1].split(",") if extras else [])), line
    else:
        assert words[0] in ("openssl", "cd", "git"), f"{page}: nothing is known of {words[0]}"


def test_mlir_of_the_pages_parses() -> None:
    """Except the pages of passes and of the pipeline, whose MLIR the compiler has printed."""
    from qmlir.compiler.parsing import parse
    from qmlir.core.mlir import context

    for name in ("docs/commands.md", "docs/refused.md"):
        for text in blocks(ROOT / name, "mlir"):
            with context():
                parse(text, "-")
