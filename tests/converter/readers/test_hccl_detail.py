"""Detail of collectives: matched by name, never by their rounded start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from converter.convert import read
from converter.find import find_captures
from converter.group_labels import label_groups
from converter.options import Options
from converter.readers.side_files import Group
from schemas.timeline import Kind, Role, Timeline


def timeline_of(path: Path) -> Timeline:
    (capture,) = find_captures([str(path)])
    return read(capture, Options(annotate=())).timeline


def arguments(t: Timeline, name: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for batch in t.slices:
        for row in np.flatnonzero(batch.name == t.strings.find(name)).tolist():
            for c in batch.columns:
                if c.valid is None or c.valid[row]:
                    value = c.values[row].item()
                    out[c.key] = t.strings[value] if c.kind == "text" else value
            out["extra"] = b"" if batch.extra is None else batch.extra[row]
    return out


def test_every_collective_of_a_real_capture_has_its_detail(shared: Path) -> None:
    folder = shared / "captures" / "train_cann80_level1" / "rank0_ascend_pt"
    given = json.loads((folder / "ASCEND_PROFILER_OUTPUT" / "communication.json").read_text())
    t = timeline_of(folder)
    seen = 0
    for step, kinds in given.items():
        for name, info in {**kinds["p2p"], **kinds["collective"]}.items():
            if name.startswith("Total"):
                continue
            have = arguments(t, name.partition("@")[0])
            assert have["step"] == step
            for key, value in info["Communication Time Info"].items():
                assert (key not in have) if key.startswith("Start") else have[key] == value
            assert b"Size Distribution" in have["extra"]
            seen += 1
    assert seen == 4


def test_rows_without_a_trace_have_it_too(shared: Path) -> None:
    t = timeline_of(shared / "captures" / "train_cann83_level2" / "rank_0_ascend_pt")
    assert arguments(t, "hcom_batchSendRecv__128_3_1")["Elapse Time(ms)"] == 0.43614
    assert (
        b"0-1 batchsendrecv"
        in arguments(t, "hcom_batchSendRecv__128_3_1")["extra"] + arguments(t, "hcom_batchSendRecv__128_5_1")["extra"]
    )


def test_a_database_has_the_same(shared: Path) -> None:
    t = timeline_of(shared / "captures" / "train_cann80_level1_db" / "rank0_ascend_pt")
    have = arguments(t, "hcom_allReduce__210_0_1")
    assert have["step"] == "step50" and have["Elapse Time(ms)"] == 88.75099321875 and b"HCCS" in have["extra"]


def capture(folder: Path, detail: str, names: tuple[str, ...]) -> Path:
    output = folder / "x_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    rows = "".join(f"{name},hcom_allReduce_,COMMUNICATION,{i * 10}.000,5.000\n" for i, name in enumerate(names))
    (output / "kernel_details.csv").write_text("Name,Type,Accelerator Core,Start Time(us),Duration(us)\n" + rows)
    (output / "communication.json").write_text(detail)
    return folder


def test_a_name_that_several_slices_have_is_left_out_and_said(tmp_path: Path) -> None:
    info = {"Communication Time Info": {"Elapse Time(ms)": 1, "Wait Time(ms)": 0.5}}
    detail = json.dumps({"step1": {"collective": {"a@1": info, "b@1": info, "c@1": info, "Total Op Info": info}}})
    t = timeline_of(capture(tmp_path, detail, ("a", "a", "b")))
    assert "Elapse Time(ms)" not in arguments(t, "a")
    assert arguments(t, "b")["Elapse Time(ms)"] == 1.0
    assert any("fit several slices" in w for w in t.warnings)


def test_a_damaged_file_is_a_warning(tmp_path: Path) -> None:
    t = timeline_of(capture(tmp_path, '{"step1": {', ("a",)))
    assert len(t.tasks) == 1 and t.damaged and any("communication.json" in w for w in t.warnings)


def test_groups_are_labelled_by_what_they_are_for() -> None:
    t = Timeline(0, "x")
    for name in ("Group group_name_5 Communication", "Group 0 Communication"):
        t.track(name, Kind.LANE, role=Role.COMMUNICATION)
    label_groups(t, {"group_name_5": Group("dp_cp", (0, 1)), "group_name_6": Group("tp", ())})
    assert [track.description for track in t.tracks] == ["dp_cp: ranks 0, 1", ""]
