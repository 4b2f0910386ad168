"""The levels of a program, and the passes that bring it from one to the next."""

from __future__ import annotations

from ..core.spelling import LEVELS
from ..targets import Target
from ..targets.strategy import Choice, choice_text

# The passes that bring a program to each level from the one before.
STAGES: dict[str, str] = {
    "qmlir": "qmlir-verify,qmlir-bake-parameters,qmlir-fold,qmlir-check-indices",
    "linalg": "qmlir-lower-to-linalg,canonicalize,cse",
    "configured": "qmlir-resolve-barriers{{target={target}}},qmlir-undo-broadcasts,qmlir-guard-divisions,"
    "qmlir-channels-last{{target={target}}},qmlir-crop-windows,qmlir-sort-in-stages,"
    "qmlir-recurrences{{target={target}}},qmlir-attention{{target={target}}},"
    "qmlir-select{{target={target}{choice}}},{target_passes}qmlir-store-pooled,qmlir-store-shared,"
    "qmlir-own-destinations,qmlir-drop-attributes,qmlir-guard",
}


def stage_pipeline(target: Target, level: str, choice: Choice | None = None) -> str:
    """The text of the passes that bring a program to `level`."""
    own = "".join(f"{p}," for p in target.passes)
    chosen = f" choice={choice_text(choice)}" if choice else ""
    return STAGES[level].format(target=target.spelling, target_passes=own, choice=chosen)


def default_pipeline(target: Target, start: str = "import", choice: Choice | None = None) -> str:
    """The text of the passes that a program at level `start` still has to go through."""
    return ",".join(stage_pipeline(target, s, choice) for s in list(STAGES)[LEVELS.index(start) :])
