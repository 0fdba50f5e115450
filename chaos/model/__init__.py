"""Pure data: the words every layer shares. Nothing here reads a clock, a file or a socket."""
