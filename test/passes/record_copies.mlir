// RUN: qmlir-opt --pass-pipeline='qmlir-record-copies' %s | filecheck %s

// The length of one copy in each `stream.cmd.execute` is hidden; commands without a copy are still recorded once.
// CHECK-LABEL: util.func public @copies
// CHECK: %[[LENGTH:.*]] = util.optimization_barrier %c4 : index
// CHECK-NEXT: stream.cmd.execute
// CHECK-NEXT: stream.cmd.concurrent
// CHECK-NEXT: stream.cmd.copy %{{.*}}, %{{.*}}, %[[LENGTH]] :
// CHECK-NEXT: stream.cmd.copy %{{.*}}, %{{.*}}, %c4 :
// CHECK-NOT: util.optimization_barrier
// CHECK: util.return
util.func public @copies(%x: !stream.resource<external>, %y: !stream.resource<external>) -> (!stream.timepoint, !stream.timepoint) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c20 = arith.constant 20 : index
  %zero = arith.constant 0 : i32
  %0 = stream.cmd.execute with(%x as %a: !stream.resource<external>{%c20}, %y as %b: !stream.resource<external>{%c20}) {
    stream.cmd.concurrent {
      stream.cmd.copy %a[%c0], %b[%c0], %c4 : !stream.resource<external>{%c20} -> !stream.resource<external>{%c20}
      stream.cmd.copy %a[%c4], %b[%c4], %c4 : !stream.resource<external>{%c20} -> !stream.resource<external>{%c20}
    }
  } => !stream.timepoint
  %1 = stream.cmd.execute await(%0) => with(%y as %b: !stream.resource<external>{%c20}) {
    stream.cmd.fill %zero, %b[%c0 for %c4] : i32 -> !stream.resource<external>{%c20}
  } => !stream.timepoint
  util.return %0, %1 : !stream.timepoint, !stream.timepoint
}
