"""What moves the answer when one activation is exchanged."""
