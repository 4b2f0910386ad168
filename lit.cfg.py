"""lit suites over test/: `lit -sv test` in an environment that has `pip install -e .[test]`.

The tools are found on PATH instead of by substitution, because the name of a tool is also the name of
a stage, a namespace and a flag (`--dump qmlir`), which a textual substitution would rewrite too.
"""

# ruff: noqa: F821 -- lit runs this file with `config` and `lit_config` already bound.
from __future__ import annotations

import os
import sys
from pathlib import Path

import lit.formats

_root = Path(__file__).resolve().parent

config.name = "qmlir"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = str(_root)
# test/test_lit.py runs one lit per file side by side and gives each its own folder.
config.test_exec_root = lit_config.params.get("exec_root", str(_root / "build" / "lit"))

_bin = [_root / "tools" / "bin", Path(sys.executable).parent]
config.environment["PATH"] = os.pathsep.join([*map(str, _bin), os.environ.get("PATH", "")])
config.environment["PYTHON"] = sys.executable
config.environment["PYTHONPATH"] = str(_root)
config.environment["PYTHONUTF8"] = "1"
for _name, _value in os.environ.items():
    if _name.startswith(("QMLIR_", "VK_", "XDG_")) or _name == "HOME":
        config.environment[_name] = _value
config.substitutions.append(("%python", sys.executable))

# `// REQUIRES: lavapipe` marks what runs on the software Vulkan device. QMLIR_REQUIRE_LAVAPIPE makes a
# missing device a failure of those tests instead of a skip.
_drivers = [Path("/usr/share/vulkan/icd.d"), Path("/etc/vulkan/icd.d")]
if os.environ.get("QMLIR_REQUIRE_LAVAPIPE") or any(list(d.glob("lvp_icd*.json")) for d in _drivers):
    config.available_features.add("lavapipe")
