func.func @main() {
  "other.op"() : () -> ()
  return
}
