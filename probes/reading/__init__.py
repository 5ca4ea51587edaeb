"""What can be read off a counter: its answers, its activations, its attention."""
