// Structurally invalid programs are refused by qmlir's verifier and, independently, by MLIR's from the emitted IRDL.
//
// RUN: qmlir-opt --irdl > %t.irdl.mlir
// RUN: not iree-opt --irdl-file=%t.irdl.mlir --split-input-file %s -o %t.out 2>&1 | filecheck %s --check-prefix=IRDL
// RUN: not qmlir-opt --split-input-file --pass-pipeline=qmlir-verify %s 2>&1 | filecheck %s --check-prefix=QMLIR

// IRDL: unpack' op attribute "dtype" is expected but not provided
// QMLIR: 'qmlir.unpack' op requires attribute 'dtype'
func.func @missing_attribute(%x: tensor<4xi8>) {
  %0 = "qmlir.unpack"(%x) : (tensor<4xi8>) -> tensor<8xi8>
  return
}

// -----

// IRDL: op expects exactly 1 operands, but got 2
// QMLIR: 'qmlir.unpack' op expects 1 operands (input), but got 2
func.func @too_many_operands(%x: tensor<4xi8>) {
  %0 = "qmlir.unpack"(%x, %x) {dtype = "i4"} : (tensor<4xi8>, tensor<4xi8>) -> tensor<8xi8>
  return
}

// -----

// IRDL: op expects exactly 1 operands, but got 0
// QMLIR: 'qmlir.unpack' op expects 1 operands (input), but got 0
func.func @too_few_operands() {
  %0 = "qmlir.unpack"() {dtype = "i4"} : () -> tensor<8xi8>
  return
}

// -----

// IRDL: op expects exactly 1 results, but got 0
// QMLIR: 'qmlir.unpack' op expects 1 results, got 0
func.func @no_result(%x: tensor<4xi8>) {
  "qmlir.unpack"(%x) {dtype = "i4"} : (tensor<4xi8>) -> ()
  return
}

// -----

// IRDL: expected base attribute 'builtin.string' but got 'builtin.integer'
// QMLIR: 'qmlir.unpack' op attribute 'dtype' must be one of
func.func @wrong_kind_of_attribute(%x: tensor<4xi8>) {
  %0 = "qmlir.unpack"(%x) {dtype = 4} : (tensor<4xi8>) -> tensor<8xi8>
  return
}

// -----

// IRDL: expected base type 'builtin.tensor' but got 'builtin.vector'
// QMLIR: 'qmlir.quantize' op operand 'input' must be a ranked tensor of floats, but is vector<4xf32>
func.func @wrong_kind_of_operand(%x: vector<4xf32>, %s: tensor<f32>) {
  %0 = "qmlir.quantize"(%x, %s) {operandSegmentSizes = array<i32: 1, 1, 0>}
      : (vector<4xf32>, tensor<f32>) -> tensor<4xi8>
  return
}

// -----

// IRDL: expected base type 'builtin.tensor' but got 'builtin.integer'
// QMLIR: 'qmlir.quantize' op result 'result' must be a ranked tensor of i8 codes
func.func @wrong_kind_of_result(%x: tensor<4xf32>, %s: tensor<f32>) {
  %0 = "qmlir.quantize"(%x, %s) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4xf32>, tensor<f32>) -> i8
  return
}

// -----

// IRDL: 'operandSegmentSizes' attribute for specifying operand segments must have 4 elements, but got 2
// QMLIR: 'qmlir.dequant' op 'operandSegmentSizes' array<i32: 1, 1> does not match 2 operands; name those that are given
func.func @short_segments(%x: tensor<4xi8>, %s: tensor<f32>) {
  %0 = "qmlir.dequant"(%x, %s) {operandSegmentSizes = array<i32: 1, 1>}
      : (tensor<4xi8>, tensor<f32>) -> tensor<4xf32>
  return
}

// -----

// IRDL: element 0 in 'operandSegmentSizes' attribute must be equal to 1
// QMLIR: 'qmlir.dequant' op 'operandSegmentSizes' array<i32: 2, 0, 0, 0> does not match 2 operands
func.func @segment_twice(%x: tensor<4xi8>) {
  %0 = "qmlir.dequant"(%x, %x) {operandSegmentSizes = array<i32: 2, 0, 0, 0>}
      : (tensor<4xi8>, tensor<4xi8>) -> tensor<4xf32>
  return
}

// -----

// IRDL: unexpected number of regions: expected 0 but got 1
// QMLIR: 'qmlir.unpack' op takes no regions and no successors
func.func @region(%x: tensor<4xi8>) {
  %0 = "qmlir.unpack"(%x) ({}) {dtype = "i4"} : (tensor<4xi8>) -> tensor<8xi8>
  return
}

// -----

// IRDL: extensible Dialects don't support properties
// QMLIR: 'qmlir.unpack' op has attributes in <{...}>
func.func @properties(%x: tensor<4xi8>) {
  %0 = "qmlir.unpack"(%x) <{packing = "high_first"}> {dtype = "i4"} : (tensor<4xi8>) -> tensor<8xi8>
  return
}

// -----

// IRDL: unregistered operation 'qmlir.scaled_matmull'
// QMLIR: 'qmlir.scaled_matmull' op is not an op of this dialect; did you mean 'scaled_matmul'
func.func @unknown_op(%x: tensor<4xi8>) {
  %0 = "qmlir.scaled_matmull"(%x) : (tensor<4xi8>) -> tensor<8xi8>
  return
}
