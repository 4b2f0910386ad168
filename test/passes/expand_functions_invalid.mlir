// RUN: qmlir-opt %s --pass-pipeline='qmlir-expand-functions{double=false}' --split-input-file --verify-diagnostics

func.func @exponential(%x: tensor<4xf64>) -> tensor<4xf64> {
  // expected-error @+1 {{exp of f64: SPIR-V has it of f32 and f16 alone; convert the operand to f32}}
  %0 = math.exp %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// -----

// Accepted: a function of constants, which the host computes, a square root of f64, and functions of f32.
func.func @others(%x: tensor<4xf64>, %y: tensor<4xf32>) -> (tensor<4xf64>, tensor<4xf32>) {
  %c = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf64>
  %0 = math.exp %c : tensor<4xf64>
  %1 = math.sqrt %x : tensor<4xf64>
  %2 = arith.addf %0, %1 : tensor<4xf64>
  %3 = math.exp %y : tensor<4xf32>
  return %2, %3 : tensor<4xf64>, tensor<4xf32>
}
