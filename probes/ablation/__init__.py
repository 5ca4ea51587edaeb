"""What breaks when something is cut."""
