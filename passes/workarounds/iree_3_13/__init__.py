"""Passes that work around faults of IREE 3.13 or of a driver below it, one file per pass. Each file states its faults
(`FAULTS`): what goes wrong, the program that shows it, and the upstream issue. test/passes/test_canaries.py compiles
these programs without the pass."""
