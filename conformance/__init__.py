"""The test cases of five systems, run through qmlir: `python -m conformance`.

| file | what it holds |
|---|---|
| `cases.json` | the cases as data, in the systems' own words |
| `scheme.py` | what a case says, as a program of qmlir ops and its operands |
| `program.py` | such a program: its reference, its IR, its compiled form |
| `judge.py` | docs/semantics.md, section 5 |
| `stream.py` | the random numbers that the systems' published results were drawn from |
| `run.py` | runs cases in a child process and keeps `results/` |
| `report.py` | the text of docs/cases.md |

Nothing of the package `qmlir` imports this one.
"""
