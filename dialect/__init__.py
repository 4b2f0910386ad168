"""qmlir.dialect: the definitions of the dialect's operations.

`enums`, `dtypes`, `shapes`, `packing` and `sparse_formats` are plain Python and numpy. `ops` defines each operation
with the classes of `ods`; both can be imported without the MLIR bindings, which reading or building IR needs.
`reference` computes each operation in numpy, with the defaults that `ops` states. Nothing here depends on targets or
passes.
"""
