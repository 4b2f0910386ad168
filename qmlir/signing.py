"""Signatures of compiled programs: who vouches for the native code in a `.vmfb`.

A signature is a file next to the program, `model.vmfb.sig`: JSON with the SHA-256 of the whole file, manifest and code,
and an Ed25519 signature (RFC 8032) of it. Keys are PEM files, as `openssl genpkey -algorithm ed25519` writes them. The
library `cryptography` does the signing: the extra `sign`. `digest` and `check_digest` need no library.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from .core.files import write_atomically
from .errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ed25519

FORMAT = 1
_CONTEXT = b"qmlir program v1\n"  # keeps a signature of other data from being one of a program

StrPath: TypeAlias = "str | os.PathLike[str]"


def digest(program: StrPath | bytes) -> str:
    """The SHA-256 of a file, in hex."""
    return hashlib.sha256(program if isinstance(program, bytes) else _read(Path(program))).hexdigest()


def check_digest(program: bytes, expected: str, name: str = "the program") -> None:
    """Raises ArtifactError unless the bytes have this SHA-256."""
    wanted = expected.strip().lower().removeprefix("sha256:")
    if len(wanted) != 64 or set(wanted) - set("0123456789abcdef"):
        raise UsageError(f"{expected!r} is not a SHA-256: write 64 hexadecimal digits")
    found = digest(program)
    if not hmac.compare_digest(found, wanted):
        raise ArtifactError(f"{name} is not the file that is expected: its SHA-256 is {found}, not {wanted}")


def sign(program: StrPath, key: StrPath) -> Path:
    """Write the signature of a program to a file next to it, and return its path.

    Args:
        key: a PEM file with an Ed25519 private key, without a password.

    Raises:
        UsageError: a file that cannot be read, or that is not such a key.
    """
    path = Path(program)
    private = _key(Path(key), private=True)
    found = digest(path)
    made = private.sign(_CONTEXT + found.encode())
    text = json.dumps({"format": FORMAT, "sha256": found, "ed25519": base64.b64encode(made).decode()}, indent=1)
    return write_atomically(_beside(path), f"{text}\n".encode())


def verify(program: StrPath, key: StrPath) -> str:
    """Verify that the signature next to a program is of this file and by the owner of this key. Returns the SHA-256 of
    the verified bytes, for `qmlir.load(program, sha256=...)`: the file could be exchanged in between.

    Args:
        key: a PEM file with an Ed25519 public key.

    Raises:
        ArtifactError: no signature, a damaged one, one of another file, or by another key.
    """
    from cryptography.exceptions import InvalidSignature

    public = _key(Path(key), private=False)
    path = Path(program)
    signature = _beside(path)
    if not signature.exists():
        raise ArtifactError(f"{path} has no signature: there is no {signature.name} beside it")
    try:
        stated = json.loads(_read(signature))
        if stated["format"] != FORMAT:
            raise ValueError(f"format {stated['format']}")
        claimed, made = str(stated["sha256"]), base64.b64decode(stated["ed25519"], validate=True)
    except (KeyError, TypeError, ValueError, RecursionError, binascii.Error) as e:
        raise ArtifactError(f"{signature} is not a signature: {type(e).__name__} {e}") from None
    found = digest(path)
    if not hmac.compare_digest(found.encode(), claimed.encode()):
        raise ArtifactError(f"{path} has changed since it was signed: its SHA-256 is {found}, not {claimed}")
    try:
        public.verify(made, _CONTEXT + found.encode())
    except InvalidSignature:
        raise ArtifactError(f"{signature} was not made with the private key that belongs to {key}") from None
    return found


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.sig")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror or e}") from None


@overload
def _key(path: Path, private: Literal[True]) -> ed25519.Ed25519PrivateKey: ...
@overload
def _key(path: Path, private: Literal[False]) -> ed25519.Ed25519PublicKey: ...
def _key(path: Path, private: bool) -> ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ed25519
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
    except ImportError:
        raise UsageError("signatures need cryptography: pip install 'qmlir[sign]'") from None
    data, kind = _read(path), "private" if private else "public"
    try:
        found: object = load_pem_private_key(data, None) if private else load_pem_public_key(data)
    except (ValueError, TypeError, UnsupportedAlgorithm) as e:
        raise UsageError(f"{path} is not a {kind} key in PEM form: {str(e).partition(chr(10))[0][:120]}") from None
    if not isinstance(found, (ed25519.Ed25519PrivateKey, ed25519.Ed25519PublicKey)):
        raise UsageError(f"{path} is not an Ed25519 {kind} key: openssl genpkey -algorithm ed25519 makes one")
    return found
