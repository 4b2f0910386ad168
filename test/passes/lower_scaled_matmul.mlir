// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify,qmlir-lower-to-linalg,canonicalize,cse | filecheck %s

// Ops of the same meaning have one form. A contraction is one generic whose body is acc + ext(a) * ext(b).

// i8 x i8 -> i32 is one contraction with the bounds of the codes, and nothing else.
// CHECK-LABEL: func.func @integers(
// CHECK: %[[C:.*]] = linalg.generic {{.*}}"reduction"]} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x16xi8>)
// CHECK-SAME: qmlir.lhs_magnitude = 128 : i64, qmlir.rhs_magnitude = 128 : i64
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK-NEXT: arith.extsi %{{.*}} : i8 to i32
// CHECK-NEXT: arith.muli
// CHECK-NEXT: arith.addi %out
// CHECK-NEXT: linalg.yield
// CHECK-NOT: linalg.generic
// CHECK: return %[[C]]
func.func @integers(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xi32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// A transposed rhs is read in its stored layout.
// CHECK-LABEL: func.func @transposed(
// CHECK-NOT: linalg.transpose
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<16x8xi8>)
// CHECK: return
func.func @transposed(%lhs: tensor<4x8xi8>, %rhs: tensor<16x8xi8>) -> tensor<4x16xi32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rhs_transposed = true
  }
      : (tensor<4x8xi8>, tensor<16x8xi8>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// 4-bit codes have smaller bounds, which lets a target multiply them exactly as floats.
// CHECK-LABEL: func.func @int4_bounds(
// CHECK: qmlir.lhs_magnitude = 128 : i64, qmlir.rhs_magnitude = 8 : i64
func.func @int4_bounds(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xi32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rhs_dtype = "i4"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// A batch of one is a second axis of rows: only the lhs follows its loop, so that the product has no batch.
// CHECK-LABEL: func.func @batch_of_one(
// CHECK: linalg.generic {{.*}}"parallel", "parallel", "parallel", "reduction"]} ins(%arg0, %arg1 : tensor<1x4x8xi8>, tensor<8x16xi8>)
// CHECK: return
func.func @batch_of_one(%lhs: tensor<1x4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<1x4x16xi32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<1x4x8xi8>, tensor<8x16xi8>) -> tensor<1x4x16xi32>
  return %0 : tensor<1x4x16xi32>
}

// Batch axes of size one are dropped; no broadcast is materialised.
// CHECK-LABEL: func.func @batched(
// CHECK-NOT: linalg.broadcast
// CHECK: iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]
// CHECK-SAME: tensor<2x4x8xi8>, tensor<3x8x16xi8>
func.func @batched(%lhs: tensor<2x1x4x8xi8>, %rhs: tensor<3x8x16xi8>) -> tensor<2x3x4x16xi32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<2x1x4x8xi8>, tensor<3x8x16xi8>) -> tensor<2x3x4x16xi32>
  return %0 : tensor<2x3x4x16xi32>
}

// acc - za * sum(b) - zb * sum(a) + K * za * zb, with K = 8.
// CHECK-LABEL: func.func @zero_points(
// CHECK-DAG: %[[K:.*]] = arith.constant 8 : i32
// CHECK: %[[ACC:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1
// CHECK: %[[SA:.*]] = linalg.generic {{.*}} ins(%arg0 : tensor<?x8xi8>)
// CHECK: arith.addi %out
// CHECK: %[[SB:.*]] = linalg.generic {{.*}} ins(%arg1 : tensor<8x16xi8>)
// CHECK: arith.addi %out
// CHECK: linalg.generic {{.*}} ins(%[[ACC]], %{{.*}}, %{{.*}}, %[[SA]], %[[SB]]
// CHECK-NEXT: ^bb0(%[[C:.*]]: i32, %[[ZA:.*]]: i32, %[[ZB8:.*]]: i8, %[[A:.*]]: i32, %[[B:.*]]: i32, %{{.*}}: i32):
// CHECK-NEXT: %[[ZB:.*]] = arith.extsi %[[ZB8]]
// CHECK-NEXT: %[[T0:.*]] = arith.muli %[[ZA]], %[[B]]
// CHECK-NEXT: %[[T1:.*]] = arith.subi %[[C]], %[[T0]]
// CHECK-NEXT: %[[T2:.*]] = arith.muli %[[ZB]], %[[A]]
// CHECK-NEXT: %[[T3:.*]] = arith.subi %[[T1]], %[[T2]]
// CHECK-NEXT: %[[T4:.*]] = arith.muli %[[ZA]], %[[ZB]]
// CHECK-NEXT: %[[T5:.*]] = arith.muli %[[T4]], %[[K]]
// CHECK-NEXT: arith.addi %[[T3]], %[[T5]]
func.func @zero_points(%lhs: tensor<?x8xi8>, %rhs: tensor<8x16xi8>, %lhs_zero_point: tensor<?x1xi32>,
    %rhs_zero_point: tensor<1x16xi8>) -> tensor<?x16xi32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_zero_point, %rhs_zero_point) {
    operand_names = ["lhs", "rhs", "lhs_zero_point", "rhs_zero_point"],
    lhs_zero_mode = "int", rhs_zero_mode = "int"
  }
      : (tensor<?x8xi8>, tensor<8x16xi8>, tensor<?x1xi32>, tensor<1x16xi8>) -> tensor<?x16xi32>
  return %0 : tensor<?x16xi32>
}

// Sums of constant weights are constants; the weights are not read twice.
// CHECK-LABEL: func.func @constant_sums(
// CHECK: %[[SUM:.*]] = arith.constant dense<[11, -18, 103]> : tensor<3xi32>
// CHECK: %[[ACC:.*]] = linalg.generic {{.*}} ins(%arg0, %{{.*}} : tensor<4x2xi8>, tensor<2x3xi8>)
// CHECK: linalg.generic {{.*}} ins(%[[ACC]], %arg1, %[[SUM]]
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @constant_sums(%lhs: tensor<4x2xi8>, %lhs_zero_point: tensor<i32>) -> tensor<4x3xi32> {
  %w = arith.constant dense<[[1, 2, 3], [10, -20, 100]]> : tensor<2x3xi8>
  %0 = "qmlir.scaled_matmul"(%lhs, %w, %lhs_zero_point) {
    operand_names = ["lhs", "rhs", "lhs_zero_point"],
    lhs_zero_mode = "int"
  }
      : (tensor<4x2xi8>, tensor<2x3xi8>, tensor<i32>) -> tensor<4x3xi32>
  return %0 : tensor<4x3xi32>
}

// Unsigned codes of the lhs need the sums of the rhs too. K is the last axis of a transposed rhs.
// CHECK-LABEL: func.func @constant_sums_transposed(
// CHECK: arith.constant dense<[3, 13, 80]> : tensor<3xi32>
func.func @constant_sums_transposed(%lhs: tensor<2x2xi8>) -> tensor<2x3xi32> {
  %w = arith.constant dense<[[1, 2], [3, 10], [-20, 100]]> : tensor<3x2xi8>
  %0 = "qmlir.scaled_matmul"(%lhs, %w) {
    operand_names = ["lhs", "rhs"],
    lhs_dtype = "u8", rhs_transposed = true
  } : (tensor<2x2xi8>, tensor<3x2xi8>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// With groups along K, each group has its own sum, which an op computes.
// CHECK-LABEL: func.func @sums_of_groups(
// CHECK: linalg.generic {{.*}}qmlir.lhs_magnitude
// CHECK: linalg.generic {{.*}} attrs = {{.*}}qmlir.row_sums
// CHECK: return
func.func @sums_of_groups(%lhs: tensor<2x4xi8>, %z: tensor<i32>, %s: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %w = arith.constant dense<1> : tensor<4x3xi8>
  %0 = "qmlir.scaled_matmul"(%lhs, %w, %s, %z) {
    operand_names = ["lhs", "rhs", "rhs_scale", "lhs_zero_point"],
    lhs_zero_mode = "int", group_size = 2
  } : (tensor<2x4xi8>, tensor<4x3xi8>, tensor<2x3xf32>, tensor<i32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// `rhs_sum`, an attribute of old programs, is ignored, because it may be the sum of other codes.
// CHECK-LABEL: func.func @given_sums(
// CHECK-NOT: dense<7>
// CHECK: linalg.generic {{.*}} attrs = {{.*}}qmlir.row_sums
func.func @given_sums(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %lhs_zero_point: tensor<i32>) -> tensor<4x16xi32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_zero_point) {
    operand_names = ["lhs", "rhs", "lhs_zero_point"], rhs_sum = dense<7> : tensor<16xi32>,
    lhs_zero_mode = "int"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<i32>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// u8 codes are biased by 128 with an exclusive or, and the bias is added to the zero point.
// CHECK-LABEL: func.func @unsigned_lhs(
// CHECK-DAG: %[[BIT:.*]] = arith.constant -128 : i8
// CHECK-DAG: %[[BIAS:.*]] = arith.constant -128 : i32
// CHECK: %[[X:.*]] = linalg.generic {{.*}} ins(%arg0 : tensor<4x8xi8>)
// CHECK: arith.xori %{{.*}}, %[[BIT]] : i8
// CHECK: linalg.generic {{.*}} ins(%[[X]], %arg1
// CHECK: linalg.generic {{.*}} ins(%arg1 : tensor<8x16xi8>)
// CHECK: arith.muli %{{.*}}, %[[BIAS]]
// CHECK-NEXT: arith.subi
func.func @unsigned_lhs(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xi32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    lhs_dtype = "u8"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// f32(acc) * (s_a * s_b): the scales are multiplied first.
// CHECK-LABEL: func.func @scales(
// CHECK: arith.addi %out
// CHECK: ^bb0(%[[C:.*]]: i32, %[[SA:.*]]: f32, %[[SB:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT: %[[Y:.*]] = arith.sitofp %[[C]] : i32 to f32
// CHECK-NEXT: %[[S:.*]] = arith.mulf %[[SA]], %[[SB]]
// CHECK-NEXT: %[[R:.*]] = arith.mulf %[[Y]], %[[S]]
// CHECK-NEXT: linalg.yield %[[R]]
func.func @scales(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %lhs_scale: tensor<4x1xf32>,
    %rhs_scale: tensor<1x16xf32>) -> tensor<4x16xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale, %rhs_scale) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<4x1xf32>, tensor<1x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// Groups along K: exact i32 inside a group, then f32 over the groups in ascending order.
// CHECK-LABEL: func.func @groups(
// CHECK-DAG: tensor.expand_shape %arg0 {{\[}}[0], [1, 2]] output_shape [4, 2, 4]
// CHECK-DAG: tensor.expand_shape %arg1 {{\[}}[0, 1], [2]] output_shape [2, 4, 16]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "reduction"]
// CHECK: arith.muli
// CHECK: arith.addi %out
// CHECK-NEXT: linalg.yield
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "parallel", "parallel"]
// CHECK: arith.sitofp
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: arith.mulf
// CHECK: arith.addf %out
func.func @groups(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %lhs_scale: tensor<4x1xf32>,
    %rhs_scale: tensor<2x16xf32>) -> tensor<4x16xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale, %rhs_scale) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"],
    group_size = 4
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<4x1xf32>, tensor<2x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// Weight only: dequantised in f32 and rounded once to the other side's type, accumulated in f32.
// CHECK-LABEL: func.func @weight_only(
// CHECK: arith.sitofp %{{.*}} : i8 to f32
// CHECK-NEXT: arith.extf %{{.*}} : f16 to f32
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: arith.truncf %{{.*}} : f32 to f16
// CHECK: linalg.generic {{.*}}tensor<4x8xf16>, tensor<8x16xf16>) outs(%{{.*}} : tensor<4x16xf32>)
// CHECK: arith.extf
// CHECK-NEXT: arith.extf
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: arith.addf %out
// CHECK-NEXT: linalg.yield
// CHECK: arith.truncf %{{.*}} : f32 to f16
func.func @weight_only(%lhs: tensor<4x8xf16>, %rhs: tensor<8x16xi8>, %rhs_scale: tensor<2x16xf16>)
    -> tensor<4x16xf16> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale) {
    operand_names = ["lhs", "rhs", "rhs_scale"],
    group_size = 4
  }
      : (tensor<4x8xf16>, tensor<8x16xi8>, tensor<2x16xf16>) -> tensor<4x16xf16>
  return %0 : tensor<4x16xf16>
}

// The same, computed in f32 because of `compute_dtype`.
// CHECK-LABEL: func.func @weight_only_f32(
// CHECK: linalg.generic {{.*}}tensor<4x8xf32>, tensor<8x16xf32>) outs(%{{.*}} : tensor<4x16xf32>)
func.func @weight_only_f32(%lhs: tensor<4x8xf16>, %rhs: tensor<8x16xi8>, %rhs_scale: tensor<1x16xf16>)
    -> tensor<4x16xf16> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale) {
    operand_names = ["lhs", "rhs", "rhs_scale"],
    compute_dtype = "f32"
  }
      : (tensor<4x8xf16>, tensor<8x16xi8>, tensor<1x16xf16>) -> tensor<4x16xf16>
  return %0 : tensor<4x16xf16>
}

// Nibbles: shifted, masked, sign-extended by (x ^ 8) - 8.
// CHECK-LABEL: func.func @packed(
// CHECK-DAG: %[[EIGHT:.*]] = arith.constant 8 : i32
// CHECK-DAG: %[[MASK:.*]] = arith.constant 15 : i32
// CHECK-DAG: arith.constant dense<[0, 4]> : tensor<2xi8>
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: arith.shrui
// CHECK-NEXT: arith.andi %{{.*}}, %[[MASK]]
// CHECK-NEXT: arith.xori %{{.*}}, %[[EIGHT]]
// CHECK-NEXT: arith.subi %{{.*}}, %[[EIGHT]]
// CHECK-NEXT: arith.trunci
// CHECK: tensor.collapse_shape %{{.*}} : tensor<8x8x2xi8> into tensor<8x16xi8>
// CHECK: linalg.generic {{.*}}tensor<4x8xi8>, tensor<8x16xi8>)
func.func @packed(%lhs: tensor<4x8xi8>, %rhs: tensor<8x8xi8>) -> tensor<4x16xi32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rhs_dtype = "i4", rhs_packing = "low_first"
  }
      : (tensor<4x8xi8>, tensor<8x8xi8>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// High nibble first; the padding of an odd row is sliced off.
// CHECK-LABEL: func.func @high_first_odd(
// CHECK: arith.constant dense<[4, 0]> : tensor<2xi8>
// CHECK: tensor.extract_slice %{{.*}}[0, 0] [8, 3] [1, 1] : tensor<8x4xi8> to tensor<8x3xi8>
func.func @high_first_odd(%lhs: tensor<4x8xi8>, %rhs: tensor<8x2xi8>) -> tensor<4x3xi32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rhs_dtype = "u4", rhs_packing = "high_first"
  }
      : (tensor<4x8xi8>, tensor<8x2xi8>) -> tensor<4x3xi32>
  return %0 : tensor<4x3xi32>
}

// Table codes: a chain of selects over constants.
// CHECK-LABEL: func.func @nf4(
// CHECK-COUNT-15: arith.select
// CHECK: arith.mulf
func.func @nf4(%lhs: tensor<4x8xf32>, %rhs: tensor<8x16xi8>, %rhs_scale: tensor<1x16xf32>) -> tensor<4x16xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale) {
    operand_names = ["lhs", "rhs", "rhs_scale"],
    rhs_dtype = "nf4"
  }
      : (tensor<4x8xf32>, tensor<8x16xi8>, tensor<1x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// A codebook that is not constant is read from memory.
// CHECK-LABEL: func.func @codebook(
// CHECK-NOT: arith.select
// CHECK: tensor.extract %arg2
func.func @codebook(%lhs: tensor<4x8xf32>, %rhs: tensor<8x16xi8>, %codebook: tensor<16xf32>) -> tensor<4x16xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %codebook) {
    operand_names = ["lhs", "rhs", "codebook"],
    rhs_dtype = "codebook"
  }
      : (tensor<4x8xf32>, tensor<8x16xi8>, tensor<16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// A constant codebook becomes a chain of selects, like a built-in table.
// CHECK-LABEL: func.func @constant_codebook(
// CHECK-NOT: tensor.extract
// CHECK-COUNT-15: arith.select
func.func @constant_codebook(%lhs: tensor<4x8xf32>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  %codebook = arith.constant dense<[0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0,
                                    0.5, 1.5, 2.5, 4.5, 8.5, 16.5, 32.5, 64.5]> : tensor<16xf32>
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %codebook) {
    operand_names = ["lhs", "rhs", "codebook"],
    rhs_dtype = "codebook"
  }
      : (tensor<4x8xf32>, tensor<8x16xi8>, tensor<16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// Float codes: products and sums in f32, scales afterwards.
// CHECK-LABEL: func.func @fp8(
// CHECK: arith.extf %{{.*}} : f8E4M3FN to f32
// CHECK-NEXT: arith.extf %{{.*}} : f8E4M3FN to f32
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: arith.addf %out
// CHECK: arith.mulf
// CHECK-NEXT: arith.mulf
func.func @fp8(%lhs: tensor<4x8xf8E4M3FN>, %rhs: tensor<8x16xf8E4M3FN>, %lhs_scale: tensor<f32>,
    %rhs_scale: tensor<f32>) -> tensor<4x16xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale, %rhs_scale) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"]
  }
      : (tensor<4x8xf8E4M3FN>, tensor<8x16xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// bias_stage = acc: before the scale, in i32.
// CHECK-LABEL: func.func @bias_acc(
// CHECK: arith.addi %out
// CHECK: arith.addi
// CHECK-NEXT: arith.sitofp
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: linalg.yield
func.func @bias_acc(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %lhs_scale: tensor<f32>, %bias: tensor<16xi32>)
    -> tensor<4x16xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale, %bias) {
    operand_names = ["lhs", "rhs", "lhs_scale", "bias"],
    bias_stage = "acc"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<f32>, tensor<16xi32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// bias_stage = scaled: after the scale, in f32.
// CHECK-LABEL: func.func @bias_scaled(
// CHECK: arith.addi %out
// CHECK: arith.sitofp
// CHECK: arith.mulf
// CHECK-NEXT: %[[B:.*]] = arith.extf
// CHECK: arith.addf
func.func @bias_scaled(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %lhs_scale: tensor<f32>, %bias: tensor<16xf16>)
    -> tensor<4x16xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale, %bias) {
    operand_names = ["lhs", "rhs", "lhs_scale", "bias"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<f32>, tensor<16xf16>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// bias_stage = out: after the cast, in the result's type.
// CHECK-LABEL: func.func @bias_out(
// CHECK: arith.addf %out
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK: arith.addf
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK-NEXT: linalg.yield
func.func @bias_out(%lhs: tensor<4x8xf16>, %rhs: tensor<8x16xf16>, %bias: tensor<16xf16>) -> tensor<4x16xf16> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %bias) {
    operand_names = ["lhs", "rhs", "bias"],
    bias_stage = "out"
  }
      : (tensor<4x8xf16>, tensor<8x16xf16>, tensor<16xf16>) -> tensor<4x16xf16>
  return %0 : tensor<4x16xf16>
}

// alpha * y + beta * C, then the activation.
// CHECK-LABEL: func.func @alpha_beta(
// CHECK-DAG: %[[A:.*]] = arith.constant 5.000000e-01 : f32
// CHECK-DAG: %[[B:.*]] = arith.constant 2.000000e+00 : f32
// CHECK-DAG: %[[SIX:.*]] = arith.constant 6.000000e+00 : f32
// CHECK: arith.sitofp
// CHECK-NEXT: arith.mulf %{{.*}}, %[[A]]
// CHECK: arith.mulf %{{.*}}, %[[B]]
// CHECK: arith.addf
// CHECK: arith.maximumf
// CHECK-NEXT: arith.minimumf %{{.*}}, %[[SIX]]
func.func @alpha_beta(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %c: tensor<16xf32>) -> tensor<4x16xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %c) {
    operand_names = ["lhs", "rhs", "c"],
    alpha = 0.5 : f32, beta = 2.0 : f32, activation = "relu6"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// The halves of the columns: silu(gate) * up.
// CHECK-LABEL: func.func @swiglu(
// CHECK: tensor.extract_slice %[[Y:.*]][0, 0] [4, 8]
// CHECK: tensor.extract_slice %[[Y]][0, 8] [4, 8]
// CHECK: arith.negf
// CHECK-NEXT: math.exp
// CHECK: arith.divf
// CHECK: arith.mulf
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: linalg.yield
func.func @swiglu(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %lhs_scale: tensor<f32>) -> tensor<4x8xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale) {
    operand_names = ["lhs", "rhs", "lhs_scale"],
    activation = "swiglu"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// Requantised, half to even: NaN becomes the zero point, then the value is clamped, and converted to i8 through i32.
// CHECK-LABEL: func.func @half_even(
// CHECK-DAG: %[[LO:.*]] = arith.constant -1.280000e+02 : f32
// CHECK-DAG: %[[HI:.*]] = arith.constant 1.270000e+02 : f32
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK: arith.divf %[[ONE]]
// CHECK: %[[X:.*]] = arith.mulf
// CHECK-NEXT: %[[R:.*]] = math.roundeven %[[X]]
// CHECK-NEXT: %[[NAN:.*]] = arith.cmpf uno, %[[X]], %[[X]]
// CHECK-NEXT: arith.select %[[NAN]], %{{.*}}, %[[R]]
// CHECK-NEXT: arith.addf
// CHECK-NEXT: arith.maximumf %{{.*}}, %[[LO]]
// CHECK-NEXT: arith.minimumf %{{.*}}, %[[HI]]
// CHECK-NEXT: arith.fptosi %{{.*}} : f32 to i32
// CHECK-NEXT: arith.trunci %{{.*}} : i32 to i8
func.func @half_even(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %out_scale: tensor<f32>,
    %out_zero_point: tensor<i8>) -> tensor<4x16xi8> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %out_scale, %out_zero_point) {
    operand_names = ["lhs", "rhs", "out_scale", "out_zero_point"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<f32>, tensor<i8>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// Requantised, half away from zero, by operations that are exact.
// CHECK-LABEL: func.func @half_away(
// CHECK-NOT: arith.divf
// CHECK: %[[T:.*]] = math.trunc %[[X:.*]] :
// CHECK-NEXT: arith.subf %[[X]], %[[T]]
// CHECK-NEXT: math.absf
// CHECK-NEXT: math.copysign
// CHECK-NEXT: arith.cmpf oge
// CHECK-NEXT: arith.addf %[[T]]
// CHECK-NEXT: arith.select
func.func @half_away(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %out_multiplier: tensor<f32>) -> tensor<4x16xi8> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %out_multiplier) {
    operand_names = ["lhs", "rhs", "out_multiplier"],
    rounding = "half_away"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<f32>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// Truncation as in CK, with the bounds of `clamp`, to u8.
// CHECK-LABEL: func.func @trunc(
// CHECK-DAG: %[[LO:.*]] = arith.constant 3.000000e+00 : f32
// CHECK-DAG: %[[HI:.*]] = arith.constant 2.500000e+02 : f32
// CHECK: math.trunc
// CHECK-NOT: math.roundeven
// CHECK: arith.maximumf %{{.*}}, %[[LO]]
// CHECK-NEXT: arith.minimumf %{{.*}}, %[[HI]]
func.func @trunc(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xi8> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rounding = "trunc", clamp = array<i64: 3, 250>, out_dtype = "u8"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// A lhs without rows is lowered like any other.
// CHECK-LABEL: func.func @empty(
// CHECK-NOT: qmlir.scaled_matmul
// CHECK: return %{{.*}} : tensor<0x16xi32>
func.func @empty(%lhs: tensor<0x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<0x16xi32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<0x8xi8>, tensor<8x16xi8>) -> tensor<0x16xi32>
  return %0 : tensor<0x16xi32>
}
