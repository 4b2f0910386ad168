"""Writes key.pem, its public key public.pem, and other.pem (the public key of another key) to a folder."""

import sys
from pathlib import Path

from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

folder = Path(sys.argv[1])
key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
form = s.PrivateFormat.PKCS8
(folder / "key.pem").write_bytes(key.private_bytes(s.Encoding.PEM, form, s.NoEncryption()))
for name, made in (("public.pem", key), ("other.pem", other)):
    public = made.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    (folder / name).write_bytes(public)
