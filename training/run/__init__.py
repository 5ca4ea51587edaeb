"""A run: its loop, its folder, its state for --resume, its device."""
