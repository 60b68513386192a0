"""From a user's files to a Graph."""
