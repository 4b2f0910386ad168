// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-attention{target=cpu:znver4}' | filecheck %s --check-prefix=KERNEL
// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-attention{target=cpu:x86-64}' | filecheck %s --check-prefix=PLAIN
// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-attention{target=rocm:gfx942}' | filecheck %s --check-prefix=PLAIN

#q = affine_map<(b, h, m, n, d, k) -> (b, m, h, d)>
#k = affine_map<(b, h, m, n, d, k) -> (b, k, h, d)>
#v = affine_map<(b, h, m, n, d, k) -> (b, k, h, n)>
#s = affine_map<(b, h, m, n, d, k) -> ()>
#mask = affine_map<(b, h, m, n, d, k) -> (b, k)>
#o = affine_map<(b, h, m, n, d, k) -> (b, m, h, n)>

// The kernel reads the heads in their stored layout, without a transpose. The three dynamic sizes (batch, queries and
// keys) are operands of the dispatch.
// KERNEL: stream.executable private @heads_attention_0
// KERNEL-LABEL: func.func @heads(
// KERNEL-NOT: linalg.transpose
// KERNEL: flow.dispatch @heads_attention_0::@heads_attention_0[%{{.*}}, %{{.*}}, %{{.*}}](%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %arg0, %arg1, %arg2, %arg3)
// KERNEL-NOT: iree_linalg_ext
//
// Without a kernel, attention becomes two products and a softmax, which subtracts the largest score first.
// PLAIN-LABEL: func.func @heads(
// PLAIN: linalg.batch_matmul
// PLAIN: arith.mulf
// PLAIN: arith.addf
// PLAIN: arith.maximumf
// PLAIN: arith.subf
// PLAIN: math.exp
// PLAIN: arith.addf
// PLAIN: arith.divf
// PLAIN: linalg.batch_matmul
// PLAIN: linalg.transpose
// PLAIN-NOT: iree_linalg_ext
func.func @heads(%q: tensor<?x?x12x32xf32>, %k: tensor<?x?x12x32xf32>, %v: tensor<?x?x12x32xf32>, %mask: tensor<?x?xf32>,
                 %out: tensor<?x?x12x32xf32>) -> tensor<?x?x12x32xf32> {
  %scale = arith.constant 0.176776692 : f32
  %0 = iree_linalg_ext.attention <{indexing_maps = [#q, #k, #v, #s, #mask, #o]}>
      ins(%q, %k, %v, %scale, %mask : tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>, f32, tensor<?x?xf32>)
      outs(%out : tensor<?x?x12x32xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<?x?x12x32xf32>
  return %0 : tensor<?x?x12x32xf32>
}

// -----

#q = affine_map<(m, n, d, k) -> (m, d)>
#k = affine_map<(m, n, d, k) -> (k, d)>
#v = affine_map<(m, n, d, k) -> (k, n)>
#s = affine_map<(m, n, d, k) -> ()>
#o = affine_map<(m, n, d, k) -> (m, n)>

// No batch, and a body that changes the scores. Kernels are not asked, and the op is not left to IREE, which hands the
// body scores times log2(e): it becomes products and a softmax.
// KERNEL-LABEL: func.func @body(
// KERNEL-NOT: attention
// KERNEL: arith.mulf
// KERNEL-NEXT: math.tanh
// PLAIN-LABEL: func.func @body(
// PLAIN-NOT: attention
// PLAIN: arith.mulf
// PLAIN-NEXT: math.tanh
func.func @body(%q: tensor<8x16xf32>, %k: tensor<8x16xf32>, %v: tensor<8x16xf32>, %out: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %scale = arith.constant 0.25 : f32
  %0 = iree_linalg_ext.attention <{indexing_maps = [#q, #k, #v, #s, #o]}>
      ins(%q, %k, %v, %scale : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, f32) outs(%out : tensor<8x16xf32>) {
  ^bb0(%score: f32):
    %1 = math.tanh %score : f32
    iree_linalg_ext.yield %1 : f32
  } -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}

// -----

#q = affine_map<(m, n, d, k) -> (m, d)>
#k = affine_map<(m, n, d, k) -> (k, d)>
#kt = affine_map<(m, n, d, k) -> (d, k)>
#v = affine_map<(m, n, d, k) -> (k, n)>
#s = affine_map<(m, n, d, k) -> ()>
#o = affine_map<(m, n, d, k) -> (m, n)>

// The kernel declines f16 operands, transposed keys, and a scale that is not a constant.
// KERNEL-NOT: stream.executable
// KERNEL-LABEL: func.func @others(
// KERNEL-NOT: flow.dispatch
// KERNEL-COUNT-6: linalg.matmul
// KERNEL-NOT: iree_linalg_ext
// PLAIN-LABEL: func.func @others(
// PLAIN-COUNT-6: linalg.matmul
func.func @others(%half: tensor<8x16xf16>, %x: tensor<8x16xf32>, %t: tensor<16x8xf32>, %unknown: f32)
    -> (tensor<8x16xf16>, tensor<8x16xf32>, tensor<8x16xf32>) {
  %scale = arith.constant 0.25 : f32
  %scale16 = arith.constant 0.25 : f16
  %0 = iree_linalg_ext.attention <{indexing_maps = [#q, #k, #v, #s, #o]}>
      ins(%half, %half, %half, %scale16 : tensor<8x16xf16>, tensor<8x16xf16>, tensor<8x16xf16>, f16) outs(%half : tensor<8x16xf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<8x16xf16>
  %1 = iree_linalg_ext.attention <{indexing_maps = [#q, #kt, #v, #s, #o]}>
      ins(%x, %t, %x, %scale : tensor<8x16xf32>, tensor<16x8xf32>, tensor<8x16xf32>, f32) outs(%x : tensor<8x16xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<8x16xf32>
  %2 = iree_linalg_ext.attention <{indexing_maps = [#q, #k, #v, #s, #o]}>
      ins(%x, %x, %x, %unknown : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, f32) outs(%x : tensor<8x16xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<8x16xf32>
  return %0, %1, %2 : tensor<8x16xf16>, tensor<8x16xf32>, tensor<8x16xf32>
}

// -----

#q = affine_map<(g, r, n, d, k) -> (g, r, d)>
#k = affine_map<(g, r, n, d, k) -> (k, g, d)>
#v = affine_map<(g, r, n, d, k) -> (k, g, n)>
#s = affine_map<(g, r, n, d, k) -> ()>
#o = affine_map<(g, r, n, d, k) -> (g, r, n)>

// Keys that are a slice from the start of a cache are read in place: the cache itself and the number of keys are
// operands of the dispatch. A slice with another offset (here of the values) is passed as a separate tensor.
// KERNEL-LABEL: func.func @cache(
// KERNEL-SAME: %[[Q:.*]]: tensor<4x3x16xf32>, %[[K:.*]]: tensor<64x4x16xf32>, %[[V:.*]]: tensor<64x4x16xf32>, %[[N:.*]]: index
// KERNEL: %[[LATER:.*]] = tensor.extract_slice %[[V]][1, 0, 0]
// KERNEL: flow.dispatch @cache_attention_0::@cache_attention_0[%{{.*}}](%{{.*}}, %{{.*}}, %[[Q]], %[[K]], %[[LATER]]) : (i64, index, tensor<4x3x16xf32>, tensor<64x4x16xf32>, tensor<?x4x16xf32>
// PLAIN-LABEL: func.func @cache(
// PLAIN: linalg.batch_matmul
func.func @cache(%q: tensor<4x3x16xf32>, %kc: tensor<64x4x16xf32>, %vc: tensor<64x4x16xf32>, %n: index) -> tensor<4x3x16xf32> {
  %scale = arith.constant 0.25 : f32
  %keys = tensor.extract_slice %kc[0, 0, 0] [%n, 4, 16] [1, 1, 1] : tensor<64x4x16xf32> to tensor<?x4x16xf32>
  %values = tensor.extract_slice %vc[1, 0, 0] [%n, 4, 16] [1, 1, 1] : tensor<64x4x16xf32> to tensor<?x4x16xf32>
  %empty = tensor.empty() : tensor<4x3x16xf32>
  %0 = iree_linalg_ext.attention <{indexing_maps = [#q, #k, #v, #s, #o]}>
      ins(%q, %keys, %values, %scale : tensor<4x3x16xf32>, tensor<?x4x16xf32>, tensor<?x4x16xf32>, f32) outs(%empty : tensor<4x3x16xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x3x16xf32>
  return %0 : tensor<4x3x16xf32>
}

// -----

#q = affine_map<(b, m, n, d, k) -> (b, m, d)>
#k = affine_map<(b, m, n, d, k) -> (b, k, d)>
#v = affine_map<(b, m, n, d, k) -> (b, k, n)>
#s = affine_map<(b, m, n, d, k) -> ()>
#o = affine_map<(b, m, n, d, k) -> (b, m, n)>

// A size that is static in some operands only counts as dynamic: batch, queries and keys are operands of the dispatch.
// KERNEL-LABEL: func.func @partly_static(
// KERNEL: flow.dispatch @partly_static_attention_0::@partly_static_attention_0[%{{.*}}, %{{.*}}, %{{.*}}](
// PLAIN-LABEL: func.func @partly_static(
// PLAIN: linalg.batch_matmul
func.func @partly_static(%q: tensor<?x?x16xf32>, %k: tensor<?x7x16xf32>, %v: tensor<2x?x16xf32>, %out: tensor<?x?x16xf32>)
    -> tensor<?x?x16xf32> {
  %scale = arith.constant 0.25 : f32
  %0 = iree_linalg_ext.attention <{indexing_maps = [#q, #k, #v, #s, #o]}>
      ins(%q, %k, %v, %scale : tensor<?x?x16xf32>, tensor<?x7x16xf32>, tensor<2x?x16xf32>, f32)
      outs(%out : tensor<?x?x16xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<?x?x16xf32>
  return %0 : tensor<?x?x16xf32>
}
