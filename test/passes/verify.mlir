// RUN: qmlir-opt %s --split-input-file --verify-diagnostics --pass-pipeline=qmlir-verify
// RUN: not qmlir-opt %s --split-input-file --pass-pipeline=qmlir-verify > %t.out 2> %t.err
// RUN: filecheck %s < %t.err
// RUN: filecheck %s --check-prefix=OUT < %t.out

// Valid parts of the split file are printed although another part failed.
// OUT: func.func @valid
// OUT-NOT: qmlir.matmul

// Ops of other dialects are not verified.
func.func @valid(%x: tensor<4xi8>) -> tensor<8xi8> {
  %0 = "qmlir.unpack"(%x) {dtype = "i4"} : (tensor<4xi8>) -> tensor<8xi8>
  "other.op"() : () -> ()
  return %0 : tensor<8xi8>
}

// -----

// The error suggests similar names; its line number is that of the whole file, also behind a split.
// CHECK: verify.mlir:23:8: error: 'qmlir.matmul' op is not an op of this dialect; did you mean 'sparse_matmul' or 'scaled_matmul' or 'grouped_matmul'?
func.func @unknown(%x: tensor<4xi8>) {
  // expected-error@+1 {{'qmlir.matmul' op is not an op of this dialect; did you mean 'sparse_matmul' or 'scaled_matmul' or 'grouped_matmul'?}}
  %0 = "qmlir.matmul"(%x) : (tensor<4xi8>) -> tensor<8xi8>
  return
}

// -----

// Every op that breaks a rule is reported, in nested regions too.
// CHECK: verify.mlir:34:8: error: 'qmlir.unpack' op requires attribute 'dtype'
// CHECK: verify.mlir:37:10: error: 'qmlir.unpack' op attribute 'dtype' is 'i5', which is not known
func.func @several(%x: tensor<4xi8>, %c: i1) {
  // expected-error@+1 {{requires attribute 'dtype'}}
  %0 = "qmlir.unpack"(%x) : (tensor<4xi8>) -> tensor<8xi8>
  scf.if %c {
    // expected-error@+1 {{attribute 'dtype' is 'i5', which is not known}}
    %1 = "qmlir.unpack"(%x) {dtype = "i5"} : (tensor<4xi8>) -> tensor<8xi8>
  }
  return
}
