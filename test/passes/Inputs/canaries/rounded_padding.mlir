// Padding with an f64 constant rounded to f32, as torch-mlir pads a pooling: MLIR does not fold an inexact truncf.
func.func @main(%x: tensor<8xf32>) -> tensor<9xf32> {
  %lowest = arith.constant -1.7976931348623157E+308 : f64
  %fill = arith.truncf %lowest : f64 to f32
  %y = tensor.pad %x low[0] high[1] {
  ^bb0(%i: index):
    tensor.yield %fill : f32
  } : tensor<8xf32> to tensor<9xf32>
  return %y : tensor<9xf32>
}
