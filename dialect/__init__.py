"""qmlir.dialect: what an operation is.

`enums`, `dtypes`, `shapes` and `reference` are plain Python and numpy; `ods` and `ops` need the MLIR
bindings and are imported by whoever needs them. Nothing here knows of targets or passes.
"""
