"""The ptxas harness: it reads what ptxas reports, and it detects spills."""

from __future__ import annotations

import pytest
from ptx.assemble import AssemblerError, assemble
from ptx.kernels import MULTIPLY, WARPGROUP, kernel


@pytest.mark.parametrize("text", [MULTIPLY, WARPGROUP])
def test_the_kernels_of_the_tests_assemble(text: str) -> None:
    (usage,) = assemble(text)
    assert usage.entry == "k"
    assert 8 <= usage.registers <= 64
    assert usage.spill_stores == usage.spill_loads == 0


def test_spills_are_seen() -> None:
    count = 80  # values that are live at the same time, in a kernel limited to 32 registers
    loads = "".join(f"ld.volatile.global.b32 %r{i}, [%d1+{4 * i}];\n" for i in range(count))
    stores = "".join(f"st.volatile.global.b32 [%d1+{4 * i}], %r{i};\n" for i in reversed(range(count)))
    text = kernel(f"{loads}bar.sync 0;\n{stores}", 1, 64).replace(".reqntid 64, 1, 1", ".reqntid 64, 1, 1\n.maxnreg 32")
    (usage,) = assemble(text.replace(".reg .b32 %r<80>", f".reg .b32 %r<{count}>"))
    assert usage.spill_stores > 0
    assert usage.spill_loads > 0


def test_what_ptxas_refuses_is_said() -> None:
    with pytest.raises(AssemblerError, match="Not a name of any known instruction"):
        assemble(MULTIPLY.replace("ldmatrix.sync", "ldmatrx.sync"))
