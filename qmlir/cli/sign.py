"""`qmlir sign`: sign a compiled program, or verify its signature."""

from __future__ import annotations

import argparse
import json

from .. import signing
from ..errors import UsageError
from .arguments import add_old_name, add_source, command


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's arguments."""
    p = command(commands, "sign", "[options] IN", "sign a program, or verify its signature",
                "Write IN.sig, an Ed25519 signature of the file IN, or with --verify-key check that the existing one "
                "is of this file and by this key. Keys: openssl genpkey -algorithm ed25519 -out key.pem; "
                "openssl pkey -in key.pem -pubout -out public.pem")  # fmt: skip
    add_source(p, "program")
    p.add_argument("--key", metavar="FILE", help="the private key to sign with (.pem)")
    p.add_argument("--verify-key", metavar="FILE", help="the public key to verify with (.pem)")
    add_old_name(p, "--verify", "--verify-key")
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:

    if (args.key is None) == (args.verify_key is None):
        raise UsageError("give --key FILE to sign, or --verify-key FILE to verify")
    if args.key is not None:
        message = f"{signing.sign(args.program, args.key)}: signed"
    else:
        signing.verify(args.program, args.verify_key)
        message = f"{args.program}: the signature is good"
    found = signing.digest(args.program)
    if args.json:
        print(json.dumps({"program": args.program, "sha256": found, "signed": args.key is not None}))
    elif not args.quiet:
        print(f"{message}\nsha256 {found}")
    return 0
