"""What the data looks like: the Timeline tables, record types, column and name tables, the SQL package."""
