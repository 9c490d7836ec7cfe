INCLUDE PERFETTO MODULE npu._arguments;
INCLUDE PERFETTO MODULE npu._tracks;
INCLUDE PERFETTO MODULE npu.deepep;
INCLUDE PERFETTO MODULE npu.gaps;
INCLUDE PERFETTO MODULE npu.replays;
INCLUDE PERFETTO MODULE npu.segments;
INCLUDE PERFETTO MODULE npu.steps;

-- Private: which step a derived slice belongs to. By the argument `step` where the slice has it, else by forward_ct.
CREATE OR REPLACE PERFETTO TABLE _npu_slice_steps AS
WITH
  parts AS (
    SELECT
      s.id,
      t.rank,
      _npu_int!(s.arg_set_id, 'debug.step') AS step,
      _npu_int!(s.arg_set_id, 'debug.forward_ct') AS forward_ct
    FROM slice AS s
    CROSS JOIN _npu_tracks AS t
    WHERE
      s.category IN ('npu.segment', 'npu.tail', 'npu.deepep', 'npu.replay')
      AND t.track_id = s.track_id
  )
SELECT p.id, s.id AS step_id
FROM parts AS p
JOIN _npu_step_slices AS s ON s.rank = p.rank AND s.step = p.step
WHERE p.step IS NOT NULL
UNION ALL
SELECT p.id, s.id
FROM parts AS p
JOIN _npu_step_slices AS s ON s.rank = p.rank AND s.forward_ct = p.forward_ct
WHERE p.step IS NULL AND p.forward_ct IS NOT NULL;

-- One row per step: where its time went. NULL means that it is not known, not that it is zero.
CREATE OR REPLACE PERFETTO TABLE npu_step_report(
  -- Rank.
  rank LONG,
  -- The step's forward counter.
  forward_ct LONG,
  -- Requests.
  bs LONG,
  -- Tokens that were verified.
  num_verify_tokens LONG,
  -- From this step's start to the next one's.
  step_wall_ms DOUBLE,
  -- Device time of the step, recorded.
  step_gpu_ms DOUBLE,
  -- Draft segment: recorded, else first start to last end of its linked tasks.
  draft_ms DOUBLE,
  -- Target-verify segment, likewise.
  verify_ms DOUBLE,
  -- step_gpu_ms minus the two recorded segments.
  unattributed_ms DOUBLE,
  -- From the end of target_verify to the end of the step's last task after it: not the sum of the parts.
  tail_ms DOUBLE,
  -- Sum of `npu_deepep.exposed_ns`.
  exposed_comm_ms DOUBLE,
  -- Sum of `npu_replays.exposed_gap_ns`.
  pre_replay_gap_ms DOUBLE,
  -- Gaps between the first start and the last end of the step's linked tasks.
  gap_ms DOUBLE,
  -- Tokens committed per request.
  avg_commit_len DOUBLE,
  -- Tokens committed.
  committed_tokens LONG,
  -- step_wall_ms / avg_commit_len.
  effective_tpot_ms DOUBLE,
  -- committed_tokens per second of step_wall.
  tokens_per_s DOUBLE
) AS
WITH
  segments AS (
    SELECT
      m.step_id,
      sum(iif(g.segment = 'draft', g.dur, NULL)) AS draft_ns,
      sum(iif(g.segment = 'target_verify', g.dur, NULL)) AS verify_ns
    FROM npu_segments AS g
    JOIN _npu_slice_steps AS m USING (id)
    GROUP BY m.step_id
  ),
  tails AS (
    -- The same on every part of a step.
    SELECT m.step_id, max(_npu_int!(s.arg_set_id, 'debug.tail_ns')) AS tail_ns
    FROM slice AS s
    JOIN _npu_slice_steps AS m USING (id)
    WHERE s.category = 'npu.tail'
    GROUP BY m.step_id
  ),
  communication AS (
    -- Not sum(): it fails where durations that a capture got wrong exceed an int64. Exact below 104 days.
    SELECT m.step_id, iif(count(d.exposed_ns), total(d.exposed_ns), NULL) AS exposed_ns
    FROM npu_deepep AS d
    JOIN _npu_slice_steps AS m USING (id)
    GROUP BY m.step_id
  ),
  replays AS (
    SELECT m.step_id, iif(count(r.exposed_gap_ns), total(r.exposed_gap_ns), NULL) AS exposed_gap_ns
    FROM npu_replays AS r
    JOIN _npu_slice_steps AS m USING (id)
    GROUP BY m.step_id
  )
SELECT
  s.rank,
  s.forward_ct,
  s.bs,
  s.num_verify_tokens,
  s.step_wall_ns / 1e6 AS step_wall_ms,
  s.step_gpu_ms,
  coalesce(s.draft_gpu_ms, g.draft_ns / 1e6) AS draft_ms,
  coalesce(s.target_verify_gpu_ms, g.verify_ns / 1e6) AS verify_ms,
  s.unattributed_ms,
  x.tail_ns / 1e6 AS tail_ms,
  c.exposed_ns / 1e6 AS exposed_comm_ms,
  r.exposed_gap_ns / 1e6 AS pre_replay_gap_ms,
  -- npu_gaps is sorted by ts, so each step reads its own stretch of it.
  (
    SELECT total(n.dur)
    FROM npu_gaps AS n
    WHERE n.ts >= p.first_task_ts AND n.ts < p.last_task_end AND n.rank = s.rank
    -- Where the window clips the gaps, or the annotator did not run, nothing is known.
    HAVING p.first_task_ts IS NOT NULL AND EXISTS (SELECT 1 FROM npu_gaps AS o WHERE o.rank = s.rank)
  )
  / 1e6 AS gap_ms,
  s.avg_commit_len,
  s.committed_tokens,
  s.step_wall_ns / 1e6 / s.avg_commit_len AS effective_tpot_ms,
  s.committed_tokens * 1e9 / s.step_wall_ns AS tokens_per_s
FROM npu_steps AS s
JOIN _npu_step_slices AS p USING (id)
LEFT JOIN segments AS g ON g.step_id = s.id
LEFT JOIN tails AS x ON x.step_id = s.id
LEFT JOIN communication AS c ON c.step_id = s.id
LEFT JOIN replays AS r ON r.step_id = s.id
ORDER BY s.rank, s.ts;
