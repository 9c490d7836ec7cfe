"""SQLite exports: equal to the text export of the same run, exact on a real one, and what damage gives."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converter.convert import read
from converter.find import find_captures
from converter.options import Options
from samples.config import Config
from samples.db_export import write_database
from samples.exporters import write_capture
from samples.generate import simulate
from schemas.errors import InputError
from schemas.timeline import NULL, Host, Timeline

PLAIN = Options(annotate=())


def timeline_of(path: Path, options: Options = PLAIN) -> Timeline:
    (capture,) = find_captures([str(path)])
    return read(capture, options).timeline


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Timeline]:
    """One simulated rank as text and as databases of two schemas."""
    folder = tmp_path_factory.mktemp("both")
    capture = simulate(Config(ranks=2, steps=3, with_stack=True, prefill_before=(1,)))[1]
    write_capture(capture, folder / "text" / capture.folder)
    out = {"text": timeline_of(folder / "text")}
    for schema in ("1.0.0", "1.2.0"):
        write_database(capture, folder / schema / capture.folder, schema)
        out[schema] = timeline_of(folder / schema)
    return out


def texts(timeline: Timeline, ids: Any) -> list[str]:
    return [timeline.strings[i] for i in ids.tolist()]


@pytest.mark.parametrize("schema", ["1.0.0", "1.2.0"])
def test_recorded_tasks_equal_those_of_the_text_export(both: dict[str, Timeline], schema: str) -> None:
    text, db = both["text"], both[schema]
    assert db.rank == text.rank == 1 and len(db.tasks) == len(text.tasks) > 200
    for column in ("ts", "dur", "device_id", "stream_id", "task_id", "model_id", "connection_id", "communication"):
        np.testing.assert_array_equal(getattr(db.tasks, column), getattr(text.tasks, column), column)
    for column in ("name", "op_type", "input_shapes", *(() if schema == "1.0.0" else ("op_state",))):
        assert texts(db, getattr(db.tasks, column)) == texts(text, getattr(text.tasks, column)), column
    kernels = ~db.tasks.communication
    assert texts(db, db.tasks.accelerator_core[kernels]) == texts(text, text.tasks.accelerator_core[kernels])
    assert db.window == text.window


def host_rows(t: Timeline) -> list[tuple[Any, ...]]:
    names, tracks = texts(t, t.host.name), [t.tracks[i] for i in t.host.track.tolist()]
    return [
        (track.kind, track.role, track.name, track.pid, track.tid, *row)
        for track, *row in zip(tracks, t.host.ts.tolist(), t.host.dur.tolist(), names, t.host.source.tolist(),
                               t.host.connection_id.tolist(), t.host.correlation_id.tolist(), strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize("schema", ["1.0.0", "1.2.0"])
def test_host_slices_equal_those_of_the_text_export(both: dict[str, Timeline], schema: str) -> None:
    text, db = Counter(host_rows(both["text"])), Counter(host_rows(both[schema]))
    assert db == text
    assert {Host.FRAMEWORK, Host.PYTHON, Host.ENQUEUE, Host.DEQUEUE, Host.CANN} <= {row[8] for row in db}


@pytest.mark.parametrize("schema", ["1.0.0", "1.2.0"])
def test_other_device_slices_equal_those_of_the_text_export(both: dict[str, Timeline], schema: str) -> None:
    def rows(t: Timeline) -> list[tuple[Any, ...]]:
        d = t.device
        return sorted(zip(d.ts.tolist(), d.dur.tolist(), texts(t, d.name), d.stream_id.tolist(), strict=True))

    assert rows(both[schema]) == rows(both["text"]) != []


def arrows(t: Timeline) -> Counter[tuple[Any, ...]]:
    name = np.concatenate([b.name for b in t.slices])
    ts = np.concatenate([b.ts for b in t.slices])
    out: Counter[tuple[Any, ...]] = Counter()
    for flow in t.flows:
        of_start = zip(ts[flow.out].tolist(), texts(t, name[flow.out]), strict=True)
        of_end = zip(ts[flow.into].tolist(), texts(t, name[flow.into]), strict=True)
        out.update((t.strings[flow.category], a, b) for a, b in zip(of_start, of_end, strict=True))
    return out


@pytest.mark.parametrize("schema", ["1.0.0", "1.2.0"])
def test_flows_equal_those_of_the_text_export(both: dict[str, Timeline], schema: str) -> None:
    text, db = arrows(both["text"]), arrows(both[schema])
    assert db == text
    assert {category for category, *_ in db} == {"HostToDevice", "async_npu", "async_task_queue"}


def brute(path: Path, sql: str) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def test_a_real_capture(shared: Path) -> None:
    folder = shared / "captures" / "train_cann80_level1_db" / "rank0_ascend_pt"
    path = folder / "ASCEND_PROFILER_OUTPUT" / "ascend_pytorch_profiler_0.db"
    t = timeline_of(folder, Options(annotate=(), pmu=True))
    want = brute(
        path,
        "SELECT startNs, endNs - startNs, s.value FROM TASK JOIN COMPUTE_TASK_INFO i USING (globalTaskId) "
        "JOIN STRING_IDS s ON s.id = i.name UNION ALL "
        "SELECT startNs, endNs - startNs, s.value FROM COMMUNICATION_OP JOIN STRING_IDS s ON s.id = opName",
    )
    have = zip(t.tasks.ts.tolist(), t.tasks.dur.tolist(), texts(t, t.tasks.name), strict=True)
    assert sorted(have) == sorted(want)
    python = brute(path, "SELECT CAST(startNs AS INT), CAST(endNs AS INT) - CAST(startNs AS INT) FROM PYTORCH_API")
    of_python = t.host.source != Host.CANN
    assert sorted(zip(t.host.ts[of_python].tolist(), t.host.dur[of_python].tolist(), strict=True)) == sorted(python)
    flows = {t.strings[f.category]: len(f.out) for f in t.flows}
    assert flows["async_task_queue"] == 159 and flows["fwdbwd"] == 27  # connectionCats of the file says the same
    hardware = next(b for b in t.slices if any(c.key == "aic_mac_ratio" for c in b.columns))
    assert any(c.key == "aiv_vec_time" and c.kind == "float" for c in hardware.columns)
    (call_stack,) = (c for b in t.slices for c in b.columns if c.key == "Call stack")
    assert any("_rebuild_tensor;\r\n" in t.strings[i] for i in np.unique(call_stack.values).tolist())
    dims = next(c for b in t.slices for c in b.columns if c.key == "Input Dims")  # swapped in this version
    assert not any("Scalar" in t.strings[i] for i in np.unique(dims.values).tolist())
    units = {track.name: track.unit for track in t.tracks if track.unit}
    assert units["HBM 3/Write"] == "B/s" and units["AI Core Freq"] == "MHz" and units["APP/HBM"] == "B"
    assert t.facts["hostname"] == "ubuntu" and t.facts["db_schema_version"] == "1.0.0"


@pytest.fixture
def export(tmp_path: Path) -> Path:
    capture = simulate(Config(ranks=1, steps=1))[0]
    return write_database(capture, tmp_path / capture.folder)


def test_nothing_is_left_beside_it_and_nothing_changes(export: Path) -> None:
    before = hashlib.sha256(export.read_bytes()).digest()
    os.chmod(export.parent, 0o555)
    try:
        assert len(timeline_of(export).tasks)
    finally:
        os.chmod(export.parent, 0o755)
    assert os.listdir(export.parent) == [export.name]
    assert hashlib.sha256(export.read_bytes()).digest() == before


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_a_database_cut_short_is_named_with_its_table(export: Path, share: float) -> None:
    data = export.read_bytes()
    export.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(InputError, match=r"ascend_pytorch_profiler_0\.db.*malformed"):
        timeline_of(export)


def test_an_encrypted_one_is_none(export: Path) -> None:
    data = export.read_bytes()
    export.write_bytes(data[:16] + bytes(b ^ 0x5A for b in data[16:]))
    with pytest.raises(InputError, match=r"ascend_pytorch_profiler_0\.db"):
        timeline_of(export)


def test_views_are_never_run(export: Path) -> None:
    db = sqlite3.connect(export)
    db.execute("ALTER TABLE TASK RENAME TO HIDDEN")
    db.execute(
        "CREATE VIEW TASK AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT i AS startNs, i AS endNs FROM n"
    )
    db.commit()
    db.close()
    t = timeline_of(export)
    assert t.warnings and "no table TASK" in " ".join(t.warnings)


def test_cells_that_are_no_numbers_are_counted(export: Path) -> None:
    db = sqlite3.connect(export)
    db.execute("UPDATE TASK SET startNs = 'soon' WHERE rowid = 1")
    db.execute("UPDATE TASK SET endNs = NULL WHERE rowid = 2")
    db.execute("UPDATE TASK SET endNs = startNs - 1 WHERE rowid = 3")
    db.execute("UPDATE TASK SET startNs = 5, endNs = 9 WHERE rowid = 4")
    db.execute("UPDATE TASK SET startNs = CAST(startNs AS TEXT), streamId = NULL WHERE rowid = 5")
    db.commit()
    ((start,),) = db.execute("SELECT startNs FROM TASK WHERE rowid = 5").fetchall()
    db.close()
    t = timeline_of(export)
    assert t.tally.slices.dropped == {"not a number": 2, "negative duration": 1, "start out of range": 1}
    assert t.tally.slices.first["not a number"] == "TASK, row 1"
    assert t.tally.slices.written == t.slice_count
    assert int(start) in np.concatenate([b.ts for b in t.slices]).tolist()


def test_a_required_column_is_named(export: Path) -> None:
    db = sqlite3.connect(export)
    db.execute("ALTER TABLE TASK RENAME COLUMN endNs TO ende")
    db.commit()
    db.close()
    with pytest.raises(InputError, match="table TASK: has no column endNs"):
        timeline_of(export)


def test_text_is_read_where_both_are_there_unless_told(tmp_path: Path) -> None:
    capture = simulate(Config(ranks=1, steps=1))[0]
    folder = tmp_path / capture.folder
    write_capture(capture, folder)
    write_database(capture, folder)
    text, db = timeline_of(folder), timeline_of(folder, Options(annotate=(), prefer="db"))
    assert "read_from" not in text.facts and db.facts["read_from"] == "SQLite export"
    assert any("--prefer db" in warning for warning in text.warnings)
    np.testing.assert_array_equal(text.tasks.ts, db.tasks.ts)
    assert (db.tasks.wait_ns == NULL).all()  # this schema doesn't record waits


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_rows_beside_the_database(export: Path, mode: str) -> None:
    """A writer was killed: what is committed in -wal counts, what -journal undoes doesn't, and no file changes."""
    tasks = len(timeline_of(export).tasks)
    db = sqlite3.connect(export, isolation_level=None)
    db.execute(f"PRAGMA journal_mode = {mode}")
    db.execute("PRAGMA cache_size = 1")  # pages of the open transaction are written early
    db.execute("BEGIN")
    db.execute("DELETE FROM TASK WHERE globalTaskId % 2")
    if mode == "WAL":
        db.execute("COMMIT")
    end = "-wal" if mode == "WAL" else "-journal"
    killed = {name: Path(f"{export}{name}").read_bytes() for name in ("", end)}
    db.execute("COMMIT" if mode == "DELETE" else "SELECT 1")
    db.close()
    folder = export.parent / "killed"
    folder.mkdir()
    for name, data in killed.items():
        (folder / f"{export.name}{name}").write_bytes(data)
    have = len(timeline_of(folder / export.name).tasks)
    assert have < tasks if mode == "WAL" else have == tasks
    assert {p.name[len(export.name) :]: p.read_bytes() for p in folder.iterdir()} == killed
