"""The edges: read, align, write, query, command line."""
