// An int8 convolutional network for 8x8 grey digits. Everything between the layers is int8.
//
//   images [N, 8, 8, 1] -> conv1 3x3, 16 -> conv2 3x3 stride 2, 32 -> conv3 3x3, 64 -> fc -> [N, 10]
//
// The weights are parameters of the scope "digits" (digits.safetensors); train.py writes that file.
//
//   qmlir compile digits.mlir --parameters digits=digits.safetensors --target cpu -o digits.vmfb

module @digits {
  util.global private @input_scale = #flow.parameter.named<"digits"::"input.scale"> : tensor<f32>
  util.global private @input_zero_point = #flow.parameter.named<"digits"::"input.zero_point"> : tensor<i8>

  util.global private @conv1_weight = #flow.parameter.named<"digits"::"conv1.weight"> : tensor<16x3x3x1xi8>
  util.global private @conv1_weight_scale = #flow.parameter.named<"digits"::"conv1.weight_scale"> : tensor<16x1x1x1xf32>
  util.global private @conv1_bias = #flow.parameter.named<"digits"::"conv1.bias"> : tensor<16xi32>
  util.global private @conv1_out_scale = #flow.parameter.named<"digits"::"conv1.out_scale"> : tensor<f32>
  util.global private @conv1_out_zero_point = #flow.parameter.named<"digits"::"conv1.out_zero_point"> : tensor<i8>

  util.global private @conv2_weight = #flow.parameter.named<"digits"::"conv2.weight"> : tensor<32x3x3x16xi8>
  util.global private @conv2_weight_scale = #flow.parameter.named<"digits"::"conv2.weight_scale"> : tensor<32x1x1x1xf32>
  util.global private @conv2_bias = #flow.parameter.named<"digits"::"conv2.bias"> : tensor<32xi32>
  util.global private @conv2_out_scale = #flow.parameter.named<"digits"::"conv2.out_scale"> : tensor<f32>
  util.global private @conv2_out_zero_point = #flow.parameter.named<"digits"::"conv2.out_zero_point"> : tensor<i8>

  util.global private @conv3_weight = #flow.parameter.named<"digits"::"conv3.weight"> : tensor<64x3x3x32xi8>
  util.global private @conv3_weight_scale = #flow.parameter.named<"digits"::"conv3.weight_scale"> : tensor<64x1x1x1xf32>
  util.global private @conv3_bias = #flow.parameter.named<"digits"::"conv3.bias"> : tensor<64xi32>
  util.global private @conv3_out_scale = #flow.parameter.named<"digits"::"conv3.out_scale"> : tensor<f32>
  util.global private @conv3_out_zero_point = #flow.parameter.named<"digits"::"conv3.out_zero_point"> : tensor<i8>

  util.global private @fc_weight = #flow.parameter.named<"digits"::"fc.weight"> : tensor<10x1024xi8>
  util.global private @fc_weight_scale = #flow.parameter.named<"digits"::"fc.weight_scale"> : tensor<10x1xf32>
  util.global private @fc_bias = #flow.parameter.named<"digits"::"fc.bias"> : tensor<10xi32>
  util.global private @fc_out_scale = #flow.parameter.named<"digits"::"fc.out_scale"> : tensor<f32>
  util.global private @fc_out_zero_point = #flow.parameter.named<"digits"::"fc.out_zero_point"> : tensor<i8>

  // The class scores, int8: the largest is the answer.
  func.func @main(%images: tensor<?x8x8x1xi8>) -> tensor<?x10xi8> {
    %layers:4 = func.call @layers(%images)
        : (tensor<?x8x8x1xi8>) -> (tensor<?x8x8x16xi8>, tensor<?x4x4x32xi8>, tensor<?x4x4x64xi8>, tensor<?x10xi8>)
    return %layers#3 : tensor<?x10xi8>
  }

  // The output of every layer, for comparing them one by one with the reference.
  func.func @layers(%images: tensor<?x8x8x1xi8>)
      -> (tensor<?x8x8x16xi8>, tensor<?x4x4x32xi8>, tensor<?x4x4x64xi8>, tensor<?x10xi8>) {
    %input_scale = util.global.load @input_scale : tensor<f32>
    %input_zero_point = util.global.load @input_zero_point : tensor<i8>

    %conv1_weight = util.global.load @conv1_weight : tensor<16x3x3x1xi8>
    %conv1_weight_scale = util.global.load @conv1_weight_scale : tensor<16x1x1x1xf32>
    %conv1_bias = util.global.load @conv1_bias : tensor<16xi32>
    %conv1_out_scale = util.global.load @conv1_out_scale : tensor<f32>
    %conv1_out_zero_point = util.global.load @conv1_out_zero_point : tensor<i8>
    %conv1 = "qmlir.conv2d_q"(%images, %conv1_weight, %input_scale, %conv1_weight_scale, %input_zero_point,
        %conv1_bias, %conv1_out_scale, %conv1_out_zero_point) {
      operand_names = ["input", "weight", "input_scale", "weight_scale", "input_zero_point", "bias", "out_scale", "out_zero_point"],
      input_layout = "NHWC", weight_layout = "FHWC", strides = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>,
      input_zero_mode = "int", bias_stage = "acc", activation = "relu", rounding = "half_even"
    } : (tensor<?x8x8x1xi8>, tensor<16x3x3x1xi8>, tensor<f32>, tensor<16x1x1x1xf32>, tensor<i8>,
         tensor<16xi32>, tensor<f32>, tensor<i8>) -> tensor<?x8x8x16xi8>

    %conv2_weight = util.global.load @conv2_weight : tensor<32x3x3x16xi8>
    %conv2_weight_scale = util.global.load @conv2_weight_scale : tensor<32x1x1x1xf32>
    %conv2_bias = util.global.load @conv2_bias : tensor<32xi32>
    %conv2_out_scale = util.global.load @conv2_out_scale : tensor<f32>
    %conv2_out_zero_point = util.global.load @conv2_out_zero_point : tensor<i8>
    %conv2 = "qmlir.conv2d_q"(%conv1, %conv2_weight, %conv1_out_scale, %conv2_weight_scale, %conv1_out_zero_point,
        %conv2_bias, %conv2_out_scale, %conv2_out_zero_point) {
      operand_names = ["input", "weight", "input_scale", "weight_scale", "input_zero_point", "bias", "out_scale", "out_zero_point"],
      input_layout = "NHWC", weight_layout = "FHWC", strides = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>,
      input_zero_mode = "int", bias_stage = "acc", activation = "relu", rounding = "half_even"
    } : (tensor<?x8x8x16xi8>, tensor<32x3x3x16xi8>, tensor<f32>, tensor<32x1x1x1xf32>, tensor<i8>,
         tensor<32xi32>, tensor<f32>, tensor<i8>) -> tensor<?x4x4x32xi8>

    %conv3_weight = util.global.load @conv3_weight : tensor<64x3x3x32xi8>
    %conv3_weight_scale = util.global.load @conv3_weight_scale : tensor<64x1x1x1xf32>
    %conv3_bias = util.global.load @conv3_bias : tensor<64xi32>
    %conv3_out_scale = util.global.load @conv3_out_scale : tensor<f32>
    %conv3_out_zero_point = util.global.load @conv3_out_zero_point : tensor<i8>
    %conv3 = "qmlir.conv2d_q"(%conv2, %conv3_weight, %conv2_out_scale, %conv3_weight_scale, %conv2_out_zero_point,
        %conv3_bias, %conv3_out_scale, %conv3_out_zero_point) {
      operand_names = ["input", "weight", "input_scale", "weight_scale", "input_zero_point", "bias", "out_scale", "out_zero_point"],
      input_layout = "NHWC", weight_layout = "FHWC", strides = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>,
      input_zero_mode = "int", bias_stage = "acc", activation = "relu", rounding = "half_even"
    } : (tensor<?x4x4x32xi8>, tensor<64x3x3x32xi8>, tensor<f32>, tensor<64x1x1x1xf32>, tensor<i8>,
         tensor<64xi32>, tensor<f32>, tensor<i8>) -> tensor<?x4x4x64xi8>

    %fc_weight = util.global.load @fc_weight : tensor<10x1024xi8>
    %fc_weight_scale = util.global.load @fc_weight_scale : tensor<10x1xf32>
    %fc_bias = util.global.load @fc_bias : tensor<10xi32>
    %fc_out_scale = util.global.load @fc_out_scale : tensor<f32>
    %fc_out_zero_point = util.global.load @fc_out_zero_point : tensor<i8>
    %features = tensor.collapse_shape %conv3 [[0], [1, 2, 3]]
        : tensor<?x4x4x64xi8> into tensor<?x1024xi8>
    %fc = "qmlir.scaled_matmul"(%features, %fc_weight, %conv3_out_scale, %fc_weight_scale, %conv3_out_zero_point,
        %fc_bias, %fc_out_scale, %fc_out_zero_point) {
      operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "lhs_zero_point", "bias", "out_scale", "out_zero_point"],
      rhs_transposed = true, lhs_zero_mode = "int", bias_stage = "acc", rounding = "half_even"
    } : (tensor<?x1024xi8>, tensor<10x1024xi8>, tensor<f32>, tensor<10x1xf32>, tensor<i8>,
         tensor<10xi32>, tensor<f32>, tensor<i8>) -> tensor<?x10xi8>

    return %conv1, %conv2, %conv3, %fc
        : tensor<?x8x8x16xi8>, tensor<?x4x4x32xi8>, tensor<?x4x4x64xi8>, tensor<?x10xi8>
  }
}
