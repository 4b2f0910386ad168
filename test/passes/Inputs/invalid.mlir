func.func @main(%x: tensor<4xi8>) -> tensor<8xi8> {
  %0 = "qmlir.unpack"(%x) {dtype = "i9"} : (tensor<4xi8>) -> tensor<8xi8>
  return %0 : tensor<8xi8>
}
