"""Waves that run together, with the memory that they reach."""

from __future__ import annotations

from .lds import Lds
from .reach import Reach
from .shadow import RegisterShadow
from .waves import Waves


class Gang(Waves):
    """What an instruction is executed on.

    Attributes:
        lds, reach, shadow: LDS, global memory, and what is known of registers.
        base: the address of the code object's image.
        banks: of LDS.
        scratch_base, scratch_bytes: private memory of all lanes, and bytes of one.
    """

    lds: Lds
    reach: Reach
    shadow: RegisterShadow
    base: int
    banks: int
    scratch_base: int
    scratch_bytes: int
