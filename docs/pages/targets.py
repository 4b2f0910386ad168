"""Writes one page per target: the device, its level of proof, its strategies and passes, and the instructions found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from qmlir.compiler.stages import default_pipeline
from qmlir.targets import EMULATED, MEASURED, RUNS, Target, all_targets, backend_of

MADE = "*This page is written by `python docs/generate.py`.*"
ARM = (
    "Executed: in the tests of each kernel, IREE's runtime for Arm runs the programs in QEMU, an emulator of user "
    "processes. No such device has run them. The inner loops are analysed with LLVM's model of the core "
    "([figures](../kernels.md#kernels-for-arm))."
)
RAN = {
    "cuda": "Ran on a device: every kernel family was checked and measured on an H100 and an H200 "
    "([figures](../benchmarks-gpu.md)). The tests execute every form of the support matrix in an "
    "[emulator](../emulation.md), which runs and checks each PTX instruction.",
    "vulkan": "Ran on a device: every kernel family was checked on an H100 and an H200 ([list](../benchmarks-gpu.md)). "
    "The tests compile the programs and find the instruction in the SPIR-V.",
}
STATUS = {
    "cpu": "Compiled, and the code checked for its instructions. The tests run on the host's CPU, as the target `cpu`.",
    "cuda": "Every form of the support matrix is executed in an [emulator](../emulation.md), which runs and checks "
    "each PTX instruction. No such device has run them.",
    "rocm": "Every form of the support matrix, and small models in the slow tests, are executed in an "
    "[emulator](../emulation.md), which runs and checks each instruction. No such device has run them.",
    "vulkan": "Compiled only: the tests find the instruction in the SPIR-V. No such device has run the programs.",
}


def page(target: Target, matrix: Mapping[str, Mapping[str, Mapping[str, Any]]], cell: Callable[..., str]) -> str:
    has = target.capabilities
    levels = RAN if target.status == MEASURED else STATUS
    level = ARM if target.backend == "cpu" and target.status == EMULATED else levels[target.backend]
    facts = [("device", target.summary), ("driver", f"`{target.driver}`"),
             ("level of proof", target.status if target.status == RUNS else level),
             ("element types", ", ".join(f"`{d}`" for d in has.dtypes)),
             ("int8 dot products", "yes" if has.int8_dot else "no")]  # fmt: skip
    if has.mma:
        facts.append(("matrix instructions", ", ".join(f"`{m}`" for m in has.mma)))
    if has.subgroup_sizes:
        facts.append(("subgroups", ", ".join(map(str, has.subgroup_sizes))))
        facts.append(("shared memory", f"{has.shared_memory:,} bytes"))
    if has.cpu_features:
        facts.append(("features of the CPU", " ".join(has.cpu_features)))
    if has.peak is not None:
        rates = ", ".join(f"{name} {rate / 1e12:g} T/s" for name, rate in has.peak.rates)
        facts.append((f"published limits ({has.peak.product})", f"{rates}; {has.peak.bandwidth / 1e9:g} GB/s"))
    table = "\n".join(f"| {a} | {b} |" for a, b in facts)
    strategies = "\n".join(f"* `{s.name}`" for s in backend_of(target).strategies(target))
    parts = [f"# {target.spelling}\n\n{MADE}\n\n| | |\n|---|---|\n{table}\n",
             f"\n## Strategies, best first\n\n{strategies}\n\n"
             f"`qmlir explain model.mlir --target {target.spelling}` shows which of them a program uses, and why the "
             "others decline.\n",
             "\n## Passes\n\n```\n" + default_pipeline(target).replace(",", ",\n") + "\n```\n"]  # fmt: skip
    if target.source_passes:
        listed = ", ".join(f"`{p}`" for p in target.source_passes)
        parts.append(f"\nOn the executables that IREE forms: {listed}.\n")
    if target.code_passes:
        parts.append("\nOn IREE's translated executables: " + ", ".join(f"`{p}`" for p in target.code_passes) + ".\n")
    notes: list[str] = []
    rows = [(name, cell(row[target.spelling], notes)) for name, row in matrix.items() if target.spelling in row]
    if rows:
        listed = "\n".join(f"| {name} | {text} |" for name, text in rows)
        parts.append(f"\n## What is compiled\n\nThe instruction found in the code of each form of the "
                     f"[support matrix](../support.md).\n\n| form | instruction |\n|---|---|\n{listed}\n")  # fmt: skip
        if notes:
            parts.append("\n" + "\n".join(f"{i}. " + " ".join(n.split()) for i, n in enumerate(notes, 1)) + "\n")
    else:
        parts.append("\nThe [support matrix](../support.md) has no column for this target.\n")
    return "".join(parts)


def pages(matrix: Mapping[str, Any], cell: Callable[..., str]) -> dict[str, str]:
    found = {f"targets/{file_name(t)}.md": page(t, matrix, cell) for t in all_targets()}
    listed = "\n".join(f"| [{t.spelling}]({file_name(t)}.md) | {t.summary} | {t.status} |" for t in all_targets())
    found["targets/index.md"] = f"""# Targets

{MADE}

| target | device | status |
|---|---|---|
| `cpu` | the CPU of the host | {RUNS} |
{listed}
"""
    return found


def file_name(target: Target) -> str:
    return target.spelling.replace(":", "-")
