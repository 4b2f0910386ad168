"""Builders and matchers over MLIR's Python bindings: what every layer above uses to write and to read IR."""
