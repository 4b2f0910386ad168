"""The GPU benchmarks: compiled on this machine, checked and measured on a machine with the device.

`python -m benchmarks.gpu build DIR` writes a self-contained folder: programs, arguments, expected results and a runner.
`DIR/run` checks every kernel family on the device and then measures it against its peers.

works.py     the works that are measured, their peers and goals
checks.py    the checks that run first
build.py     compiles, and writes the folder
runner/      the folder's runner; it needs numpy and iree-base-runtime, and uses torch and triton if they are installed
"""
