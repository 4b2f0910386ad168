"""Files that are not sources: the message says what they are, and which command or function takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

import qmlir
from qmlir.errors import ParseError, TargetError, UsageError


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.gguf", "holds weights and no program; `qmlir import` makes a program"),
        ("model.safetensors", "holds weights and no program; `qmlir import` makes a program"),
        ("model.vmfb", "is compiled already; `qmlir run` and qmlir.load take it"),
        ("model.tflite", "is a TensorFlow Lite model, for which there is no front end"),
        ("model.bin", "is not MLIR text"),
    ],
)
def test_other_files_are_refused_by_what_they_are(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\xff\xfe\x00data")
    with pytest.raises(ParseError, match=rf"{name}:1:1: error: the file {message}"):
        qmlir.compile(tmp_path / name)


def test_a_torch_module_is_to_be_exported() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(UsageError, match=r"torch module \(Linear\) before it is exported: give torch.export.export"):
        qmlir.compile(torch.nn.Linear(2, 2))


def test_what_is_not_compiled_is_not_loaded() -> None:
    """Regression: pathlib raised a TypeError."""
    for wrong in (b"bytes", object(), None):
        with pytest.raises(
            UsageError, match=r"cannot load a builtins.*; give the path of a .vmfb, or what qmlir.compile"
        ):
            qmlir.load(wrong)  # type: ignore[arg-type]


def test_a_text_is_no_list_of_flags_and_a_target_is_a_text() -> None:
    with pytest.raises(UsageError, match=r"flags holds '-', which is not a flag: flags=\['--iree-opt-level=O3'\]"):
        qmlir.compile("func.func @main() { return }\n", flags="--iree-opt-level=O3")
    with pytest.raises(TargetError, match="a target is a text, such as 'rocm:gfx942', not None"):
        qmlir.compile("func.func @main() { return }\n", target=None)  # type: ignore[arg-type]
