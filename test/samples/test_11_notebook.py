"""The notebook runs from its first cell to its last, and shows the pictures and tables that its text mentions."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "samples" / "11_notebook" / "torch_to_tuned.ipynb"


def test_it_is_kept_without_outputs() -> None:
    import nbformat

    notebook = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)


@pytest.mark.slow
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from jupyter_client.kernelspec import KernelSpecManager
    from nbclient import NotebookClient

    # The kernel is this interpreter, whatever is installed for the user.
    kernel = tmp_path / "kernels" / "python3"
    kernel.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(
        f'{{"argv": {argv!r}, "display_name": "p", "language": "python"}}'.replace("'", '"')
    )
    monkeypatch.setattr(KernelSpecManager, "kernel_dirs", [str(tmp_path / "kernels")])
    notebook = nbformat.read(NOTEBOOK, 4)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [o["data"]["image/png"] for o in shown if "image/png" in o.get("data", {})]
    assert len(pictures) == 2
    for number, picture in enumerate(pictures):
        (tmp_path / f"{number}.png").write_bytes(base64.b64decode(picture))
    tables = [o["data"]["text/html"] for o in shown if "text/html" in o.get("data", {})]
    assert len(tables) == 4, "the artifact, the explanation, the measurement, the tuning"
    assert nbformat.writes(notebook)
