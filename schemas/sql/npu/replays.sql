INCLUDE PERFETTO MODULE npu._arguments;
INCLUDE PERFETTO MODULE npu._tracks;

-- Graph replays: the call that launched each, its tasks, and the time before it.
CREATE OR REPLACE PERFETTO TABLE npu_replays(
  -- Slice id.
  id JOINID(slice.id),
  -- Start of the slice.
  ts TIMESTAMP,
  -- Its duration.
  dur DURATION,
  -- Rank.
  rank LONG,
  -- Forward counter of the step that called it; NULL where that is not known.
  forward_ct LONG,
  -- Model (graph).
  model_id LONG,
  -- 0-based index over the rank's replays.
  replay_index LONG,
  -- Start of the call; NULL for a replay that was already under way when the profile began.
  launch_ts TIMESTAMP,
  -- Start of its first recorded task.
  first_task_ts TIMESTAMP,
  -- End of its last recorded task.
  last_task_end TIMESTAMP,
  -- From the end of the step's last submission before the call (else the step's start) to the call.
  prepare_ns LONG,
  -- Time without a recorded task between the last task before and the replay's first.
  exposed_gap_ns LONG,
  -- How the call of the replay is known: `linked` (by id, flow or replay order), or `recorded`: no call is known, and the
  -- row holds only when its tasks ran.
  evidence STRING
) AS
SELECT
  s.id,
  s.ts,
  s.dur,
  t.rank,
  _npu_int!(s.arg_set_id, 'debug.forward_ct') AS forward_ct,
  _npu_int!(s.arg_set_id, 'debug.model_id') AS model_id,
  _npu_int!(s.arg_set_id, 'debug.replay_index') AS replay_index,
  _npu_int!(s.arg_set_id, 'debug.launch_ts') AS launch_ts,
  _npu_int!(s.arg_set_id, 'debug.first_task_ts') AS first_task_ts,
  _npu_int!(s.arg_set_id, 'debug.last_task_end') AS last_task_end,
  _npu_int!(s.arg_set_id, 'debug.prepare_ns') AS prepare_ns,
  _npu_int!(s.arg_set_id, 'debug.exposed_gap_ns') AS exposed_gap_ns,
  _npu_text!(s.arg_set_id, 'debug.evidence') AS evidence
FROM slice AS s
CROSS JOIN _npu_tracks AS t
WHERE s.category = 'npu.replay' AND t.track_id = s.track_id
ORDER BY s.ts;

-- What the host did between the last submission and the call of a replay.
CREATE OR REPLACE PERFETTO TABLE npu_replay_host(
  -- Rank.
  rank LONG,
  -- Index of the replay, as in `npu_replays`.
  replay_index LONG,
  -- Start.
  ts TIMESTAMP,
  -- Duration.
  dur DURATION,
  -- Name of the host slice; `unnamed` for the rest.
  name STRING,
  -- How it is known to belong to the replay: `inferred`, from time alone.
  evidence STRING
) AS
SELECT
  t.rank,
  _npu_int!(s.arg_set_id, 'debug.replay_index') AS replay_index,
  s.ts,
  s.dur,
  s.name,
  _npu_text!(s.arg_set_id, 'debug.evidence') AS evidence
FROM slice AS s
CROSS JOIN _npu_tracks AS t
WHERE s.category = 'npu.replay_host' AND t.track_id = s.track_id
ORDER BY s.ts;
