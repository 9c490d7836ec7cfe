"""What `npu-perfetto convert` does with a request: converts, reports, and tells the exit status.

With --out-dir one failing input does not stop the others (exit 1 at the end, with a list).
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from converter.convert import write
from converter.find import check_paths, find_captures
from converter.fingerprint import fingerprint, is_of
from converter.options import Options
from converter.parallel import Workers, check_workers
from converter.remote import as_given, check_inputs, check_scheme, fetched, is_remote, uploaded
from converter.request import Request, checked_options, inputs_of, odd_ending, targets, with_absolute_paths
from converter.summary import Summary
from converter.talk import Talk
from converter.target import check_target, sweep
from schemas.errors import NpuPerfettoError, UsageError, printable


@dataclass(frozen=True)
class _Job:
    """One trace to make, in whichever process."""

    inputs: tuple[str, ...]
    target: str
    options: Options
    skip_existing: bool
    verify: bool


@dataclass
class _Outcome:
    """summary: None where the conversion failed; problems: what `--verify` found."""

    summary: Summary | None = None
    error: NpuPerfettoError | None = None
    problems: list[str] = field(default_factory=list)


def run(request: Request) -> int:
    """Exit status. Raises UsageError for what is wrong before anything is read."""
    request = with_absolute_paths(replace(request, inputs=inputs_of(request)))
    options = replace(checked_options(request), run=f"{os.getpid()}x{secrets.token_hex(3)}")
    workers = check_workers(request.jobs, request.backend, request.scheduler)
    check_paths([path for path in request.inputs if not is_remote(path)])
    check_inputs([path for path in request.inputs if is_remote(path)])
    plan = targets(request)
    if request.summary not in (None, "-"):
        assert request.summary is not None
        if is_remote(request.summary):
            check_scheme(request.summary)
        else:
            check_target(request.summary, request.inputs)
        if any(request.summary == target for _, target in plan):
            raise UsageError(f"{printable(request.summary)}: is both the trace and the summary; choose two files")
    talk = Talk(request.quiet, request.verbose)
    if warning := odd_ending(request.output or "", request.layout):
        talk.warn(warning)
    jobs = [_Job(tuple(inputs), target, options, request.skip_existing, request.verify) for inputs, target in plan]
    outcomes: dict[int, _Outcome] = {}
    try:
        for position, outcome in _outcomes(jobs, workers, talk):
            outcomes[position] = outcome
            name = _short_name(jobs[position].target) if len(jobs) > 1 else ""
            _tell(outcome, request, talk, name)
    finally:
        # Whatever ends this, a killed worker included: nothing half-written stays.
        if not workers.alone:
            for job in jobs:
                sweep(job.target, options.run)
    done = [o.summary for _, o in sorted(outcomes.items()) if o.summary is not None]
    if request.summary not in (None, "-") and done:
        _write_summary(str(request.summary), done)
    failed = [o for o in outcomes.values() if o.error is not None or o.problems]
    if len(plan) > 1 and failed:
        talk.error(f"{len(failed)} of {len(plan)} inputs failed; {len(done)} traces were written")
        for position in sorted(outcomes):
            if outcomes[position] in failed:
                talk.error(f"failed: {printable(jobs[position].inputs[0])}")
    damaged = [position for position, o in sorted(outcomes.items()) if o.summary is not None and o.summary.damaged]
    if len(plan) > 1 and damaged:
        were = "was" if len(damaged) == 1 else "were"
        talk.error(f"{len(damaged)} of {len(plan)} inputs {were} damaged, some of their events are missing:")
        for position in damaged:
            talk.error(f"damaged: {printable(jobs[position].inputs[0])}")
    if failed or any(s.failed_side_inputs for s in done):
        return 1
    return 3 if request.strict and any(s.strict_failure for s in done) else 0


def _outcomes(jobs: list[_Job], workers: Workers, talk: Talk) -> Iterator[tuple[int, _Outcome]]:
    """(position, outcome) of each trace as it is done: several inputs side by side, or one with its ranks so."""
    if len(jobs) == 1:
        with talk.stage() as progress:
            outcome = _convert(jobs[0], progress, workers)
        yield 0, outcome
        return
    with talk.bar(len(jobs)) as advance:
        for position, found in workers.as_done(
            partial(
                _convert,
                progress=talk.step if workers.alone else _nothing,
                workers=workers if workers.alone else Workers(),
            ),
            jobs,
            clean=lambda job: sweep(job.target, job.options.run),
        ):
            yield position, found if isinstance(found, _Outcome) else _Outcome(error=_named(jobs[position], found))
            advance(jobs[position].target)


def _short_name(target: str) -> str:
    """The short name of a batch's input, which no other one has: that of its trace, without ending."""
    return os.path.splitext(os.path.basename(target))[0]


def _nothing(text: str) -> None:
    pass


def _named(job: _Job, error: NpuPerfettoError) -> NpuPerfettoError:
    return type(error)(f"{printable(job.inputs[0])}: {error}")


def _convert(job: _Job, progress: Callable[[str], None], workers: Workers) -> _Outcome:
    """Converts one input; its failure is the outcome. Raises UsageError, which ends the batch."""
    options = job.options
    beside = dict.fromkeys([*(path for _, path in options.dspark), *([options.roles] if options.roles else [])])
    try:
        with fetched(job.inputs, options.max_input_bytes) as given, fetched(list(beside)) as side:
            places = {name: local for local, name in side.items()}
            here = replace(
                options,
                dspark=tuple((rank, places[path]) for rank, path in options.dspark),
                roles=places.get(options.roles or ""),
            )
            outcome = _convert_here(replace(job, options=here), given, progress, workers)
            return as_given(outcome, {**given, **side})
    except UsageError:
        raise
    except NpuPerfettoError as error:
        return _Outcome(error=error)


def _convert_here(job: _Job, given: dict[str, str], progress: Callable[[str], None], workers: Workers) -> _Outcome:
    """given: local path -> input as the user named it."""
    options = job.options
    captures = find_captures(list(given))
    for capture in captures:
        capture.input = given[capture.input]
    if job.skip_existing:
        progress("comparing")
        options = replace(options, fingerprint=fingerprint(captures, options))
        if is_of(job.target, options.fingerprint):
            size = 0 if is_remote(job.target) else os.path.getsize(job.target)
            return _Outcome(Summary(job.target, size, skipped=True))
    with uploaded(job.target) as local:
        summary = write(captures, local, options, progress, workers)
        problems: list[str] = []
        if job.verify:
            from converter.check import check

            problems = check(local, list(given)).problems
    summary.output = job.target
    return _Outcome(summary, problems=problems)


def _tell(outcome: _Outcome, request: Request, talk: Talk, name: str) -> None:
    if outcome.error is not None:
        talk.error(str(outcome.error))
    summary = outcome.summary
    if summary is None:
        return
    for text in summary.failed_side_inputs:
        talk.error(text)
    talk.report(summary, name, request.strict)
    if request.summary == "-":
        sys.stdout.buffer.write(_json_line(summary))
        sys.stdout.buffer.flush()
    for problem in outcome.problems:
        talk.error(f"{printable(summary.output)}: {problem}")


def _write_summary(path: str, done: list[Summary]) -> None:
    from converter.target import whole_file

    with uploaded(path) as local, whole_file(local) as file:
        for summary in done:
            file.write(_json_line(summary))


def _json_line(summary: Summary) -> bytes:
    # The standard library's: it escapes what a file name may hold and UTF-8 can't.
    return json.dumps(summary.as_dict(), default=int).encode() + b"\n"
