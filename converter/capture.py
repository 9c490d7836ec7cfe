"""A capture: the files of one rank, found but not read yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

#: What made the folder. "file" is one file given alone, or loose files in a folder that is no profiler's.
CaptureKind = Literal["torch_npu", "mindspore", "msprof", "file"]

#: Where the rank comes from, best first.
RankSource = Literal["profiler_info", "info.json", "metadata", "folder name", "file name", "order"]


@dataclass
class Capture:
    """The files of one rank. Lists are in reading order; every path starts as the user named the input.

    input: the INPUT that it was found under, as given; path: the capture's own folder or file (same as `input` unless
    the input is a folder of captures); name: for the names of outputs; rank: >= 0;
    notes: one line each, to be shown as warnings (about choices made, never about damaged bytes).
    """

    input: str
    path: str
    name: str
    kind: CaptureKind
    rank: int = -1
    rank_source: RankSource = "order"
    kernel_csvs: list[str] = field(default_factory=list)  # kernel_details or op_summary; slices in order
    task_time_csvs: list[str] = field(default_factory=list)
    trace_jsons: list[str] = field(default_factory=list)  # trace_view.json, msprof*.json, *.trace.json, or .gz of them
    memory_csvs: list[str] = field(default_factory=list)  # memory_record
    step_trace_csvs: list[str] = field(default_factory=list)  # step_trace_time
    iteration_csvs: list[str] = field(default_factory=list)  # step_trace of msprof
    mark_csvs: list[str] = field(default_factory=list)  # msprof_tx
    statistic_csvs: list[str] = field(default_factory=list)  # communication_statistic
    communication_jsons: list[str] = field(default_factory=list)  # communication, communication_matrix
    analysis_dbs: list[str] = field(default_factory=list)  # analysis.db
    dbs: list[str] = field(default_factory=list)  # SQLite exports
    profiler_info: str | None = None
    profiler_metadata: str | None = None
    start_infos: list[str] = field(default_factory=list)  # of the host folder first, then of the devices
    end_infos: list[str] = field(default_factory=list)
    host_start_logs: list[str] = field(default_factory=list)
    dev_start_logs: list[str] = field(default_factory=list)
    info_jsons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """The data files that are text exports."""
        return [*self.kernel_csvs, *self.task_time_csvs, *self.trace_jsons]

    @property
    def data_files(self) -> list[str]:
        """The files that hold slices or samples of their own."""
        return [*self.texts, *self.dbs]
