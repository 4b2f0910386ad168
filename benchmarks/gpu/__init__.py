"""The GPU benchmarks: compiled here, checked and measured elsewhere.

`python -m benchmarks.gpu build DIR` writes a folder that needs nothing of this repository: programs, arguments,
expected results, a runner. `DIR/run` checks every kernel family on the device and then measures it against its peers.

works.py     what is measured, against whom, and the goals
checks.py    what is checked first
build.py     compiles, and writes the folder
runner/      what the folder's `run` starts: numpy and iree-base-runtime, torch and triton where they are
"""
