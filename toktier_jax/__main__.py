"""`python -m toktier_jax`: the command line."""

import sys

from toktier_jax.cli import main

if __name__ == "__main__":
    sys.exit(main())
