"""What `npu-perfetto convert` does with its arguments: checks them, converts, reports, and tells the exit status.

Everything that can be wrong before reading is said before reading (exit 2). With --out-dir one failing input does not
stop the others (exit 1 at the end, with a list).
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from converter.convert import write
from converter.find import check_paths, find_captures, input_name, output_names
from converter.fingerprint import fingerprint, is_of
from converter.options import ANNOTATORS, LAYOUTS, Options
from converter.parallel import Workers, check_workers
from converter.remote import as_given, check_inputs, check_scheme, fetched, fetched_file, is_remote, uploaded
from converter.summary import Summary
from converter.talk import Talk
from converter.target import check_target, make_out_dir, sweep
from converter.window import parse_duration, parse_window
from schemas.errors import NpuPerfettoError, UsageError, printable


@dataclass(frozen=True)
class Request:
    """The command line as typed."""

    inputs: Sequence[str]
    output: str | None = None
    out_dir: str | None = None
    dspark: Sequence[str] = ()
    annotate: str = "all"
    first_forward_ct: Sequence[str] = ()
    window: str | None = None
    steps: str | None = None
    reference_rank: int | None = None
    assume_aligned: bool = False
    clock_tolerance: str = "50us"
    roles: str | None = None
    facts: Sequence[str] = ()
    pmu: bool = False
    pmu_counters: Sequence[str] = ()
    prefer: str = "text"
    with_token_ids: bool = False
    with_request_ids: bool = False
    max_input_bytes: int = 16 << 30
    verify: bool = False
    strict: bool = False
    jobs: int | None = None
    backend: str = "loky"
    scheduler: str | None = None
    files0_from: str | None = None
    skip_existing: bool = False
    drop: Sequence[str] = ()
    layout: str = "single"
    summary: str | None = None
    quiet: bool = False
    verbose: bool = False


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
    request = _with_absolute_paths(replace(request, inputs=inputs_of(request)))
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
    jobs = [_Job(tuple(inputs), target, options, request.skip_existing, request.verify) for inputs, target in plan]
    outcomes: dict[int, _Outcome] = {}
    try:
        for position, outcome in _outcomes(jobs, workers, talk):
            outcomes[position] = outcome
            _tell(outcome, request, talk)
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


def _tell(outcome: _Outcome, request: Request, talk: Talk) -> None:
    if outcome.error is not None:
        talk.error(str(outcome.error))
    summary = outcome.summary
    if summary is None:
        return
    for text in summary.failed_side_inputs:
        talk.error(text)
    talk.report(summary)
    if request.summary == "-":
        sys.stdout.buffer.write(_json_line(summary))
        sys.stdout.buffer.flush()
    for problem in outcome.problems:
        talk.error(f"{printable(summary.output)}: {problem}")


def _with_absolute_paths(request: Request) -> Request:
    """Workers of a cluster have working folders of their own."""
    if request.backend == "loky":
        return request

    def placed(path: str | None) -> str | None:
        return path if path is None or path == "-" or is_remote(path) else os.path.abspath(path)

    return replace(
        request,
        inputs=[path if is_remote(path) else os.path.abspath(path) for path in request.inputs],
        output=placed(request.output)
        or (None if request.out_dir else placed(f"{input_name(request.inputs[0])}.pftrace")),
        out_dir=placed(request.out_dir),
        roles=placed(request.roles),
        dspark=[f"{'' if rank is None else f'{rank}='}{placed(path)}" for rank, path in _ranked(request)],
    )


def _ranked(request: Request) -> list[tuple[int | None, str]]:
    return [_with_rank(text, "--dspark") for text in request.dspark]


def inputs_of(request: Request) -> list[str]:
    """The inputs as arguments, or from --files0-from. Raises UsageError."""
    if request.files0_from is None:
        if not request.inputs:
            raise UsageError("an INPUT is missing: name captures, or give them with --files0-from")
        return list(request.inputs)
    if request.inputs:
        raise UsageError("--files0-from takes the place of INPUT...; give one of them")
    source = request.files0_from
    try:
        with open(0 if source == "-" else source, "rb", closefd=source != "-") as file:
            names = [os.fsdecode(name) for name in file.read().split(b"\0") if name]
    except OSError as error:
        raise UsageError(f"{printable(source)}: {error.strerror or error}; --files0-from needs a file") from None
    if not names:
        raise UsageError(f"--files0-from {printable(source)}: names no input")
    return names


def checked_options(request: Request) -> Options:
    """Raises UsageError for an option that can't be right."""
    names = {"all": ANNOTATORS, "none": ()}.get(request.annotate)
    if names is None:
        names = tuple(dict.fromkeys(part.strip() for part in request.annotate.split(",") if part.strip()))
        for name in names:
            if name not in ANNOTATORS:
                raise UsageError(
                    f"--annotate: {printable(name)} is no annotator; choose from {', '.join(ANNOTATORS)}, or all, none"
                )
    if request.window is not None:
        parse_window(request.window)
    facts = {}
    for fact in request.facts:
        key, equals, value = fact.partition("=")
        if not equals or not key:
            raise UsageError(f"--fact: {printable(fact, 60)!r} is not KEY=VALUE")
        facts[key] = value
    if request.prefer not in ("text", "db"):
        raise UsageError(f"--prefer: {printable(request.prefer, 40)!r} is neither text nor db")
    if request.layout not in LAYOUTS:
        raise UsageError(f"--layout: {printable(request.layout, 40)} is none of {', '.join(LAYOUTS)}")
    for _, path in _ranked(request):
        if is_remote(path):
            check_inputs([path])
        elif not os.path.exists(path):
            raise UsageError(f"--dspark: {printable(path)}: does not exist; check the path")
    if request.max_input_bytes < 1:
        raise UsageError("--max-input-bytes: at least 1")
    if request.roles is not None:
        from schemas.roles import load_roles

        if is_remote(request.roles):
            check_inputs([request.roles])
        with fetched_file(request.roles) as local:
            load_roles(local)
    return Options(
        annotate=names,
        dspark=tuple(_with_rank(d, "--dspark") for d in request.dspark),
        first_forward_ct={
            r: _whole(v, "--first-forward-ct") for r, v in (_with_rank(f, "") for f in request.first_forward_ct)
        },
        window=request.window,
        steps=_steps(request.steps),
        reference_rank=request.reference_rank,
        assume_aligned=request.assume_aligned,
        clock_tolerance_ns=parse_duration(request.clock_tolerance, "--clock-tolerance"),
        roles=request.roles,
        facts=facts,
        strict=request.strict,
        pmu=request.pmu or bool(request.pmu_counters),
        pmu_counters=tuple(n for text in request.pmu_counters for n in text.split(",") if n),
        prefer=request.prefer,  # type: ignore[arg-type]
        with_token_ids=request.with_token_ids,
        with_request_ids=request.with_request_ids,
        max_input_bytes=request.max_input_bytes,
        drop=tuple(dict.fromkeys(name for d in request.drop for name in d.split(",") if name)),
        layout=request.layout,
    )


def _with_rank(text: str, option: str) -> tuple[int | None, str]:
    """`3=file` is for rank 3; a path may hold `=` of its own."""
    head, equals, tail = text.partition("=")
    if equals and head.isascii() and head.isdigit():
        return int(head), tail
    return None, text


def _whole(text: str, option: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{option}: {printable(text, 40)!r} is not a whole number")
    return int(text)


def _steps(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not colon:
        raise UsageError(f"--steps: {printable(text, 40)!r} is not A:B")
    a, b = _whole(first, "--steps"), _whole(last, "--steps")
    if b < a:
        raise UsageError("--steps: B is before A")
    return a, b


def targets(request: Request) -> list[tuple[list[str], str]]:
    """(inputs, target) per trace. Raises UsageError where a target can't be."""
    inputs = list(request.inputs)
    if request.output is not None and request.out_dir is not None:
        raise UsageError("-o and --out-dir exclude each other; -o puts all inputs into one trace, --out-dir one each")
    if request.output == "-" and request.summary == "-":
        raise UsageError("-o - and --summary - can't both be stdout")
    ending = ".tar" if request.layout == "archive" else ".pftrace"
    if request.layout == "archive" and (request.output or "").endswith(".gz"):
        raise UsageError("--layout archive makes a plain tar; name it FILE.tar")
    if request.skip_existing and (request.output == "-" or request.layout == "archive"):
        raise UsageError("--skip-existing looks at a trace that is there: not with -o - or --layout archive")
    if request.out_dir is not None:
        names = output_names(inputs)
        if not is_remote(request.out_dir):
            make_out_dir(request.out_dir)
        plan = [([i], os.path.join(request.out_dir, f"{name}{ending}")) for i, name in zip(inputs, names, strict=True)]
    else:
        plan = [(inputs, request.output or f"{input_name(inputs[0])}{ending}")]
    for _, target in plan:
        if not is_remote(target):
            check_target(target, inputs)
        elif target.rstrip("/") in [path.rstrip("/") for path in inputs]:
            raise UsageError(f"{printable(target)}: is an input; choose another target")
    return plan


def _write_summary(path: str, done: list[Summary]) -> None:
    from converter.target import whole_file

    with uploaded(path) as local, whole_file(local) as file:
        for summary in done:
            file.write(_json_line(summary))


def _json_line(summary: Summary) -> bytes:
    # The standard library's: it escapes what a file name may hold and UTF-8 can't.
    return json.dumps(summary.as_dict(), default=int).encode() + b"\n"
