"""Many traces through a native engine: a stand-in that speaks the HTTP of trace_processor_shell."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from schemas.errors import EngineError, InputError
from tests.converter.test_command_line import run as command
from tests.trace_builder import TraceBuilder

BIG = 2**62 + 1  # a float64 can't hold it


@pytest.fixture
def engine(tmp_path: Path) -> str:
    """The program. Each start writes how many of it then run as one line of the file `running`."""
    pids = tmp_path / "pids"
    pids.mkdir()
    program = tmp_path / "trace_processor_shell"
    stand_in = Path(__file__).with_name("native_stand_in.py")
    program.write_text(
        f"""#!/bin/sh
touch "{pids}/$$"
cd "{pids}" && for pid in *; do grep -q . /proc/$pid/cmdline 2>/dev/null && echo $pid; done | wc -l >> "{tmp_path}/running"
PYTHONPATH="{Path(__file__).parents[2]}" exec "{sys.executable}" "{stand_in}" "$@"
"""
    )
    program.chmod(0o755)
    return str(program)


def most_at_once(engine: str) -> int:
    return max(map(int, Path(engine).with_name("running").read_text().split()))


def traces(folder: Path, count: int) -> list[str]:
    """Traces of one slice each, the second one without the argument `big`."""
    out = []
    for i in range(count):
        t = TraceBuilder()
        t.slice(t.track("t"), 10**18 + i, 5, "k", "x", **({} if i == 1 else {"big": BIG + i}))
        out.append(t.write(folder / f"{i}.pftrace"))
    return out


@pytest.mark.skipif(sys.platform != "linux", reason="counts processes in /proc")
def test_many_traces_two_engines_at_once(tmp_path: Path, engine: str) -> None:
    names = traces(tmp_path, 4)
    broken = tmp_path / "broken.pftrace"
    broken.write_text("this is a text\n" * 10)
    query = (
        "INCLUDE PERFETTO MODULE npu.kernels; SELECT ts, extract_arg(arg_set_id, 'debug.big') AS big, "
        "(SELECT count(*) FROM npu_kernels) AS kernels FROM slice"
    )
    args = ["sql", *names[:2], broken, *names[2:], query, "--engine", engine, "--format", "json", "--jobs", "2"]
    done = command(*args, cwd=tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stdout) == [
        {"trace": name, "ts": 10**18 + i, "big": None if i == 1 else BIG + i, "kernels": 0}
        for i, name in enumerate(names)
    ]
    assert len(done.stderr.strip().splitlines()) == 1
    assert f"{broken}: trace_processor can't read this file" in done.stderr
    assert most_at_once(engine) == 2


def test_an_engine_that_dies_takes_one_trace(tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from converter import sql
    from converter.engine import Engine, open_trace

    first, second = traces(tmp_path, 2)

    def opened(trace: str, *, engine: str) -> Engine:
        tp = open_trace(trace, engine=engine)
        if trace == first:
            tp._backend._perfetto.subprocess.kill()
        return tp

    monkeypatch.setattr(sql, "open_trace", opened)
    answer = sql.run([first, second], "SELECT dur FROM slice", engine)
    assert answer.rows == [(second, 5)]
    [failure] = answer.failures
    assert isinstance(failure, EngineError) and f"{first}: " in str(failure) and "\n" not in str(failure)


@pytest.mark.skipif(sys.platform != "linux", reason="counts processes in /proc")
def test_why_batch_trace_processor_is_not_used(tmp_path: Path, engine: str) -> None:
    """What docs/dependencies.md says of it. Where this fails, it may have become fit: think again."""
    from perfetto.batch_trace_processor import api
    from perfetto.trace_processor import TraceProcessorConfig

    def batch(names: Sequence[str], handling: api.FailureHandling) -> api.BatchTraceProcessor:
        return api.BatchTraceProcessor(
            list(names), api.BatchTraceProcessorConfig(TraceProcessorConfig(bin_path=engine), handling, handling)
        )

    names = traces(tmp_path, 2)
    broken = tmp_path / "broken.pftrace"
    broken.write_text("this is a text\n" * 10)
    with batch([*names, str(broken)], api.FailureHandling.INCREMENT_STAT) as tps:
        assert len(tps.query("SELECT 1")) == 2
        # of the third nothing but the count is left
        assert tps.stats() == api.Stats(load_failures=1)
        assert len(tps.tps_and_metadata) == 2
        # both engines are up, though the query of one would be over by now
        assert all(tp.subprocess.poll() is None for tp, _ in tps.tps_and_metadata)
    with pytest.raises(Exception, match="Unknown trace type") as raised:
        batch([*names, str(broken)], api.FailureHandling.RAISE_EXCEPTION)
    assert "broken" not in str(raised.value) and not isinstance(raised.value, InputError)
    with pytest.raises(KeyError):
        batch(["night:1.pftrace"], api.FailureHandling.INCREMENT_STAT)
