"""What is used of the flow dialect."""

from typing import Any

from ._op import Op as _Op

def __getattr__(name: str) -> Any: ...

class DispatchOp(_Op): ...
class TensorSplatOp(_Op): ...
