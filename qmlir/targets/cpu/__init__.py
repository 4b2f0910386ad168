"""CPUs: x86-64 and AArch64, through IREE's llvm-cpu backend."""
