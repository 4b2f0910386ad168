"""qmlir's CPU code against its peers: `python -m benchmarks.cpu`.

`works.py` lists the works that are measured. `problems.py` defines what each computes: the arrays, qmlir's program and
the reference. `peers/` holds the other implementations. `limits.py` measures the limits of this machine, `worker.py`
measures in one process per thread count, and `report.py` makes the table, the plot and the documentation page.
"""
