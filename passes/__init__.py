"""qmlir.passes: module to module.

One pass a file, registered in `registry`; `pipeline` runs them mixed with C++ passes. `core` holds the compiler's own
passes, `core.lower` the rules from the dialect to linalg, `workarounds` what is there because of faults of IREE. Passes
know targets only through `qmlir.targets.strategy`, and nothing here imports from `qmlir.frontends` or the command line.
"""
