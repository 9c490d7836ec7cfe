"""Were two traces recorded under the same conditions? Only then do their figures compare."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from converter.report_facts import GROUPS, LABELS, by_rank, same_or_each
from converter.report_tables import Tables

#: Conditions among the facts: how it was collected, what ran, with which settings.
_CONDITION = re.compile(
    r"^(capture\.|run\.|server\.|dspark\.(mode|gamma|verify_num_draft_tokens|components|simulate_acc_len)$)"
)
#: Facts of a machine or of the export and not of a setting; they differ between two runs of the same thing.
_INCIDENTAL = re.compile(
    r"^capture\.(hostname|device_\d+_counter_mhz|syscnt_mhz|not_recorded|export_type|db_schema_version|db_tables_not_read)$"
)
#: No conditions, but a reader wants to know.
_TOLD = re.compile(r"^(tool\.version$|cut$|refused\.)")


#: Mean batch sizes that differ by more than this part are another condition.
BATCH_TOLERANCE = 0.05


Row = dict[str, Any]


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


def known(before: Tables, after: Tables) -> list[str]:
    """The keys of all facts that `differences` compares, whether they differ or not."""
    work_keys = [d.key for d in (_ranks(before, after), *_work(before, after))]
    return [*work_keys, *LABELS, *sorted({*_facts(before), *_facts(after)} - set(LABELS))]


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
    out.setdefault("cut", "no")
    return out


def _ranks(before: Tables, after: Tables) -> Difference:
    ours, theirs = (", ".join(map(str, t.ranks())) or "none" for t in (before, after))
    return Difference("ranks", ours, theirs, True)


def _work(before: Tables, after: Tables) -> list[Difference]:
    """Batch sizes and verify widths of the steps: a step's time depends on them."""
    ours, theirs = before.dicts("steps"), after.dicts("steps")
    if not ours or not theirs:
        return [Difference("steps", str(len(ours)), str(len(theirs)), True)]
    sizes = _Sizes(ours), _Sizes(theirs)
    return [
        Difference("batch sizes", str(sizes[0]), str(sizes[1]), not sizes[0].like(sizes[1])),
        Difference("verify width of the steps", _widths(ours), _widths(theirs), True),
        Difference("forward_ct", _extent(ours), _extent(theirs), False),
        Difference("steps of a rank", _counts(ours), _counts(theirs), False),
    ]


def work(tables: Tables) -> str:
    """The steps of a trace in one line: how many, which, with how many requests."""
    steps = tables.dicts("steps")
    if not steps:
        return "none"
    return f"{_counts(steps)} of a rank, forward_ct {_extent(steps)}, batch sizes {_Sizes(steps)}"


class _Sizes:
    """Batch sizes: two runs never have quite the same ones, so their means say whether the work was alike."""

    def __init__(self, steps: Sequence[Row]) -> None:
        self.values = [s["bs"] for s in steps if s["bs"] is not None]
        self.mean = sum(self.values) / len(self.values) if self.values else 0.0

    def like(self, other: _Sizes) -> bool:
        if not self.values or not other.values:
            return not self.values and not other.values
        return bool(abs(self.mean - other.mean) <= BATCH_TOLERANCE * max(self.mean, other.mean))

    def __str__(self) -> str:
        if not self.values:
            return "not known"
        return f"{min(self.values)} to {max(self.values)}, mean {self.mean:.2f}"


def _widths(steps: Sequence[Row]) -> str:
    return _spelled({s["num_verify_tokens"] / s["bs"] for s in steps if s["bs"] and s["num_verify_tokens"] is not None})


def _counts(steps: Sequence[Row]) -> str:
    return _spelled(set(Counter(s["rank"] for s in steps).values()))


def _spelled(values: Collection[float]) -> str:
    if not values:
        return "not known"
    shown = [f"{v:g}" for v in sorted(values)]
    return ", ".join(shown) if len(shown) <= 4 else f"{shown[0]} to {shown[-1]}"


def _extent(steps: Sequence[Row]) -> str:
    known = [s["forward_ct"] for s in steps if s["forward_ct"] is not None]
    return f"{min(known)} to {max(known)}" if known else "not known"
