"""The page docs/cases.md, from the stored results."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from qmlir.emulation.backends import emulated_targets

from .case import CUT, SMALL
from .run import LARGEST, LIMIT, TARGETS, cases, cases_of, results

STATUS = ("passed", "cut", "slow", "refused", "failed", "not run")

INTRO = """\
# Conformance results

*This page is written by `python docs/generate.py` from `conformance/results/`; a test keeps it up to date.*

`conformance/cases.json` holds {count} correctness cases from the tests of five systems, in their own terms and with the
name of the upstream file. `python -m conformance --target cpu` (or `vulkan:lavapipe`) translates each case into a
program of qmlir ops, compiles and runs it, and compares the result with `qmlir.reference` by section 5 of the [numerics
contract](semantics.md). Integer products must be bit-exact.

* **passed**: the whole case. Where a case lists alternatives (`f16|bf16`, `none|relu`), every alternative was run.
* **cut**: passed with smaller M and N. Only cases of more than {limit} multiply-adds are: the larger of M and N is
  halved, its remainder modulo 16 kept, down to at most {small} multiply-adds. K and the experts stay whole.
* **slow**: loading the program (when lavapipe compiles it) and running it took more than a minute; compilation by qmlir
  is not counted.
* **refused**: unsupported; the reason is listed below.

## By system

{table}

A `qmlir_variant` replaces the data of a case that would hide errors (all results saturated, or all zero).
"""

EMULATED = """\
## On emulated devices

The {count} cases of at most {largest} multiply-adds, on [emulated devices](emulation.md): the same programs, saved and
opened in another process, whose kernels are executed instruction by instruction.

{table}
"""

READING = """\
## Interpretation of the cases

* `fp8` cases run with OCP `e4m3` and with `e4m3fnuz`; AITER's type depends on the GPU.
* f16 accumulators are f32 here, the wider type (section 4).
* The two letters of AITER's layouts are those of x (`T`: row-major `[M, K]`) and of w (`N`: row-major `[N, K]`).
* AITER's i32 results are scaled in f32 and converted, so the product is followed by `arith.fptosi`.
* "`f16(c)*d0*d1`" is rounded once, after `c*d0*d1`.
* `split_k` changes no result: the target chooses how K is split.
* Quantised activations that a case gives as floats are quantised by a step of the program (`quantize`,
  `dynamic_quantize`); each step is compared with its reference on the inputs that the program gave it.
* BitBLAS's `original` zero points are integers in f16, here i32; `quantized` ones are packed like the weights, and the
  1 by which GPTQ's stored zero points are too small is added when the weights are repacked.
* ETVK's biases are zero; here they are random, so that a missing bias is noticed.
* AITER's transposed grouped product (`tgmm`) is one `scaled_matmul` per group.
* AITER's `smoothquant` has per-expert smoothing factors, so x has one row for each of a token's experts. The factors
  of the second product are the `act_scale` of the first.
* `mxfp4` weights are multiplied by bf16 activations. If AITER's documentation gives no shape, 1024x2048x512 is used.
"""


def page() -> str:
    """The text of the page."""
    found = {target: results(target) for target in TARGETS}
    parts = [INTRO.format(count=len(cases()), limit=f"2^{CUT.bit_length() - 1}", small=f"2^{SMALL.bit_length() - 1}",
                          table=_table(found))]  # fmt: skip
    for target, rows in found.items():
        parts += _reasons(target, rows)
    parts += [_cuts(found), _emulated(), READING]
    return "\n".join(p.rstrip() + "\n" for p in parts)


def _table(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    systems = list(dict.fromkeys(c["system"] for c in cases()))
    # Columns without any entry are left out, except passed, cut and refused.
    status = {t: {c["id"]: found[t].get(c["id"], {}).get("status", "not run") for c in cases()} for t in found}
    used = {t: [s for s in STATUS if s in ("passed", "cut", "refused", *status[t].values())] for t in found}
    head = ["system", "cases", *(f"{t}: {s}" for t in found for s in used[t])]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    totals: Counter[tuple[str, str]] = Counter()
    for system in systems:
        mine = [c["id"] for c in cases() if c["system"] == system]
        cells = []
        for t in found:
            count = Counter(status[t][i] for i in mine)
            totals.update({(t, s): n for s, n in count.items()})
            cells += [str(count[s]) for s in used[t]]
        lines.append("| " + " | ".join([f"`{system}`", str(len(mine)), *cells]) + " |")
    cells = [f"**{totals[t, s]}**" for t in found for s in used[t]]
    lines.append("| " + " | ".join(["**all**", f"**{len(cases())}**", *cells]) + " |")
    return "\n".join(lines)


def _emulated() -> str:
    """The section with the table of the emulated targets."""
    lines = ["| target | passed | refused | failed | not run |", "|---|---|---|---|---|"]
    for target in emulated_targets():
        rows = results(target)
        count = Counter(rows.get(c["id"], {}).get("status", "not run") for c in cases_of(target))
        cells = [target, *(str(count[s]) for s in ("passed", "refused", "failed", "not run"))]
        lines.append("| " + " | ".join(cells) + " |")
    count = len(cases_of(emulated_targets()[0]))
    largest = f"2^{LARGEST.bit_length() - 1}"
    return EMULATED.format(count=count, largest=largest, table="\n".join(lines))


def _reasons(target: str, rows: dict[str, dict[str, Any]]) -> list[str]:
    """The cases that did not pass, grouped by reason."""
    parts = []
    by_reason: dict[tuple[str, str], list[str]] = defaultdict(list)
    for c in cases():
        row = rows.get(c["id"])
        if row is not None and row["status"] not in ("passed", "cut"):
            by_reason[row["status"], row["reason"]].append(c["id"])
    if by_reason:
        limit = f" (limit {LIMIT[target]:.0f} s)" if target in LIMIT else ""
        parts.append(f"## Not passed on `{target}`{limit}\n")
        lines = ["| status | reason | cases |", "|---|---|---|"]
        for (status, reason), ids in sorted(by_reason.items()):
            text = reason.replace("|", "\\|").replace("\n", " ")
            lines.append(f"| {status} | {text} | {', '.join(f'`{i}`' for i in ids)} |")
        parts.append("\n".join(lines))
    return parts


def _cuts(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The sizes of cases that were cut: the same on every target."""
    lines = ["## Cut\n", "| case | M | N | K |", "|---|---|---|---|"]
    by_size: dict[tuple[str, str, Any], list[str]] = defaultdict(list)
    for c in cases():
        row = next((found[t][c["id"]] for t in found if found[t].get(c["id"], {}).get("cut")), None)
        if row is not None:
            sizes = [f"{row['cut'][n][0]} → {row['cut'][n][1]}" if n in row["cut"] else str(c.get(n, "")) for n in "MN"]
            by_size[sizes[0], sizes[1], c.get("K", "")].append(c["id"])
    for (m, n, k), ids in by_size.items():
        lines.append(f"| {', '.join(f'`{i}`' for i in ids)} | {m} | {n} | {k} |")
    notes: dict[str, list[str]] = defaultdict(list)
    for c in cases():
        for note in next((found[t][c["id"]].get("notes", []) for t in found if c["id"] in found[t]), []):
            notes[note].append(c["id"])
    if notes:
        lines += ["", "## Notes", ""]
        lines += [f"* {note}: {', '.join(f'`{i}`' for i in ids)}." for note, ids in notes.items()]
    return "\n".join(lines)
