"""A file is written completely, or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from qmlir.core.files import write_atomically
from qmlir.errors import UsageError


def test_writing_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a longer content than the new one")
    assert write_atomically(path, b"new") == path
    assert path.read_bytes() == b"new"
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("step", ["fdopen", "chmod", "replace"])
def test_a_write_that_fails_changes_nothing(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"before")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(UsageError, match=r"cannot write .*f: No space left on device"):
        write_atomically(path, b"after")
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"
    (tmp_path / "circle").symlink_to("circle")
    write_atomically(tmp_path / "circle", b"new")
    assert (tmp_path / "circle").read_bytes() == b"new"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """Like /dev/null and /dev/stdout, which must not be replaced by a file."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(path, b"new")
        assert os.read(end, 16) == b"new"
    finally:
        os.close(end)
    assert path.is_fifo()
