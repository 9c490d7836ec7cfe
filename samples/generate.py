"""From a configuration to captures: makes the batches, runs the ranks together, cuts the profile window, writes files."""

from __future__ import annotations

import json
import random
from pathlib import Path

from samples.capture import Capture
from samples.config import Config
from samples.dspark_records import server_info
from samples.exporters import write_capture
from samples.model import Rank, run_together
from samples.programs import Batch, Request, Step, scheduler
from samples.truth import truth
from schemas.errors import UsageError


def batches_of(config: Config, group: int) -> list[Batch]:
    """The forwards of one attention-TP group, in order. Lengths grow by what each step commits."""
    rng = random.Random(f"{config.seed} requests of group {group}")
    batches: list[Batch] = []
    lengths: list[list[int]] = []  # of the running requests: slot, length
    forward_ct = config.first_forward_ct
    bs = rng.randint(2, max(config.max_bs // 2, 2))
    after = max(config.records_after, 1 if config.start_step else 0)
    for number in range(-config.records_before, config.steps + after):
        for kind, places in (("prefill", config.prefill_before), ("idle", config.idle_before)):
            if number in places:
                requests = [Request(0, 0, 0, 0, 0, 0, [])] if kind == "prefill" else []
                batches.append(Batch(kind, forward_ct, requests, -1))
                forward_ct += 1
        if isinstance(config.bs, tuple):
            bs = config.bs[(number + config.records_before) % len(config.bs)]
        elif config.bs:
            bs = config.bs
        else:
            bs = min(max(bs + rng.choice((-2, -1, 1, 2)), 1), config.max_bs)
        lengths = lengths[:bs]
        while len(lengths) < bs:
            lengths.append([len(lengths) + 1, rng.randint(400, 9000)])
        requests = []
        for item in lengths:
            width = config.width if config.mode == "static" else rng.randint(1, config.width)
            correct = 0
            while correct < width - 1 and rng.random() < config.accept_rate:
                correct += 1
            drafts = [rng.randrange(129_280) for _ in range(config.gamma)]
            requests.append(Request(item[0], item[1], correct + 1, correct, width, rng.randrange(129_280), drafts))
            item[1] += correct + 1
        if (group, number) in config.dp_idle:
            batches.append(Batch("dp_idle", forward_ct, [], number + config.records_before))
        else:
            batches.append(Batch("decode", forward_ct, requests, number + config.records_before))
        forward_ct += 1
    return batches


def simulate(config: Config) -> list[Capture]:
    """Runs the model. Raises UsageError where the configuration contradicts itself."""
    config.check()
    ranks = [Rank(config, r) for r in range(config.ranks)]
    groups = [batches_of(config, g) for g in range(config.dp_size)]
    steps: list[list[Step]] = [[] for _ in ranks]
    programs = [scheduler(r, groups[r.rank // config.attention_tp], steps[r.rank]) for r in ranks]
    run_together(ranks, programs, config)
    return [_capture(config, rank, steps[rank.rank]) for rank in ranks]


def _capture(config: Config, rank: Rank, steps: list[Step]) -> Capture:
    """Cuts the window and moves every time to the rank's exported clock."""
    decodes = [i for i, s in enumerate(steps) if s.batch.number >= 0]
    late = config.late_start[rank.rank] if rank.rank < len(config.late_start) else 0
    first = decodes[config.records_before + late]
    while first and steps[first - 1].batch.number < 0 and not config.start_step:
        first -= 1  # a prefill or idle forward in front of the first decode is part of the window
    last = decodes[config.records_before + config.steps - 1]
    if config.start_step:
        begin, end = steps[first].inside, steps[last + 1].inside
    else:
        begin = steps[first].first_host
        end = steps[last + 1].first_host if last + 1 < len(steps) else rank.t + 1_000_000
    shift = round(config.device_shift_us * 1000)
    spans = [s for s in rank.spans if begin <= s.start < end]
    for span in rank.spans:
        if begin <= span.start < end and span.end > end:
            span.end = end
        span.start, span.end = config.exported(rank.rank, span.start), config.exported(rank.rank, span.end)
    tasks = sorted((t for t in rank.tasks if begin <= t.start < end), key=lambda t: (t.start, t.start - t.end))
    for task in rank.tasks:
        task.start = config.exported(rank.rank, task.start + shift)
        task.end = config.exported(rank.rank, task.end + shift)
    kept = {id(t) for t in tasks}
    for replay in rank.replays:
        replay.tasks = [t for t in replay.tasks if id(t) in kept]
    for expert in rank.experts:
        device = shift if expert.model == "in_kernel_wait" else 0
        expert.issue = config.exported(rank.rank, expert.issue + device)
        expert.hook = config.exported(rank.rank, expert.hook + device)
    inside = [s for s in steps[first : last + 1] if s.batch.kind == "decode"]
    return Capture(
        config,
        rank,
        (config.exported(rank.rank, begin), config.exported(rank.rank, end)),
        steps,
        inside,
        spans,
        tasks,
        [r for r in rank.replays if r.tasks],
        [e for e in rank.experts if id(e.task) in kept],
    )


def write(config: Config, folder: Path) -> list[Capture]:
    """Writes rank folders, server_info.json and truth.json into `folder`, which must be absent or empty.

    Raises UsageError where the folder holds something, or the configuration contradicts itself.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder; name another one")
    captures = simulate(config)
    folder.mkdir(parents=True, exist_ok=True)
    for capture in captures:
        write_capture(capture, folder / capture.folder)
    (folder / "server_info.json").write_text(json.dumps(server_info(captures)) + "\n", encoding="utf-8")
    (folder / "truth.json").write_text(json.dumps(truth(captures), separators=(",", ":")) + "\n", encoding="utf-8")
    return captures
