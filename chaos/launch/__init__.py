"""One run, from what was asked for to its reports: what the command line and the pytest plugin have in common."""
