"""Dispatch and combine in two halves: host marks of issue and hook, or a receive task beside the sending one.

SGLang's dispatcher has `dispatch_a`/`dispatch_b` and `combine_a`/`combine_b` (srt/layers/moe/token_dispatcher/deepep.py);
they reach a capture as user ranges or as two-batch-overlap ops. The k-th a pairs with the k-th b.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from annotators.linking import linked_to
from schemas.dspark_tables import Links
from schemas.roles import Roles
from schemas.timeline import NULL, Bool, Host, Int64, Timeline


@dataclass
class Hooks:
    """Rows of the model `recv_hook`. Arrays are [n]. task: the receive task, NULL = none (done is the end of `*_b`);
    linked: the receive task is tied to the hook; tasks: bool[tasks], what belongs to these rows and gives no others.
    """

    combine: Bool
    issue_ts: Int64
    hook_ts: Int64
    done_ts: Int64
    task: Int64
    linked: Bool
    tasks: Bool

    def __len__(self) -> int:
        return len(self.issue_ts)


def find_hooks(timeline: Timeline, links: Links, roles: Roles) -> Hooks:
    """The dispatches and combines with a hook of their own."""
    tasks, strings = timeline.tasks, timeline.strings
    receive = roles.of_tasks("receive", tasks, strings)
    taken = np.zeros(len(tasks), np.bool_)
    rows: list[tuple[bool, int, int, int, int, bool]] = []  # combine, issue, hook, done, task, linked
    for combine, name in ((False, "dispatch"), (True, "combine")):
        own = roles.of_tasks(name, tasks, strings)
        marked = _marked(timeline, links, roles, name, receive | own, taken)
        rows += [(combine, *row) for row in marked]
        if not marked:
            rows += [(combine, *row) for row in _by_receive(timeline, links, own, receive, taken)]
    table = np.array([row[:5] for row in rows], np.int64).reshape(-1, 5)
    linked = np.array([row[5] for row in rows], np.bool_)
    return Hooks(table[:, 0].astype(np.bool_), table[:, 1], table[:, 2], table[:, 3], table[:, 4], linked, taken)


def _marked(
    timeline: Timeline, links: Links, roles: Roles, name: str, exchange: Bool, taken: Bool
) -> list[tuple[int, int, int, int, bool]]:
    """Rows by host marks. Fills `taken` with the tasks submitted under the marks."""
    host, tasks = timeline.host, timeline.tasks
    framework = (host.source == Host.FRAMEWORK) | (host.source == Host.OTHER)
    marks = []
    for half in ("issue", "hook"):
        found = np.flatnonzero(framework & roles.mask(f"{name}_{half}", host.name, timeline.strings))
        marks.append(found[np.argsort(host.ts[found], kind="stable")])
    issue, hook = marks
    if not len(issue) or not len(hook):
        return []
    hook = hook[host.ts[hook] >= host.ts[issue[0]]]  # a hook before the first issue belongs to one that was cut
    count = min(len(issue), len(hook))
    issue, hook = issue[:count], hook[:count]
    owner = _tasks_under(timeline, links, hook)
    owner[~exchange] = NULL
    taken |= (owner != NULL) | ((_tasks_under(timeline, links, issue) != NULL) & exchange)
    last = np.full(count, NULL, np.int64)
    for task in np.flatnonzero(owner != NULL).tolist():
        if last[owner[task]] == NULL or tasks.end[task] >= tasks.end[last[owner[task]]]:
            last[owner[task]] = task
    out = []
    for a, b, task in zip(issue.tolist(), hook.tolist(), last.tolist(), strict=True):
        done = int(tasks.end[task]) if task != NULL else int(host.end[b])
        out.append((int(host.ts[a]), int(host.ts[b]), max(done, int(host.ts[b])), task, task != NULL))
    return out


def _tasks_under(timeline: Timeline, links: Links, rows: Int64) -> Int64:
    """int64[tasks]: which of the host ranges holds the source of each task, NULL for none."""
    host = timeline.host
    return linked_to(links, host.ts[rows], host.end[rows], host.track[rows].astype(np.int64))


def _by_receive(
    timeline: Timeline, links: Links, own: Bool, receive: Bool, taken: Bool
) -> list[tuple[int, int, int, int, bool]]:
    """Rows by receive tasks, each with the last sending task before it. Fills `taken`."""
    tasks = timeline.tasks
    receives, sends = np.flatnonzero(own & receive), np.flatnonzero(own & ~receive)
    out = []
    at = np.searchsorted(tasks.ts[sends], tasks.ts[receives], side="left") - 1
    for task, send in zip(receives.tolist(), at.tolist(), strict=True):
        if send < 0 or taken[sends[send]]:
            continue
        taken[task] = taken[sends[send]] = True
        start = int(tasks.ts[sends[send]])
        launch = int(links.launch_ts[sends[send]])
        issue = min(launch, start) if launch != NULL else start
        out.append((issue, int(tasks.ts[task]), int(tasks.end[task]), task, False))
    return out
