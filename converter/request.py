"""The command line of `convert` as typed, and all that can be wrong with it before anything is read (exit 2)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from converter.find import input_name, output_names
from converter.options import ANNOTATORS, LAYOUTS, Options
from converter.remote import check_inputs, fetched_file, is_remote
from converter.target import check_target, make_out_dir
from converter.window import parse_duration, parse_window
from schemas.errors import UsageError, printable

#: Endings of other formats, which a Perfetto trace must not be taken for.
MISLEADING = (".json", ".jsonl", ".csv", ".db", ".sqlite", ".txt", ".md", ".html", ".svg", ".png", ".zip", ".xlsx")


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


def with_absolute_paths(request: Request) -> Request:
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
        raise UsageError(f"--steps: {printable(text, 40)!r} is not A:B, two forward_ct; for example 1204:1210")
    a, b = _whole(first, "--steps"), _whole(last, "--steps")
    if b < a:
        raise UsageError("--steps: B is before A")
    return a, b


def odd_ending(target: str, layout: str) -> str:
    """A warning where the target's name says something else than what is written, or ""."""
    name = os.path.basename(target)
    name = name[:-3] if name.lower().endswith(".gz") else name
    ending = os.path.splitext(name)[1].lower()
    right = ".tar" if layout == "archive" else ".pftrace"
    wrong = {*MISLEADING, ".pftrace" if layout == "archive" else ".tar"}
    if ending not in wrong:
        return ""
    what = "a tar of Perfetto traces" if layout == "archive" else "a Perfetto trace"
    return f"{printable(target)}: is written as {what}, not as {ending}; name it FILE{right}"


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
