"""Waves that are executed together, with the memory that they access."""

from __future__ import annotations

from .lds import Lds
from .reach import Reach
from .shadow import RegisterShadow
from .waves import Waves


class Gang(Waves):
    """The waves that an instruction is executed on, with their memory.

    Attributes:
        lds, reach, shadow: LDS, global memory, and the checks of registers.
        base: the address of the code object's image.
        banks: number of banks of LDS.
        scratch_base, scratch_bytes: address of the private memory of all lanes, and bytes of one lane.
    """

    lds: Lds
    reach: Reach
    shadow: RegisterShadow
    base: int
    banks: int
    scratch_base: int
    scratch_bytes: int
