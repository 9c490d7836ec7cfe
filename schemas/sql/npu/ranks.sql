INCLUDE PERFETTO MODULE npu._arguments;
INCLUDE PERFETTO MODULE npu._tracks;

-- Private: the slice that holds a rank's facts.
CREATE OR REPLACE PERFETTO TABLE _npu_rank_facts(
  -- Rank.
  rank LONG,
  -- Its arguments.
  arg_set_id LONG
) AS
SELECT t.rank, s.arg_set_id
FROM slice AS s
CROSS JOIN _npu_tracks AS t
WHERE s.category = 'npu.facts' AND t.track_id = s.track_id AND t.rank IS NOT NULL
ORDER BY t.rank;

-- The accounting of each rank's recorded tasks over its window.
CREATE OR REPLACE PERFETTO TABLE npu_rank_times(
  -- Rank.
  rank LONG,
  -- Start of the window: the first start of a recorded task, or as given by --window.
  window_ts TIMESTAMP,
  -- Length of the window.
  wall_ns LONG,
  -- Sum of the durations of the tasks; more than wall_ns where streams overlap.
  duration_sum_ns LONG,
  -- duration_sum_ns plus the sum of the recorded waits; NULL where no task has a recorded wait.
  duration_wait_sum_ns LONG,
  -- Length of the union of the tasks' intervals.
  busy_union_ns LONG,
  -- wall_ns - busy_union_ns: time without a recorded task, which is not the same as idle hardware.
  gap_ns LONG,
  -- gap_ns / wall_ns.
  gap_ratio DOUBLE,
  -- Number of recorded tasks.
  kernel_count LONG
) AS
SELECT
  rank,
  _npu_int!(arg_set_id, 'debug.times.window_ts') AS window_ts,
  _npu_int!(arg_set_id, 'debug.times.wall_ns') AS wall_ns,
  _npu_int!(arg_set_id, 'debug.times.duration_sum_ns') AS duration_sum_ns,
  _npu_int!(arg_set_id, 'debug.times.duration_wait_sum_ns') AS duration_wait_sum_ns,
  _npu_int!(arg_set_id, 'debug.times.busy_union_ns') AS busy_union_ns,
  _npu_int!(arg_set_id, 'debug.times.gap_ns') AS gap_ns,
  _npu_real!(arg_set_id, 'debug.times.gap_ratio') AS gap_ratio,
  _npu_int!(arg_set_id, 'debug.times.kernel_count') AS kernel_count
FROM _npu_rank_facts
WHERE EXTRACT_ARG(arg_set_id, 'debug.times.wall_ns') IS NOT NULL;

-- How each rank's clock was put on the clock of the trace, and how well that fits.
CREATE OR REPLACE PERFETTO TABLE npu_rank_clocks(
  -- Rank.
  rank LONG,
  -- `reference`, `same_host`, `collective`, `manual` or `none`.
  method STRING,
  -- Trace time = recorded time + offset_ns.
  offset_ns LONG,
  -- Fitted drift, reported and not applied; NULL where the window is too short to tell.
  drift_ppm DOUBLE,
  -- Median distance of the matched anchors after alignment; NULL without anchors.
  residual_median_ns LONG,
  -- Largest distance over all matched anchors, outliers included; NULL without anchors.
  residual_max_ns LONG,
  -- Number of matched anchors.
  anchor_count LONG,
  -- Launches whose task is known.
  launch_pairs LONG,
  -- How many of those tasks start before the call that launched them.
  causality_violations LONG,
  -- By how much at worst.
  worst_violation_ns LONG
) AS
SELECT
  rank,
  _npu_text!(arg_set_id, 'debug.clock.method') AS method,
  _npu_int!(arg_set_id, 'debug.clock.offset_ns') AS offset_ns,
  _npu_real!(arg_set_id, 'debug.clock.drift_ppm') AS drift_ppm,
  _npu_int!(arg_set_id, 'debug.clock.residual_median_ns') AS residual_median_ns,
  _npu_int!(arg_set_id, 'debug.clock.residual_max_ns') AS residual_max_ns,
  _npu_int!(arg_set_id, 'debug.clock.anchor_count') AS anchor_count,
  _npu_int!(arg_set_id, 'debug.clock.launch_pairs') AS launch_pairs,
  _npu_int!(arg_set_id, 'debug.clock.causality_violations') AS causality_violations,
  _npu_int!(arg_set_id, 'debug.clock.worst_violation_ns') AS worst_violation_ns
FROM _npu_rank_facts
WHERE EXTRACT_ARG(arg_set_id, 'debug.clock.method') IS NOT NULL;

-- The vendor's own split of the time, per step, as in step_trace_time.csv. Its definitions are not those of
-- `npu_rank_times`.
CREATE OR REPLACE PERFETTO TABLE npu_vendor_times(
  -- Rank.
  rank LONG,
  -- The vendor's step; NULL where the capture has no steps, and in a trace cut by --window or --steps: there the figures
  -- are those of the window.
  step STRING,
  -- What the row was computed from.
  source STRING,
  -- Computing.
  computing_ns LONG,
  -- Communication.
  communication_ns LONG,
  -- Communication(Not Overlapped).
  communication_not_overlapped_ns LONG,
  -- Free.
  free_ns LONG
) AS
WITH
  cells AS (
    SELECT
      f.rank,
      -- The index: CAST reads the digits up to the bracket.
      CAST(substr(a.key, length('debug.vendor_times[') + 1) AS INT) AS position,
      substr(a.flat_key, length('debug.vendor_times.') + 1) AS key,
      coalesce(a.string_value, CAST(a.int_value AS TEXT)) AS text_value,
      a.int_value
    FROM _npu_rank_facts AS f
    CROSS JOIN args AS a
    WHERE a.arg_set_id = f.arg_set_id AND a.flat_key GLOB 'debug.vendor_times.*'
  )
SELECT
  rank,
  max(iif(key = 'step', text_value, NULL)) AS step,
  max(iif(key = 'source', text_value, NULL)) AS source,
  max(iif(key = 'computing_ns', int_value, NULL)) AS computing_ns,
  max(iif(key = 'communication_ns', int_value, NULL)) AS communication_ns,
  max(iif(key = 'communication_not_overlapped_ns', int_value, NULL)) AS communication_not_overlapped_ns,
  max(iif(key = 'free_ns', int_value, NULL)) AS free_ns
FROM cells
GROUP BY rank, position
ORDER BY rank, position;
