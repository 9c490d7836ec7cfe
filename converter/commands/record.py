"""npu-perfetto record: options and help."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of the SGLang server: http://HOST:PORT.")],
    out: Annotated[str, typer.Option("-o", "--output", metavar="DIR", help="Gets server_info.json and record.json.")],
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", min=0.0, max=3600.0, help="How long the window is, at most.")
    ] = 5.0,
    steps: Annotated[
        int | None,
        typer.Option("--steps", metavar="N", min=1, help="The server ends the profile after N steps (num_steps)."),
    ] = None,
    profile_dir: Annotated[
        str | None,
        typer.Option("--profile-dir", metavar="DIR", help="Where the server writes the profile, on its machine."),
    ] = None,
    activities: Annotated[str, typer.Option("--activities", metavar="A,B", help="What to profile.")] = "CPU,GPU",
    annotations: Annotated[
        bool, typer.Option("--annotations/--no-annotations", help="Detailed step annotations (g_sq, g_sk).")
    ] = True,
    with_stack: Annotated[bool, typer.Option("--with-stack", help="Python call stacks: slower, much larger.")] = False,
    record_shapes: Annotated[bool, typer.Option("--shapes/--no-shapes", help="Input shapes.")] = True,
    clear: Annotated[bool, typer.Option("--clear/--no-clear", help="Clear older DSpark records first.")] = True,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", min=0.1, max=600.0, help="For each answer of the server.")
    ] = 30.0,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only errors.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Each step.")] = False,
) -> None:
    """Save DSpark records and server facts around a profile of a running server.

    Reading the records makes the server's scheduler wait for the device, so nothing is read while the profile runs.
    An API key is taken from NPU_PERFETTO_API_KEY.

    Example: npu-perfetto record http://127.0.0.1:30000 -o run1 --steps 20 --profile-dir /data/run1
    """
    import json
    import os
    import sys

    from converter.record import Wishes, record
    from converter.server_calls import Server
    from converter.target import check_target, make_out_dir, whole_file
    from schemas.errors import UsageError, printable

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    server = Server(url, timeout, os.environ.get("NPU_PERFETTO_API_KEY"))
    make_out_dir(out)
    targets = {name: os.path.join(out, name) for name in ("server_info.json", "record.json")}
    for target in targets.values():
        check_target(target)
        if os.path.exists(target):
            raise UsageError(f"{printable(target)}: is there already; choose another folder")
    wishes = Wishes(
        seconds, steps, profile_dir, tuple(a for a in activities.split(",") if a), annotations, with_stack,
        record_shapes, clear,
    )  # fmt: skip
    made = record(server, wishes, say if verbose else lambda _: None)
    # The URL as typed may hold a password; the log has it without.
    made.log["command"] = [made.log["url"] if a == url else a for a in sys.argv[1:]]
    contents = {"server_info.json": made.server_info, "record.json": json.dumps(made.log, indent=1).encode() + b"\n"}
    for name, content in contents.items():
        with whole_file(targets[name]) as file:
            file.write(content)
    for warning in made.warnings:
        say(f"warning: {printable(warning, 500)}")
    where = printable(profile_dir) if profile_dir else "PROFILE_FOLDER"
    say(
        f"{printable(out)}: {made.records} records; next: npu-perfetto convert {where} --dspark {printable(targets['server_info.json'])}"
    )
