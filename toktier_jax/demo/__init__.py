"""What `toktier-jax demo` shows: encoding, an agent's session, completions. One module each."""
