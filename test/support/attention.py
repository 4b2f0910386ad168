"""Attention ops as programs, with their expected results computed in f64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Batch, head, query heads that share a key head, queries, columns of values, width of a head, keys.
LOOPS = "bhrqndk"


@dataclass(frozen=True)
class Form:
    """Layouts of queries, keys and mask as letters, and the static sizes; batch, queries and keys are dynamic."""

    q: str = "bqhd"
    k: str = "bkhd"
    mask: str = ""
    width: int = 32
    columns: int = 0
    heads: int = 3
    sharing: int = 5

    @property
    def rows(self) -> str:
        """The axes of the scores."""
        return "bhrqk" if "r" in self.q else "bhqk"

    @property
    def v(self) -> str:
        return self.k.replace("d", "n")

    @property
    def out(self) -> str:
        return self.q.replace("d", "n")

    def sizes(self, batch: int, queries: int, keys: int) -> dict[str, int]:
        return {
            "b": batch,
            "h": self.heads,
            "r": self.sharing,
            "q": queries,
            "k": keys,
            "d": self.width,
            "n": self.columns or self.width,
        }

    def text(self) -> str:
        """The op as a program."""
        static = self.sizes(-1, -1, -1)

        def kind(axes: str) -> str:
            return "tensor<" + "".join(f"{static[a]}x" if static[a] > 0 else "?x" for a in axes) + "f32>"

        def reads(axes: str) -> str:
            loops = ", ".join(loop for loop in LOOPS if loop != "r" or "r" in self.q)
            return f"affine_map<({loops}) -> ({', '.join(axes)})>"

        operands = {"q": self.q, "k": self.k, "v": self.v} | ({"mask": self.mask} if self.mask else {})
        arguments = ", ".join(f"%{name}: {kind(axes)}" for name, axes in operands.items())
        maps = [reads(self.q), reads(self.k), reads(self.v), reads(""), *([reads(self.mask)] if self.mask else []),
                reads(self.out)]  # fmt: skip
        names = ["%q", "%k", "%v", "%scale", *(["%mask"] if self.mask else [])]
        types = [kind(self.q), kind(self.k), kind(self.v), "f32", *([kind(self.mask)] if self.mask else [])]
        order = [a for a in self.out if static[a] < 0]
        return f"""
          func.func @main({arguments}) -> {kind(self.out)} {{
            %i_b = arith.constant {self.q.index("b")} : index
            %i_q = arith.constant {self.q.index("q")} : index
            %n_b = tensor.dim %q, %i_b : {kind(self.q)}
            %n_q = tensor.dim %q, %i_q : {kind(self.q)}
            %scale = arith.constant {self.width**-0.5} : f32
            %empty = tensor.empty({", ".join(f"%n_{a}" for a in order)}) : {kind(self.out)}
            %result = iree_linalg_ext.attention <{{indexing_maps = [{", ".join(maps)}]}}>
                ins({", ".join(names)} : {", ".join(types)}) outs(%empty : {kind(self.out)}) {{
            ^bb0(%score: f32):
              iree_linalg_ext.yield %score : f32
            }} -> {kind(self.out)}
            return %result : {kind(self.out)}
          }}"""

    def expected(self, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        q, k, v = (x.astype(np.float64) for x in (q, k, v))
        scores = np.einsum(f"{self.q},{self.k}->{self.rows}", q, k) * self.width**-0.5
        if mask is not None:
            scores = scores + np.expand_dims(mask, [i for i, a in enumerate(self.rows) if a not in self.mask])
        with np.errstate(invalid="ignore"):
            weights = np.exp(scores - scores.max(-1, keepdims=True))
        total = weights.sum(-1, keepdims=True)
        return np.einsum(f"{self.rows},{self.v}->{self.out}", weights / total, v)


FORMS = {
    "projections": Form(mask="bk"),
    "heads-first": Form("bhqd", "bhkd", "qk", width=80),
    "heads-mixed": Form("bqhd", "bhkd", "bhqk", width=8, columns=20),
    "plain": Form(width=64, heads=1),
    "grouped": Form("bqhrd", "bkhd", "qk"),
    "shared-mask": Form("bhrqd", "bhkd", "bqk"),
}
