"""A second opinion: the whole encode of a tokenizer.json in slow, readable Python, with the reference's offsets.

It reads the file's JSON itself (not `toktier_jax.spec`), asks the installed `tokenizers` only about single characters
(which class is this one in? what is its lower case?), and takes nothing else from either side.
"""
