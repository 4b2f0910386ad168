"""The test cases of five systems, run through qmlir: `python -m conformance`.

| file | what it holds |
|---|---|
| `cases.json` | the cases as data, in the systems' own words |
| `scheme.py` | what a case says, as programs of qmlir ops and their operands: one translation a family of cases |
| `case.py`, `operands.py` | reading a case, and the operands that families share |
| `composable_kernel.py`, `products.py`, `convolutions.py`, `aiter.py`, `experts.py`, `aiter_docs.py` | the families |
| `program.py` | such a program: its reference, its IR, its compiled form |
| `judge.py` | docs/semantics.md, section 5 |
| `stream.py` | the random numbers that the systems' published results were drawn from |
| `opened.py` | programs saved to a file, which another process without a compiler opens and calls; tests use it too |
| `run.py` | runs cases in a child process and keeps `results/` |
| `report.py` | the text of docs/cases.md |

Nothing of the package `qmlir` imports this one.
"""
