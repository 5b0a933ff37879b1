"""What runs on the host in Python and numpy: inputs, the reference, spans, decoders, chat templates, small windows."""
