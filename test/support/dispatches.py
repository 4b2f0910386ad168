"""Count the dispatches of forms: IREE forms them without generating code, so that many forms can be counted quickly.

python test/support/dispatches.py "" rocm:gfx942 vulkan:ada      # a table of forms (whose name has the text) and rows
"""

from __future__ import annotations

import ctypes
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

if __name__ == "__main__":  # as a script
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.forms import FORMS, Form

ROWS = (1, 4, 16, 33, 128, None)


class _Formed(Exception):
    """Raised with the text of the program when its dispatches have been formed."""


def names(form: Form, target: str, m: int | None) -> list[str]:
    """Return the dispatches that a call of the form's program makes, in order, without those that run once when it is
    loaded.

    Raises:
        QmlirError: if the target refuses the form.
    """
    with warnings.catch_warnings(), _until_dispatches_are_formed():
        warnings.simplefilter("ignore")
        try:
            form.compile(target, m=m)
        except _Formed as formed:
            calls = re.split(r"\n  util\.func |\n  util\.initializer ", str(formed))
            calls = [call for call in calls if call.startswith("public")]
            return [name for call in calls for name in re.findall(r"flow\.dispatch @\w+::@(\w+)", call)]
    raise AssertionError("the program was compiled to its end")


def computing(found: list[str]) -> list[str]:
    """Leave out dispatches that only sort rows: IREE's have names that end with their types, qmlir's have `_route_`."""
    return [name for name in found if not name.endswith("_i32") and "_route_" not in name]


@contextmanager
def _until_dispatches_are_formed() -> Iterator[None]:
    from qmlir.core.cache import Cache

    with (
        mock.patch("qmlir.compiler.run.invoke", _form),
        mock.patch.object(Cache, "get_or_build", lambda self, key, build: build()),
    ):
        yield


def _form(session: Any, module: Any, *passes: Any) -> bytes:
    """IREE's pipeline up to its flow dialect."""
    from qmlir.core.mlir import api

    invocation = session.invocation()
    output = None
    set_phase = api.ctypes_dl._dylib.ireeCompilerInvocationSetCompileToPhase
    set_phase.restype, set_phase.argtypes = None, [ctypes.c_void_p, ctypes.c_char_p]
    set_phase(invocation._inv_p, b"flow")
    try:
        invocation.import_module(module.operation)
        assert invocation.execute()
        output = api.Output.open_membuffer()
        invocation.output_ir(output)
        raise _Formed(bytes(output.map_memory()).decode())
    finally:
        if output is not None:
            output.close()
        invocation.close()


def main() -> None:
    from qmlir import QmlirError

    only, *targets = sys.argv[1:]
    for target in targets:
        for form in FORMS:
            if not form.product or only not in form.name:
                continue
            row = []
            for m in ROWS:
                try:
                    found = names(form, target, m)
                    sorting = len(found) - len(computing(found))
                    row.append(f"{len(computing(found))}" + (f"+{sorting}" if sorting else ""))
                except QmlirError as e:
                    row.append(type(e).__name__[:4])
            print(f"{target:14} {form.name:55} {'  '.join(f'{x:>4}' for x in row)}", flush=True)


if __name__ == "__main__":
    main()
