// In a shader with a memory barrier, a buffer that is read and written is coherent; others, and other shaders, stay.
// RUN: qmlir-opt --pass-pipeline='qmlir-coherent-buffers' %s | filecheck %s

// CHECK: spirv.GlobalVariable @shared :
// CHECK: spirv.GlobalVariable @counters bind(0, 0) :
// CHECK: spirv.GlobalVariable @given bind(0, 1) :
// CHECK: spirv.GlobalVariable @result bind(0, 2) :
// CHECK: spirv.GlobalVariable @workspace bind(0, 3) {coherent} :
// CHECK: spirv.GlobalVariable @alone bind(0, 0) :

!memory = !spirv.ptr<!spirv.struct<(!spirv.rtarray<i32, stride=4> [0])>, StorageBuffer>
!element = !spirv.ptr<i32, StorageBuffer>
!flag = !spirv.ptr<i32, Workgroup>
module {
  spirv.module Logical GLSL450 requires #spirv.vce<v1.0, [Shader], [SPV_KHR_storage_buffer_storage_class]> {
    spirv.GlobalVariable @shared : !flag
    spirv.GlobalVariable @counters bind(0, 0) : !memory
    spirv.GlobalVariable @given bind(0, 1) : !memory
    spirv.GlobalVariable @result bind(0, 2) : !memory
    spirv.GlobalVariable @workspace bind(0, 3) : !memory
    spirv.func @shares() "None" {
      %zero = spirv.Constant 0 : i32
      %one = spirv.Constant 1 : i32
      %true = spirv.Constant true
      %counters = spirv.mlir.addressof @counters : !memory
      %given = spirv.mlir.addressof @given : !memory
      %result = spirv.mlir.addressof @result : !memory
      %workspace = spirv.mlir.addressof @workspace : !memory
      %from = spirv.AccessChain %given[%zero, %one] : !memory, i32, i32 -> !element
      %part = spirv.Load "StorageBuffer" %from : i32
      %slot = spirv.AccessChain %workspace[%zero, %one] : !memory, i32, i32 -> !element
      spirv.Store "StorageBuffer" %slot, %part : i32
      spirv.MemoryBarrier <Device>, <AcquireRelease|UniformMemory>
      %counter = spirv.AccessChain %counters[%zero, %zero] : !memory, i32, i32 -> !element
      %before = spirv.AtomicIAdd <Device> <AcquireRelease|UniformMemory> %counter, %one : !element
      %flag = spirv.mlir.addressof @shared : !flag
      spirv.Store "Workgroup" %flag, %before : i32
      %all = spirv.Load "Workgroup" %flag : i32
      spirv.mlir.selection {
        spirv.BranchConditional %true, ^last, ^merge
      ^last:
        spirv.MemoryBarrier <Device>, <AcquireRelease|UniformMemory>
        %again = spirv.AccessChain %workspace[%zero, %zero] : !memory, i32, i32 -> !element
        %other = spirv.Load "StorageBuffer" %again : i32
        %place = spirv.AccessChain %result[%zero, %zero] : !memory, i32, i32 -> !element
        spirv.Store "StorageBuffer" %place, %other : i32
        spirv.Branch ^merge
      ^merge:
        spirv.mlir.merge
      }
      spirv.Return
    }
  }
  spirv.module Logical GLSL450 requires #spirv.vce<v1.0, [Shader], [SPV_KHR_storage_buffer_storage_class]> {
    spirv.GlobalVariable @alone bind(0, 0) : !memory
    spirv.func @adds() "None" {
      %zero = spirv.Constant 0 : i32
      %memory = spirv.mlir.addressof @alone : !memory
      %place = spirv.AccessChain %memory[%zero, %zero] : !memory, i32, i32 -> !element
      %value = spirv.Load "StorageBuffer" %place : i32
      spirv.Store "StorageBuffer" %place, %value : i32
      spirv.Return
    }
  }
}
