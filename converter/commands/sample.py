"""`npu-perfetto sample`: a synthetic capture with its truth."""

from __future__ import annotations

from pathlib import Path

import typer


def _numbers(text: str, option: str) -> tuple[float, ...]:
    from schemas.errors import UsageError

    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(f"{option} takes numbers with commas between them, one per rank, not {text!r}") from None


def command(
    folder: Path = typer.Argument(..., metavar="DIR", help="Where to write; must be absent or empty."),
    ranks: int = typer.Option(2, help="Ranks.", min=1, max=256),
    steps: int = typer.Option(6, help="Decode steps in the profile.", min=1, max=100_000),
    seed: int = typer.Option(1, help="The same seed gives the same bytes."),
    bs: int = typer.Option(0, help="Requests of each rank; 0 lets them vary.", min=0),
    gamma: int = typer.Option(3, help="Draft tokens per request.", min=1),
    layers: int = typer.Option(2, help="MoE layers of the target.", min=1),
    mode: str = typer.Option("static", help="static or compact."),
    attention_tp: int = typer.Option(1, help="Ranks that share one batch.", min=1),
    offsets_ms: str = typer.Option("", help="How far each rank's clock is ahead, e.g. 0,-12.5."),
    drift_ppm: str = typer.Option("", help="Drift of each rank's clock, e.g. 0,8."),
    duration_s: float = typer.Option(0.0, help="Spread the steps over this time.", min=0),
    slow_rank: int = typer.Option(-1, help="This rank reaches every dispatch later ..."),
    delay_us: float = typer.Option(0.0, help="... by this much.", min=0),
    host_delay_us: float = typer.Option(0.0, help="Host time before each verify replay.", min=0),
    commit_us: float = typer.Option(0.0, help="Extra time of the commit projections.", min=0),
    components: str = typer.Option("", help="Components of the records, e.g. core,reqs; all without it."),
    start_step: bool = typer.Option(
        False, "--start-step", help="Start the profile inside run_batch, as start_step does."
    ),
    recv_hook: bool = typer.Option(False, "--recv-hook", help="dispatch_a/dispatch_b ranges with receive tasks."),
    folded: bool = typer.Option(False, "--folded", help="CUDA-like: no eager tail."),
    old_names: bool = typer.Option(False, "--old-span-names", help="Both forwards are step[TARGET_VERIFY ...]."),
    level0: bool = typer.Option(False, "--level0", help="A profile of level 0."),
    csv_only: bool = typer.Option(False, "--csv-only", help="No trace_view.json."),
    big_csv: int = typer.Option(0, help="Instead: one kernel_details.csv of this many rows.", min=0),
    big_json: int = typer.Option(0, help="Instead: one trace_view.json of this many MB.", min=0),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Say nothing but errors."),
    verbose: bool = typer.Option(False, "-v", "--verbose", help="Say what each rank holds."),
) -> None:
    """Write a synthetic DSpark capture with its truth: a folder per rank, server_info.json and truth.json.

    Prints the files to give to `convert`: first the folder, then the records.

    Example: npu-perfetto sample demo --ranks 2 --steps 8
    """
    from samples.big import write_big
    from samples.config import COMPONENTS, Config
    from samples.generate import write
    from schemas.errors import OutputError, UsageError, printable

    if big_csv or big_json:
        if big_csv and big_json:
            raise UsageError("--big-csv and --big-json exclude each other")
        typer.echo(write_big(folder, rows=big_csv, megabytes=big_json, seed=seed))
        return
    config = Config(
        components=tuple(components.split(",")) if components else COMPONENTS,
        ranks=ranks,
        steps=steps,
        seed=seed,
        bs=bs,
        gamma=gamma,
        layers=layers,
        mode=mode,
        attention_tp=attention_tp,
        offsets_ms=_numbers(offsets_ms, "--offsets-ms"),
        drift_ppm=_numbers(drift_ppm, "--drift-ppm"),
        duration_s=duration_s,
        slow_rank=slow_rank,
        delay_us=delay_us,
        host_delay_us=host_delay_us,
        commit_us=commit_us,
        start_step=start_step,
        recv_hook=recv_hook,
        folded=folded,
        old_span_names=old_names,
        level0=level0,
        trace=not csv_only,
    )
    try:
        captures = write(config, folder)
    except OSError as error:
        raise OutputError(
            f"{printable(folder)}: can't be written: {error.strerror or error}; choose another DIR"
        ) from error
    if verbose and not quiet:
        for capture in captures:
            typer.echo(f"{capture.folder}: {len(capture.inside)} steps, {len(capture.tasks)} device slices", err=True)
    typer.echo(folder)
    typer.echo(folder / "server_info.json")
    if not quiet:
        typer.echo(
            f"npu-perfetto convert {folder} --dspark {folder / 'server_info.json'} -o {folder}.pftrace", err=True
        )
