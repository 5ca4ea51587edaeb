"""The same questions at every snapshot of a run."""
