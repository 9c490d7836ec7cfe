"""One file per source format."""
