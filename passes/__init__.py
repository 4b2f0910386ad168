"""qmlir.passes: passes that transform MLIR modules.

Each pass has its own file and is registered in `registry`; `pipeline` runs Python passes mixed with C++ passes. `core`
has the compiler's own passes, `core.lower` the lowering rules from the dialect to linalg, and `workarounds` the passes
that exist because of defects of IREE. Passes see a target only through the interfaces in `qmlir.targets.strategy`,
and nothing here imports from `qmlir.frontends` or the command line.
"""
