INCLUDE PERFETTO MODULE npu._arguments;
INCLUDE PERFETTO MODULE npu._tracks;

-- The two measured segments of a step on the device, placed by their linked tasks. They are elapsed times of the current
-- stream, not sums of kernels.
CREATE OR REPLACE PERFETTO TABLE npu_segments(
  -- Slice id.
  id JOINID(slice.id),
  -- Start.
  ts TIMESTAMP,
  -- Duration: record_ns where there is a record, else placed_ns.
  dur DURATION,
  -- Rank.
  rank LONG,
  -- The step's forward counter.
  forward_ct LONG,
  -- `draft` or `target_verify`.
  segment STRING,
  -- Length as recorded; NULL without a record.
  record_ns LONG,
  -- First start to last end of the linked tasks on the main stream.
  placed_ns LONG,
  -- record_ns - placed_ns.
  residual_ns LONG,
  -- Sum of the durations of recorded tasks, clipped to the slice.
  kernel_sum_ns LONG,
  -- Length of their union.
  busy_union_ns LONG,
  -- Length of the union of those on other streams than the main one.
  other_stream_busy_ns LONG,
  -- `inferred` where there is a record (its length, ending with the last linked task), else `linked` (first to last
  -- linked task). The two are different measurements: record_ns IS NULL tells them apart.
  evidence STRING
) AS
SELECT
  s.id,
  s.ts,
  s.dur,
  t.rank,
  _npu_int!(s.arg_set_id, 'debug.forward_ct') AS forward_ct,
  _npu_text!(s.arg_set_id, 'debug.segment') AS segment,
  _npu_int!(s.arg_set_id, 'debug.record_ns') AS record_ns,
  _npu_int!(s.arg_set_id, 'debug.placed_ns') AS placed_ns,
  _npu_int!(s.arg_set_id, 'debug.residual_ns') AS residual_ns,
  _npu_int!(s.arg_set_id, 'debug.kernel_sum_ns') AS kernel_sum_ns,
  _npu_int!(s.arg_set_id, 'debug.busy_union_ns') AS busy_union_ns,
  _npu_int!(s.arg_set_id, 'debug.other_stream_busy_ns') AS other_stream_busy_ns,
  _npu_text!(s.arg_set_id, 'debug.evidence') AS evidence
FROM slice AS s
CROSS JOIN _npu_tracks AS t
WHERE s.category = 'npu.segment' AND t.track_id = s.track_id
ORDER BY s.ts;

-- The eager tail of a step: what runs on the device after target_verify, by part. One row per step and part.
CREATE OR REPLACE PERFETTO TABLE npu_tails(
  -- Slice id.
  id JOINID(slice.id),
  -- First start of the part's tasks.
  ts TIMESTAMP,
  -- To their last end; parts may overlap.
  dur DURATION,
  -- Rank.
  rank LONG,
  -- The step's forward counter.
  forward_ct LONG,
  -- `accept`, `tp_sync`, `finalize`, `out_tokens`, `commit` or `other`.
  part STRING,
  -- Number of tasks.
  kernel_count LONG,
  -- Length of their union.
  busy_ns LONG,
  -- How the part is known: `inferred`, because the tasks are linked to the step but told apart by name and order.
  evidence STRING
) AS
SELECT
  s.id,
  s.ts,
  s.dur,
  t.rank,
  _npu_int!(s.arg_set_id, 'debug.forward_ct') AS forward_ct,
  _npu_text!(s.arg_set_id, 'debug.part') AS part,
  _npu_int!(s.arg_set_id, 'debug.kernel_count') AS kernel_count,
  _npu_int!(s.arg_set_id, 'debug.busy_ns') AS busy_ns,
  _npu_text!(s.arg_set_id, 'debug.evidence') AS evidence
FROM slice AS s
CROSS JOIN _npu_tracks AS t
WHERE s.category = 'npu.tail' AND t.track_id = s.track_id
ORDER BY s.ts;
