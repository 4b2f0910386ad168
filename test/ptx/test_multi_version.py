"""Kernels by the number of rows: the conditions of an executable's exports choose the function that the host runs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kernels.gpu_products import Product, check, codes_of, functions, values, weight_only
from ptx.program import interpret

import qmlir
from qmlir.emulation.cuda.instructions import PtxError

CASES = {
    # Kernels for few rows, for more and, on Hopper, for many.
    ("cuda:sm_90a", "w8a8"): (Product(64, 1024, codes_of("i8")), (0, 1, 7, 8, 9, 64, 65, 200)),
    ("cuda:sm_80", "w4a8, zero points"): (
        Product(264, 1008, codes_of("u4", zeros=True, lhs="u8")), (0, 1, 8, 9, 65),
    ),
    ("cuda:sm_80", "w8a8, odd K"): (Product(70, 515, codes_of("i8")), (1, 5, 9, 33)),
    ("cuda:sm_80", "w4a8, group 128"): (Product(256, 512, codes_of("i4", 128)), (1, 8, 9, 65)),
    # Workgroups split K for some numbers of rows; counters and workspace are operands of all functions.
    ("cuda:sm_80", "w4a8, long K"): (Product(128, 8192, codes_of("i4")), (0, 1, 16, 200)),
    ("cuda:sm_120", "w4a16"): (Product(256, 1024, weight_only("i4", 128), exact=False), (1, 33, 130)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("target", "name"), CASES)
def test_numbers_of_rows(target: str, name: str) -> None:
    product, numbers = CASES[target, name]
    arguments = product.arguments(None)
    artifact = qmlir.ops.scaled_matmul.compile(target=target, **arguments)
    program = interpret(artifact)
    taken = {}
    for rows in numbers:
        given = values(arguments, rows)
        check(product, program.main(*given.values()), qmlir.reference.scaled_matmul(**{**arguments, **given}))
        taken[rows] = [dispatch.name for dispatch in program.dispatches]
        assert len(taken[rows]) == (1 if rows else 0)
    taken.pop(0, None)
    for rows, (kernel,) in taken.items():
        assert kernel == _expected(artifact, rows)


def _expected(artifact: Any, rows: int) -> str:
    """Return the name of the function that the manifest states for this number of rows."""
    plan = next(a["plan"] for a in artifact.manifest.strategies[0]["answers"] if a["strategy"] == "multi-version-m")
    above = [int(name.split()[2]) for name in plan if name.startswith("more than")]
    above += [int(name.split()[0]) - 1 for name in plan if name.endswith("rows") and name[0].isdigit()]
    passed = [bound for bound in above if rows > bound]
    return f"main_product_0_above_{max(passed)}" if passed else "main_product_0"


@pytest.mark.slow
def test_every_kernel_for_many_rows() -> None:
    """`wgmma` kernels, with numbers of rows on both sides of their bounds."""
    product = Product(64, 512, codes_of("i8"))
    arguments = product.arguments(None)
    artifact = qmlir.ops.scaled_matmul.compile(target="cuda:sm_90a", **arguments)
    assert functions(artifact.manifest.strategies[0])[-1]["mma"].startswith("wgmma")
    program = interpret(artifact)
    for rows in (512, 513, 1025):
        given = values(arguments, rows)
        check(product, program.main(*given.values()), qmlir.reference.scaled_matmul(**{**arguments, **given}))
        assert [d.name for d in program.dispatches] == [_expected(artifact, rows)]


@pytest.mark.slow
def test_more_shared_memory_than_the_target_has_is_refused() -> None:
    artifact = qmlir.ops.scaled_matmul.compile(target="cuda:sm_90a", **CASES["cuda:sm_90a", "w8a8"][0].arguments(None))
    program = interpret(artifact)
    program.compiled.host = re.sub(r"shared_memory_bytes = \d+", "shared_memory_bytes = 232449", program.compiled.host)
    with pytest.raises(PtxError, match="asks for 232449 bytes of shared memory, and sm_90a has 232448"):
        program.main(*values(CASES["cuda:sm_90a", "w8a8"][0].arguments(None), 9).values())
