"""Model architectures, one file each, written like their papers."""
