"""What is inside a counter: analyses that take a checkpoint and return a typed result."""
