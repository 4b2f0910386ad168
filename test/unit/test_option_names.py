"""An option has one name in Python and on the command line; its old names work, with a warning."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import qmlir
from qmlir.checkpoint import open as open_checkpoint
from qmlir.cli import build_parser, main
from qmlir.errors import UsageError
from qmlir.importing.program import Imported
from qmlir.tools.count import count
from qmlir.tuning.search import emit

COMPILE = (qmlir.compile,)
# The functions that a command calls. Options of `qmlir.compile` reach it through `**options` of the others.
FUNCTIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    "compile": COMPILE,
    "run": (qmlir.load, qmlir.Emulation),
    "check": (qmlir.check, qmlir.Tolerance, *COMPILE),
    "bench": (qmlir.bench, count, *COMPILE),
    "tune": (qmlir.tune, emit, *COMPILE),
    "inspect": (qmlir.inspect, qmlir.Artifact.source, *COMPILE),
    "explain": (qmlir.explain, *COMPILE),
    "import": (qmlir.importing.decoder, Imported.save, open_checkpoint),
}
# Options that only a command has: how it prints, files for contents that a function returns, and the child process.
PRINTED = {"help", "quiet", "verbose", "json", "output", "plot", "csv"}
OF_COMMANDS = {
    "compile": {"stop", "no_cache"},  # qmlir.source(program, level); cache=False
    "run": {"function", "arguments", "repeats", "verify_key"},  # a call of a Function; qmlir.signing.verify
    "check": set[str](),
    "bench": {"threads"},  # QMLIR_THREADS, which the runtime reads once
    "tune": {"database", "emit", "measure", "dask", "merge"},  # parts of a search on several machines
    "inspect": {"source", "layout"},  # qmlir.source(program, level); a picture of an instruction
    "explain": set[str](),
    # qmlir.importing.linear; the mapping that a checkpoint is; the second path of Imported.save
    "import": {"linear", "list", "save_parameters"},
}
# Arguments that only a function has: Python objects, and values that other options imply.
OF_FUNCTIONS = {
    "compile": {"cache", "import_options", "isolated"},  # --no-cache; a command compiles in a child process
    "run": {"progress", "seed"},
    "check": {"relative", "share", "step"},  # what --tolerance states
    "bench": {"step"},
    "tune": {"step"},
    "inspect": {"level"},  # what --source names
    "explain": {"choice"},  # what tuning asks for
    "import": {"parameters"},  # --save-parameters: --parameters of other commands reads files
}


def options(command: str) -> dict[str, argparse.Action]:
    """Options of a command by their names in Python, without the old names."""
    [commands] = [a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    actions = [a for a in commands.choices[command]._actions if a.option_strings and a.help != argparse.SUPPRESS]
    return {a.option_strings[-1].removeprefix("--").replace("-", "_"): a for a in actions}


def keywords(functions: tuple[Callable[..., Any], ...]) -> set[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = {p.name for f in functions for p in inspect.signature(f).parameters.values() if p.kind in kinds}
    return found - {"self", "source"}  # the program that a command is given


@pytest.mark.parametrize("command", FUNCTIONS)
def test_options_are_keyword_arguments(command: str) -> None:
    found = set(options(command))
    assert found - keywords(FUNCTIONS[command]) - PRINTED == OF_COMMANDS[command]
    assert all(action.dest == name for name, action in options(command).items())


@pytest.mark.parametrize("command", FUNCTIONS)
def test_keyword_arguments_are_options(command: str) -> None:
    """Keyword arguments of the command's own functions; commands that do not compile have no compiler options."""
    own = tuple(f for f in FUNCTIONS[command] if command == "compile" or f not in COMPILE)
    positional = {"artifact", "model", "name", "program", "path", "emulate", "tolerance"}
    assert keywords(own) - set(options(command)) - positional == OF_FUNCTIONS[command]


@pytest.mark.filterwarnings("default::DeprecationWarning")
@pytest.mark.parametrize("function", [qmlir.check, qmlir.bench])
def test_old_names_of_functions(function: Callable[..., Any]) -> None:
    text = "func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> { return %x : tensor<?x4xf32> }"
    more: dict[str, Any] = {"rounds": 1} if function is qmlir.bench else {}
    with pytest.warns(DeprecationWarning, match="'sizes' is deprecated: use 'shapes'") as found:
        function(text, sizes={"arg0": (2, 4)}, **more)
    assert found[0].filename == __file__
    with pytest.raises(UsageError, match="'sizes' is the old name of 'shapes', and both are given"):
        function(text, sizes={}, shapes={}, **more)


@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_old_names_of_bench() -> None:
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    with pytest.warns(DeprecationWarning, match="use 'against'") as found:
        report = qmlir.bench(text, vs=text, repeats=5)  # type: ignore[call-arg]
    assert [str(w.message) for w in found] == [
        "'vs' is deprecated: use 'against'", "'repeats' is deprecated: use 'rounds'"
    ]  # fmt: skip
    assert [len(row.timing.samples) for row in report.rows] == [5, 5]


@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_old_names_of_limits_and_seeds() -> None:
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    limits = qmlir.tools.measure.Limits(1e12, 1e10, "as stated")
    with pytest.warns(DeprecationWarning, match="'stated' is deprecated: use 'limits'"):
        report = qmlir.bench(text, rounds=1, stated=limits)
    assert report.rows[0].limits == limits
    with pytest.warns(DeprecationWarning, match="'seed' is deprecated: use 'order_seed'"):
        assert qmlir.Emulation(seed=3) == qmlir.Emulation(order_seed=3)
    assert qmlir.Emulation(3).order_seed == 3


def test_a_number_is_a_relative_tolerance() -> None:
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    assert qmlir.check(text, tolerance=0.5).tolerance == qmlir.Tolerance(relative=0.5)


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize(
    ("words", "new"),
    [("check nowhere.mlir --tol 1", "--tolerance"), ("check nowhere.mlir --shape x=4", "--shapes"),
     ("bench nowhere.mlir --input x.npy", "--arguments"), ("run nowhere.vmfb --repeat 2", "--repeats"),
     ("run nowhere.vmfb --verify-hash 12", "--sha256"), ("explain nowhere.mlir --iree-flag=-x", "--flags"),
     ("import nowhere.gguf --context 8", "--context-length"), ("bench nowhere.mlir --vs x.mlir", "--against"),
     ("bench nowhere.mlir --repeats 2", "--rounds"), ("sign nowhere.vmfb --verify key.pem", "--verify-key"),
     ("import nowhere.gguf --parameters x.safetensors", "--save-parameters")],
)  # fmt: skip
def test_old_names_of_options(words: str, new: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 1
    command, old = words.split()[0], words.split()[2].partition("=")[0]
    said = capfd.readouterr().err
    assert f"qmlir {command}: note: {old} is deprecated: use {new}\n" in said
    assert said.count("deprecated") == 1


def test_an_old_option_means_the_same() -> None:
    parser = build_parser()
    new = parser.parse_args(["run", "p.vmfb", "--arguments", "x.npy", "-i", "y.npy", "--repeats", "3"])
    assert (new.arguments, new.repeats) == (["x.npy", "y.npy"], 3)
    old = parser.parse_args(["run", "p.vmfb", "--input", "x.npy", "-i", "y.npy", "--repeat", "3"])
    assert vars(old) == vars(new)
    assert parser.parse_args(["check", "p", "--shape", "x=2x3"]).shapes == [("x", (2, 3))]
    assert parser.parse_args(["bench", "p", "--vs", "q", "--against", "r"]).against == ["q", "r"]
    assert parser.parse_args(["import", "p", "--parameters", "w"]).save_parameters == "w"


@pytest.mark.parametrize("command", ["bench", "check", "explain", "inspect", "tune"])
def test_help_names_every_kind_of_source(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    said = capsys.readouterr().out
    kinds = {".mlir", ".onnx", ".pt2"} | (set() if command == "tune" else {".vmfb"})
    assert all(kind in said for kind in kinds)


def test_help_says_units_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        ("compile --help", "--memory GIB give up above GIB GiB (memory= in Python: bytes)"),
        ("import --help", "--quantize-activations [token]"),
    ):
        with pytest.raises(SystemExit):
            main(words.split())
        assert said in " ".join(capsys.readouterr().out.split())
    assert "bytes (`--memory` of the command line: GiB)" in " ".join(str(qmlir.compile.__doc__).split())
    assert "onnxruntime" in str(qmlir.check.__doc__)
