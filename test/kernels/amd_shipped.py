"""Figures from the assembly of AMD kernels for a range of schemes and rows: registers, LDS, scratch, and the share of
matrix instructions in the main loop's issue cycles. All of them take about four minutes.

python test/kernels/amd_shipped.py                        # a JSON object for each kernel
python test/kernels/amd_shipped.py rocm:gfx942            # only this target
python test/kernels/amd_shipped.py NCHW                   # every target, only schemes whose names contain this text
python test/kernels/amd_shipped.py --dynamic              # every target, only dynamic numbers of rows
python test/kernels/amd_shipped.py --against before.json  # only lines that differ from those printed before

The strategy is the chosen one; the share is counted for CDNA targets, as `qmlir/targets/rocm/isa.py` describes.
`test_amd_shipped.py` has the bounds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:  # as a script
    sys.path.insert(0, str(HERE.parent))

from kernels.gpu_products import Product, codes_of, weight_only  # noqa: E402
from support.forms import FORMS  # noqa: E402

import qmlir  # noqa: E402
from qmlir import TensorSpec  # noqa: E402
from qmlir.targets.rocm import isa  # noqa: E402

TARGETS = ("rocm:gfx90a", "rocm:gfx942", "rocm:gfx950", "rocm:gfx1100", "rocm:gfx1151", "rocm:gfx1201")
N, K = 2048, 1024
SCHEMES = {
    "w8a8": Product(N, K, codes_of("i8")),
    "w8a8, zero points": Product(N, K, codes_of("i8", zeros=True, lhs="u8")),
    "w4a8": Product(N, K, codes_of("i4")),
    "w4a8, group 128": Product(N, K, codes_of("i4", 128)),
    "w4a8, group 128, zero points": Product(N, K, codes_of("u4", 128, zeros=True)),
    "w4a16, group 128": Product(N, K, weight_only("i4", 128)),
}
ROWS = (1, 16, 128, 2048, None)
EXPERTS = "8 experts, w4a8, group 128"
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "conv2d w8a8, 3x3": {},
    "conv2d w8a8, 3x3, NCHW": {"input_layout": "NCHW"},
    "conv2d w8a8, 3x3, 4 groups": {"groups": 4},
    "conv2d w8a16, 3x3": {"lhs": "f16"},
}

# Forms of the support matrix, 256 x 512 codes.
SMALL_FLOATS = {
    "e4m3, blocks 1x128 by 128x128": "scaled_matmul: e4m3 x e4m3, blocks 1x128 by 128x128",
    "MXFP8": "scaled_matmul: e4m3 x e4m3, MX (32, e8m0)",
    "MXFP4": "scaled_matmul: fp4 e2m1 x e2m1, MX (32, e8m0)",
    "NVFP4": "scaled_matmul: fp4 e2m1 x e2m1, NVFP4 (16, e4m3)",
    "experts, e4m3": "grouped_matmul: e4m3 x e4m3, routed",
}

_COUNTED = ("rocm:gfx90a", "rocm:gfx942", "rocm:gfx950")  # whose issue cycles are known

Row = dict[str, Any]


def compiled(scheme: str, m: int | None, target: str, folder: Path) -> Any:
    """The program of one configuration; its assembly is dumped to `folder`."""
    flags = (f"--iree-hal-dump-executable-files-to={folder}",)
    rng = np.random.default_rng(7)
    if scheme in CONVOLUTIONS:
        more = {"groups": 1, "lhs": "i8", "input_layout": "NHWC"} | CONVOLUTIONS[scheme]
        weight = rng.integers(-128, 128, (256, 3, 3, 128 // more["groups"])).astype(np.int8)
        image = (m, 128, 28, 28) if more["input_layout"] == "NCHW" else (m, 28, 28, 128)
        spec = TensorSpec(image, more.pop("lhs"))
        scale = {"input_scale": np.float32(0.5)} if str(spec.dtype) == "i8" else {}
        return qmlir.ops.conv2d_q.compile(
            spec, weight, padding=(1, 1, 1, 1), weight_scale=np.ones(256, np.float32), target=target, flags=flags,
            **scale, **more,
        )  # fmt: skip
    if scheme == EXPERTS:
        codes = rng.integers(-8, 8, (8, 512, K)).astype(np.int8)
        return qmlir.ops.grouped_matmul.compile(
            TensorSpec((m, K), "i8"), codes, rhs_dtype="i4", rhs_transposed=True, lhs_scale=TensorSpec((m, 1), "f32"),
            rhs_scale=np.ones((8, 512, K // 128), np.float32), expert_ids=TensorSpec((m, 2), "i32"), target=target,
            flags=flags,
        )  # fmt: skip
    if scheme in SMALL_FLOATS:
        form = next(f for f in FORMS if f.name == SMALL_FLOATS[scheme])
        return form.compile(target, m=m, flags=flags)
    return qmlir.ops.scaled_matmul.compile(target=target, flags=flags, **SCHEMES[scheme].arguments(m))


def measured(scheme: str, m: int | None, target: str) -> list[Row]:
    """One row per kernel of the product's dispatch, each with the largest scratch and spills of all dispatches."""
    with tempfile.TemporaryDirectory() as folder:
        artifact = compiled(scheme, m, target, Path(folder))
        decision = artifact.manifest.strategies[0]
        plan = next(a["plan"] for a in decision["answers"] if a["strategy"] == decision["chosen"])
        texts = [file.read_text() for file in sorted(Path(folder).glob("*.rocmasm"))]
    every = [r for text in texts for r in isa.resources(text)]
    code = {name: part for text in texts for name, part in isa.functions(text).items()}
    by_rows = {name: facts for name, facts in plan.items() if name.endswith("rows")}
    found = [r for r in every if "product" in r.name or "matmul" in r.name or "conv" in r.name] or every
    # The names of kernels for different numbers of rows contain these numbers, by which they are sorted.
    products = sorted(found, key=lambda r: int(r.name.rpartition("_above_")[2] if "_above_" in r.name else 0))
    rows: list[Row] = []
    for (label, facts), product in zip((by_rows or {"": plan}).items(), products, strict=bool(by_rows)):
        rows.append({
            "target": target, "scheme": scheme, "m": m, **({"rows": label} if by_rows else {}),
            "strategy": facts.get("strategy", decision["chosen"]),
            "workgroup": facts.get("workgroup") or facts.get("tile") or [], "vgprs": product.vector_registers,
            "sgprs": product.scalar_registers, "lds": product.shared_bytes,
            **({"stream_k": facts["stream_k"]} if "stream_k" in facts else {}),
            "scratch": max(r.scratch_bytes for r in every), "spilled": max(r.spilled for r in every),
            "share": round(isa.matrix_share(isa.main_loop(code[product.name])), 2) if target in _COUNTED else None,
            "bytes_one_by_one": sum(text.count("ds_read_u8") for text in texts),
        })  # fmt: skip
    return rows


def configurations() -> list[tuple[str, int | None]]:
    return [
        *((s, m) for s in SCHEMES for m in ROWS),
        *((s, m) for s in CONVOLUTIONS for m in (8, None)),
        (EXPERTS, 64),
        (EXPERTS, None),
        *((s, m) for s in SMALL_FLOATS for m in (1, 128, None)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="targets, and texts of schemes")
    parser.add_argument("--dynamic", action="store_true", help="only rows that are known at run time only")
    parser.add_argument("--against", type=Path, metavar="FILE", help="print what FILE lacks; exit 1 if anything")
    args = parser.parse_args()
    known = set(args.against.read_text().splitlines()) if args.against else set()
    targets = [w for w in args.words if w in TARGETS] or list(TARGETS)
    texts = [w for w in args.words if w not in TARGETS] or [""]
    other = 0
    for target in targets:
        for scheme, m in configurations():
            if (args.dynamic and m) or not any(text in scheme for text in texts):
                continue
            for line in map(json.dumps, measured(scheme, m, target)):
                if line not in known:
                    other += 1
                    print(line, flush=True)
    return 1 if args.against and other else 0


if __name__ == "__main__":
    raise SystemExit(main())
