"""Mutations of good input: of text, of bytes, and of JSON trees."""

from __future__ import annotations

import copy
import random
from typing import Any

Random = random.Random

TOKENS = ["0", "-1", "9223372036854775807", "99999999999999999999", "?", "x", "i8", "f32", "bf16", "tensor<", ">", "{",
          "}", "(", ")", ":", "->", "dense<", '"', "%x", "loc(", "array<i32: 1>", "nan", "0x", "//", "\\", "\n", "#map",
          "vector<4xi8>", "memref<4xi8>", "1.0e400", "!qmlir", "\t", "é", "module {", "attributes"]  # fmt: skip


def mutated_text(r: Random, text: str) -> str:
    """A few edits of tokens, lines and characters."""
    for _ in range(r.randint(1, 4)):
        if not text:
            return r.choice(TOKENS)
        i, j = sorted((r.randrange(len(text)), r.randrange(len(text))))
        kind = r.randrange(7)
        if kind == 0:
            text = text[:i] + text[min(j, i + r.randint(1, 20)) :]
        elif kind == 1:
            text = text[:i] + r.choice(TOKENS) + text[i:]
        elif kind == 2:
            text = text[:i] + text[i : min(j, i + 40)] + text[i:]
        elif kind == 3:
            text = text[:i]
        elif kind == 4:
            lines = text.split("\n")
            k = r.randrange(len(lines))
            lines[k] = r.choice(lines)
            text = "\n".join(lines)
        elif kind == 5:
            words = text.split(" ")
            words[r.randrange(len(words))] = r.choice(words) if r.random() < 0.5 else r.choice(TOKENS)
            text = " ".join(words)
        else:
            text = text[:i] + chr(r.choice([0, 9, 10, 34, 48, 57, 92, 123, 255, 0x2028])) + text[i + 1 :]
    return text


def mutated_bytes(r: Random, data: bytes) -> bytes:
    """A few edits: flipped bits, and ranges removed, inserted and overwritten."""
    made = bytearray(data)
    for _ in range(r.randint(1, 6)):
        if not made:
            return bytes(r.randbytes(r.randrange(64)))
        i = r.randrange(len(made) if r.random() < 0.5 else min(len(made), 400))  # headers are in front
        kind = r.randrange(7)
        if kind == 0:
            made[i] ^= 1 << r.randrange(8)
        elif kind == 1:
            del made[i : i + r.randint(1, 64)]
        elif kind == 2:
            made[i:i] = r.randbytes(r.randint(1, 16))
        elif kind == 3:
            del made[i:]
        elif kind == 4:
            made[i : i + 4] = r.choice([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"PK\x05\x06"])
        elif kind == 5:
            made[i : i + 8] = r.choice([0, 1, 2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1]).to_bytes(8, "little")
        else:
            made[i : i + 4] = r.choice([b"-1, ", b"1e99", b"null", b"[[[[", b'"":0', b"true", b"9999"])
    return bytes(made)


VALUES: list[Any] = [None, True, False, 0, -1, 1, 2**63, 1e308, -0.0, "", "x", "..", "/etc/passwd", [], {}, [[]],
                     [None], {"": ""}, "nan", "4x8xi8", [1, 2], {"a": {"b": []}}]  # fmt: skip


def mutated_json(r: Random, data: Any, depth: int = 0) -> Any:
    """A copy of a JSON tree with one value replaced, removed, renamed or repeated."""
    if depth > 6 or r.random() < 0.12 or not isinstance(data, (dict, list)) or not data:
        return copy.deepcopy(r.choice(VALUES))
    if isinstance(data, dict):
        made = dict(data)
        key = r.choice(list(made))
        kind = r.randrange(8)
        if kind == 0:
            del made[key]
        elif kind == 1:
            made[r.choice(["", "x", "targets", "name"])] = made.pop(key)
        else:
            made[key] = mutated_json(r, made[key], depth + 1)
        return made
    some = list(data)
    i = r.randrange(len(some))
    kind = r.randrange(6)
    if kind == 0:
        del some[i]
    elif kind == 1:
        some.append(copy.deepcopy(some[i]))
    else:
        some[i] = mutated_json(r, some[i], depth + 1)
    return some
