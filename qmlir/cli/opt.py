"""qmlir-opt: the `mlir-opt` of this dialect.

Runs a pipeline, which may mix passes of qmlir, MLIR and IREE, on a file or standard input. `--verify-diagnostics`
checks `expected-error` comments; `--split-input-file` processes the parts between `// -----` lines separately.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core import mlir
from ..core.files import write_atomically
from ..errors import Diagnostic, DiagnosticsError, QmlirError, UsageError
from .arguments import Help, parse
from .child import breadcrumb, published, publishing, run_in_child
from .guarded import guarded

if TYPE_CHECKING:
    from ..core.mlir import ir


def build_parser() -> argparse.ArgumentParser:
    """The parser of `qmlir-opt`."""

    p = argparse.ArgumentParser(
        prog="qmlir-opt", usage="qmlir-opt [options] [IN]", formatter_class=Help,
        description="Run passes on IN (an .mlir file, default: standard input) with the qmlir dialect.",
    )  # fmt: skip
    p.add_argument("input", nargs="?", default="-", metavar="IN", help=argparse.SUPPRESS)
    p.add_argument(
        "-o", "--output", default="-", metavar="FILE", help="where the result goes (default: standard output)"
    )
    p.add_argument("--pass-pipeline", default="", metavar="TEXT", help="for instance 'qmlir-verify,qmlir-fold,cse'")
    p.add_argument(
        "--split-input-file", action="store_true", help="treat parts between '// -----' lines as separate files"
    )
    p.add_argument("--verify-diagnostics", action="store_true", help="check expected-error comments")
    p.add_argument("--print-ir-after-all", action="store_true", help="print the IR after each pass to stderr")
    p.add_argument("--mlir-print-debuginfo", action="store_true", help="print locations")
    p.add_argument("--mlir-print-op-generic", action="store_true", help="print ops in their generic form")
    p.add_argument("--elide", type=int, metavar="N", help="elide constants of more than N elements")
    p.add_argument("--list-passes", action="store_true", help="list the passes of qmlir")
    p.add_argument("--irdl", action="store_true", help="print the dialect as IRDL, for iree-opt --irdl-file")
    p.add_argument("--count-operands", action="store_true", help="print operandSegmentSizes too, which IRDL needs")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; exit code 0 if every part was processed or failed as expected."""

    words = list(sys.argv[1:] if argv is None else argv)

    def body() -> int:
        args = parse(build_parser(), words)
        if args.list_passes or args.irdl:
            return run(args)
        return run_in_child(lambda: run(args), ["qmlir-opt", *words], args.input)

    return guarded(body, "qmlir-opt")


def run(args: argparse.Namespace) -> int:
    """Do what the arguments ask for, in this process."""
    if args.list_passes:
        from ..passes.registry import PASSES, pass_class

        for name in PASSES:
            print(f"{name:28} {pass_class(name).summary}")
        return 0
    if args.irdl:
        from ..dialect import ops as _ops  # noqa: F401
        from ..dialect.ods import irdl_text

        sys.stdout.write(irdl_text())
        return 0
    from ..passes.pipeline import Pipeline

    text = _read(args.input)
    Pipeline.parse(args.pass_pipeline)  # first, so that a mistake in it gives one message, not one per part
    outputs: list[str] = []
    failed = False
    for first_line, part in _parts(text, args.split_input_file):
        try:
            outputs.append(_process(part, first_line, args))
        except QmlirError as e:
            print(e if isinstance(e, DiagnosticsError) else f"qmlir-opt: error: {e}", file=sys.stderr)
            failed = True
    result = "// -----\n".join(outputs)
    if args.output == "-":
        sys.stdout.write(result)
    elif not failed:
        with publishing():
            write_atomically(Path(args.output), result.encode())
            published()
    return 1 if failed else 0


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text()
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {name}: it is not text") from None
    except OSError as e:
        raise UsageError(f"cannot read {name}: {e.strerror or e}") from None


def _parts(text: str, split: bool) -> list[tuple[int, str]]:
    """The parts of the input, each with the number of lines before it."""
    if not split:
        return [(0, text)]
    parts, line = [], 0
    for part in re.split(r"^// -----.*\n", text, flags=re.M):
        parts.append((line, part))
        line += part.count("\n") + 1
    return parts


def _process(text: str, lines_before: int, args: argparse.Namespace) -> str:
    """Run the pipeline on one part and return the resulting text."""
    from ..compiler.parsing import parse
    from ..dialect.saved import count_operands
    from ..passes.base import State
    from ..passes.core.verify import VerifyPass
    from ..passes.pipeline import Pipeline

    pipeline = Pipeline.parse(args.pass_pipeline)
    expected = _expectations(text) if args.verify_diagnostics else []
    # Empty lines before the part make its locations those of the file.
    padded = "\n" * lines_before + text
    with mlir.context():
        try:
            module = parse(padded, "-")
            state = State()
            breadcrumb(f"the pipeline {args.pass_pipeline!r}\n{text}")

            def after(name: str, m: ir.Module) -> None:
                if args.print_ir_after_all:
                    print(f"// -----// IR after {name} //----- //\n{m}", file=sys.stderr)

            pipeline.run(module, state, after=after, reproducer=not args.verify_diagnostics)
            if args.count_operands:
                VerifyPass().run(module, state)
                count_operands(module)
        except DiagnosticsError as e:
            e.rename("-", "<stdin>" if args.input == "-" else args.input)
            if not args.verify_diagnostics:
                raise
            _check_expected(expected, e.diagnostics, lines_before)
            return ""
        if args.verify_diagnostics:
            _check_expected(expected, [], lines_before)
        return str(module.operation.get_asm(
            enable_debug_info=args.mlir_print_debuginfo, print_generic_op_form=args.mlir_print_op_generic,
            large_elements_limit=args.elide,
        )).rstrip("\n") + "\n"  # fmt: skip


@dataclass
class Expectation:
    line: int
    text: str
    met: bool = False


def _expectations(text: str) -> list[Expectation]:
    """`// expected-error@+1 {{text}}` comments: `@+N`, `@-N`, `@below`, `@above` or the same line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for match in re.finditer(r"expected-error\s*(?:@([+-]\d+|below|above))?\s*\{\{(.*?)\}\}", line):
            offset = {"below": 1, "above": -1, None: 0}.get(match.group(1))
            at = number + (offset if offset is not None else int(match.group(1)))
            found.append(Expectation(at, match.group(2)))
    return found


def _check_expected(expected: list[Expectation], diagnostics: list[Diagnostic], lines_before: int) -> None:
    """Check that the expected errors occurred and no others. Raises UsageError with the differences."""
    problems = []
    for d in diagnostics:
        match = re.search(r":(\d+):\d+$", d.location)
        line = int(match.group(1)) - lines_before if match else None
        hit = next((x for x in expected if not x.met and x.text in d.message and line in (None, x.line)), None)
        if hit is None:
            problems.append(f"unexpected error: {d}")
        else:
            hit.met = True
    missed = [x for x in expected if not x.met]
    problems += [f"line {x.line + lines_before}: expected error was not produced: {x.text}" for x in missed]
    if problems:
        raise UsageError("\n".join(problems))


if __name__ == "__main__":
    raise SystemExit(main())
