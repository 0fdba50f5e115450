"""The questions. Each is a function from the case to its answer; none knows of the others, and all are always asked."""
