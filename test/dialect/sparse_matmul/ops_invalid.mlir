// RUN: qmlir-opt %s --split-input-file --verify-diagnostics --pass-pipeline=qmlir-verify

// === Attributes

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{requires attribute 'format'}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{attribute 'format' is 'crs', which is not known; did you mean 'csr'?}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "crs", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{requires attribute 'rhs_shape'}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr",
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{'rhs_shape' [-4, 3] must not be negative}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: -4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{format 'bsr' and attribute 'block' go together}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>, block = array<i64: 1, 1>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3x3x1xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{'block' [3, 1] does not divide 'rhs_shape' [4, 3]}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "bsr", rhs_shape = array<i64: 4, 3>, block = array<i64: 3, 1>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3x3x1xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<4x2xi8>, %indices: tensor<4x1xi8>) -> tensor<2x4xi32> {
  // expected-error@+1 {{format '2:4' has its groups along K, the last axis: state 'rhs_transposed' with [N, K]}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices) {
    format = "2:4", rhs_shape = array<i64: 4, 4>,
    operand_names = ["lhs", "values", "indices"]
  }
      : (tensor<2x4xi8>, tensor<4x2xi8>, tensor<4x1xi8>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}

// -----

func.func @f(%lhs: tensor<2x6xi8>, %values: tensor<4x3xi8>, %indices: tensor<4x1xi8>) -> tensor<2x4xi32> {
  // expected-error@+1 {{K = 6 is not a multiple of 4, which format '2:4' needs}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices) {
    format = "2:4", rhs_shape = array<i64: 4, 6>, rhs_transposed = true,
    operand_names = ["lhs", "values", "indices"]
  }
      : (tensor<2x6xi8>, tensor<4x3xi8>, tensor<4x1xi8>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}

// -----

// === Shapes and types

func.func @f(%lhs: tensor<4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{'lhs' must have at least two axes, but is tensor<4xi8>}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x5xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{K differs: 'lhs' [2, 5] has 5, 'rhs_shape' [4, 3] has 4 along axis 0}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x5xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xf32> {
  // expected-error@+1 {{'values' is nf4, whose code 0 need not be the real value 0; use i8, u8}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>, rhs_dtype = "nf4",
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi16>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{operand 'indices' must be a ranked tensor of i32 or i64 integers (2:4: i8 bytes), but is tensor<3xi16>}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi16>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi8>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{'indices' is tensor<3xi8>, but format 'csr' takes i32 or i64}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi8>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<4x2xi8>, %indices: tensor<4x1xi32>) -> tensor<2x4xi32> {
  // expected-error@+1 {{'indices' is tensor<4x1xi32>, but format '2:4' takes bytes (i8)}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices) {
    format = "2:4", rhs_shape = array<i64: 4, 4>, rhs_transposed = true,
    operand_names = ["lhs", "values", "indices"]
  }
      : (tensor<2x4xi8>, tensor<4x2xi8>, tensor<4x1xi32>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<?xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{the number of stored entries must be static, but 'indices' is tensor<?xi32>}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<?xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{'indices' has shape [3], but format 'coo' takes [2, 3]}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices) {
    format = "coo", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<4xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{'values' has shape [3], but the indices give [4]}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<4xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<2x3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{operand 'indptr' belongs to the formats 'csr' and 'bsr'}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "coo", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<2x3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{operand 'indptr' belongs to the formats 'csr' and 'bsr'}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi8>) -> tensor<2x3xi32> {
  // expected-error@+1 {{'indptr' must be i32 or i64, but is tensor<5xi8>}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi8>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<4xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{'indptr' has shape [4], but 4 rows need [5]}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<4xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x4xi32> {
  // expected-error@+1 {{result has shape [2, 4], but the operands give [2, 3]}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}

// -----

// === Constant structure

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>) -> tensor<2x3xi32> {
  %indices = arith.constant dense<[0, 2, 1]> : tensor<3xi32>
  %indptr = arith.constant dense<[0, 2, 2, 2, 2]> : tensor<5xi32>
  // expected-error@+1 {{'indptr' must start at 0 and end at the 3 stored entries, but goes from 0 to 2}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>) -> tensor<2x3xi32> {
  %indices = arith.constant dense<[0, 2, 1]> : tensor<3xi32>
  %indptr = arith.constant dense<[0, 2, 1, 3, 3]> : tensor<5xi32>
  // expected-error@+1 {{'indptr' decreases after row 1: 2, 1}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>) -> tensor<2x3xi32> {
  %indices = arith.constant dense<[0, 3, 1]> : tensor<3xi32>
  %indptr = arith.constant dense<[0, 2, 2, 3, 3]> : tensor<5xi32>
  // expected-error@+1 {{entry 1 of 'indices' names column 3, which is outside [0, 3)}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>) -> tensor<2x3xi32> {
  %indices = arith.constant dense<[2, 0, 1]> : tensor<3xi32>
  %indptr = arith.constant dense<[0, 2, 2, 3, 3]> : tensor<5xi32>
  // expected-error@+1 {{entry 1 of 'indices', (0, 0), comes after (0, 2); sort by row and column}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>) -> tensor<2x3xi32> {
  %indices = arith.constant dense<[2, 2, 1]> : tensor<3xi32>
  %indptr = arith.constant dense<[0, 2, 2, 3, 3]> : tensor<5xi32>
  // expected-error@+1 {{entry 1 of 'indices' repeats (0, 2); an entry may be stored once}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<4x2xi8>) -> tensor<2x4xi32> {
  %indices = arith.constant dense<[[4], [6], [4], [4]]> : tensor<4x1xi8>
  // expected-error@+1 {{the metadata of row 1, group 0 names positions 2 and 1; it must name two positions in ascending order}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices) {
    format = "2:4", rhs_shape = array<i64: 4, 4>, rhs_transposed = true,
    operand_names = ["lhs", "values", "indices"]
  }
      : (tensor<2x4xi8>, tensor<4x2xi8>, tensor<4x1xi8>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}

// -----

// === Values and epilogue

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>, %indptr: tensor<5xi32>,
    %rhs_zero_point: tensor<i32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{a sparse weight takes no zero point: entries that are not stored are the real value 0, which would not be code 0; quantise the weight symmetrically (rhs_zero_mode 'none')}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr, %rhs_zero_point) {
    format = "csr", rhs_shape = array<i64: 4, 3>, rhs_zero_mode = "int",
    operand_names = ["lhs", "values", "indices", "indptr", "rhs_zero_point"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>, tensor<i32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{a sparse weight takes no zero point: entries that are not stored are the real value 0}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>, rhs_zero_mode = "offset_int", rhs_dtype = "u8",
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x5xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>, %indptr: tensor<6xi32>,
    %rhs_scale: tensor<2x3xf32>) -> tensor<2x3xf32> {
  // expected-error@+1 {{'rhs_scale' has shape [2, 3], but axis 0 of 'weight' [5, 3] has 5 elements, which 2 groups do not divide}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr, %rhs_scale) {
    format = "csr", rhs_shape = array<i64: 5, 3>,
    operand_names = ["lhs", "values", "indices", "indptr", "rhs_scale"]
  }
      : (tensor<2x5xi8>, tensor<3xi8>, tensor<3xi32>, tensor<6xi32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

func.func @f(%lhs: tensor<2x300000xi8>, %values: tensor<1x150000xi8>, %indices: tensor<1x37500xi8>) -> tensor<2x1xi32> {
  // expected-error@+1 {{the exact i32 sum over K = 150000 can reach}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices) {
    format = "2:4", rhs_shape = array<i64: 1, 300000>, rhs_transposed = true,
    operand_names = ["lhs", "values", "indices"]
  }
      : (tensor<2x300000xi8>, tensor<1x150000xi8>, tensor<1x37500xi8>) -> tensor<2x1xi32>
  return %0 : tensor<2x1xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{'values' has packing 'low_first', but i8 codes fill a byte; use packing 'none'}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>, rhs_packing = "low_first",
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// -----

func.func @f(%lhs: tensor<2x4xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{'values' has 3 bytes along its last axis, but 3 i4 codes packed 'low_first' take 2}}
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>, rhs_dtype = "i4", rhs_packing = "low_first",
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}
