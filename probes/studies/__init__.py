"""Studies: a question over many seeds, whose protocol is written before its runs and whose verdict can refute it."""
