"""Checks at run time: `qmlir.ir.checks`."""

from __future__ import annotations

from qmlir.core.mlir import collect, context, ir
from qmlir.ir.checks import drop_repeated_checks

TEXT = """
func.func @main(%a: i1, %b: i1) {
  cf.assert %a, "first"
  cf.assert %b, "second"
  cf.assert %a, "third"
  scf.if %a {
    cf.assert %b, "in another block"
  }
  cf.assert %b, "fourth"
  return
}
"""


def test_one_check_of_a_condition_stays_in_each_block() -> None:
    with context():
        module = ir.Module.parse(TEXT)
        drop_repeated_checks(module)
        left = {ir.StringAttr(op.attributes["msg"]).value for op in collect(module, "cf.assert")}
    assert left == {"first", "second", "in another block"}
