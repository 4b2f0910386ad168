"""The cost model: seconds from a kernel's work and a device's figures; missing figures are named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.programs import product

import qmlir
from qmlir.targets import Capabilities, Peak, all_targets, backend_of, resolve
from qmlir.targets.capabilities import Core
from qmlir.targets.cost import Figures, Work
from qmlir.targets.cpu.kernels import arm_float, arm_micro
from qmlir.targets.cpu.kernels.float_micro import FLOAT_KERNELS
from qmlir.targets.cpu.kernels.forecast import OPERATIONS
from qmlir.targets.cpu.kernels.integer_micro import INTEGER_KERNELS
from qmlir.targets.cpu.kernels.plain import NEON_F32, X86_KERNELS
from qmlir.targets.strategy import answer_text

KNOWN = Capabilities(
    ("i8",),
    peak=Peak("a product", (("i8", 1e12),), 1e11, units=10, clock=1e9, lanes=100, dots=50, shared_bytes=20,
              cache_bytes=10, latency=1e-6),
    core=Core(*[1e9] * 8),
)  # fmt: skip


def test_amounts_become_seconds_of_one_unit() -> None:
    f = Figures(KNOWN)
    assert f.multiply(1e11, "i8") == pytest.approx(1)
    assert f.operations(1e11) == f.dots(5e10) == f.shared(2e10) == f.cache(1e10) == pytest.approx(1)
    assert f.core(1e9) == f.copied(1e9) == f.read(1e9) == pytest.approx(1)
    assert f.rows(3, 64) == 3
    assert f.cost(Work(1, 1)).assumed == ()


def test_the_formula() -> None:
    """The longest of the amounts of work that overlap, plus the work that does not overlap."""
    work = Work(3, 10, {"multiply": 2.0, "cache": 5.0}, {"promote": 1.0}, fixed=4.0, once=7.0)
    assert work.compute == 3 * (10 * (5 + 1) + 4) + 7
    cost = Figures(KNOWN).cost(work)
    assert (cost.seconds, cost.bound) == (work.compute, "cache")
    far = Figures(KNOWN).cost(replace(work, memory=1e11 * 1000 * work.compute))
    assert far.seconds == pytest.approx(1000 * work.compute, rel=1e-6)
    assert far.bound == "memory"
    near = Figures(KNOWN).cost(replace(work, memory=1e11 * work.compute))
    assert near.seconds == pytest.approx(2**0.5 * work.compute)


def test_missing_figures_are_named_with_what_is_taken() -> None:
    f = Figures(Capabilities(("i8",)))
    seconds = f.operations(128 * 1.5e9) + f.multiply(0.0, "f16")
    assert seconds == pytest.approx(1)
    f.rows(None, 512)
    assert f.cost(Work(1, 1)).assumed == (
        "lanes of a unit (128 taken)", "clock (1.5 GHz taken)", "rate of f16 (300 T/s taken)", "units (64 taken)",
        "rows (512 taken)",
    )  # fmt: skip


@pytest.mark.parametrize("target", ["cpu:icelake-server", "cuda:sm_90a", "rocm:gfx942", "rocm:gfx1100", "vulkan:ada"])
def test_explain_says_the_seconds_of_the_choice(target: str) -> None:
    found = qmlir.explain(product(64, 256, 128), target=target)
    [row] = found.contractions
    [answer] = [a for a in row["answers"] if a["strategy"] == row["chosen"]]
    assert 0 < answer["cost"] < 1e-3
    assert "estimated " in answer_text(answer)
    for name in answer["assumed"]:
        assert name in str(found)
    if "runner_up" in answer:
        name, seconds = answer["runner_up"]
        assert seconds > 0
        assert f"next {name}, " in str(found)
    else:
        assert not target.startswith(("cuda:", "rocm:"))


def test_what_is_not_known_of_a_device_is_in_its_explanation() -> None:
    text = str(qmlir.explain(product(64, 256, 128), target="vulkan:valhall4"))
    assert "clock (1.5 GHz taken)" in text[text.index("not known: ") :]
    text = str(qmlir.explain(product(64, 256, 128), target="rocm:gfx942"))
    assert "not known" not in text[text.index("chosen") :].splitlines()[0]


def test_no_device_is_estimated_to_beat_its_bound() -> None:
    """The estimate for a large product is not below the bound from the GPU's figures."""
    for target in ("cuda:sm_80", "cuda:sm_90a", "rocm:gfx942", "vulkan:ada"):
        for answer in qmlir.explain(product(1024, 1024, 1024), target=target).contractions[0]["answers"]:
            if "cost" in answer and answer["seconds"] is not None:
                assert answer["cost"] > 0.9 * answer["seconds"], (target, answer["strategy"])


def test_every_micro_kernel_has_its_operations() -> None:
    of_arm = (*arm_micro.INTEGER_KERNELS, *arm_float.FLOAT_KERNELS)
    plain = (*X86_KERNELS, NEON_F32)
    assert {m.name for m in (*INTEGER_KERNELS, *FLOAT_KERNELS, *of_arm, *plain)} == set(OPERATIONS)


def test_figures_are_positive() -> None:
    for target in all_targets():
        peak = target.capabilities.peak
        if peak is not None:
            numbers = [peak.bandwidth, peak.units, peak.clock, peak.lanes, peak.dots, peak.shared_bytes,
                       peak.cache_bytes, peak.latency, *dict(peak.rates).values()]  # fmt: skip
            assert all(n is None or n > 0 for n in numbers), target.spelling
        assert backend_of(resolve(target.spelling)).name == target.backend


def test_products_through_f16_have_the_cost_of_their_f16_product() -> None:
    text = str(qmlir.explain(product(64, 256, 128), target="cuda:sm_80"))
    assert "exact-f16: route exact f16, k chunks 1" in text
    [line] = [line for line in text.splitlines() if "exact-f16:" in line]
    assert "estimated " in line
