"""A pass for each fault of IREE 3.13, or of a driver below it, that it works around. Each file states its faults
(`FAULTS`): what goes wrong, the program that shows it, and the issue upstream. test/passes/test_canaries.py compiles
these programs without the pass."""
