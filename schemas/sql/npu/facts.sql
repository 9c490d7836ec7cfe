INCLUDE PERFETTO MODULE npu._tracks;

-- What is known about each rank's capture and about the run: profiler level, versions, what was not recorded, clocks,
-- window, `--fact`. One row per value.
CREATE OR REPLACE PERFETTO TABLE npu_facts(
  -- Rank; NULL = the run.
  rank LONG,
  -- Key; keys of nested facts are joined: `clock.method`, `vendor_times[0].step`.
  key STRING,
  -- Value as text.
  value STRING
) AS
SELECT
  t.rank,
  substr(a.key, length('debug.') + 1) AS key,
  CASE a.value_type
    WHEN 'bool' THEN iif(a.int_value, 'true', 'false')
    ELSE coalesce(a.string_value, CAST(a.int_value AS TEXT), CAST(a.real_value AS TEXT))
  END AS value
FROM slice AS s
CROSS JOIN _npu_tracks AS t
CROSS JOIN args AS a
WHERE
  s.category = 'npu.facts'
  AND t.track_id = s.track_id
  AND a.arg_set_id = s.arg_set_id
  AND a.key GLOB 'debug.*'
  -- Per-track counts for `npu-perfetto check`, too many to be facts.
  AND a.key NOT GLOB 'debug.tallies[[]*';
