"""Deep links into the Perfetto UI: which tracks are pinned, which stretch is in view, which table is open.

Pure functions. `opening_view` chooses from what a trace holds (converter/ui_contents.py reads that), `deep_link` writes
the URL: `#!/?url=…&visStart=…&visEnd=…&startupCommands=…`. The commands are those of the UI's documented allow-list, which
v52 has and later versions keep. v52 matches names only (a track's path came later), so the tracks of some
ranks out of many are chosen by copying these ranks into a workspace of their own and pinning by name there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from converter.ui_queries import longest_gaps, step_report
from schemas.errors import UsageError

#: The tracks that are pinned, where they exist; on the screen they stand in the writer's order.
PINNED = ("Steps", "Segments", "Eager tail", "DeepEP", "Pre-replay", "Gaps")
#: The same for several ranks: pins take the room of what is below, and do not tell their rank.
PINNED_OF_SEVERAL = ("Steps", "Segments")
DEFAULT_WORKSPACE = "Default Workspace"  # the UI's own name for it
ANNOTATIONS = "DSpark"
RANKS_SHOWN = 2  # more ranks than this: only the one that holds the step
MARGIN = 0.05  # of the stretch in view, on each side


@dataclass(frozen=True)
class Step:
    """A row of npu_steps. Times ns; what follows dur is None where not known. The device works on a step after the host
    has ended it: first_task_ts and last_task_end are the bounds of its linked tasks."""

    rank: int
    ts: int
    dur: int
    forward_ct: int | None = None
    wall_ns: int | None = None
    first_task_ts: int | None = None
    last_task_end: int | None = None

    @property
    def length(self) -> int:
        """What "slow" compares: start to next start, else the step's own duration."""
        return self.dur if self.wall_ns is None else self.wall_ns


@dataclass(frozen=True)
class Contents:
    """What the opening view needs to know of a trace. bounds: (start, end), ns, of the whole trace.

    tracks: per rank the names of the tracks under `Rank N · DSpark`; windows: per rank (start, end) of its
    recorded tasks; devices: names of the tracks `NPU d`; gaps: whether there is a gap slice.
    """

    bounds: tuple[int, int]
    tracks: dict[int, frozenset[str]] = field(default_factory=dict)
    windows: dict[int, tuple[int, int]] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    devices: tuple[str, ...] = ()
    gaps: bool = False

    @property
    def ranks(self) -> list[int]:
        return sorted(self.tracks.keys() | self.windows.keys())


Command = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class View:
    """What the page shows at first. visible: (start, end), ns, or None for the UI's own choice; workspace: the one
    made for some ranks out of many, or ""."""

    ranks: tuple[int, ...] = ()
    step: Step | None = None
    visible: tuple[int, int] | None = None
    workspace: str = ""
    commands: tuple[Command, ...] = ()


def opening_view(contents: Contents, forward_ct: int | None = None, ranks: Sequence[int] = ()) -> View:
    """The view for `open TRACE --step forward_ct --rank N`.

    The step is the one asked for (of several ranks: where it is slowest), else the slowest one; without steps the window of
    the recorded tasks is shown. Ranks: those asked for, else all of two at most, else the step's.
    Raises UsageError where the trace has no such step or rank; it names those that there are.
    """
    known = contents.ranks
    for rank in ranks:
        if rank not in known:
            there = f"it has {_listed(known)}" if known else "it names no ranks"
            raise UsageError(f"--rank {rank}: not in this trace; {there}")
    step = _chosen_step(contents, forward_ct, ranks)
    if ranks:
        shown = sorted(set(ranks))
    elif len(known) <= RANKS_SHOWN:
        shown = known
    else:
        shown = [step.rank if step is not None else known[0]]
    workspace = "" if shown == known else ("Rank " if len(shown) == 1 else "Ranks ") + _listed(shown)
    commands = tuple(_commands(contents, shown, workspace))
    return View(tuple(shown), step, _visible(contents, step, shown), workspace, commands)


def _chosen_step(contents: Contents, forward_ct: int | None, ranks: Sequence[int]) -> Step | None:
    steps = [s for s in contents.steps if not ranks or s.rank in ranks]
    if forward_ct is not None:
        counters = sorted({s.forward_ct for s in steps if s.forward_ct is not None})
        steps = [s for s in steps if s.forward_ct == forward_ct]
        if not steps:
            raise UsageError(f"--step {forward_ct}: not in this trace; {_there_is(contents, counters)}")
    return max(steps, key=lambda s: (s.length, -s.ts), default=None)


def _there_is(contents: Contents, counters: list[int]) -> str:
    if counters:
        return f"it has forward_ct {_listed(counters)}"
    if contents.steps:
        return "its steps have no forward_ct (convert with --dspark or --first-forward-ct)"
    return "it has no steps"


def _listed(values: list[int]) -> str:
    """1 to 4, 7"""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    texts = [str(a) if a == b else f"{a} to {b}" for a, b in runs]
    return ", ".join(texts if len(texts) <= 8 else [*texts[:4], "…", *texts[-3:]])


def _visible(contents: Contents, step: Step | None, ranks: list[int]) -> tuple[int, int] | None:
    """The UI ignores a stretch that is empty or leaves the trace's bounds: it is clipped to them."""
    if step is not None:
        start = min(step.ts, step.first_task_ts or step.ts)
        end = max(step.ts + max(step.dur, step.length), step.last_task_end or step.ts)
    else:
        windows = [contents.windows[r] for r in ranks if r in contents.windows]
        if not windows:
            return None
        start, end = min(a for a, _ in windows), max(b for _, b in windows)
    margin = max(int((end - start) * MARGIN), 1000)
    start, end = max(start - margin, contents.bounds[0]), min(end + margin, contents.bounds[1])
    return (start, end) if start < end else None


def _commands(contents: Contents, ranks: list[int], workspace: str) -> list[Command]:
    if not ranks:
        return []
    out: list[Command] = []
    if contents.tracks:
        out += [_call("CreateWorkspace", ANNOTATIONS)]
        out += [_call("CopyTracksToWorkspaceByRegex", r"^(All ranks|Rank \d+ · DSpark)$", ANNOTATIONS)]
        # Opened in the copy too, so that a change of workspace shows tracks and not closed groups.
        out += [_call("SwitchWorkspace", ANNOTATIONS), _call("ExpandTracksByRegex", r"^Rank \d+ · DSpark$")]
    one_of = "|".join(str(r) for r in ranks)
    if workspace:
        out += [_call("SwitchWorkspace", DEFAULT_WORKSPACE), _call("CreateWorkspace", workspace)]
        # The process's row is called `Rank 0 4100`, with its pid.
        out += [_call("CopyTracksToWorkspaceByRegex", rf"^(All ranks|Rank ({one_of})( .*)?)$", workspace)]
        out += [_call("SwitchWorkspace", workspace)]
    elif contents.tracks:
        out += [_call("SwitchWorkspace", DEFAULT_WORKSPACE)]
    groups = [rf"Rank ({one_of})( · DSpark| \d+)?", *(_escaped(d) for d in contents.devices)]
    out += [_call("ExpandTracksByRegex", f"^({'|'.join(groups)})$")]
    if pinned := _pinned(contents, ranks):
        out += [_call("PinTracksByRegex", f"^({'|'.join(pinned)})$")]
    if contents.steps:
        out += [_call("RunQueryAndShowTab", step_report(ranks if workspace else ()))]
    elif contents.gaps:
        out += [_call("RunQueryAndShowTab", longest_gaps(ranks if workspace else ()))]
    return out


def _pinned(contents: Contents, ranks: list[int]) -> list[str]:
    there = [name for name in PINNED if any(name in contents.tracks.get(r, ()) for r in ranks)]
    if len(ranks) > 1:
        return [name for name in there if name in PINNED_OF_SEVERAL] or there
    return there


def _call(command: str, *arguments: str) -> Command:
    return f"dev.perfetto.{command}", arguments


def _escaped(text: str) -> str:
    """A text for a JavaScript regular expression."""
    return re.sub(r"[.*+?^${}()|\[\]\\/]", r"\\\g<0>", text)


def deep_link(ui: str, trace_url: str, view: View) -> str:
    """The URL that opens the trace. ui: the page, such as https://ui.perfetto.dev/."""
    parts = [("url", trace_url), ("hideSidebar", "true")]
    if view.visible is not None:
        parts += [("visStart", str(view.visible[0])), ("visEnd", str(view.visible[1]))]
    if view.commands:
        calls = [{"id": command, "args": list(arguments)} for command, arguments in view.commands]
        parts += [("startupCommands", json.dumps(calls, ensure_ascii=False, separators=(",", ":")))]
    # %20, not +: the page decodes with decodeURIComponent.
    return f"{ui}#!/?" + "&".join(f"{key}={quote(value, safe=':/,')}" for key, value in parts)
