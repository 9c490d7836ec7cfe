"""One file per question. Each is a pure function: a Timeline in, more tracks out."""
