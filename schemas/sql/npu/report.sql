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

-- One row per step: where its time went. NULL means that it is not known, or not whole, not that it is zero.
CREATE OR REPLACE PERFETTO TABLE npu_step_report(
  -- Rank.
  rank LONG,
  -- The step's forward counter.
  forward_ct LONG,
  -- Requests.
  bs LONG,
  -- Tokens that were verified.
  num_verify_tokens LONG,
  -- From this step's start to the next one's; NULL for a cut step.
  step_wall_ms DOUBLE,
  -- Device time of the step, recorded.
  step_gpu_ms DOUBLE,
  -- Draft segment, as draft_source says. The two sources are different measurements: never mix them in one median.
  draft_ms DOUBLE,
  -- Target-verify segment, as verify_source says.
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
  -- committed_tokens per second of step_wall, of this rank alone. Not the run's throughput.
  tokens_per_s DOUBLE,
  -- `record`: from the DSpark record, elapsed on the current stream. `linked_tasks`: first start to last end of the tasks
  -- linked to the draft span. NULL without draft_ms.
  draft_source STRING,
  -- The same of verify_ms.
  verify_source STRING,
  -- What cuts the step; NULL = whole. `span`: its own span was cut, the figures over the whole step are NULL (step_wall_ms,
  -- exposed_comm_ms, pre_replay_gap_ms, gap_ms and what follows from the wall). `window`: an edge of --window lies in it
  -- or may hide its last tasks; all that is not from its record is NULL.
  cut STRING,
  -- As in `npu_steps`: `recorded`, or `inferred` where the step's own span was cut.
  evidence STRING
) AS
WITH
  walls AS (SELECT id, step_wall_ns AS wall_ns FROM npu_steps),
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
  w.wall_ns / 1e6 AS step_wall_ms,
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
    HAVING p.cut IS NULL AND p.first_task_ts IS NOT NULL AND EXISTS (SELECT 1 FROM npu_gaps AS o WHERE o.rank = s.rank)
  )
  / 1e6 AS gap_ms,
  s.avg_commit_len,
  s.committed_tokens,
  w.wall_ns / 1e6 / s.avg_commit_len AS effective_tpot_ms,
  s.committed_tokens * 1e9 / w.wall_ns AS tokens_per_s,
  iif(s.draft_gpu_ms IS NOT NULL, 'record', iif(g.draft_ns IS NOT NULL, 'linked_tasks', NULL)) AS draft_source,
  iif(s.target_verify_gpu_ms IS NOT NULL, 'record', iif(g.verify_ns IS NOT NULL, 'linked_tasks', NULL)) AS verify_source,
  p.cut,
  s.evidence
FROM npu_steps AS s
JOIN _npu_step_slices AS p USING (id)
-- Of a cut step only what is whole: a window may have left tasks out, a cut span those before it.
LEFT JOIN walls AS w ON w.id = s.id AND p.cut IS NULL
LEFT JOIN segments AS g ON g.step_id = s.id AND p.cut IS NOT 'window'
LEFT JOIN tails AS x ON x.step_id = s.id AND p.cut IS NOT 'window'
LEFT JOIN communication AS c ON c.step_id = s.id AND p.cut IS NULL
LEFT JOIN replays AS r ON r.step_id = s.id AND p.cut IS NULL
ORDER BY s.rank, s.ts;
