// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-code-kernels{target=cpu:znver4}' | filecheck %s --check-prefix=TABLE
// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-code-kernels{target=cpu:x86-64-v3}' | filecheck %s --check-prefix=VECTOR
// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-code-kernels{target=cpu:x86-64}' | filecheck %s --check-prefix=PLAIN
// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-code-kernels{target=cuda:sm_80}' | filecheck %s --check-prefix=PLAIN

#id = affine_map<(m, n) -> (m, n)>

// A chain from the codes of one tensor to codes becomes a table: here -q/2, rounded half to even.
// TABLE: stream.executable private @halved_table_0
// TABLE-NOT: stream.executable private
// TABLE-LABEL: func.func @halved(
// TABLE-NOT: linalg.generic
// TABLE: arith.constant dense<"0x0000FFFEFEFEFDFC
// VECTOR: stream.executable private @halved_pointwise_0
// VECTOR-LABEL: func.func @halved(
// VECTOR-NOT: linalg.generic
// VECTOR: return
// PLAIN-LABEL: func.func @halved(
// PLAIN-NOT: flow.dispatch
// PLAIN: linalg.generic
// PLAIN: return
func.func @halved(%q: tensor<4x64xi8>) -> tensor<4x64xi8> {
  %half = arith.constant -0.5 : f32
  %wide = tensor.empty() : tensor<4x64xf32>
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%q : tensor<4x64xi8>) outs(%wide : tensor<4x64xf32>) {
  ^bb0(%x: i8, %out: f32):
    %0 = arith.sitofp %x : i8 to f32
    linalg.yield %0 : f32
  } -> tensor<4x64xf32>
  %empty = tensor.empty() : tensor<4x64xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%f : tensor<4x64xf32>) outs(%empty : tensor<4x64xi8>) {
  ^bb0(%x: f32, %out: i8):
    %0 = arith.mulf %x, %half : f32
    %1 = math.roundeven %0 : f32
    %2 = arith.fptosi %1 : f32 to i8
    linalg.yield %2 : i8
  } -> tensor<4x64xi8>
  return %r : tensor<4x64xi8>
}

// -----

#id = affine_map<(m, n) -> (m, n)>

// A chain that maps each code to itself is removed.
// TABLE-LABEL: func.func @same(
// TABLE-NEXT: arith.constant
// TABLE-NOT: flow.dispatch
// TABLE: return %arg0
func.func @same(%q: tensor<4x64xi8>) -> tensor<4x64xi8> {
  %one = arith.constant 1.0 : f32
  %empty = tensor.empty() : tensor<4x64xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%q : tensor<4x64xi8>) outs(%empty : tensor<4x64xi8>) {
  ^bb0(%x: i8, %out: i8):
    %0 = arith.sitofp %x : i8 to f32
    %1 = arith.mulf %0, %one : f32
    %2 = arith.fptosi %1 : f32 to i8
    linalg.yield %2 : i8
  } -> tensor<4x64xi8>
  return %r : tensor<4x64xi8>
}

// -----

#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m, 0)>

// A chain that reads two tensors of codes becomes a kernel, not a table; one of the tensors may be broadcast.
// TABLE: stream.executable private @both_pointwise_0
// TABLE-LABEL: func.func @both(
// TABLE-NOT: linalg.generic
// TABLE: flow.dispatch @both_pointwise_0::@both_pointwise_0(%{{.*}}, %arg0, %arg1)
func.func @both(%a: tensor<4x64xi8>, %b: tensor<4x1xi8>) -> tensor<4x64xi8> {
  %empty = tensor.empty() : tensor<4x64xi8>
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%a, %b : tensor<4x64xi8>, tensor<4x1xi8>) outs(%empty : tensor<4x64xi8>) {
  ^bb0(%x: i8, %y: i8, %out: i8):
    %0 = arith.sitofp %x : i8 to f32
    %1 = arith.sitofp %y : i8 to f32
    %2 = arith.addf %0, %1 : f32
    %3 = arith.fptosi %2 : f32 to i8
    linalg.yield %3 : i8
  } -> tensor<4x64xi8>
  return %r : tensor<4x64xi8>
}

// -----

#id = affine_map<(m, n) -> (m, n)>
#turned = affine_map<(m, n) -> (n, m)>

// Unchanged: codes to codes without float arithmetic, floats to codes, and a chain with an operand that is transposed.
// TABLE-LABEL: func.func @left(
// TABLE-NOT: flow.dispatch
// TABLE-COUNT-3: linalg.generic
func.func @left(%q: tensor<4x64xi8>, %f: tensor<4x64xf32>, %t: tensor<64x4xi8>)
    -> (tensor<4x64xi8>, tensor<4x64xi8>, tensor<4x64xi8>) {
  %sign = arith.constant -128 : i8
  %empty = tensor.empty() : tensor<4x64xi8>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%q : tensor<4x64xi8>) outs(%empty : tensor<4x64xi8>) {
  ^bb0(%x: i8, %out: i8):
    %0 = arith.xori %x, %sign : i8
    linalg.yield %0 : i8
  } -> tensor<4x64xi8>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%f : tensor<4x64xf32>) outs(%empty : tensor<4x64xi8>) {
  ^bb0(%x: f32, %out: i8):
    %0 = arith.addf %x, %x : f32
    %1 = arith.fptosi %0 : f32 to i8
    linalg.yield %1 : i8
  } -> tensor<4x64xi8>
  %c = linalg.generic {indexing_maps = [#id, #turned, #id], iterator_types = ["parallel", "parallel"]}
    ins(%q, %t : tensor<4x64xi8>, tensor<64x4xi8>) outs(%empty : tensor<4x64xi8>) {
  ^bb0(%x: i8, %y: i8, %out: i8):
    %0 = arith.sitofp %x : i8 to f32
    %1 = arith.sitofp %y : i8 to f32
    %2 = arith.addf %0, %1 : f32
    %3 = arith.fptosi %2 : f32 to i8
    linalg.yield %3 : i8
  } -> tensor<4x64xi8>
  return %a, %b, %c : tensor<4x64xi8>, tensor<4x64xi8>, tensor<4x64xi8>
}
