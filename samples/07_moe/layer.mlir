// A mixture-of-experts layer as one program: the router, the quantisation of the tokens, and the experts with what
// lies between their two products. Any number of tokens; 8 experts, of which each token meets 2.
func.func @main(
    %tokens: tensor<?x512xf32>, %router: tensor<512x8xf32>,
    %w1: tensor<8x512x2048xi8>, %s1: tensor<8x1x2048xf32>,
    %w2: tensor<8x2048x2048xi8>, %s2: tensor<8x1x2048xf32>) -> tensor<?x2048xf32> {
  %logits = "qmlir.scaled_matmul"(%tokens, %router) {
    operand_names = ["lhs", "rhs"]
  } : (tensor<?x512xf32>, tensor<512x8xf32>) -> tensor<?x8xf32>
  %ids, %weights = "qmlir.route"(%logits) {topk = 2 : i64, renormalize = true}
      : (tensor<?x8xf32>) -> (tensor<?x2xi32>, tensor<?x2xf32>)
  %codes, %scale = "qmlir.dynamic_quantize"(%tokens) : (tensor<?x512xf32>) -> (tensor<?x512xi8>, tensor<?x1xf32>)
  // input, w1, w2, expert_ids, routing_weights, input_scale, w1_scale, w2_scale
  %out = "qmlir.moe"(%codes, %w1, %w2, %ids, %weights, %scale, %s1, %s2) {
    operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "input_scale", "w1_scale", "w2_scale"],
    activation = "relu", intermediate_dtype = "i8"
  } : (tensor<?x512xi8>, tensor<8x512x2048xi8>, tensor<8x2048x2048xi8>, tensor<?x2xi32>, tensor<?x2xf32>,
       tensor<?x1xf32>, tensor<8x1x2048xf32>, tensor<8x1x2048xf32>) -> tensor<?x2048xf32>
  return %out : tensor<?x2048xf32>
}
