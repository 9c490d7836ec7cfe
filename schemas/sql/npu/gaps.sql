INCLUDE PERFETTO MODULE npu._arguments;
INCLUDE PERFETTO MODULE npu._tracks;
INCLUDE PERFETTO MODULE npu.kernels;

-- Private: the gaps as written, naming tasks by index.
CREATE OR REPLACE PERFETTO TABLE _npu_gap_slices AS
SELECT
  s.id,
  s.ts,
  s.dur,
  t.rank,
  _npu_int!(s.arg_set_id, 'debug.prev_task') AS prev_task,
  _npu_int!(s.arg_set_id, 'debug.next_task') AS next_task,
  s.arg_set_id
FROM slice AS s
CROSS JOIN _npu_tracks AS t
WHERE s.category = 'npu.gap' AND t.track_id = s.track_id;

CREATE PERFETTO INDEX _npu_kernels_by_task ON npu_kernels(task, rank);

-- The gaps of each rank: maximal intervals of its window that no recorded task covers. A gap is time without a recorded
-- task. It is not idle hardware, and not time that could be saved.
CREATE OR REPLACE PERFETTO TABLE npu_gaps(
  -- Slice id.
  id JOINID(slice.id),
  -- Start: the end of the task before.
  ts TIMESTAMP,
  -- Length.
  dur DURATION,
  -- Rank.
  rank LONG,
  -- Slice id of the task that ends at the start (in `npu_kernels`); NULL at the window's start.
  prev_id JOINID(slice.id),
  -- Slice id of the task that starts at the end; NULL at the window's end.
  next_id JOINID(slice.id),
  -- Name of the task before.
  prev_name STRING,
  -- Name of the task after.
  next_name STRING,
  -- Recorded wait of the task after.
  next_wait_ns LONG,
  -- `A->B`, each `model N` or `dynamic`: what the tasks at the ends belong to. Not what is inside.
  endpoint_class STRING,
  -- Host slice with the largest self time inside the gap among those that end with it or before; inferred.
  host_event STRING,
  -- Fraction of the gap that this host slice covers as a whole, 0 to 1.
  host_cover_ratio DOUBLE,
  -- Start of the call that launched the task after; NULL where that task belongs to a replay.
  launch_ts TIMESTAMP,
  -- Name of that call.
  launch_name STRING,
  -- How the strongest of what stands beside the gap is known. `linked`: launch_ts and launch_name, by id; it says nothing
  -- of host_event. `inferred`: host_event is all there is. `recorded`: neither is known, and the row says only which
  -- recorded tasks bound the gap.
  evidence STRING,
  -- How host_event is known: always `inferred`, from being there at the same time. NULL where there is none.
  host_evidence STRING
) AS
SELECT
  g.id,
  g.ts,
  g.dur,
  g.rank,
  p.id AS prev_id,
  n.id AS next_id,
  p.name AS prev_name,
  n.name AS next_name,
  n.wait_ns AS next_wait_ns,
  _npu_text!(g.arg_set_id, 'debug.endpoint_class') AS endpoint_class,
  _npu_text!(g.arg_set_id, 'debug.host_event') AS host_event,
  _npu_real!(g.arg_set_id, 'debug.host_cover_ratio') AS host_cover_ratio,
  _npu_int!(g.arg_set_id, 'debug.launch_ts') AS launch_ts,
  _npu_text!(g.arg_set_id, 'debug.launch_name') AS launch_name,
  _npu_text!(g.arg_set_id, 'debug.evidence') AS evidence,
  iif(_npu_text!(g.arg_set_id, 'debug.host_event') IS NOT NULL, 'inferred', NULL) AS host_evidence
FROM _npu_gap_slices AS g
LEFT JOIN npu_kernels AS p ON p.task = g.prev_task AND p.rank = g.rank
LEFT JOIN npu_kernels AS n ON n.task = g.next_task AND n.rank = g.rank
ORDER BY g.ts;

DROP PERFETTO INDEX _npu_kernels_by_task ON npu_kernels;

-- Gaps between tasks of the same two names, summed: where repeated gaps add up.
CREATE OR REPLACE PERFETTO TABLE npu_gap_patterns(
  -- Rank.
  rank LONG,
  -- Name of the task before.
  prev_name STRING,
  -- Name of the task after.
  next_name STRING,
  -- Number of gaps.
  gap_count LONG,
  -- Their total length.
  total_ns LONG,
  -- The longest.
  max_ns LONG
) AS
SELECT
  rank,
  prev_name,
  next_name,
  count(*) AS gap_count,
  sum(dur) AS total_ns,
  max(dur) AS max_ns
FROM npu_gaps
GROUP BY rank, prev_name, next_name
ORDER BY rank, total_ns DESC, prev_name, next_name;

-- Where all ranks have a gap at once. Only for ranks on one clock (see `npu_rank_clocks`); empty otherwise.
CREATE OR REPLACE PERFETTO TABLE npu_group_gaps(
  -- Start.
  ts TIMESTAMP,
  -- Length.
  dur DURATION,
  -- Number of ranks compared.
  rank_count LONG,
  -- `recorded` where the captures put the ranks on one clock (same host), `inferred` where an offset was fitted to
  -- collectives or taken from --assume-aligned.
  evidence STRING
) AS
SELECT
  s.ts,
  s.dur,
  _npu_int!(s.arg_set_id, 'debug.rank_count') AS rank_count,
  _npu_text!(s.arg_set_id, 'debug.evidence') AS evidence
FROM slice AS s
WHERE s.category = 'npu.group_gap'
ORDER BY s.ts;
