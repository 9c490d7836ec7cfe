"""What `convert` was asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field

ANNOTATORS = ("gaps", "steps", "segments", "tails", "deepep", "replays")
DEFAULT_MAX_INPUT_BYTES = 16 << 30


@dataclass(frozen=True)
class Options:
    """The options of a conversion, checked. dspark: (rank or None for all, path); facts: run facts by key."""

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
    pmu: bool = False
    with_token_ids: bool = False
    with_request_ids: bool = False
    max_input_bytes: int = DEFAULT_MAX_INPUT_BYTES
