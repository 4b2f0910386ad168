// The sum of eighteen tensors.
func.func @main(%a0: tensor<64xf32>, %a1: tensor<64xf32>, %a2: tensor<64xf32>, %a3: tensor<64xf32>, %a4: tensor<64xf32>, %a5: tensor<64xf32>, %a6: tensor<64xf32>, %a7: tensor<64xf32>, %a8: tensor<64xf32>, %a9: tensor<64xf32>, %a10: tensor<64xf32>, %a11: tensor<64xf32>, %a12: tensor<64xf32>, %a13: tensor<64xf32>, %a14: tensor<64xf32>, %a15: tensor<64xf32>, %a16: tensor<64xf32>, %a17: tensor<64xf32>) -> tensor<64xf32> {
  %s1 = arith.addf %a0, %a1 : tensor<64xf32>
  %s2 = arith.addf %s1, %a2 : tensor<64xf32>
  %s3 = arith.addf %s2, %a3 : tensor<64xf32>
  %s4 = arith.addf %s3, %a4 : tensor<64xf32>
  %s5 = arith.addf %s4, %a5 : tensor<64xf32>
  %s6 = arith.addf %s5, %a6 : tensor<64xf32>
  %s7 = arith.addf %s6, %a7 : tensor<64xf32>
  %s8 = arith.addf %s7, %a8 : tensor<64xf32>
  %s9 = arith.addf %s8, %a9 : tensor<64xf32>
  %s10 = arith.addf %s9, %a10 : tensor<64xf32>
  %s11 = arith.addf %s10, %a11 : tensor<64xf32>
  %s12 = arith.addf %s11, %a12 : tensor<64xf32>
  %s13 = arith.addf %s12, %a13 : tensor<64xf32>
  %s14 = arith.addf %s13, %a14 : tensor<64xf32>
  %s15 = arith.addf %s14, %a15 : tensor<64xf32>
  %s16 = arith.addf %s15, %a16 : tensor<64xf32>
  %s17 = arith.addf %s16, %a17 : tensor<64xf32>
  return %s17 : tensor<64xf32>
}
