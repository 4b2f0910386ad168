"""The test cases of five systems, run through qmlir: `python -m conformance`.

| file | what it holds |
|---|---|
| `cases.json` | the cases as data, in the systems' own terms |
| `scheme.py` | translates a case into programs of qmlir ops and their operands, with one function per family of cases |
| `case.py`, `operands.py` | reading a case, and the operands that several families share |
| `composable_kernel.py`, `products.py`, `convolutions.py`, `aiter.py`, `experts.py`, `aiter_docs.py` | the families |
| `program.py` | such a program: its reference, its IR, its compiled form |
| `judge.py` | compares results by docs/semantics.md, section 5 |
| `stream.py` | the random stream that the data of the systems' published results was drawn from |
| `opened.py` | saves programs to files, which another process without a compiler opens and calls; tests use it too |
| `run.py` | runs cases in a child process and keeps `results/` |
| `report.py` | the text of docs/cases.md |

Nothing of the package `qmlir` imports this one.
"""
