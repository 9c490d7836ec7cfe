"""What `convert` was asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

LAYOUTS = ("single", "archive")
ANNOTATORS = ("gaps", "steps", "segments", "tails", "deepep", "replays")
DEFAULT_MAX_INPUT_BYTES = 16 << 30


@dataclass(frozen=True)
class Options:
    """The options of a conversion, checked. dspark: (rank or None for all, path); facts: run facts by key;
    drop: categories of slices left out; layout: `single` (one trace) or `archive` (a trace per rank in a tar);
    fingerprint: of the inputs, to be stored, or ""; run: marks the temporary files of this run, or "".
    """

    annotate: tuple[str, ...] = ANNOTATORS
    dspark: tuple[tuple[int | None, str], ...] = ()
    first_forward_ct: dict[int | None, int] = field(default_factory=dict)
    window: str | None = None
    steps: tuple[int, int] | None = None
    reference_rank: int | None = None
    assume_aligned: bool = False
    clock_tolerance_ns: int = 50_000
    roles: str | None = None
    facts: dict[str, str] = field(default_factory=dict)
    strict: bool = False
    prefer: Literal["text", "db"] = "text"  # what is read where a capture holds both exports
    pmu: bool = False
    pmu_counters: tuple[str, ...] = ()
    with_token_ids: bool = False
    with_request_ids: bool = False
    max_input_bytes: int = DEFAULT_MAX_INPUT_BYTES
    drop: tuple[str, ...] = ()
    layout: str = "single"
    fingerprint: str = ""
    run: str = ""
