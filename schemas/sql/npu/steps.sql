INCLUDE PERFETTO MODULE npu._arguments;
INCLUDE PERFETTO MODULE npu._tracks;

-- Private: the steps, with the arguments that the report joins on.
CREATE OR REPLACE PERFETTO TABLE _npu_step_slices AS
SELECT
  s.id,
  s.ts,
  s.dur,
  t.rank,
  _npu_int!(s.arg_set_id, 'debug.step') AS step,
  _npu_int!(s.arg_set_id, 'debug.forward_ct') AS forward_ct,
  _npu_int!(s.arg_set_id, 'debug.first_task_ts') AS first_task_ts,
  _npu_int!(s.arg_set_id, 'debug.last_task_end') AS last_task_end,
  -- evidence too: slices without `cut` are of older traces.
  coalesce(
    _npu_text!(s.arg_set_id, 'debug.cut'),
    iif(_npu_text!(s.arg_set_id, 'debug.evidence') = 'inferred', 'span', NULL)
  ) AS cut,
  s.arg_set_id
FROM slice AS s
CROSS JOIN _npu_tracks AS t
WHERE s.category = 'npu.step' AND t.track_id = s.track_id
ORDER BY s.ts;

-- The speculative decode steps of each rank, from the host's spans, with their DSpark record where one was matched.
CREATE OR REPLACE PERFETTO TABLE npu_steps(
  -- Slice id.
  id JOINID(slice.id),
  -- Start of the step on the host.
  ts TIMESTAMP,
  -- Duration on the host.
  dur DURATION,
  -- Rank.
  rank LONG,
  -- The scheduler's forward counter; NULL where no record matched and --first-forward-ct was not given.
  forward_ct LONG,
  -- Requests in the step.
  bs LONG,
  -- Verify mode: `static`, `cap-accept` or `compact`.
  mode STRING,
  -- Tokens that were verified: requests times verify width. Not those that were committed.
  num_verify_tokens LONG,
  -- From this start to the next step's; NULL where the two do not follow each other.
  step_wall_ns LONG,
  -- Recorded: host time from the step before to this one.
  step_cpu_ms DOUBLE,
  -- Recorded: device time of the step on the current stream.
  step_gpu_ms DOUBLE,
  -- Recorded: device time of the draft segment.
  draft_gpu_ms DOUBLE,
  -- Recorded: device time of the target-verify segment.
  target_verify_gpu_ms DOUBLE,
  -- step_gpu_ms - draft_gpu_ms - target_verify_gpu_ms. It flags time, it does not say where.
  unattributed_ms DOUBLE,
  -- Tokens committed by all requests.
  committed_tokens LONG,
  -- committed_tokens / bs.
  avg_commit_len DOUBLE,
  -- `recorded` or, where the step's own span was cut, `inferred`.
  evidence STRING
) AS
SELECT
  id,
  ts,
  dur,
  rank,
  forward_ct,
  _npu_int!(arg_set_id, 'debug.bs') AS bs,
  _npu_text!(arg_set_id, 'debug.mode') AS mode,
  _npu_int!(arg_set_id, 'debug.num_verify_tokens') AS num_verify_tokens,
  _npu_int!(arg_set_id, 'debug.step_wall_ns') AS step_wall_ns,
  _npu_real!(arg_set_id, 'debug.step_cpu_ms') AS step_cpu_ms,
  _npu_real!(arg_set_id, 'debug.step_gpu_ms') AS step_gpu_ms,
  _npu_real!(arg_set_id, 'debug.draft_gpu_ms') AS draft_gpu_ms,
  _npu_real!(arg_set_id, 'debug.target_verify_gpu_ms') AS target_verify_gpu_ms,
  _npu_real!(arg_set_id, 'debug.unattributed_ms') AS unattributed_ms,
  _npu_int!(arg_set_id, 'debug.committed_tokens') AS committed_tokens,
  _npu_real!(arg_set_id, 'debug.avg_commit_len') AS avg_commit_len,
  _npu_text!(arg_set_id, 'debug.evidence') AS evidence
FROM _npu_step_slices;

-- The requests of each step, from its record.
CREATE OR REPLACE PERFETTO TABLE npu_requests(
  -- Rank.
  rank LONG,
  -- The step's forward counter.
  forward_ct LONG,
  -- Position in the record's list of requests.
  req_index LONG,
  -- Committed length before the step.
  prefix_len LONG,
  -- Verify width of the request.
  verify_len LONG,
  -- Committed in this step: accepted drafts + 1.
  acc_len LONG,
  -- Accepted drafts.
  correct_drafts LONG
) AS
WITH
  cells AS (
    SELECT
      s.id,
      s.rank,
      s.forward_ct,
      -- The index: CAST reads the digits up to the bracket.
      CAST(substr(a.key, length('debug.requests[') + 1) AS INT) AS position,
      substr(a.flat_key, length('debug.requests.') + 1) AS key,
      a.int_value
    FROM _npu_step_slices AS s
    CROSS JOIN args AS a
    WHERE a.arg_set_id = s.arg_set_id AND a.flat_key GLOB 'debug.requests.*'
  )
SELECT
  rank,
  forward_ct,
  coalesce(max(iif(key = 'req_index', int_value, NULL)), position) AS req_index,
  max(iif(key = 'prefix_len', int_value, NULL)) AS prefix_len,
  max(iif(key = 'verify_len', int_value, NULL)) AS verify_len,
  max(iif(key = 'acc_len', int_value, NULL)) AS acc_len,
  max(iif(key = 'correct_drafts', int_value, NULL)) AS correct_drafts
FROM cells
GROUP BY id, position
ORDER BY rank, id, position;
