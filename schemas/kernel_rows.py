"""The rows of one capture's kernel CSVs, as columns: what the CSV readers hand to the builder of the Timeline."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from schemas.timeline import Bool, Column, Int32, Int64, IntArray


@dataclass
class KernelRows:
    """Usable rows in file order, files in the order given. All arrays are [n].

    ts, dur: ns; wait_ns as recorded. Integer columns are int32 where all values fit, else int64, and hold NULL (-1)
    where absent; text columns are ids into the reader's StringPool and hold NO_TEXT (0) where absent.
    columns: every argument to be written, under its canonical key or, where there is none, under its header; they
    share their arrays with the fields here. Name, start, duration, device and stream are no arguments.
    """

    ts: Int64
    dur: Int64
    name: Int32
    device_id: IntArray
    stream_id: IntArray
    task_id: IntArray
    model_id: IntArray  # NULL = eager (4294967295 in the files)
    op_type: Int32
    op_state: Int32
    accelerator_core: Int32
    input_shapes: Int32
    wait_ns: Int64
    communication: Bool  # the row is a collective (core HCCL or COMMUNICATION)
    columns: list[Column] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ts)


def empty_kernel_rows() -> KernelRows:
    """No rows."""
    i8, i4 = np.empty(0, np.int64), np.empty(0, np.int32)
    return KernelRows(i8, i8, i4, i4, i4, i4, i4, i4, i4, i4, i4, i8, np.empty(0, np.bool_))
