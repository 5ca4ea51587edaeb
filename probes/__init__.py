"""What is inside a counter: analyses, checkpoint in, typed result out."""
