"""One file a command: its flags, and `run`, which parses, calls the functions below it, and says what came of it."""
