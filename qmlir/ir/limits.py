"""Limits of IREE that lowerings keep to on every target."""

from __future__ import annotations

from ..core.faults import Fault

FAULTS = (
    Fault(
        "IREE does not compile rows whose padded length is known at run time for SPIR-V (`failed to legalize operation "
        "'memref.alloc'`): sparse weights in csr or coo form that are known at run time are made dense, by "
        "`passes/core/lower/sparse_form.py`, on every target.",
        canary="rows_at_run_time",
        upstream="https://github.com/iree-org/iree/issues/9322",
    ),
)
