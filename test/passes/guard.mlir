// RUN: qmlir-opt %s --split-input-file --verify-diagnostics --pass-pipeline=qmlir-guard

// An op of ours that is left over would crash IREE.
func.func @left_over(%x: tensor<4xi8>) -> tensor<8xi8> {
  // expected-error@+1 {{'qmlir.unpack' was not lowered and is unknown to IREE}}
  %0 = "qmlir.unpack"(%x) {dtype = "i4"} : (tensor<4xi8>) -> tensor<8xi8>
  return %0 : tensor<8xi8>
}

// -----

// So would any other that IREE has not registered; each is named.
func.func @foreign() {
  // expected-error@+1 {{'other.op' was not lowered and is unknown to IREE}}
  "other.op"() : () -> ()
  // expected-error@+1 {{'third.op' was not lowered and is unknown to IREE}}
  "third.op"() : () -> ()
  return
}
