"""Export and compile torch's own samples of its operators, and compare their results with eager torch.

    python test/support/torch_samples.py [--target cpu] [--dtype f32] [--dynamic] [--only REGEX] [--not-right]
        [--record DIR]

The outcomes are written to torch_samples.json. With `--record DIR` nothing is run: the programs are written for
`recorded.py`, which packs them for a machine with the device.

Each operator of `torch.testing`'s database is called with some of its samples (arguments that reach its branches: empty
tensors, tensors without axes, negative axes, broadcasts, strides). The file holds the outcomes that are not right, by
target and dtype (`cpu f32`; `cpu f32 dynamic` if every size that torch allows is dynamic), operator and number of the
sample: `refused: ` and the front end's message. Any other outcome is a defect.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # for the package `support`

import torch
from support import children
from support.children import is_acceptable

RESULTS = Path(__file__).with_name("torch_samples.json")
DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16,
          "i64": torch.int64, "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool}  # fmt: skip
SAMPLES = 6  # per operator, spread over those that it has
# Relative to the largest value of the result. Eager torch rounds after each 16-bit operator; compiled programs do less.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
# What is in memory that nobody wrote, or drawn at random; a test's own loops; places among equals.
NOT_COMPARED = re.compile(r"empty|rand|bernoulli|multinomial|^normal|dropout|rrelu|uniform|exponential|cauchy|geometric"
                          r"|log_normal|jiterator|^torch\.ops\.aten\._efficient|_flash_attention|^item$|allclose|equal$"
                          r"|is_set_to|resize|^kthvalue$|^topk$|^to_sparse|sparse|^svd|pca_lowrank|^linalg\.|^fft\."
                          )  # fmt: skip


@cache
def operators(dtype: str) -> dict[str, Any]:
    """The database's operators that have the dtype, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    found = {}
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        if DTYPES[dtype] in op.dtypes and not NOT_COMPARED.search(name):
            found[name] = op
    return found


def _samples(dtype: str, name: str) -> list[Any]:
    torch.manual_seed(0)
    made = list(operators(dtype)[name].sample_inputs("cpu", DTYPES[dtype], requires_grad=False))
    return made[:: -(-len(made) // SAMPLES)] if made else []


class _Call(torch.nn.Module):
    """A function whose arguments are the tensors in a tree of arguments; the other leaves are constants."""

    def __init__(self, function: Any, tree: Any, leaves: Sequence[Any]) -> None:
        super().__init__()
        self.function, self.tree = function, tree
        self.leaves = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = torch.utils._pytree.tree_unflatten(leaves, self.tree)
        return tuple(x for x in torch.utils._pytree.tree_leaves(self.function(*args, **kwargs)) if x is not None)


def _outcome(run: str, name: str, number: int, record: Path | None = None) -> str:
    """The outcome of one sample. `run`: a target, a dtype, and `dynamic` or nothing."""
    import qmlir
    from qmlir.emulation.backends import emulated_targets

    target, dtype, *dynamic = run.split()
    sample = _samples(dtype, name)[number]
    if name in ("sort", "argsort"):
        sample.kwargs.setdefault("stable", True)  # otherwise the order of equal elements is unspecified
    leaves, tree = torch.utils._pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    call = _Call(operators(dtype)[name].op, tree, leaves)
    tensors = tuple(x for x in leaves if isinstance(x, torch.Tensor))
    try:
        expected = call(*(t.clone() for t in tensors))
        if not tensors or not all(isinstance(x, torch.Tensor) for x in expected):
            return "right: not compared: not from tensors to tensors"
        if sample.kwargs.get("dropout_p"):
            return "right: not compared: random"
        axes = (tuple(dict.fromkeys(range(t.dim()), torch.export.Dim.AUTO) for t in tensors),) if dynamic else None
        program = torch.export.export(call, tuple(t.clone() for t in tensors), dynamic_shapes=axes)
    except Exception as e:
        return f"right: not compared: {type(e).__name__} in torch"

    def compared(artifact: Any) -> str:
        if record is not None:
            from support.recorded import write_call, write_program

            about = record / f"{run.replace(' ', '-').replace(':', '-')}-{name}-{number}.json"
            write_program(about, f"{run} {name} {number}", artifact)
            write_call(about, 0, tensors, expected)
            return "right: not run: recorded"
        loaded = qmlir.load(artifact, emulate=target in emulated_targets())
        found = loaded.main(*(t.clone() for t in tensors))
        in_f64 = [t.double() if t.is_floating_point() else t.clone() for t in tensors]
        return _judged(found if isinstance(found, tuple) else (found,), expected, lambda: call(*in_f64))

    said = children.outcome(lambda: qmlir.compile(program, target=target, cache=False), compared)
    # Leave out the location in this file from a refusal.
    return said.partition(", ")[0] if said.startswith("refused: the operator") else said


def _judged(
    found: Sequence[Any], expected: Sequence[torch.Tensor], in_f64: Callable[[], Sequence[torch.Tensor]]
) -> str:
    """`right`, or what differs. Because eager torch rounds each step of 16-bit floats, elements are also right if they
    are within the tolerance of the function computed in f64, or nearer to it than eager torch."""
    for i, (x, y) in enumerate(zip(found, expected, strict=True)):
        x = torch.as_tensor(x)
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"wrong: result {i} is {x.dtype} {tuple(x.shape)}, not {y.dtype} {tuple(y.shape)}"
        if not y.dtype.is_floating_point:
            if not torch.equal(x, y):
                return f"wrong: {int((x != y).sum())} of {y.numel()} elements of result {i}"
            continue
        a, b = x.double(), y.double()
        finite = b[b.isfinite()].abs()
        allowed = TOLERANCE[y.dtype] * max(float(finite.max()) if finite.numel() else 0.0, 1e-30)
        bad = ~torch.isclose(a, b, rtol=TOLERANCE[y.dtype], atol=allowed, equal_nan=True)
        if bad.any() and y.dtype in (torch.bfloat16, torch.float16):
            exact = in_f64()[i].double()
            near = torch.isclose(a, exact, rtol=TOLERANCE[y.dtype], atol=allowed, equal_nan=True)
            nearer = b.isfinite() & ((a - exact).abs() <= (b - exact).abs())
            bad &= ~(near | nearer)
        if bad.any():
            at = int(bad.flatten().nonzero()[0])
            return f"wrong: {int(bad.sum())} of {y.numel()} of result {i}: {a.flatten()[at]} for {b.flatten()[at]}"
    return "right"


def outcomes(run: str, names: Sequence[str], record: Path | None = None) -> Iterator[tuple[str, dict[str, str]]]:
    """For each operator the outcomes of the samples that are not right, computed in child processes."""
    dtype = run.split()[1]
    operators(dtype)  # inherited by the children, which must not wait for threads that only this process has
    torch.set_num_threads(1)
    every = [f"{name} {number}" for name in names for number in range(len(_samples(dtype, name)))]
    of_each = children.outcomes(every, lambda case: _outcome(run, case.split()[0], int(case.split()[1]), record))
    for name, found in itertools.groupby(of_each, lambda case: case[0].split()[0]):
        yield name, {case.split()[1]: what for case, what in found if not what.startswith("right")}


def recorded() -> dict[str, dict[str, dict[str, str]]]:
    """The recorded outcomes that are not right, by target and dtype, operator and sample."""
    return dict(json.loads(RESULTS.read_text())["not right"]) if RESULTS.exists() else {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--dynamic", action="store_true", help="every size that torch lets be dynamic")
    parser.add_argument("--only", default="", help="a regular expression of names; the others' outcomes are kept")
    parser.add_argument("--not-right", action="store_true", help="only those whose recorded outcome is not right")
    parser.add_argument(
        "--record", type=Path, metavar="DIR", help="write programs, arguments and results, and run nothing"
    )
    arguments = parser.parse_args()
    known = recorded()
    run = f"{arguments.target} {arguments.dtype}{' dynamic' * arguments.dynamic}"
    of_run = known.setdefault(run, {})
    names = [n for n in sorted(operators(arguments.dtype)) if re.search(arguments.only, n)]
    if arguments.not_right:
        names = [n for n in names if n in of_run]
    if arguments.record is not None:
        arguments.record.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    for name, found in outcomes(run, names, arguments.record):
        of_run.pop(name, None)
        if found:
            of_run[name] = found
        now = time.perf_counter()
        print(f"{now - start:5.1f} s {name}: {found or 'right'}", flush=True)
        start = now
        if arguments.record is not None:
            continue
        content = {"torch": torch.__version__.partition("+")[0], "not right": known}
        RESULTS.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    return 0 if all(is_acceptable(what) for what in _every(of_run)) else 1


def _every(of_run: dict[str, dict[str, str]]) -> Iterator[str]:
    for found in of_run.values():
        yield from found.values()


if __name__ == "__main__":
    raise SystemExit(main())
