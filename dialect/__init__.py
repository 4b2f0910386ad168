"""qmlir.dialect: what an operation is.

`enums`, `dtypes`, `shapes`, `packing` and `sparse_formats` are plain Python and numpy. `ops` says what each operation
is, in terms of `ods`; both need the MLIR bindings when IR is read or built, not to be imported. `reference` says what
each operation computes, with the defaults that `ops` states. Nothing here knows of targets or passes.
"""
