"""What `npu-perfetto convert` does with its arguments: checks them, converts, reports, and tells the exit status.

Everything that can be wrong before reading is said before reading (exit 2). With --out-dir one failing input does not
stop the others (exit 1 at the end, with a list).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from converter.convert import convert
from converter.find import check_paths, input_name, output_names
from converter.options import ANNOTATORS, Options
from converter.summary import Summary
from converter.target import check_target, make_out_dir
from converter.window import parse_duration, parse_window
from schemas.errors import InputError, NpuPerfettoError, UsageError, printable

WARNINGS_SHOWN = 10


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
    with_token_ids: bool = False
    with_request_ids: bool = False
    max_input_bytes: int = 16 << 30
    verify: bool = False
    strict: bool = False
    jobs: int = 1
    summary: str | None = None
    quiet: bool = False
    verbose: bool = False


def run(request: Request) -> int:
    """Exit status. Raises UsageError for what is wrong before anything is read."""
    options = checked_options(request)
    check_paths(request.inputs)
    plan = targets(request)
    if request.summary not in (None, "-"):
        assert request.summary is not None
        check_target(request.summary, request.inputs)
        if any(request.summary == target for _, target in plan):
            raise UsageError(f"{printable(request.summary)}: is both the trace and the summary; choose two files")
    talk = _Talk(request.quiet, request.verbose)
    done: list[Summary] = []
    failed: list[str] = []
    for inputs, target in plan:
        try:
            with talk.stage() as progress:
                summary = convert(inputs, target, options, progress)
        except InputError as error:
            failed.append(str(error))
            talk.error(str(error))
            continue
        except UsageError:
            raise
        except NpuPerfettoError as error:
            failed.append(str(error))
            talk.error(str(error))
            continue
        done.append(summary)
        for text in summary.failed_side_inputs:
            talk.error(text)
        talk.report(summary)
        if request.summary == "-":
            sys.stdout.buffer.write(_json_line(summary))
            sys.stdout.buffer.flush()
        if request.verify and not _verified(summary, inputs, options, talk):
            failed.append(target)
    if request.summary not in (None, "-") and done:
        _write_summary(str(request.summary), done)
    if len(plan) > 1 and failed:
        talk.error(f"{len(failed)} of {len(plan)} inputs failed; {len(done)} traces were written")
    if failed or any(s.failed_side_inputs for s in done):
        return 1
    return 3 if request.strict and any(s.strict_failure for s in done) else 0


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
    if request.jobs < 1:
        raise UsageError("--jobs: at least 1")
    if request.max_input_bytes < 1:
        raise UsageError("--max-input-bytes: at least 1")
    if request.roles is not None:
        from schemas.roles import load_roles

        load_roles(request.roles)
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
        pmu=request.pmu,
        with_token_ids=request.with_token_ids,
        with_request_ids=request.with_request_ids,
        max_input_bytes=request.max_input_bytes,
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
    if request.out_dir is not None:
        names = output_names(inputs)
        make_out_dir(request.out_dir)
        plan = [([i], os.path.join(request.out_dir, f"{name}.pftrace")) for i, name in zip(inputs, names, strict=True)]
    else:
        plan = [(inputs, request.output or f"{input_name(inputs[0])}.pftrace")]
    for _, target in plan:
        check_target(target, inputs)
    return plan


def _write_summary(path: str, done: list[Summary]) -> None:
    from converter.target import whole_file

    with whole_file(path) as file:
        for summary in done:
            file.write(_json_line(summary))


def _json_line(summary: Summary) -> bytes:
    # The standard library's: it escapes what a file name may hold and UTF-8 can't.
    return json.dumps(summary.as_dict(), default=int).encode() + b"\n"


def _verified(summary: Summary, inputs: list[str], options: Options, talk: _Talk) -> bool:
    from converter.check import check

    findings = check(summary.output, inputs)
    for problem in findings.problems:
        talk.error(f"{printable(summary.output)}: {problem}")
    return not findings.problems


class _Talk:
    """What goes to stderr: a spinner on a terminal, plain lines elsewhere."""

    def __init__(self, quiet: bool, verbose: bool) -> None:
        self.quiet, self.verbose = quiet, verbose
        self.terminal = sys.stderr.isatty() and not quiet

    @contextlib.contextmanager
    def stage(self) -> Iterator[Callable[[str], None]]:
        if self.terminal and not self.verbose:
            from rich.console import Console

            with Console(stderr=True).status("reading") as status:
                yield lambda text: status.update(printable(text, 70))
        else:
            yield (lambda text: print(printable(text), file=sys.stderr)) if self.verbose else (lambda _: None)

    def error(self, text: str) -> None:
        print(f"npu-perfetto: {text}", file=sys.stderr)

    def report(self, summary: Summary) -> None:
        if self.quiet:
            return
        shown = summary.warnings if self.verbose else summary.warnings[:WARNINGS_SHOWN]
        for warning in shown:
            print(f"warning: {printable(warning, 500)}", file=sys.stderr)
        if len(shown) < len(summary.warnings):
            print(f"warning: … and {len(summary.warnings) - len(shown)} more (-v shows all)", file=sys.stderr)
        for line in summary.losses():
            print(line, file=sys.stderr)
        for line in summary.refused:
            print(f"refused: {printable(line, 500)}", file=sys.stderr)
        print(summary.headline(), file=sys.stderr)
