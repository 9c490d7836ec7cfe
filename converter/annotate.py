"""Which annotators run, in which order, and what each takes from those before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from annotators import gaps, group_gaps
from annotators.annotation import Annotation
from annotators.match_doubts import ANOTHER_RUN
from converter.options import Options
from converter.rank import Rank
from schemas.timeline import NULL, Timeline

if TYPE_CHECKING:
    from annotators.steps import Whole
    from schemas.dspark import RankRecords
    from schemas.roles import Roles

#: What the options of --annotate need to have run before them.
DSPARK = ("steps", "segments", "tails", "deepep", "replays")


def rank(
    rank: Rank,
    options: Options,
    roles: Roles | None,
    records: RankRecords | None,
    first_forward_ct: int | None = None,
    before_cut: Whole | None = None,
) -> None:
    """Runs the annotators of one rank; their results are in rank.annotations, in the order in which they ran.

    before_cut: steps and records of the whole input, where the rank was cut to a part of it.
    """
    timeline = rank.timeline
    wanted = [name for name in DSPARK if name in options.annotate]
    if wanted and roles is not None:
        _dspark(rank, options, roles, records, first_forward_ct, wanted, before_cut)
    put_aside(rank)
    if "gaps" in options.annotate:
        steps = rank.annotations["steps"].tables.get("steps") if "steps" in rank.annotations else None
        made = rank.annotations["gaps"] = gaps.annotate(timeline, steps, roles)
        if rank.aside is not None and made.layer is not None:
            rank.aside.put(made.layer)
            rank.aside.release()


def put_aside(rank: Rank) -> None:
    """Of a very large rank: the columns that annotators made so far, and the memory of those that they read."""
    if rank.aside is not None:
        for annotation in rank.annotations.values():
            if annotation.layer is not None:
                rank.aside.put(annotation.layer)
        rank.aside.release()


def _dspark(
    rank: Rank,
    options: Options,
    roles: Roles,
    records: RankRecords | None,
    first: int | None,
    wanted: list[str],
    before_cut: Whole | None,
) -> None:
    """Steps first: segments, tails, DeepEP and replays are told by step where there are steps."""
    timeline, out = rank.timeline, rank.annotations
    if not _has_dspark(timeline, roles):
        reason = "no scheduler or step span, no graph replay, no dispatch or combine kernel"
        for name in wanted:
            out[name] = Annotation(skipped=reason)
        if records is not None:
            out[wanted[0]].refused.append(f"{len(records)} DSpark records can't be placed: {reason}")
        return
    from annotators import deepep, replays, segments, steps, tails
    from annotators.linking import link
    from annotators.replay_calls import find_replays

    found = find_replays(timeline, roles)
    links = link(timeline, found)
    made = steps.annotate(
        timeline, records, first, options.with_token_ids, options.with_request_ids, links, before_cut
    )  # fmt: skip
    table = made.tables.get("steps")
    results = {"steps": made}
    if table is None:
        for name in ("segments", "tails"):
            results[name] = Annotation(skipped=made.skipped or "no steps")
    else:
        results["segments"] = segments.annotate(timeline, table, links)
        placed = results["segments"].tables.get("segments")
        results["tails"] = (
            Annotation(skipped=results["segments"].skipped)
            if placed is None
            else tails.annotate(timeline, table, placed, links, roles)
        )
    results["replays"] = replays.annotate(timeline, table, found, links, roles)
    results["deepep"] = deepep.annotate(timeline, table, links, roles)
    for name in DSPARK:
        if name in wanted:
            out[name] = results[name]


def _has_dspark(timeline: Timeline, roles: Roles) -> bool:
    if len(timeline.host) or (timeline.tasks.model_id != NULL).any():
        return True
    return bool(
        len(timeline.tasks)
        and (
            roles.of_tasks("dispatch", timeline.tasks, timeline.strings).any()
            or roles.of_tasks("combine", timeline.tasks, timeline.strings).any()
        )
    )


def doubtful_records(ranks: Sequence[Rank], options: Options) -> list[str]:
    """Warnings of ranks whose records were matched, where those of another rank of the same file are another run's."""
    out = []
    matchings = {
        r.timeline.rank: r.annotations["steps"].facts["dspark"]
        for r in ranks
        if "steps" in r.annotations and "dspark" in r.annotations["steps"].facts
    }
    files = {n: [path for only, path in options.dspark if only in (None, n)][-1:] for n in matchings}
    for number, matching in matchings.items():
        others = [n for n, m in matchings.items() if files[n] == files[number] and ANOTHER_RUN in (m["refused"] or "")]
        if others and not matching["refused"]:
            out.append(
                f"rank {number}: its DSpark records are taken, but those of rank {', '.join(map(str, others))}, of the "
                "same file, may be of another run: check which run the file is of"
            )
    return out


def across(ranks: Sequence[Rank], options: Options, refused: str | None) -> dict[str, Annotation]:
    """Runs the annotators that span ranks. refused: why no figure may span them, or None."""
    out: dict[str, Annotation] = {}
    if "gaps" in options.annotate:
        out["group_gaps"] = group_gaps.annotate([r.timeline for r in ranks], refused)
    if "deepep" in options.annotate and len(ranks) > 1:
        _peers(ranks, options, refused, out)
    return out


def _peers(ranks: Sequence[Rank], options: Options, refused: str | None, out: dict[str, Annotation]) -> None:
    found = [r for r in ranks if "deepep" in r.annotations and len(r.annotations["deepep"].tables.get("deepep", ()))]
    if len(found) < 2:
        return
    if refused is not None:
        out["deepep_peers"] = Annotation(refused=[f"which rank the others waited for: {refused}"])
        return
    from annotators.deepep_peers import find_peers

    tables = [(r.timeline.rank, r.annotations["deepep"].tables["deepep"]) for r in found]
    peers, warnings = find_peers(tables, options.clock_tolerance_ns)
    by_rank = {number: columns for (number, _), columns in zip(tables, peers, strict=True)}
    out["deepep_peers"] = Annotation(tables={"peers": by_rank}, warnings=warnings)
