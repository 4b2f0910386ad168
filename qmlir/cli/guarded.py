"""Error handling of the commands: one message on stderr and an exit code, never a traceback."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import TextIO

from .. import settings
from ..errors import QmlirError


def guarded(body: Callable[[], int], program: str) -> int:
    """Run `body` and turn errors into messages and exit codes."""
    shown = warnings.showwarning

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
        line: str | None = None,
    ) -> None:  # fmt: skip
        """Print a deprecation in the form of the command's messages."""
        if issubclass(category, DeprecationWarning):
            print(f"{program}: note: {message}", file=sys.stderr)
        else:
            shown(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        return body()
    except QmlirError as e:
        print(f"{program}: {_prefixed(str(e))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1
    except OSError as e:
        # A full disk, a name that is too long: the system's errors about files are for the user to fix.
        name = f"{e.filename}: " if e.filename is not None else ""
        print(f"{program}: error: {name}{e.strerror or e}", file=sys.stderr)
        return 1
    except MemoryError:
        print(f"{program}: error: out of memory", file=sys.stderr)
        return 1
    except ModuleNotFoundError as e:
        print(f"{program}: {_missing(e)}", file=sys.stderr)
        return 1
    except Exception as e:
        print(f"{program}: {_internal(e)}", file=sys.stderr)
        return 1
    finally:
        warnings.showwarning = shown


def _missing(e: ModuleNotFoundError) -> str:
    """The message for a missing package, for instance if the wheel was installed without its dependencies."""
    package = (e.name or "").partition(".")[0]
    if package in ("", "qmlir") or package in sys.stdlib_module_names:
        return _internal(e)
    return f"error: this needs the package {package}, which is not installed: pip install {package}"


def _internal(e: Exception) -> str:
    """The message for a defect of qmlir: one line, with the traceback in a file for a bug report."""
    import tempfile
    import traceback

    folder = settings.reproducer_folder()
    folder.mkdir(parents=True, exist_ok=True)
    handle, path = tempfile.mkstemp(prefix="qmlir-internal-", suffix=".log", dir=folder)
    with open(handle, "w") as f:
        f.write("".join(traceback.format_exception(e)))
    return f"error: internal error ({type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}); details: {path}"


def _prefixed(text: str) -> str:
    """`error: ...`, unless the message already has a location and that word."""
    return text if ": error: " in text.splitlines()[0] else f"error: {text}"
