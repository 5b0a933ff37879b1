"""The differential campaign: this package against the reference, on texts made to find a difference."""
