"""Studies: a question over many seeds, with a protocol that stands before its runs, and a verdict that can refute it."""
