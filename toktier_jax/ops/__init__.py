"""Pure functions on arrays that fit inside the user's own jit, vmap and shard_map. One file, one step of the encode."""

from toktier_jax.ops.encode import Encoded, encode_bytes

__all__ = ["Encoded", "encode_bytes"]
