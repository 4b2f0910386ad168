"""The CPU benchmarks compare what they state: every work exists, and all candidates compute the reference's result."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import numpy as np
import pytest

from benchmarks import compile as costs, decoder, harness, overhead
from benchmarks.cpu import report
from benchmarks.cpu.peers import PEERS, Absent, LeftOut, candidates
from benchmarks.cpu.worker import _row
from benchmarks.cpu.works import EIGHT_BITS, FOUR_BITS, LOSSY, MOBILENETV2, RESNET50, works
from benchmarks.dispatches import dispatches
from qmlir.cli import arguments
from qmlir.targets.cpu.host import host_features

pytestmark = pytest.mark.sweep(fast=3, slow=40)

# Row of the table -> number of works.
ROWS = {
    "w8a8, M >= 128": 4,
    "w8a8, M = 16": 1,
    "w8a8, M = 1": 1,
    "w8a8, quantised dynamically": 2,
    "w4a8 g128, M = 1": 1,
    "w4a8 g128, M >= 16": 3,
    "w4a16 g128": 2,
    "ResNet-50 convolutions, batch 1": 20,
    "ResNet-50 convolutions, batch 8": 20,
    "MobileNetV2 depthwise": 10,
    "MoE layer": 8,
    "gated MLP block": 2,
    "networks": 3,
    "products of current models": 15,
    "convolutions of current models": 9,
}
WORKS = works()
# The fast tier takes the first work of each row, except rows that differ from another only in the number of images or
# rows (`OTHER_SIZES`). The slow tier takes all works.
FIRST = {next(w.name for w in WORKS if w.row == row) for row in ROWS}
OTHER_SIZES = {"ResNet-50 convolutions, batch 8", "w8a8, M >= 128", "w8a8, M = 1"}
assert set(ROWS) >= OTHER_SIZES
CASES = [
    pytest.param(w, id=w.name, marks=() if w.name in FIRST and w.row not in OTHER_SIZES else pytest.mark.slow)
    for w in WORKS
]


def test_registry_is_complete() -> None:
    assert {row: sum(w.row == row for w in WORKS) for row in {w.row for w in WORKS}} == ROWS
    assert len({w.name for w in WORKS}) == len(WORKS)
    assert len(set(RESNET50)) == 20
    assert len(set(MOBILENETV2)) == 10
    assert all(set(w.goals) <= {FOUR_BITS, EIGHT_BITS, LOSSY} and w.goals for w in WORKS)
    assert {m.row for m in WORKS if m.quick} >= {"w8a8, M >= 128", "w8a8, M = 16", "w8a8, M = 1", "w4a8 g128, M = 1"}
    assert set(report.MEANS) <= set(ROWS)


@pytest.mark.sweep(fast=12, slow=40)
@pytest.mark.parametrize("work", CASES)
def test_ours_and_peers_compute_the_reference(work: Any) -> None:
    problem = work.tiny()
    assert problem.operations > 0
    assert problem.bytes > 0
    expected = problem.reference()

    def check(name: str, got: Any, want: Any, tolerance: float) -> None:
        assert got.shape == want.shape, name
        assert float(np.abs(got - want).max() / np.abs(want).max()) <= tolerance, name

    check("ours", problem.real(problem.ours()()), expected, 0.01)
    # On other x86 CPUs the peers add pairs of products of u8 by s8 in saturating 16 bits.
    exact = {"avx512vnni", "avxvnni", "neon"} & host_features()
    for peer in PEERS if exact else ():
        try:
            found = candidates(peer, problem, 1)
        except Absent:  # the environment decides which peers take part, and the suite says so
            continue
        for c in found:
            if isinstance(c, LeftOut):
                assert c.reason, c.name
                continue
            check(c.name, c.real(c.run()), expected if c.problem is None else c.problem.reference(), c.tolerance)


def test_peers_leave_the_process_as_it_is() -> None:
    """Regression: later ONNX Runtime sessions of the process failed with "use_per_session_threads must be false"."""
    onnxruntime = pytest.importorskip("onnxruntime")
    from onnx import parser

    assert candidates("ort", next(w for w in WORKS if w.row == "w8a8, M = 16").tiny(), 1)
    relu = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> graph (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    assert onnxruntime.InferenceSession(relu.SerializeToString()).get_inputs()[0].name == "x"


def timing(*rounds: list[float]) -> harness.Timing:
    return harness.Timing(list(rounds))


def test_rows_take_the_best_peer_of_their_kind() -> None:
    work = next(w for w in WORKS if set(w.goals) == {FOUR_BITS, EIGHT_BITS})
    times = {"ours": timing([1.0, 1.0], [2.0, 2.0]), "a": timing([4.0], [4.0]), "b": timing([2.0], [2.5])}
    row = _row(work, EIGHT_BITS, (0.95, 0.9), 2, times, {"a": EIGHT_BITS, "b": EIGHT_BITS}, 0.75)
    assert (row["peer"], row["ours_ms"], row["peer_ms"], row["goal"]) == ("b", 1500.0, 2250.0, 0.9)
    assert row["ratio"] == pytest.approx(1.5 / 2.25)
    assert row["p10"] == pytest.approx(0.5 + 0.1 * 0.3)  # of the rounds' ratios, 0.5 and 0.8
    assert row["limit_share"] == 0.5
    lonely = _row(work, FOUR_BITS, (0.2, 0.2), 1, times, {"a": EIGHT_BITS}, 0.75)
    assert lonely["peer"] is None
    assert report.verdict(lonely) == "no peer"


def test_race_gives_every_candidate_its_turns() -> None:
    calls = {"one": 0, "two": 0}

    def count(name: str) -> None:
        calls[name] += 1

    found = harness.race({n: (lambda n=n: count(n)) for n in calls}, rounds=3, burst_s=1e-6)  # type: ignore[misc]
    assert all(len(t.all()) <= calls[n] and t.rounds for n, t in found.items())


def test_page_and_table_say_who_is_absent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"work": "w", "against": EIGHT_BITS, "threads": 1, "ours_ms": 1.0, "limit_share": 0.5, "goal": 0.9,
           "peer": "p", "peer_ms": 2.0, "ratio": 0.5, "p10": 0.4, "p90": 0.6}  # fmt: skip
    result = {
        "environment": {"cpu": "a CPU", "cpus": 2, "features": ["avx2"], "peers": {}, "absent": {"llama": "no"}},
        "limits": [],
        "works": [{"work": "w", "threads": 1, "load": 1.0, "rows": [row], "absent": {"iree": "too large"}},
                  {"work": "x", "threads": 1, "rows": [], "refused": "the process ended with -11"}],
        "rows": [row],
    }  # fmt: skip
    text = report.page([result])
    assert "| w | 8-bit | 1 | 1 | p | 2 | **0.50** |" in text
    for part in (
        "absent: llama: no",
        "absent: iree: too large (1 times, first: w)",
        "qmlir: the process ended with -11",
    ):
        assert part in text

    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setitem(row, "work", "a name that is long " * 8)
    for terminal in (False, True):  # a file has whole lines; a terminal of 80 columns wraps, and cuts nothing
        if terminal:
            monkeypatch.setenv("COLUMNS", "80")
        to = arguments.console()
        to.print(report.table(result, to.width))
        lines = capsys.readouterr().out.splitlines()
        assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)
        assert (len(lines) == 5) != terminal
        assert (max(map(len, lines)) <= 80) == terminal


@pytest.mark.slow
def test_decoders_agree(tmp_path: Any) -> None:
    """qmlir's two programs, and llama.cpp if it is installed, compute similar logits from one file."""
    sizes = decoder.Sizes(layers=1, hidden=64, inner=96, heads=2, kv_heads=1, vocabulary=1000, context=16)
    path = tmp_path / "m.gguf"
    assert decoder.write(path, sizes, "Q4_0") == 2 * 1000 * 64 + 64 * (64 + 32 + 32 + 64 + 3 * 96)
    found = {"ours, f32": decoder.ours(path, 16, False), "ours, int8": decoder.ours(path, 16, True)}
    if importlib.util.find_spec("llama_cpp") is not None:  # the environment decides which peers take part
        found["llama.cpp"] = decoder.llama(path, 16, 1, True)
    times, logits = decoder.race(found, np.arange(9, dtype=np.int32), 4, 1)
    exact = logits["ours, f32"]
    for name, got in logits.items():
        assert got @ exact / np.linalg.norm(got) / np.linalg.norm(exact) > decoder.LEAST_COSINE, name
        assert len(times[name]["decode"].rounds[0]) == 4


def test_costs_of_a_call_are_measured(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert overhead.main(["--quick", "--json", str(tmp_path / "costs.json")]) == 0
    found = json.loads((tmp_path / "costs.json").read_text())
    goals = [name for name, part in found.items() if "ok" in part]
    assert {"call", "sizes", "import"} <= set(goals)
    assert ("torch call" in goals) == (importlib.util.find_spec("torch") is not None)
    text = capsys.readouterr().out
    for verdict, ok in (("kept", True), ("missed", False)):
        assert text.count(f": {verdict})") == sum(found[name]["ok"] is ok for name in goals)


def test_dispatches_of_a_program_are_named_and_counted(tmp_path: Any) -> None:
    chain = next(w for w in WORKS if w.name == "digits batch 1").tiny()
    artifact, [image] = chain.program()
    artifact.save(tmp_path / "p.vmfb")
    np.save(tmp_path / "x.npy", image)
    found = dispatches(tmp_path / "p.vmfb", "main", [f"@{tmp_path / 'x.npy'}"], 3)
    assert sum("_product_" in d.name for d in found) >= 2
    assert all(d.count >= 1 and d.microseconds > 0 for d in found)
    with pytest.raises(RuntimeError, match="other failed"):
        dispatches(tmp_path / "p.vmfb", "other", [], 1)


def test_sections_of_the_page() -> None:
    machine = {"cpu": "a CPU", "load": 1.0, "gguf": "1.2"}
    row = {"type": "Q4_0", "phase": "decode", "threads": 1, "ours": "ours, f32", "weights": 100e6, "prompt": 128,
           "ours_tokens_s": 400.0, "goal": 0.9, "peer": "llama.cpp", "peer_tokens_s": 300.0,
           "ratio": {"median": 0.75, "p10": 0.7, "p90": 0.8}, "absent": {}}  # fmt: skip
    alone = {**row, "peer": None, "peer_tokens_s": None, "ratio": None}
    text = decoder.section({"environment": machine, "commit": "abc", "rows": [row, alone]})
    assert "| Q4_0 | decode | 1 | qmlir, f32 | 400 | llama.cpp | 300 | **0.75** | 0.70 | 0.80 | 0.90 |" in text
    assert "| Q4_0 | decode | 1 | qmlir, f32 | 400 | none |  |  |  |  | 0.90 |" in text
    assert "100 million parameters, a prompt of 128 tokens" in text
    cost = {"work": "w", "seconds": 1.0, "first": 2.0, "peak_mib": 500.0, "vmfb_over_weights": 1.001}
    text = costs.section({"environment": machine, "commit": "abc", "rows": [cost]})
    assert "| w | 1.00 | 2.00 | 500 | 1.0010 |" in text
    assert decoder.table([row, alone]).row_count == 2
