"""qmlir's CPU code against its peers: `python -m benchmarks.cpu`.

`works.py` is the table of what is measured, `problems.py` what each work computes (arrays, our program, the reference),
`peers/` who else computes it, `limits.py` what this machine can do at most, `worker.py` measures in a process of its
own for each thread count, `report.py` makes the table, the plot and the page of the documentation.
"""
