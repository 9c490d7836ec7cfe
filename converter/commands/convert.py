"""npu-perfetto convert: options and help."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLE = """[bold]Examples[/bold]

One capture, to host_4100_ascend_pt.pftrace in the current folder:

npu-perfetto convert host_4100_ascend_pt

All ranks of a run in one trace, with the DSpark records of the server:

npu-perfetto convert run/ --dspark server_info.json -o run.pftrace

A trace per input; the next night only what is new:

npu-perfetto convert night/* --out-dir traces/ --jobs 8

find night -name '*_ascend_pt' -print0 | npu-perfetto convert --files0-from - --out-dir traces/ --skip-existing
"""


def command(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="Capture folders (*_ascend_pt, *_ascend_ms, PROF_*), folders that hold captures, or single files: "
            "kernel_details.csv, op_summary*.csv, task_time*.csv, trace_view.json, msprof*.json, *.trace.json\\[.gz], ascend_pytorch_profiler*.db, "
            "msprof*.db.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="All inputs into this one trace; FILE.gz compresses, - is stdout.",
            rich_help_panel="Output",
        ),
    ] = None,
    out_dir: Annotated[
        str | None,
        typer.Option(
            "--out-dir", metavar="DIR", help="One trace per INPUT, into this folder.", rich_help_panel="Output"
        ),
    ] = None,
    dspark: Annotated[
        list[str] | None,
        typer.Option(
            "--dspark",
            metavar="[RANK=]FILE",
            help="DSpark step records (/server_info JSON, JSONL, ...). Repeatable.",
            rich_help_panel="DSpark",
        ),
    ] = None,
    annotate: Annotated[
        str,
        typer.Option(
            "--annotate",
            metavar="all|none|A,B",
            help="Which tracks to derive: gaps, steps, segments, tails, deepep, replays.",
            rich_help_panel="What is written",
        ),
    ] = "all",
    first_forward_ct: Annotated[
        list[str] | None,
        typer.Option(
            "--first-forward-ct",
            metavar="[RANK=]N",
            help="The forward_ct of the first step in the trace. Repeatable.",
            rich_help_panel="DSpark",
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            "--window",
            metavar="START:END",
            help="Only this part: ns since the epoch, or with a unit; +10ms counts from the first task.",
            rich_help_panel="What is written",
        ),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps", metavar="A:B", help="Only the steps with forward_ct A to B.", rich_help_panel="What is written"
        ),
    ] = None,
    reference_rank: Annotated[
        int | None,
        typer.Option(
            "--reference-rank",
            metavar="N",
            help="The rank whose clock the others are aligned to.",
            rich_help_panel="Clocks of several ranks",
        ),
    ] = None,
    assume_aligned: Annotated[
        bool,
        typer.Option(
            "--assume-aligned",
            help="Take the ranks' clocks as they are: no rank is shifted.",
            rich_help_panel="Clocks of several ranks",
        ),
    ] = False,
    clock_tolerance: Annotated[
        str,
        typer.Option(
            "--clock-tolerance",
            metavar="DUR",
            help="How well clocks must agree for figures over ranks (ns, or with a unit).",
            rich_help_panel="Clocks of several ranks",
        ),
    ] = "50us",
    roles: Annotated[
        str | None,
        typer.Option(
            "--roles", metavar="FILE", help="A role table (TOML) over the built-in one.", rich_help_panel="DSpark"
        ),
    ] = None,
    fact: Annotated[
        list[str] | None,
        typer.Option(
            "--fact",
            metavar="KEY=VALUE",
            help="A fact of the run, kept in the trace. Repeatable.",
            rich_help_panel="What is written",
        ),
    ] = None,
    pmu: Annotated[
        bool, typer.Option("--pmu", help="Keep the PMU columns as arguments.", rich_help_panel="What is written")
    ] = False,
    pmu_counters: Annotated[
        list[str] | None,
        typer.Option(
            "--pmu-counters",
            metavar="A,B",
            help="These PMU columns also as counters, such as aic_mac_ratio.",
            rich_help_panel="What is written",
        ),
    ] = None,
    prefer: Annotated[
        str,
        typer.Option(
            "--prefer",
            metavar="text|db",
            help="Which export to read where a capture holds both.",
            rich_help_panel="What is written",
        ),
    ] = "text",
    with_token_ids: Annotated[
        bool, typer.Option("--with-token-ids", help="Write token ids of the records.", rich_help_panel="DSpark")
    ] = False,
    with_request_ids: Annotated[
        bool, typer.Option("--with-request-ids", help="Write request ids of the records.", rich_help_panel="DSpark")
    ] = False,
    max_input_bytes: Annotated[
        int,
        typer.Option(
            "--max-input-bytes",
            metavar="N",
            help="Refuse an input that unpacks to more.",
            rich_help_panel="What is written",
        ),
    ] = 16 << 30,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            "--drop",
            metavar="A,B",
            help="Leave out slices of these categories, such as python_function.",
            rich_help_panel="What is written",
        ),
    ] = None,
    layout: Annotated[
        str,
        typer.Option(
            "--layout",
            metavar="single|archive",
            help="archive: a trace per rank in a tar, offsets in its manifest.",
            rich_help_panel="Output",
        ),
    ] = "single",
    files0_from: Annotated[
        str | None,
        typer.Option(
            "--files0-from",
            metavar="FILE|-",
            help="Read the inputs from FILE, each ended by NUL.",
            rich_help_panel="Batches and clusters",
        ),
    ] = None,
    skip_existing: Annotated[
        bool,
        typer.Option(
            "--skip-existing",
            help="Leave a trace that was made of the same content and options.",
            rich_help_panel="Output",
        ),
    ] = False,
    describe: Annotated[
        bool,
        typer.Option(
            "--describe",
            help="Write nothing; say what would be read and which annotators can run.",
            rich_help_panel="Output",
        ),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Check each trace against its input when it is written.", rich_help_panel="Output"
        ),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Leave with 3 where something was dropped or refused, or an input was damaged.",
            rich_help_panel="Output",
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            metavar="N",
            help="Cores to use, a process each: over inputs, or over the ranks of one trace. "
            "Without it: one process of two threads.",
            rich_help_panel="Batches and clusters",
        ),
    ] = None,
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            metavar="loky|dask|ray",
            help="Where they run: here, or on a running cluster.",
            rich_help_panel="Batches and clusters",
        ),
    ] = "loky",
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            metavar="ADDRESS",
            help="Of the cluster, such as tcp://host:8786.",
            rich_help_panel="Batches and clusters",
        ),
    ] = None,
    summary: Annotated[
        str | None,
        typer.Option(
            "--summary", metavar="FILE|-", help="What was done, as JSON: one line per trace.", rich_help_panel="Output"
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Only errors and damaged inputs.", rich_help_panel="Output")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Each step, and every warning.", rich_help_panel="Output")
    ] = False,
) -> None:
    """Convert captures into a Perfetto trace: every task, host event, flow and counter at its nanosecond."""
    from converter.batch import run
    from converter.request import Request

    act = run
    if describe:
        from converter.describe import describe_inputs

        act = describe_inputs
    raise typer.Exit(
        act(
            Request(
                inputs=inputs or [], output=output, out_dir=out_dir, dspark=dspark or [], annotate=annotate,
                first_forward_ct=first_forward_ct or [], window=window, steps=steps, reference_rank=reference_rank,
                assume_aligned=assume_aligned, clock_tolerance=clock_tolerance, roles=roles, facts=fact or [],
                pmu=pmu, pmu_counters=pmu_counters or [], prefer=prefer, with_token_ids=with_token_ids, with_request_ids=with_request_ids,
                max_input_bytes=max_input_bytes, verify=verify, strict=strict, jobs=jobs, summary=summary,
                quiet=quiet, verbose=verbose, backend=backend, scheduler=scheduler, files0_from=files0_from,
                skip_existing=skip_existing, drop=drop or [], layout=layout,
            )
        )
    )  # fmt: skip


command.__doc__ = (command.__doc__ or "") + "\n\n" + EXAMPLE
