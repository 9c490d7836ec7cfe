"""The capture facts of a report: what was recorded and how, so that no figure is shown without its scope."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from converter.report_tables import Tables
from converter.report_view import View, ms, plural

#: What costs the host time while it is collected: PyTorch's profiler documents it for shapes and stacks.
PERTURBING = ("record_shapes", "with_stack", "with_modules", "profile_memory")

#: Fact -> its name in the report, in the report's order. What is not here follows under its own key.
LABELS = {
    "capture.profiler_level": "profiler level",
    "capture.aic_metrics": "AI Core metrics",
    "capture.activities": "activities",
    "capture.record_shapes": "shapes",
    "capture.with_stack": "stack",
    "capture.with_modules": "modules",
    "capture.profile_memory": "memory",
    "capture.torch_npu_version": "torch_npu",
    "capture.cann_version": "CANN",
    "capture.schedule": "profiler schedule",
    "capture.not_recorded": "not recorded",
    "dspark.mode": "verify mode",
    "dspark.gamma": "draft tokens per request",
    "dspark.verify_num_draft_tokens": "verify width",
    "dspark.components": "record components",
}

#: Facts of one kind, shown as one item: prefix -> label.
GROUPS = {"capture.distributed_": "distributed", "server.": "server", "run.": "run"}

#: Facts that have a table or an item of their own, or that only `check` needs.
_ELSEWHERE = re.compile(
    r"^(source|ranks|flows|cut$|times\.|clock\.|vendor_times|input_|tool\.|group_gaps\.|refused\.|skipped\.|dspark\.|tallies)"
)

Facts = dict[str, str]


def by_rank(tables: Tables) -> dict[int | None, Facts]:
    """rank (None: the run) -> key -> value as text."""
    out: dict[int | None, Facts] = defaultdict(dict)
    for row in tables.dicts("facts"):
        out[row["rank"]][row["key"]] = "" if row["value"] is None else str(row["value"])
    return dict(out)


def same_or_each(values: Sequence[tuple[int, str | None]]) -> str:
    """One value where all ranks agree, else each rank's: `a (ranks 0 to 2); b (rank 3)`."""
    groups: dict[str, list[int]] = defaultdict(list)
    for rank, value in values:
        groups["not known" if value is None else value].append(rank)
    if len(groups) == 1:
        return next(iter(groups))
    return "; ".join(f"{value} ({spell_ranks(ranks)})" for value, ranks in groups.items())


def spell_ranks(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0 to 3, 5`."""
    ranks = sorted(ranks)
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [str(r[0]) if len(r) == 1 else f"{r[0]}, {r[1]}" if len(r) == 2 else f"{r[0]} to {r[-1]}" for r in runs]
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(parts)


def facts_view(tables: Tables) -> View:
    """The first section: facts, then what collection does to the timeline and what was refused."""
    facts = by_rank(tables)
    run, ranks = facts.get(None, {}), tables.ranks()
    items = [("ranks", _ranks(ranks, facts))]
    items += [("source", same_or_each([(r, facts[r].get("source")) for r in ranks]))] if ranks else []
    items += [(f"window, rank {r}", _window(facts[r])) for r in ranks]
    items += [(f"input, rank {r}", _input(facts[r])) for r in ranks]
    items += _capture(facts, ranks)
    items += [(f"DSpark records, rank {r}", text) for r in ranks if (text := _records(facts[r]))]
    items += _joined([(key, value) for key, value in run.items() if not _ELSEWHERE.match(key)])
    if "tool.version" in run:
        items.append(("converted by", f"{run.get('tool.name', '')} {run['tool.version']}"))
    return View("facts", "Capture facts", "", items, notes=[perturbation(facts, ranks), *refusals(facts)])


def _capture(facts: dict[int | None, Facts], ranks: Sequence[int]) -> list[tuple[str, str]]:
    """Facts of the ranks: switches that are the same everywhere in two items, the others one by one."""
    keys = dict.fromkeys(LABELS) | dict.fromkeys(key for r in ranks for key in facts[r] if not _ELSEWHERE.match(key))
    switches: dict[str, list[str]] = {"true": [], "false": []}
    plain = []
    for key in keys:
        values = [(r, facts[r].get(key)) for r in ranks]
        if all(value is None for _, value in values):
            continue
        label, text = LABELS.get(key, key), same_or_each(values)
        if text in switches:
            switches[text].append(label.removeprefix("capture."))
        else:
            plain.append((label, text))
    out = [(what, ", ".join(switches[text])) for what, text in (("on", "true"), ("off", "false")) if switches[text]]
    return out + _joined(plain)


def _joined(items: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The items of one of the GROUPS as one."""
    out: dict[str, str] = {}
    for key, value in items:
        prefix = next((p for p in GROUPS if key.startswith(p)), None)
        if prefix is None:
            out[key.removeprefix("capture.")] = value
            continue
        before = out.get(GROUPS[prefix])
        out[GROUPS[prefix]] = (f"{before}; " if before else "") + f"{key.removeprefix(prefix)} {value}"
    return list(out.items())


def _ranks(ranks: Sequence[int], facts: dict[int | None, Facts]) -> str:
    shown = spell_ranks(ranks).split(" ", 1)[1] if ranks else "none"
    world = {v for r in ranks if (v := facts[r].get("capture.distributed_world_size"))}
    return shown + (f" of a world of {', '.join(sorted(world))}" if world else "; the whole set is not declared")


def _window(facts: Facts) -> str:
    if "times.wall_ns" not in facts:
        return "no recorded task"
    count = plural(int(facts.get("times.kernel_count", 0)), "recorded task")
    cut = f", cut by --{facts['cut']}" if "cut" in facts else ""
    return f"{ms(int(facts['times.wall_ns']))} ms from {facts.get('times.window_ts')} ns, {count}{cut}"


def _input(facts: Facts) -> str:
    parts = []
    for what in ("slices", "flows", "counters"):
        read = int(facts.get(f"input_{what}.read", 0))
        if not read:
            continue
        prefix = f"input_{what}.dropped."
        lost = [f"{v} {k.removeprefix(prefix)}" for k, v in facts.items() if k.startswith(prefix)]
        parts.append(f"{read:,} {what} read" + (f", dropped: {', '.join(lost)}" if lost else ", none dropped"))
    return "; ".join(parts) or "nothing"


def _records(facts: Facts) -> str:
    if "dspark.record_count" not in facts:
        return ""
    before, after = facts.get("dspark.unmatched_records_before", "0"), facts.get("dspark.unmatched_records_after", "0")
    matched, unmatched = facts.get("dspark.matched_steps", "0"), facts.get("dspark.unmatched_steps", "0")
    text = f"{facts['dspark.record_count']} records, {matched} steps matched, {unmatched} steps unmatched"
    return text + f"; records outside: {before} before, {after} after"


def perturbation(facts: dict[int | None, Facts], ranks: Sequence[int]) -> str:
    """What collecting the profile does to it, from the options that were on."""
    on = [key for key in PERTURBING if any(facts[r].get(f"capture.{key}") == "true" for r in ranks)]
    compared = "no pair of runs, one with and one without it, was compared"
    if on:
        return f"Collection perturbs the timeline: {', '.join(on)} on. By how much is not known: {compared}."
    if any(f"capture.{key}" in facts[r] for r in ranks for key in PERTURBING):
        return f"Shapes and stacks were off. Collection perturbs the timeline all the same; {compared}."
    return f"Whether shapes or stacks were on is not known. Collection perturbs the timeline; {compared}."


def refusals(facts: dict[int | None, Facts]) -> list[str]:
    """A line per refused figure and reason."""
    out = []
    for rank, values in facts.items():
        who = "all ranks" if rank is None else f"rank {rank}"
        for key, value in values.items():
            what = key.removeprefix("refused.") if key.startswith("refused.") else None
            if what or (key == "dspark.refused" and not any(k.startswith("refused.") for k in values)):
                out.append(f"Refused, {who}, {(what or 'matching of records').replace('_', ' ')}: {value}")
    return out


def reason(facts: dict[int | None, Facts], annotator: str) -> str:
    """Why a section is empty: the reasons that the trace states, else that the annotator did not run."""
    each: dict[str, list[int]] = defaultdict(list)
    for rank, values in facts.items():
        if rank is not None and (text := values.get(f"skipped.{annotator}") or values.get(f"refused.{annotator}")):
            each[text].append(rank)
    if each:
        return "; ".join(f"{text} ({spell_ranks(ranks)})" for text, ranks in each.items()) + "."
    return "nothing of the kind was found, or the trace was converted without this annotator."
