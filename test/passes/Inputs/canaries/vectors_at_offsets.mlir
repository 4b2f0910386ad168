// A kernel with two results, which share a buffer, in vectors. With one result it compiles.
!vectors = memref<?xvector<4xf32>, #hal.descriptor_type<storage_buffer>>
#launch = #iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline workgroup_size = [1, 1, 1]>
func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %0:2 = flow.dispatch @kernel::@kernel(%x, %n) : (tensor<?xf32>{%n}, index) -> (tensor<?xf32>{%n}, tensor<?xf32>{%n})
  return %0#0, %0#1 : tensor<?xf32>, tensor<?xf32>
}
stream.executable private @kernel {
  stream.executable.export public @kernel workgroups() -> (index, index, index) {
    %one = arith.constant 1 : index
    stream.return %one, %one, %one : index, index, index
  }
  builtin.module {
    func.func @kernel(%in: !stream.binding, %n: index, %a: !stream.binding, %b: !stream.binding)
        attributes {translation_info = #launch} {
      %c0 = arith.constant 0 : index
      %c4 = arith.constant 4 : index
      %count = arith.divui %n, %c4 : index
      %x = stream.binding.subspan %in[%c0] : !stream.binding -> !vectors{%count}
      %y = stream.binding.subspan %a[%c0] : !stream.binding -> !vectors{%count}
      %z = stream.binding.subspan %b[%c0] : !stream.binding -> !vectors{%count}
      %four = memref.load %x[%c0] : !vectors
      memref.store %four, %y[%c0] : !vectors
      memref.store %four, %z[%c0] : !vectors
      return
    }
  }
}
