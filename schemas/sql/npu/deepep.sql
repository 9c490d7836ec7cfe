INCLUDE PERFETTO MODULE npu._arguments;
INCLUDE PERFETTO MODULE npu._tracks;

-- Private: the intervals as written.
CREATE OR REPLACE PERFETTO TABLE _npu_deepep_slices AS
SELECT s.id, s.ts, s.dur, t.rank, s.arg_set_id
FROM slice AS s
CROSS JOIN _npu_tracks AS t
WHERE s.category = 'npu.deepep' AND t.track_id = s.track_id
ORDER BY s.ts;

-- One row per expert-parallel dispatch or combine. The meaning of hook_ts, wait_ns, overlapped_ns and exposed_ns depends
-- on `model`. Total communication is not exposed communication.
--
-- Three waits that are not each other: wait_ns (hook to end; of in_kernel_wait the whole kernel, its work included),
-- exposed_ns (the part of it that no other work covers), and npu_deepep_peers.waited_ns (how much later than this rank
-- the last rank came).
CREATE OR REPLACE PERFETTO TABLE npu_deepep(
  -- Slice id.
  id JOINID(slice.id),
  -- Issue.
  ts TIMESTAMP,
  -- done_ts - issue_ts.
  dur DURATION,
  -- Rank.
  rank LONG,
  -- The step's forward counter.
  forward_ct LONG,
  -- `dispatch` or `combine`.
  op STRING,
  -- `recv_hook`: the hook waits for the data. `in_kernel_wait`: the kernel itself waits for its peers.
  model STRING,
  -- recv_hook: start of `*_a`. in_kernel_wait: the launch, or the kernel's start inside a replay.
  issue_ts TIMESTAMP,
  -- recv_hook: start of `*_b`. in_kernel_wait: the kernel's start.
  hook_ts TIMESTAMP,
  -- recv_hook: end of the receive task, else of `*_b`. in_kernel_wait: the kernel's end.
  done_ts TIMESTAMP,
  -- hook_ts - issue_ts.
  in_flight_ns LONG,
  -- done_ts - hook_ts. recv_hook: the wait at the hook. in_kernel_wait: the kernel's whole length, its own work included;
  -- how much of it is waiting is not recorded.
  wait_ns LONG,
  -- in_kernel_wait: part of the kernel during which another stream computes. recv_hook: NULL.
  overlapped_ns LONG,
  -- recv_hook: wait_ns. in_kernel_wait: the rest of the kernel.
  exposed_ns LONG,
  -- How the interval issue_ts to done_ts is known, not how much of it was waiting. `recorded`: the kernel's own start and
  -- end; `linked`: the issue, or the receive task, by id; `inferred`: host marks paired by order.
  evidence STRING
) AS
SELECT
  id,
  ts,
  dur,
  rank,
  _npu_int!(arg_set_id, 'debug.forward_ct') AS forward_ct,
  _npu_text!(arg_set_id, 'debug.op') AS op,
  _npu_text!(arg_set_id, 'debug.model') AS model,
  _npu_int!(arg_set_id, 'debug.issue_ts') AS issue_ts,
  _npu_int!(arg_set_id, 'debug.hook_ts') AS hook_ts,
  _npu_int!(arg_set_id, 'debug.done_ts') AS done_ts,
  _npu_int!(arg_set_id, 'debug.in_flight_ns') AS in_flight_ns,
  _npu_int!(arg_set_id, 'debug.wait_ns') AS wait_ns,
  _npu_int!(arg_set_id, 'debug.overlapped_ns') AS overlapped_ns,
  _npu_int!(arg_set_id, 'debug.exposed_ns') AS exposed_ns,
  _npu_text!(arg_set_id, 'debug.evidence') AS evidence
FROM _npu_deepep_slices;

-- Who waited for whom. Only for ranks on one clock (see `npu_rank_clocks`); empty otherwise.
CREATE OR REPLACE PERFETTO TABLE npu_deepep_peers(
  -- Rank.
  rank LONG,
  -- Slice id, as in `npu_deepep`.
  id JOINID(slice.id),
  -- Which call of the group it is; equal on all ranks.
  group_index LONG,
  -- The rank that came last.
  last_rank LONG,
  -- How much later than this rank the last one came: start of its kernel (in_kernel_wait) or its issue (recv_hook), 0 for
  -- the last itself. Not a part of wait_ns.
  waited_ns LONG
) AS
SELECT
  rank,
  id,
  _npu_int!(arg_set_id, 'debug.group_index') AS group_index,
  _npu_int!(arg_set_id, 'debug.last_rank') AS last_rank,
  _npu_int!(arg_set_id, 'debug.waited_ns') AS waited_ns
FROM _npu_deepep_slices
WHERE EXTRACT_ARG(arg_set_id, 'debug.group_index') IS NOT NULL;
