"""How deep JSON may be nested. Whatever walks a value afterwards may then do so level by level."""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 64  # the exports nest 6 deep, the reply of /server_info 8
TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_NESTED = frozenset({dict, list})


def is_too_deep(value: Any, depth: int = 1) -> bool:
    """Whether a decoded value is nested deeper than MAX_DEPTH. depth: the level of the value itself."""
    if type(value) not in _NESTED:
        return False
    if depth > MAX_DEPTH:
        return True
    items = value.values() if type(value) is dict else value
    return any(is_too_deep(item, depth + 1) for item in items if type(item) in _NESTED)
