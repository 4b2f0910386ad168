"""A server for the tools of lit files: it imports them once and forks for each run, instead of another Python that
imports IREE's bindings. `python lit_server.py SOCKET FOLDER` writes one small client for each tool into FOLDER.

A fork has the arguments, working directory, environment and three standard streams of its client, so that a lit file
sees no difference. test/robustness/test_command.py, and lit without this server, test the start of real processes.
"""

from __future__ import annotations

import importlib
import os
import selectors
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

_TOOLS = {
    "lit": "lit.main",
    "filecheck": "filecheck.main",
    "qmlir": "qmlir.cli",
    "qmlir-opt": "qmlir.cli.opt",
}

# Without `site`, which the client does not need, the interpreter starts in a quarter of the time.
_CLIENT = """\
#!{python} -SEI
import _socket, array, os, sys
s = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
s.connect({socket!r})
words = [{tool!r}, os.getcwd(), str(len(sys.argv) - 1), *sys.argv[1:], *map("=".join, os.environ.items())]
data = os.fsencode("\\0".join(words))
s.sendmsg([len(data).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
while data:
    data = data[s.send(data):]
code = s.recv(1)
os._exit(code[0] if code else 1)
"""


def _imported() -> None:
    """Import the modules that the tools import when they need them."""
    from qmlir.passes.registry import PASSES, pass_class

    for name in PASSES:
        pass_class(name)
    for name in (
        "qmlir.compiler.parsing",
        "qmlir.passes.pipeline",
        "iree.compiler.dialects.linalg.opdsl.ops.core_named_ops",
    ):
        importlib.import_module(name)


def _received(connection: socket.socket) -> tuple[list[str], list[int]]:
    """Return the words and the streams of one request."""
    head, streams, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as file:
        return os.fsdecode(file.read(int.from_bytes(head, "big"))).split("\0"), streams


def _run(main: Callable[[], object], words: list[str], streams: list[int]) -> int:
    """Run one tool, in its own fork. Returns the exit code."""
    tool, folder, count, *rest = words
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode, closefd=False) for n, mode in enumerate("rww"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(word.partition("=")[::2] for word in rest[int(count) :])
    sys.argv = [tool, *rest[: int(count)]]
    tempfile.tempdir = None
    code: object = 1
    try:
        code = main()
    except SystemExit as e:
        code = e.code
    except BaseException:
        traceback.print_exc()
    if isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


def serve(name: str, folder: Path) -> None:
    """Serve until standard input is closed, which is when the process that started the server ends."""
    mains = {tool: importlib.import_module(module).main for tool, module in _TOOLS.items()}
    _imported()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen()
    for tool in _TOOLS:
        (folder / tool).write_text(_CLIENT.format(python=sys.executable, socket=name, tool=tool))
        (folder / tool).chmod(0o755)
    print("ready", flush=True)
    wait = selectors.DefaultSelector()
    wait.register(listener, selectors.EVENT_READ)
    wait.register(0, selectors.EVENT_READ)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while all(key.fileobj is listener for key, _ in wait.select()):
        connection, _ = listener.accept()
        # One fork waits for the tool and sends its exit code; the server continues at once.
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.close()
        wait.close()
        words, streams = _received(connection)
        pid = os.fork()
        if not pid:
            connection.close()
            os._exit(_run(mains[words[0]], words, streams))
        for stream in streams:
            os.close(stream)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection.sendall(bytes([code if code >= 0 else 128 - code]))
        os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
