"""qmlir.passes: module to module.

One pass a file, registered in `registry`; `pipeline` runs them mixed with C++ passes; `lower` holds the rules from the
dialect to linalg. Passes know targets only through `qmlir.strategy`, and nothing here imports from `qmlir.frontends` or
the command line.
"""
