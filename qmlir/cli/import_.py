"""`qmlir import`: import a checkpoint as a program and its parameters, or list its tensors."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from .arguments import add_old_name, add_source, command
from .compile import check_writable

if TYPE_CHECKING:
    from ..checkpoint.contents import Checkpoint


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's arguments."""
    p = command(commands, "import", "[options] IN", "import a checkpoint as a program",
                "Import IN, a .gguf or .safetensors file or a folder with config.json, as a decoder, or with "
                "--linear as one linear layer.")  # fmt: skip
    add_source(p, "checkpoint")
    p.add_argument("-o", "--output", metavar="FILE", help="the .mlir to write (default: IN's name with .mlir)")
    p.add_argument("-p", "--save-parameters", metavar="FILE",
                   help="the .safetensors to write the weights to (default: next to the program)")  # fmt: skip
    add_old_name(p, "--parameters", "--save-parameters")
    p.add_argument("--linear", metavar="NAME", help="import only the linear layer with this weight")
    p.add_argument("--context-length", type=_positions, metavar="N", help="positions that the decoder's caches hold")
    add_old_name(p, "--context", "--context-length")
    p.add_argument("--quantize-activations", nargs="?", const=True, default=False, choices=("token",),
                   metavar="[token]",
                   help="quantise the inputs of layers: as the checkpoint says, or to int8 by token")  # fmt: skip
    p.add_argument("--list", action="store_true", help="list the tensors and import nothing")
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(run=run)


def _positions(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def run(args: argparse.Namespace) -> int:
    import qmlir

    model = qmlir.checkpoint.open(args.checkpoint)
    if args.list:
        return _list(model, args.json)
    source = Path(args.checkpoint)
    output = Path(args.output) if args.output else Path(source.name).with_suffix(".mlir")
    weights = Path(args.save_parameters) if args.save_parameters else output.with_suffix(".safetensors")
    check_writable(weights)
    check_writable(output, str(weights))
    for path in (output, weights):
        if path.exists() and path.resolve() in _files(source):
            raise UsageError(f"{path} is the checkpoint itself; choose another name with --save-parameters")
    if args.linear is not None:
        if args.context_length is not None:
            raise UsageError("--context-length applies to decoders, not to --linear")
        imported = qmlir.importing.linear(model, args.linear, quantize_activations=args.quantize_activations)
    else:
        imported = qmlir.importing.decoder(
            model, context_length=args.context_length, quantize_activations=args.quantize_activations
        )
    imported.save(output, weights)
    size = sum(a.nbytes for a in imported.parameters.values())
    if args.json:
        summary = {
            "program": str(output),
            "parameters": str(weights),
            "bytes": size,
            "tensors": len(imported.parameters),
        }
        print(json.dumps(summary))
    elif not args.quiet:
        print(f"{output}: {len(imported.parameters)} parameters, {size:,} bytes in {weights}")
        print(f"  qmlir compile {output} --parameters model={weights}")
    return 0


def _files(source: Path) -> set[Path]:
    """The files that a checkpoint may consist of."""
    found = source.iterdir() if source.is_dir() else source.parent.glob(f"*{source.suffix}")
    return {p.resolve() for p in found if source.is_dir() or p == source}


def _list(model: Checkpoint, as_json: bool) -> int:
    rows = [{"name": n, "kind": model.kind(n), "shape": list(model.shape(n))} for n in model]
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        print(f"{row['name']}: {row['kind']} {'x'.join(map(str, row['shape']))}")
    return 0
