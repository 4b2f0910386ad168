"""Artifacts: one file, with its manifest inside, that is either intact or refused."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir.errors import ArtifactError, InputError, QmlirError, TargetError, UsageError
from qmlir.runtime.artifact import Artifact, check_container
from qmlir.runtime.manifest import SCHEMA, Manifest
from qmlir.targets.cpu import host

PROGRAM = """
func.func @main(%x: tensor<?x4xi8> {qmlir.dtype = "u8", qmlir.name = "x"}) -> tensor<?x2xf32> {
  %w = arith.constant dense<[[1, -2], [3, -4], [5, -6], [127, -128]]> : tensor<4x2xi8>
  %s = arith.constant dense<0.5> : tensor<f32>
  %0 = "qmlir.scaled_matmul"(%x, %w, %s) {
    operand_names = ["lhs", "rhs", "lhs_scale"], lhs_dtype = "u8"
  } : (tensor<?x4xi8>, tensor<4x2xi8>, tensor<f32>) -> tensor<?x2xf32>
  return %0 : tensor<?x2xf32>
}
"""
X = np.array([[1, 2, 3, 255], [9, 8, 7, 6]], np.uint8)
Y = X.astype(np.float32) @ np.array([[1, -2], [3, -4], [5, -6], [127, -128]], np.float32) * 0.5


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return qmlir.compile(PROGRAM)


@pytest.fixture
def saved(artifact: Artifact, tmp_path: Path) -> Path:
    return Artifact(artifact.vmfb, artifact.manifest).save(tmp_path / "p.vmfb")


def test_saved_and_opened_again(artifact: Artifact, saved: Path) -> None:
    again = Artifact.open(saved)
    assert again.vmfb == artifact.vmfb
    assert again.manifest == artifact.manifest
    assert again.functions == artifact.functions
    assert str(again.functions["main"]) == "(x: u8[M, 4]) -> (f32[M, 2])"
    np.testing.assert_array_equal(qmlir.load(again).main(X), Y)
    np.testing.assert_array_equal(qmlir.load(saved).main(X), Y)
    np.testing.assert_array_equal(qmlir.load(str(saved)).main(X), Y)


def test_a_module_in_memory_is_compiled(artifact: Artifact) -> None:
    from qmlir.core.mlir import context, ir

    with context():
        made = qmlir.compile(ir.Module.parse(PROGRAM))
    assert made.functions == artifact.functions
    np.testing.assert_array_equal(qmlir.load(made).main(X), Y)


def test_manifest(artifact: Artifact) -> None:
    m = artifact.manifest
    assert Manifest.from_json(json.loads(json.dumps(m.to_json()))) == m
    assert (m.target, m.driver, m.qmlir, m.schema) == ("cpu", "local-task", qmlir.__version__, SCHEMA)
    assert m.pipeline.startswith("qmlir-verify,")
    assert m.pipeline.endswith("qmlir-guard")
    assert set(m.cpu_features) == set(host.host_features())
    [scheme] = m.schemes
    assert (scheme["op"], scheme["lhs"], scheme["rhs"], scheme["out"]) == ("qmlir.scaled_matmul", "u8", "i8", "f32")
    [strategy] = m.strategies
    assert (strategy["n"], strategy["k"], strategy["m"]) == (2, 4, None)
    assert strategy["chosen"]


def test_plain_iree_runs_it(saved: Path) -> None:
    tool = str(Path(sys.executable).parent / "iree-run-module")
    words = [tool, f"--module={saved}", "--device=local-sync", "--function=main", "--input=1x4xi8=1 2 3 -1"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "1x2xf32=[16203.5 -16334]" in done.stdout


# ---- sources


def test_source_of_each_level(artifact: Artifact) -> None:
    assert "qmlir.scaled_matmul" in artifact.source("import")
    assert "qmlir.scaled_matmul" in artifact.source("qmlir")
    linalg = artifact.source("linalg")
    assert "tensor<2xi32>" in linalg, "sums of the weight"
    assert "linalg.generic" in linalg
    assert "qmlir.scaled_matmul" not in linalg
    assert ".text" in artifact.source("asm")
    with pytest.raises(
        UsageError, match=r"unknown level 'llvm'; levels are import, qmlir, linalg, configured, dispatch"
    ):
        artifact.source("llvm")
    with pytest.raises(UsageError, match=r"this target makes no ptx \(its files: "):
        artifact.source("ptx")


@pytest.mark.slow
def test_a_level_compiles_to_the_same_program(artifact: Artifact) -> None:
    for level in ("import", "qmlir", "linalg", "configured"):
        again = qmlir.compile(artifact.source(level), start=level)
        assert again.functions == artifact.functions
        np.testing.assert_array_equal(qmlir.load(again).main(X), Y)


def test_a_loaded_artifact_from_memory_has_no_source(saved: Path) -> None:
    with pytest.raises(UsageError, match="compiled from memory, and its source is not kept"):
        Artifact.open(saved).source("linalg")


# ---- damage

FUZZ = """
import faulthandler, json, random, sys
import numpy as np
import qmlir
from qmlir.errors import ArtifactError
faulthandler.enable()
data = open(sys.argv[1], "rb").read()
x = np.load(sys.argv[2])
want = qmlir.load(sys.argv[1]).main(x).tolist()
cases = [("cut", n, data[:n]) for n in json.loads(sys.argv[3])]
rng = random.Random(0)
# Bits anywhere, and every byte of the archive's directory at the end.
for i in [*range(0, len(data), 97), *range(len(data) - 260, len(data))]:
    flipped = bytearray(data)
    flipped[i] ^= 1 << rng.randrange(8)
    cases.append(("flip", i, bytes(flipped)))
for i in range(20):
    at, n = rng.randrange(len(data)), rng.randrange(1, 2000)
    cases.append(("noise", at, data[:at] + rng.randbytes(n) + data[at + n:]))
results = []
for what, where, damaged in cases:
    open(sys.argv[4], "wb").write(damaged)
    try:
        got = qmlir.load(sys.argv[4]).main(x).tolist()
        results.append([what, where, "same" if got == want else "wrong", ""])
    except ArtifactError as e:
        results.append([what, where, "refused", str(e)])
    except Exception as e:
        results.append([what, where, repr(e), ""])
print(json.dumps(results))
"""


def test_damage_is_refused_or_harmless(saved: Path, tmp_path: Path) -> None:
    """Runs in a process of its own: a damaged file that is not refused reaches IREE, which may crash."""
    size = saved.stat().st_size
    np.save(tmp_path / "x.npy", X)
    cuts = sorted({0, 1, 63, 64, 65, size // 3, size // 2, *range(size - 24, size), *range(0, size, 997)})
    files = [str(saved), str(tmp_path / "x.npy"), json.dumps(cuts), str(tmp_path / "d.vmfb")]
    words = [sys.executable, "-c", FUZZ, *files]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert [r for r in results if r[2] not in ("refused", "same")] == []
    assert [r for r in results if r[0] == "cut" and r[2] != "refused"] == []
    assert all(str(tmp_path / "d.vmfb") in r[3] for r in results if r[2] == "refused"), "each message names the file"
    # Bytes that carry nothing (dates in the archive's directory) may change without harm; what is executed may not.
    inside = [r[2] for r in results if r[0] == "flip" and r[1] < size - 260]
    assert inside.count("refused") > 0.9 * len(inside)


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "f.vmfb"
    for data, message in (
        (b"", "is not a .vmfb: it has 0 bytes"),
        (b"text " * 100, "is truncated or not a .vmfb"),
        (b"\x7fELF" + bytes(1000), "is truncated or not a .vmfb"),
    ):
        path.write_bytes(data)
        with pytest.raises(ArtifactError, match=message):
            Artifact.open(path)
    for name in ("m.mlir", "m.onnx", "m.pt2"):
        source = tmp_path / name
        source.write_bytes(b"text " * 100)
        with pytest.raises(ArtifactError, match=rf"not a \.vmfb: .*; qmlir compile .*{name} makes one$"):
            qmlir.load(source)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", "x" * 100)
    with pytest.raises(ArtifactError, match="it is an archive without a module"):
        Artifact.open(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("module.fb", "x" * 100)
    with pytest.raises(ArtifactError, match=r"f\.vmfb is not an IREE module"):
        Artifact.open(path)
    with pytest.raises(ArtifactError, match=r"cannot read .*nowhere\.vmfb: No such file"):
        Artifact.open(tmp_path / "nowhere.vmfb")
    with pytest.raises(ArtifactError, match="Is a directory"):
        Artifact.open(tmp_path)


def test_a_plain_iree_module_has_no_manifest(artifact: Artifact, tmp_path: Path) -> None:
    source, path = tmp_path / "p.mlir", tmp_path / "p.vmfb"
    source.write_text("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }")
    tool = str(Path(sys.executable).parent / "iree-compile")
    flags = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=vmvx"]
    subprocess.run([tool, *flags, str(source), "-o", str(path)], check=True)
    check_container(path.read_bytes(), "p")  # as a container it is sound
    with pytest.raises(ArtifactError, match=r"p\.vmfb was not made by qmlir: it is an IREE module without a manifest"):
        qmlir.load(path)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("{", "is damaged: its manifest is not JSON"),
        ("[]", "is damaged: its manifest lacks functions or target"),
        ('{"target": "cpu"}', "is damaged: its manifest lacks functions or target"),
        ('{"target": "cpu", "driver": "x", "functions": {"main": {}}}', "its manifest's 'functions' is not what qmlir"),
        (
            '{"target": "cpu", "driver": "x", "functions": {"": {"inputs": [], "outputs": []}}}',
            "its manifest's 'functions' is not what qmlir",
        ),
        (
            '{"target": "cpu", "driver": "x", "functions": {}, "schema": "1"}',
            "manifest's 'schema' is not what qmlir",
        ),
        (
            '{"target": "cpu", "driver": "x", "functions": {}, "schema": 2, "qmlir": "9.0"}',
            r"was compiled by qmlir 9\.0, whose manifests have the form 2; this is qmlir .*, which reads up to 1: "
            "install that version, or compile the program again",
        ),
    ],
)
def test_a_manifest_that_is_none(
    manifest: str, message: str, artifact: Artifact, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmlir.runtime.artifact.reflection", lambda *_: manifest)
    with pytest.raises(ArtifactError, match=message):
        Artifact.open(saved)


# ---- hosts and devices


def test_a_host_that_lacks_features(artifact: Artifact, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "host_features", lambda: frozenset({"sse2"}))
    lacking = sorted(set(artifact.manifest.cpu_features) - {"sse2"})
    assert lacking, "the host's features are in the manifest"
    with pytest.raises(ArtifactError) as e:
        qmlir.load(saved)
    assert f"CPU features that this host lacks: {', '.join(lacking)}; compile it for this host" in str(e.value)


def test_a_host_whose_features_cannot_be_read(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "host_features", frozenset)
    np.testing.assert_array_equal(qmlir.load(saved).main(X), Y)


def test_another_device_is_refused(saved: Path) -> None:
    with pytest.raises(TargetError, match=r"compiled for cpu \(local-task\), not for 'vulkan://0'"):
        qmlir.load(saved, device="vulkan://0")
    with pytest.raises(TargetError, match=r"not for 'nonsense'"):
        qmlir.load(saved, device="nonsense")
    for device in ("local-sync", "local-task"):
        np.testing.assert_array_equal(qmlir.load(saved, device=device).main(X), Y)


# ---- calls


def test_arguments_that_do_not_fit(saved: Path) -> None:
    program = qmlir.load(saved)
    with pytest.raises(InputError, match=r"main takes 1 arguments \(x: u8\[M, 4\]\), but got 0"):
        program.main()
    with pytest.raises(InputError, match=r"argument 0 \('x'\) of main must be u8\[M, 4\], but has dtype i8"):
        program.main(X.view(np.int8))
    with pytest.raises(InputError, match=r"argument 0 \('x'\) of main must be u8\[M, 4\], but has shape \[2, 3\]"):
        program.main(X[:, :3])
    with pytest.raises(InputError, match=r"but has shape \[\]"):
        program.main(np.uint8(1))
    with pytest.raises(InputError):
        program.main(object())
    with pytest.raises(InputError, match="has dtype"):
        program.main([["a"]])
    with pytest.raises(AttributeError, match="no function 'mian'; it has main"):
        _ = program.mian
    np.testing.assert_array_equal(program.main(X[::-1]), Y[::-1])  # a view with strides


# ---- writing


def test_places_that_cannot_be_written(artifact: Artifact, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    for place in ("nowhere/x.vmfb", "folder", "file/x.vmfb"):
        with pytest.raises(UsageError, match=f"cannot write .*{place}"):
            Artifact(artifact.vmfb, artifact.manifest).save(tmp_path / place)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "folder"]


def test_random_bytes_are_never_a_container() -> None:
    rng = random.Random(1)
    for size in (64, 100, 1000, 10000):
        with pytest.raises(ArtifactError):
            check_container(rng.randbytes(size), "noise")


# ---- manifests from an untrusted source


@pytest.fixture(scope="module")
def from_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program compiled from a file, saved next to its source."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "p.mlir").write_text(
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = arith.addf %x, %x : tensor<4xf32>\n"
        "  return %0 : tensor<4xf32>\n}\n"
    )
    return qmlir.compile(folder / "p.mlir").save(folder / "p.vmfb")


def hostile(saved: Path, **options: Any) -> Artifact:
    """The program with fields of its manifest replaced, as an attacker could write them."""
    artifact = Artifact.open(saved)
    for name, value in options.items():
        place = artifact.manifest.source
        (place if name in place else place["options"])[name] = value
    return artifact


def test_a_program_shows_its_levels_again(from_file: Path) -> None:
    assert "arith.addf" in hostile(from_file).source("linalg")
    pipeline = "qmlir-verify,builtin.module(func.func(canonicalize,cse)),qmlir-guard"
    assert hostile(from_file, pipeline=pipeline).source("import")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"flags": ["--iree-hal-dump-executable-files-to=OUT"]},
         r"p\.vmfb names compiler flags that qmlir does not declare \(--iree-hal-dump-executable-files-to=.*compile "
         r"the source again with them"),
        ({"pipeline": "canonicalize,iree-hal-dump-executable-sources{path=OUT}"},
         r"passes or options of passes that qmlir does not declare \(iree-hal-dump-executable-sources\{path="),
        ({"pipeline": "func.func(print-op-stats{json=true})"}, r"does not declare \(print-op-stats\{json=true\}\)"),
        ({"pipeline": "canonicalize{max-iterations=1}"}, r"does not declare \(canonicalize\{max-iterations=1\}\)"),
        ({"pipeline": "qmlir-fold{path=x}"}, "pass qmlir-fold has no option 'path'"),
        ({"pipeline": 5}, "is not what qmlir writes|which is not text"),
        ({"choice": {"strategy": "stock}},iree-hal-dump-executable-sources{path=OUT"}},
         "makes a choice that no strategy of cpu declares"),
        ({"start": "nowhere"}, r"starts at an unknown level \(nowhere\)"),
        ({"keep_parameters": "elsewhere"}, "has an unknown value of keep_parameters"),
        ({"import_options": {"parameters": "OUT"}}, r"names options of a front end \(parameters\)"),
        ({"path": "/etc/hostname"}, r"names files that are neither in its folder nor in the current one: /etc/hostname"
         r"; to read them, say so: artifact\.source\(level, read_outside=True\)"),
        ({"path": "../../secret"}, r"neither in its folder nor in the current one: \.\./\.\./secret"),
        ({"path": "LINK"}, "neither in its folder nor in the current one: LINK"),
        ({"parameters": {"w": "/etc/hostname"}}, "neither in its folder nor in the current one: /etc/hostname"),
        ({"path": "x" * 5000}, "which does not exist"),
        ({"path": "gone.mlir"}, "compiled from gone.mlir, which does not exist"),
        ({"sha256": "0"}, "has changed since"),
    ],
)  # fmt: skip
def test_a_hostile_manifest(
    options: dict[str, Any], message: str, from_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the flags and passes in a file were run: the first case wrote into a folder that the file named."""
    monkeypatch.chdir(tmp_path)
    link, out = from_file.parent / "LINK", tmp_path / "out"
    link.unlink(missing_ok=True)
    link.symlink_to("/etc/hostname")
    with pytest.raises(QmlirError, match=message):
        hostile(from_file, **json.loads(json.dumps(options).replace("OUT", str(out)))).source("asm")
    assert not out.exists()


def test_files_outside_are_read_when_the_caller_says_so(
    from_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there = Path(shutil.copy(from_file, tmp_path))
    source = str(from_file.with_suffix(".mlir"))
    with pytest.raises(UsageError, match="neither in its folder nor in the current one"):
        hostile(there, path=source).source("linalg")
    assert "arith.addf" in hostile(there, path=source).source("linalg", read_outside=True)
    with pytest.raises(ArtifactError, match="names compiler flags"):
        hostile(there, path=source, flags=["--x"]).source("linalg", read_outside=True)
    monkeypatch.chdir(from_file.parent)
    assert "arith.addf" in hostile(there, path="p.mlir").source("linalg")
