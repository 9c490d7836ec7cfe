-- Private: whose track it is (rank, device, stream) and whether what is on it was recorded or derived, from the names of the tracks above it.

-- One row per track of the trace.
CREATE OR REPLACE PERFETTO TABLE _npu_tracks(
  -- Id of the track.
  track_id JOINID(track.id),
  -- N of the process `Rank N` or of the root track `Rank N · DSpark`; NULL elsewhere.
  rank LONG,
  -- d of the group `NPU d` above the track.
  device_id LONG,
  -- s of the track `Stream s` below `NPU d`.
  stream_id LONG,
  -- Whether the track is under `Rank N · DSpark` or `All ranks`, and not in a process.
  derived BOOL
) AS
WITH RECURSIVE
  -- Threads and the tracks of a process know their process; the name of a root track is in the track itself.
  owners AS (
    SELECT id AS track_id, upid FROM process_track
    UNION ALL
    SELECT tt.id, t.upid FROM thread_track AS tt JOIN thread AS t USING (utid)
  ),
  roots AS (
    SELECT
      t.id,
      t.name,
      CASE
        WHEN p.name = 'Rank ' || CAST(substr(p.name, 6) AS INT) THEN CAST(substr(p.name, 6) AS INT)
        WHEN o.upid IS NULL AND t.name = 'Rank ' || CAST(substr(t.name, 6) AS INT) || ' · DSpark' THEN CAST(substr(t.name, 6) AS INT)
      END AS rank,
      coalesce(
        o.upid IS NULL
        AND (t.name = 'All ranks' OR t.name = 'Rank ' || CAST(substr(t.name, 6) AS INT) || ' · DSpark'),
        0
      ) AS derived
    FROM track AS t
    LEFT JOIN owners AS o ON o.track_id = t.id
    LEFT JOIN process AS p ON p.upid = o.upid
    WHERE t.parent_id IS NULL
  ),
  tree AS (
    SELECT
      id AS track_id,
      rank,
      iif(rank IS NOT NULL AND name = 'NPU ' || CAST(substr(name, 5) AS INT), CAST(substr(name, 5) AS INT), NULL) AS device_id,
      CAST(NULL AS INT) AS stream_id,
      derived
    FROM roots
    UNION ALL
    SELECT
      t.id,
      tree.rank,
      coalesce(
        tree.device_id,
        iif(tree.rank IS NOT NULL AND t.name = 'NPU ' || CAST(substr(t.name, 5) AS INT), CAST(substr(t.name, 5) AS INT), NULL)
      ),
      coalesce(
        tree.stream_id,
        iif(
          tree.device_id IS NOT NULL AND t.name = 'Stream ' || CAST(substr(t.name, 8) AS INT),
          CAST(substr(t.name, 8) AS INT),
          NULL
        )
      ),
      tree.derived
    FROM tree
    JOIN track AS t ON t.parent_id = tree.track_id
  )
SELECT track_id, rank, device_id, stream_id, derived
FROM tree
ORDER BY track_id;
