// RUN: qmlir-opt %s --split-input-file --verify-diagnostics --pass-pipeline=qmlir-verify

// === Structure

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>) -> tensor<6x16xf32> {
  // expected-error@+1 {{needs either 'group_sizes' (contiguous rows) or 'expert_ids' (routed), and not both}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %group_sizes: tensor<4xi32>,
    %expert_ids: tensor<6x2xi32>) -> tensor<6x16xf32> {
  // expected-error@+1 {{needs either 'group_sizes' (contiguous rows) or 'expert_ids' (routed), and not both}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes, %expert_ids) {
    operand_names = ["lhs", "rhs", "group_sizes", "expert_ids"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4xi32>, tensor<6x2xi32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %group_sizes: tensor<4xi32>) -> tensor<6x16xf32> {
  // expected-error@+1 {{has no attribute 'lhs_transposed'}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes) {
    operand_names = ["lhs", "rhs", "group_sizes"],
    lhs_transposed = true
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4xi32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %group_sizes: tensor<4xi8>) -> tensor<6x16xf32> {
  // expected-error@+1 {{operand 'group_sizes' must be a ranked tensor of i32 or i64 integers, but is tensor<4xi8>}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes) {
    operand_names = ["lhs", "rhs", "group_sizes"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4xi8>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

// === Contiguous

func.func @f(%lhs: tensor<2x6x8xi8>, %rhs: tensor<4x8x16xi8>, %group_sizes: tensor<4xi32>) -> tensor<6x16xf32> {
  // expected-error@+1 {{needs 'lhs' [M, K] and 'rhs' [G, K, N] or [G, N, K], but they are tensor<2x6x8xi8> and tensor<4x8x16xi8>}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes) {
    operand_names = ["lhs", "rhs", "group_sizes"]
  }
      : (tensor<2x6x8xi8>, tensor<4x8x16xi8>, tensor<4xi32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<8x16xi8>, %group_sizes: tensor<4xi32>) -> tensor<6x16xf32> {
  // expected-error@+1 {{needs 'lhs' [M, K] and 'rhs' [G, K, N] or [G, N, K], but they are tensor<6x8xi8> and tensor<8x16xi8>}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes) {
    operand_names = ["lhs", "rhs", "group_sizes"]
  }
      : (tensor<6x8xi8>, tensor<8x16xi8>, tensor<4xi32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<?x8x16xi8>, %group_sizes: tensor<4xi32>) -> tensor<6x16xf32> {
  // expected-error@+1 {{the number of groups, axis 0 of 'rhs' [?, 8, 16], must be static and at least 1}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes) {
    operand_names = ["lhs", "rhs", "group_sizes"]
  }
      : (tensor<6x8xi8>, tensor<?x8x16xi8>, tensor<4xi32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x9x16xi8>, %group_sizes: tensor<4xi32>) -> tensor<6x16xf32> {
  // expected-error@+1 {{K differs: 'lhs' [6, 8] has 8, 'rhs' [4, 9, 16] has 9 along axis 1}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes) {
    operand_names = ["lhs", "rhs", "group_sizes"]
  }
      : (tensor<6x8xi8>, tensor<4x9x16xi8>, tensor<4xi32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x16x9xi8>, %group_sizes: tensor<4xi32>) -> tensor<6x16xf32> {
  // expected-error@+1 {{K differs: 'lhs' [6, 8] has 8, 'rhs' [4, 16, 9] has 9 along axis 2}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes) {
    operand_names = ["lhs", "rhs", "group_sizes"],
    rhs_transposed = true
  }
      : (tensor<6x8xi8>, tensor<4x16x9xi8>, tensor<4xi32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %group_sizes: tensor<3xi32>) -> tensor<6x16xf32> {
  // expected-error@+1 {{'group_sizes' has shape [3], but there are 4 groups}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes) {
    operand_names = ["lhs", "rhs", "group_sizes"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<3xi32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %group_sizes: tensor<4xi32>,
    %routing_weights: tensor<6x2xf32>) -> tensor<6x16xf32> {
  // expected-error@+1 {{'routing_weights' belongs to the routed form ('expert_ids')}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes, %routing_weights) {
    operand_names = ["lhs", "rhs", "group_sizes", "routing_weights"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4xi32>, tensor<6x2xf32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %group_sizes: tensor<4xi32>) -> tensor<6x16xf32> {
  // expected-error@+1 {{'skip_invalid' belongs to the routed form ('expert_ids')}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes) {
    operand_names = ["lhs", "rhs", "group_sizes"],
    skip_invalid = true
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4xi32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %group_sizes: tensor<4xi32>, %bias: tensor<3x16xf32>)
    -> tensor<6x16xf32> {
  // expected-error@+1 {{'bias' has shape [3, 16]; write [N], or [4, N] for one row per group}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes, %bias) {
    operand_names = ["lhs", "rhs", "group_sizes", "bias"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4xi32>, tensor<3x16xf32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %group_sizes: tensor<4xi32>, %bias: tensor<4x15xf32>)
    -> tensor<6x16xf32> {
  // expected-error@+1 {{'bias' has shape [4, 15], which does not broadcast to the result's [4, 16]}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes, %bias) {
    operand_names = ["lhs", "rhs", "group_sizes", "bias"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4xi32>, tensor<4x15xf32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %group_sizes: tensor<4xi32>) -> tensor<7x16xf32> {
  // expected-error@+1 {{result has shape [7, 16], but the operands give [6, 16]}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes) {
    operand_names = ["lhs", "rhs", "group_sizes"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4xi32>) -> tensor<7x16xf32>
  return %0 : tensor<7x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %group_sizes: tensor<4xi32>,
    %rhs_scale: tensor<4x3x16xf32>) -> tensor<6x16xf32> {
  // expected-error@+1 {{'rhs_scale' has shape [4, 3, 16], but axis 1 of 'rhs' [4, 8, 16] has 8 elements, which 3 groups do not divide}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes, %rhs_scale) {
    operand_names = ["lhs", "rhs", "group_sizes", "rhs_scale"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4xi32>, tensor<4x3x16xf32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

// === Routed

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %expert_ids: tensor<6xi32>) -> tensor<6x2x16xf32> {
  // expected-error@+1 {{'expert_ids' has shape [6], but must be [T, topk] for 'lhs' [6, 8]}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %expert_ids) {
    operand_names = ["lhs", "rhs", "expert_ids"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<6xi32>) -> tensor<6x2x16xf32>
  return %0 : tensor<6x2x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %expert_ids: tensor<5x2xi32>) -> tensor<6x2x16xf32> {
  // expected-error@+1 {{'expert_ids' has shape [5, 2], but must be [T, topk] for 'lhs' [6, 8]}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %expert_ids) {
    operand_names = ["lhs", "rhs", "expert_ids"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<5x2xi32>) -> tensor<6x2x16xf32>
  return %0 : tensor<6x2x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x3x8xi8>, %rhs: tensor<4x8x16xi8>, %expert_ids: tensor<6x2xi32>) -> tensor<6x2x16xf32> {
  // expected-error@+1 {{'expert_ids' has shape [6, 2], but must be [T, topk] for 'lhs' [6, 3, 8]}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %expert_ids) {
    operand_names = ["lhs", "rhs", "expert_ids"]
  }
      : (tensor<6x3x8xi8>, tensor<4x8x16xi8>, tensor<6x2xi32>) -> tensor<6x2x16xf32>
  return %0 : tensor<6x2x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %expert_ids: tensor<6x2xi32>,
    %routing_weights: tensor<6x3xf32>) -> tensor<6x16xf32> {
  // expected-error@+1 {{'routing_weights' has shape [6, 3], but 'expert_ids' has [6, 2]}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %expert_ids, %routing_weights) {
    operand_names = ["lhs", "rhs", "expert_ids", "routing_weights"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<6x2xi32>, tensor<6x3xf32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %expert_ids: tensor<6x2xi32>,
    %routing_weights: tensor<6x2xf32>) -> tensor<6x2x16xf32> {
  // expected-error@+1 {{result has shape [6, 2, 16], but the operands give [6, 16]}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %expert_ids, %routing_weights) {
    operand_names = ["lhs", "rhs", "expert_ids", "routing_weights"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<6x2xi32>, tensor<6x2xf32>) -> tensor<6x2x16xf32>
  return %0 : tensor<6x2x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %expert_ids: tensor<6x2xi32>,
    %routing_weights: tensor<6x2xf32>, %out_scale: tensor<f32>) -> tensor<6x16xi8> {
  // expected-error@+1 {{a sum weighted by 'routing_weights' is float, but the result is tensor<6x16xi8>}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %expert_ids, %routing_weights, %out_scale) {
    operand_names = ["lhs", "rhs", "expert_ids", "routing_weights", "out_scale"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<6x2xi32>, tensor<6x2xf32>, tensor<f32>) -> tensor<6x16xi8>
  return %0 : tensor<6x16xi8>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %expert_ids: tensor<6x2xi32>, %bias: tensor<2x16xf32>)
    -> tensor<6x2x16xf32> {
  // expected-error@+1 {{'bias' has shape [2, 16]; write [N], or [4, N] for one row per group}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %expert_ids, %bias) {
    operand_names = ["lhs", "rhs", "expert_ids", "bias"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<6x2xi32>, tensor<2x16xf32>) -> tensor<6x2x16xf32>
  return %0 : tensor<6x2x16xf32>
}

// -----

func.func @f(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %expert_ids: tensor<6x2xi32>,
    %out_scale: tensor<2x1xf32>) -> tensor<6x2x16xi8> {
  // expected-error@+1 {{'out_scale' has shape [2, 1]; the routed form takes [N] or [T, topk, N]}}
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %expert_ids, %out_scale) {
    operand_names = ["lhs", "rhs", "expert_ids", "out_scale"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<6x2xi32>, tensor<2x1xf32>) -> tensor<6x2x16xi8>
  return %0 : tensor<6x2x16xi8>
}
