"""Writes instructions/: matrix instructions as tables, and a picture of each."""

from __future__ import annotations

from qmlir.kernels.tile.instruction import Fragments
from qmlir.targets import Target, all_targets, backend_of
from qmlir.tools import layouts

PAGE = """\
# Matrix instructions and their register layouts

*This page is written by `python docs/generate.py` from the tables in `qmlir/targets/*/kernels/instructions.py`.*

A matrix instruction computes `d[m, n] += a[m, k] * b[k, n]`, and each lane holds some elements of the three matrices in
its registers. The layout is bit-linear: each bit of the lane's number, and of the number of the value in the lane, is
one bit of the element's row or column. One line per matrix describes it, lowest bits first:

```
{example}
```

These are linear layouts ([Triton](https://arxiv.org/abs/2505.23819), [CuTe](https://arxiv.org/abs/2603.02298)). A dot
is a bit without effect: both halves of a wave hold the same elements. If blocks along K have scales, `a_scale` and
`b_scale` say which lane's register holds the scales of a row or column, and in which byte (`s` is the block). In these
layouts a dot means that the register of a lane is not read if that bit is set. `qmlir inspect --layout rocm:gfx942
MFMA_I32_16x16x32_I8` prints the layout as a table in the terminal; `-o picture.svg` draws it in colours, and `--json`
prints it as data. [How to add an instruction](../adding-an-instruction.md).

From the layout, `qmlir/kernels/tile` derives:

* **Addresses.** `Layout.place("k", lane=lane)` builds the index arithmetic of a lane's loads and stores; with plain
  integers it computes them.
* **Packing of weights.** `TiledMma` repeats an instruction along K and along the columns, and renumbers both so that
  the elements of a lane are contiguous: columns may be renumbered if weight and result agree, K if both operands agree.
  So the codes of a lane for one step are one load, and its results one store. `packing.packed` returns the reshapes and
  transpositions that convert a weight to this order.
* **Runs of the epilogue.** `TiledMma.held` tells which registers are neighbouring columns of the result.

Sizes that are not powers of two (numbers of tiles, tails) are outside of the layout; tails are padded or clamped. The
layout of a cooperative matrix (Vulkan) is known only to the driver, so those kernels read their sums through shared
memory.

The tests compare each layout with the emulators' tables, which are written from the vendors' manuals in another form,
and compute products from the registers of the lanes.

{sections}"""


def pages() -> dict[str, str]:
    """The page and its pictures: file name -> text."""
    found: dict[str, tuple[Fragments, str]] = {}  # by picture
    rows = []
    for target in all_targets():
        for name, (_, fragments) in backend_of(target).matrix_instructions(target).items():
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
    for part in ("a", "b", "d", "a_scale", "b_scale"):
        if part not in spelled:
            continue
        table = spelled[part]
        assert isinstance(table, dict)
        lines.append(f"{part}: " + ", ".join(f'{i}="{" ".join(bits)}"' for i, bits in table.items()))
    return "\n".join(lines)
