"""What every other package uses: bindings of IREE's compiler and runtime, the compilation cache, file helpers."""
