// Accumulators of products of two signed operands are marked as signed; those of other codes and of floats stay.
// RUN: qmlir-opt --pass-pipeline='qmlir-sign-matrix-sums' %s | filecheck %s

// CHECK: CooperativeMatrixMulAdd {{.*}}, <ASigned|BSigned|CSigned|ResultSigned>
// CHECK: CooperativeMatrixMulAdd {{.*}}, <ASigned> :
// CHECK: CooperativeMatrixMulAdd {{.*}} : !spirv.coopmatrix<16x16xf16

!a = !spirv.coopmatrix<16x32xsi8, Subgroup, MatrixA>
!b = !spirv.coopmatrix<32x16xsi8, Subgroup, MatrixB>
!c = !spirv.coopmatrix<16x16xi32, Subgroup, MatrixAcc>
!ah = !spirv.coopmatrix<16x16xf16, Subgroup, MatrixA>
!bh = !spirv.coopmatrix<16x16xf16, Subgroup, MatrixB>
!ch = !spirv.coopmatrix<16x16xf32, Subgroup, MatrixAcc>
module {
  spirv.module Logical GLSL450 requires #spirv.vce<v1.6, [Shader, CooperativeMatrixKHR], [SPV_KHR_cooperative_matrix]> {
    spirv.func @codes(%a: !a, %b: !b, %c: !c) -> !c "None" {
      %0 = spirv.KHR.CooperativeMatrixMulAdd %a, %b, %c, <ASigned|BSigned> : !a, !b -> !c
      %1 = spirv.KHR.CooperativeMatrixMulAdd %a, %b, %0, <ASigned> : !a, !b -> !c
      spirv.ReturnValue %1 : !c
    }
    spirv.func @floats(%a: !ah, %b: !bh, %c: !ch) -> !ch "None" {
      %0 = spirv.KHR.CooperativeMatrixMulAdd %a, %b, %c : !ah, !bh -> !ch
      spirv.ReturnValue %0 : !ch
    }
  }
}
