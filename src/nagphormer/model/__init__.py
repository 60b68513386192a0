"""The network: embedding, encoder, readouts, head."""
