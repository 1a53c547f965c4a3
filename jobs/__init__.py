"""Entry points: configuration, command line, Ray job script, bench and report."""
