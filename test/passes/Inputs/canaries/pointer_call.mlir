// A kernel that calls what its argument is the address of. (It is 0, and nothing is called.)
func.func @main(%x: tensor<1xi64>) -> tensor<1xi64> {
  %0 = flow.dispatch @kernel::@kernel(%x) : (tensor<1xi64>) -> tensor<1xi64>
  return %0 : tensor<1xi64>
}
stream.executable private @kernel {
  stream.executable.export public @kernel workgroups() -> (index, index, index) {
    %one = arith.constant 1 : index
    stream.return %one, %one, %one : index, index, index
  }
  builtin.module {
    func.func @kernel(%in: !stream.binding, %out: !stream.binding) {
      %c0 = arith.constant 0 : index
      %zero = arith.constant 0 : i64
      %x = stream.binding.subspan %in[%c0] : !stream.binding -> memref<1xi64>
      %y = stream.binding.subspan %out[%c0] : !stream.binding -> memref<1xi64>
      %address = memref.load %x[%c0] : memref<1xi64>
      %some = arith.cmpi ne, %address, %zero : i64
      scf.if %some {
        %function = llvm.inttoptr %address : i64 to !llvm.ptr
        llvm.call %function() : !llvm.ptr, () -> ()
      }
      memref.store %address, %y[%c0] : memref<1xi64>
      return
    }
  }
}
