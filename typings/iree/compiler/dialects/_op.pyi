from typing import Any

from ..ir import OpView

class Op(OpView):
    """An op's generated class. Its attributes are those of any view: see `OpView`."""

    def __init__(self, *arguments: Any, **options: Any) -> None: ...
