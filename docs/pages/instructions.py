"""Writes instructions/: matrix instructions as tables, and a picture of each."""

from __future__ import annotations

from qmlir.kernels.tile.instruction import Fragments
from qmlir.targets import Target, all_targets
from qmlir.tools import layouts

PAGE = """\
# Matrix instructions: from a table to a kernel

*This page is written by `python docs/generate.py` from the tables in `qmlir/targets/*/kernels/instructions.py`.*

A matrix instruction multiplies `d[m, n] += a[m, k] * b[k, n]`, and each lane holds some elements of the three
matrices. A number of a lane, or of a value in it, is a few bits, and each of these bits is one bit of the element's row
or column. So one line of data says where everything is, lowest bits first:

```
{example}
```

These are linear layouts ([Triton](https://arxiv.org/abs/2505.23819), [CuTe](https://arxiv.org/abs/2603.02298)); a
dot is a bit that makes no difference, because both halves of a wave hold the same.
`qmlir inspect --layout rocm:gfx942 MFMA_I32_16x16x32_I8` draws the table in the terminal; `-o picture.svg` draws it in
colours, `--json` prints it.

From the table follow (`qmlir/kernels/tile`):

* **Where a lane reads and writes.** `Layout.place("k", lane=lane)` makes the index arithmetic: bits that stay
  neighbours become one quotient, one remainder and one product. Given numbers, it computes them.
* **How a weight is packed.** `TiledMma` puts instructions side by side along K and along the columns, and numbers both
  anew by one rule: *what a lane holds are neighbours*. Columns may be numbered anew as long as weight and result agree,
  K as long as both operands do. So a lane's codes of a step are one load, and its results are one store.
  `packing.packed` turns the order of the bits in memory into the splits and permutations that a weight is packed by.
* **Runs of the epilogue.** `TiledMma.held` says which registers are neighbouring columns of the result.

What is no power of two is counted outside: numbers of tiles, and tails, which are padded or clamped. Layouts of
cooperative matrices (Vulkan) are known to the driver alone; a kernel there reads its sums through shared memory.

The tests compare each table with the emulators' own, which are written from the vendors' manuals in another form, and
multiply by what the lanes hold.

{sections}"""


def pages() -> dict[str, str]:
    """The page and its pictures, by file name."""
    found: dict[str, tuple[Fragments, str]] = {}  # by picture
    rows = []
    for target in all_targets():
        for name, (_, fragments) in target.matrix_instructions().items():
            picture = next((p for p, (known, _) in found.items() if known == fragments), _file(target, name))
            found.setdefault(picture, (fragments, name))
            rows.append((target.spelling, name, picture))
    sections = []
    for picture, (fragments, _) in found.items():
        mine = [(t, n) for t, n, p in rows if p == picture]
        names = list(dict.fromkeys(n for _, n in mine))
        where = list(dict.fromkeys(t for t, _ in mine))
        m, n, k = fragments.shape
        sections += [
            f"## {m} x {n} x {k}, {fragments.lanes} lanes: {names[0]}",
            "",
            f"{', '.join(f'`{x}`' for x in names)} on {', '.join(f'`{x}`' for x in where)}.",
            "",
            "```",
            _table(fragments),
            "```",
            "",
            f"![Which lane holds which element of a, b and d]({picture.removeprefix('instructions/')})",
            "",
        ]
    first = next(iter(found.values()))
    made = {picture: layouts.svg(name, fragments) for picture, (fragments, name) in found.items()}
    text = PAGE.replace("{example}", _table(first[0])).replace("{sections}", "\n".join(sections))
    return {"instructions/index.md": text, **made}


def _file(target: Target, name: str) -> str:
    return f"instructions/{target.backend}-{name.replace('.', '-')}.svg"


def _table(fragments: Fragments) -> str:
    spelled = layouts.to_json("", fragments)
    lines = []
    for part in ("a", "b", "d"):
        table = spelled[part]
        assert isinstance(table, dict)
        lines.append(f"{part}: " + ", ".join(f'{i}="{" ".join(bits)}"' for i, bits in table.items()))
    return "\n".join(lines)
