"""Were two traces recorded under the same conditions? Only then do their figures compare."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from converter.report_facts import GROUPS, LABELS, by_rank, same_or_each
from converter.report_tables import Tables

#: Conditions among the facts: how it was collected, what ran, with which settings.
_CONDITION = re.compile(
    r"^(capture\.|run\.|server\.|dspark\.(mode|gamma|verify_num_draft_tokens|components|simulate_acc_len)$)"
)
#: Facts of a machine and not of a setting; they differ between two runs of the same thing.
_INCIDENTAL = re.compile(r"^capture\.(hostname|device_\d+_counter_mhz|syscnt_mhz|not_recorded)$")
#: No conditions, but a reader wants to know.
_TOLD = re.compile(r"^(tool\.version$|refused\.)")


#: Mean batch sizes that differ by more than this part are another condition.
BATCH_TOLERANCE = 0.05


@dataclass(frozen=True)
class Difference:
    """before, after: as text. matters: figures of the two traces do not compare while it is there."""

    key: str
    before: str
    after: str
    matters: bool


def differences(before: Tables, after: Tables) -> list[Difference]:
    """What differs in the capture facts and in the work of the steps; what matters comes first."""
    out = [_ranks(before, after), *_work(before, after)]
    ours, theirs = _facts(before), _facts(after)
    order = [*(k for k in LABELS if k in ours or k in theirs), *sorted({*ours, *theirs} - set(LABELS))]
    for key in order:
        out.append(Difference(key, ours.get(key, "not known"), theirs.get(key, "not known"), _matters(key)))
    found = [d for d in out if d.before != d.after]
    return sorted(found, key=lambda d: not d.matters)


def conditions(before: Tables, after: Tables) -> list[tuple[str, str]]:
    """The conditions that both traces state alike: name, value."""
    ours, theirs = _facts(before), _facts(after)
    order = [*(k for k in LABELS if k in ours), *sorted(set(ours) - set(LABELS))]
    return [(label(k), ours[k]) for k in order if _matters(k) and theirs.get(k) == ours[k]]


def _matters(key: str) -> bool:
    return bool(_CONDITION.match(key)) and not _INCIDENTAL.match(key)


def label(key: str) -> str:
    """The fact's name as in the report."""
    for prefix, group in GROUPS.items():
        if key.startswith(prefix):
            return f"{group} {key.removeprefix(prefix)}"
    return LABELS.get(key, key.removeprefix("capture."))


def _facts(tables: Tables) -> dict[str, str]:
    """key -> value of every fact worth telling, over all ranks."""
    facts, ranks = by_rank(tables), tables.ranks()
    keys = {k for values in facts.values() for k in values if _CONDITION.match(k) or _TOLD.match(k)}
    out = {}
    for key in keys:
        run = facts.get(None, {}).get(key)
        each = [(r, facts[r].get(key)) for r in ranks]
        known = any(value is not None for _, value in each)
        out[key] = same_or_each(each) if known else run or ""
    return out


def _ranks(before: Tables, after: Tables) -> Difference:
    return Difference("ranks", *(", ".join(map(str, t.ranks())) or "none" for t in (before, after)), True)


def _work(before: Tables, after: Tables) -> list[Difference]:
    """Batch sizes and verify widths of the steps: a step's time depends on them."""
    rows = [t.dicts("steps") for t in (before, after)]
    if not all(rows):
        return [Difference("steps", *(str(len(r)) for r in rows), True)]
    sizes = [_Sizes([s["bs"] for s in r if s["bs"] is not None]) for r in rows]
    return [
        Difference("batch sizes", *map(str, sizes), not sizes[0].like(sizes[1])),
        Difference("verify width of the steps", *(_spelled({_width(s) for s in r}) for r in rows), True),
        Difference("forward_ct", *(_extent([s["forward_ct"] for s in r]) for r in rows), False),
        Difference("steps of a rank", *(_spelled(_counts(r)) for r in rows), False),
    ]


class _Sizes:
    """Batch sizes: two runs never have quite the same ones, so their means say whether the work was alike."""

    def __init__(self, values: Sequence[int]) -> None:
        self.values = values
        self.mean = sum(values) / len(values) if values else 0.0

    def like(self, other: _Sizes) -> bool:
        if not self.values or not other.values:
            return len(self.values) == len(other.values)
        return abs(self.mean - other.mean) <= BATCH_TOLERANCE * max(self.mean, other.mean)

    def __str__(self) -> str:
        if not self.values:
            return "not known"
        return f"{min(self.values)} to {max(self.values)}, mean {self.mean:.2f}"


def _width(step: dict[str, Any]) -> float | None:
    tokens, bs = step["num_verify_tokens"], step["bs"]
    return None if tokens is None or not bs else tokens / bs


def _counts(rows: Sequence[dict[str, Any]]) -> set[float | None]:
    ranks = [r["rank"] for r in rows]
    return {ranks.count(rank) for rank in set(ranks)}


def _spelled(values: set[float | None]) -> str:
    known = sorted(v for v in values if v is not None)
    if not known:
        return "not known"
    shown = [f"{v:g}" for v in known]
    return ", ".join(shown) if len(shown) <= 4 else f"{shown[0]} to {shown[-1]}"


def _extent(values: Sequence[int | None]) -> str:
    known = [v for v in values if v is not None]
    return f"{min(known)} to {max(known)}" if known else "not known"
