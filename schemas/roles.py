"""The role table: what kernels and host events are, by name. Built in: roles.toml, which says where each name comes
from and what the patterns mean. A user's file stands over it, role by role.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from schemas.errors import InputError, printable
from schemas.timeline import Bool, Int32, StringPool, Tasks

MAX_BYTES = 1 << 20  # of a user's file: the built-in table has 10 KB
_BUILT_IN = Path(__file__).with_name("roles.toml")

#: Roles that name what a kernel is for, the more telling first: what a report shows for it, and what is "unnamed".
KERNEL_ROLES = (
    "dispatch",
    "combine",
    "receive",
    "fused_exchange",
    "dispatch_layout",
    "tp_sync",
    "collective",
    "accept",
    "finalize",
    "draft",
    "plan",
    "verify",
    "out_tokens",
    "commit",
    "publish",
    "copies",
)


@dataclass
class Roles:
    """Patterns by role. Distinct names are matched once."""

    patterns: dict[str, re.Pattern[str] | None]
    _seen: dict[tuple[str, str], bool] = field(default_factory=dict)

    def fits(self, role: str, name: str) -> bool:
        """Whether a name has the role. Raises KeyError for a role that is not in the table."""
        key = (role, name)
        found = self._seen.get(key)
        if found is None:
            pattern = self.patterns[role]
            found = self._seen[key] = pattern is not None and pattern.search(name) is not None
        return found

    def mask(self, role: str, names: Int32, strings: StringPool) -> Bool:
        """bool[n]: which rows of a text column have the role."""
        counts = np.bincount(names, minlength=1)
        fits = np.zeros(len(counts), np.bool_)
        for text_id in np.flatnonzero(counts).tolist():
            fits[text_id] = self.fits(role, strings[text_id])
        return np.asarray(fits[names], np.bool_)

    def of_tasks(self, role: str, tasks: Tasks, strings: StringPool) -> Bool:
        """bool[n]: tasks whose name or op type has the role."""
        return self.mask(role, tasks.name, strings) | self.mask(role, tasks.op_type, strings)

    def is_wrapper(self, names: Sequence[str]) -> npt.NDArray[np.bool_]:
        """bool[n] over texts: host events that only wrap others."""
        return np.fromiter((self.fits("wrapper", name) for name in names), np.bool_, len(names))

    def role_of(self, *names: str) -> str:
        """The most telling kernel role that one of the names has, or "" where the table does not know it."""
        for role in KERNEL_ROLES:
            if any(self.fits(role, name) for name in names if name):
                return role
        return ""


@cache
def _built_in() -> dict[str, tuple[str, ...]]:
    table = tomllib.loads(_BUILT_IN.read_text("utf-8"))
    return {role: tuple(entry["patterns"]) for role, entry in table.items()}


def load_roles(path: str | os.PathLike[str] | None = None) -> Roles:
    """The built-in table, with a user's file over it.

    Raises InputError, one line that names the file, where it can't be read, is no TOML, or is not a role table.
    """
    patterns = dict(_built_in())
    if path is not None:
        for role, (own, extend) in _read(path, patterns).items():
            patterns[role] = patterns[role] + own if extend else own
    return Roles({role: _compiled(own) for role, own in patterns.items()})


def _read(path: str | os.PathLike[str], known: Iterable[str]) -> dict[str, tuple[tuple[str, ...], bool]]:
    example = "a role table is TOML such as: [commit] patterns = ['my_kernel'] extend = true (a line each)"
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InputError(path, f"is larger than {MAX_BYTES >> 20} MiB", todo=example)
        table = tomllib.loads(data.decode("utf-8-sig"))
    except OSError as error:
        raise InputError(path, error.strerror or str(error), todo="check the path given to --roles") from None
    except RecursionError:
        raise InputError(path, "is nested deeper than any role table, which has 3 levels", todo=example) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(path, f"is not TOML: {error}", todo=example) from None
    out: dict[str, tuple[tuple[str, ...], bool]] = {}
    for role, entry in table.items():
        if role not in known:
            raise InputError(path, f"unknown role {role!r}", todo=f"known roles: {', '.join(sorted(known))}")
        if not isinstance(entry, dict):
            raise InputError(path, f"role {role!r} is not a table", todo=example)
        own = entry.get("patterns")
        if set(entry) - {"patterns", "extend"} or not isinstance(own, list) or not all(isinstance(p, str) for p in own):
            raise InputError(
                path, f"role {role!r} needs `patterns`, a list of texts, and may have `extend`", todo=example
            )
        for pattern in own:
            try:
                re.compile(pattern)
            except (re.error, RecursionError) as error:
                why = "nested deeper than 64 levels" if isinstance(error, RecursionError) else error
                shown = printable(pattern, 80)
                raise InputError(path, f"{shown!r} is no regular expression: {why}", where=f"role {role}") from None
        out[role] = (tuple(own), bool(entry.get("extend", False)))
    return out


def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{p})" for p in patterns), re.IGNORECASE) if patterns else None
