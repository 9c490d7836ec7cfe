"""Which annotators run, in which order, and what each takes from those before it."""

from __future__ import annotations

from collections.abc import Sequence

from annotators import gaps, group_gaps
from annotators.annotation import Annotation
from converter.options import Options
from converter.rank import Rank


def rank(rank: Rank, options: Options) -> None:
    """Runs the annotators of one rank; their results are in rank.annotations, in the order in which they ran."""
    timeline = rank.timeline
    if "gaps" in options.annotate:
        rank.annotations["gaps"] = gaps.annotate(timeline)


def across(ranks: Sequence[Rank], options: Options, refused: str | None) -> dict[str, Annotation]:
    """Runs the annotators that span ranks. refused: why no figure may span them, or None."""
    out: dict[str, Annotation] = {}
    if "gaps" in options.annotate:
        out["group_gaps"] = group_gaps.annotate([r.timeline for r in ranks], refused)
    return out
