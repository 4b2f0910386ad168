"""One file a fault of IREE 3.13, or of a driver below it: what goes wrong is in the pass's docstring, and
test/passes/test_canaries.py compiles the smallest program that shows it without the pass, where one is known."""
