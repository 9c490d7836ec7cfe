"""One file per command: its options and help. The work is imported when the command runs, so that --help is fast."""
