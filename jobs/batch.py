"""The script of a job under ``ray job submit``.

Usage::

    ray job submit --working-dir . -- python jobs/batch.py --config FILE --output /ABSOLUTE/FOLDER

It is ``tokenmill run FILE ...`` by another name: all options of that command are taken, and the
exit code, which Ray keeps as the job's ``driver_exit_code``, is the same. ``python -m jobs.batch``
works as well, and neither needs tokenmill to be installed, only what it depends on.
"""

import argparse
import sys
from pathlib import Path

if not __package__:  # run by its path: jobs/ comes first then, and the packages are beside it
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from jobs.cli import main

_PARSER = argparse.ArgumentParser(
    description="Run a tokenmill job; the options of `tokenmill run` are taken as well.",
    allow_abbrev=False,
)
_PARSER.add_argument("--config", required=True, help="a YAML file; docs/options.md lists its keys")


if __name__ == "__main__":
    known, others = _PARSER.parse_known_args()
    main(["run", known.config, *others])
