INCLUDE PERFETTO MODULE npu._arguments;
INCLUDE PERFETTO MODULE npu._tracks;

-- The recorded tasks: everything that the profiler says ran on the device, communication included. Device events,
-- notifies and copies of a trace without kernel_details are in `slice`, not here.
CREATE OR REPLACE PERFETTO TABLE npu_kernels(
  -- Slice id.
  id JOINID(slice.id),
  -- Start, exact.
  ts TIMESTAMP,
  -- Duration, exact.
  dur DURATION,
  -- Name of the kernel.
  name STRING,
  -- Rank.
  rank LONG,
  -- Device.
  device_id LONG,
  -- Stream; NULL for communication rows of a capture without a trace.
  stream_id LONG,
  -- The runtime's task id; repeats.
  task_id LONG,
  -- Model whose replay ran the task; NULL = eager.
  model_id LONG,
  -- Type of the operator, e.g. MatMulV3.
  op_type STRING,
  -- State, e.g. dynamic.
  op_state STRING,
  -- Core, e.g. AI_CORE, AI_VECTOR_CORE, HCCL.
  accelerator_core STRING,
  -- Wait before the task in ns, as recorded.
  wait_ns LONG,
  -- Ties the task to the call that launched it; dates from the capture for tasks of a replay.
  connection_id LONG,
  -- Shapes of the inputs, as recorded.
  input_shapes STRING,
  -- 0-based index of the task in its rank: by start, then longer first, then file order.
  task LONG
) AS
SELECT
  s.id,
  s.ts,
  s.dur,
  s.name,
  t.rank,
  t.device_id,
  t.stream_id,
  _npu_int!(s.arg_set_id, 'debug.task_id') AS task_id,
  _npu_int!(s.arg_set_id, 'debug.model_id') AS model_id,
  _npu_text!(s.arg_set_id, 'debug.op_type') AS op_type,
  _npu_text!(s.arg_set_id, 'debug.op_state') AS op_state,
  _npu_text!(s.arg_set_id, 'debug.accelerator_core') AS accelerator_core,
  _npu_int!(s.arg_set_id, 'debug.wait_ns') AS wait_ns,
  _npu_int!(s.arg_set_id, 'debug.connection_id') AS connection_id,
  _npu_text!(s.arg_set_id, 'debug.input_shapes') AS input_shapes,
  _npu_int!(s.arg_set_id, 'debug.task') AS task
FROM slice AS s
-- CROSS fixes the order: one pass over the slices.
CROSS JOIN _npu_tracks AS t
WHERE s.category = 'npu.task' AND t.track_id = s.track_id;
