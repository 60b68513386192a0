"""From a Graph to hop tokens, once and offline."""
