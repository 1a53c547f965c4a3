"""What the repository promises about itself: names, packages, pinned versions, documents."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("cluster", "jobs", "kvpool", "worker")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pinned() -> dict[str, str]:
    """Canonical name and version of each line of the constraints file."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in requirements}


def test_every_package_is_listed_for_installation():
    """A folder that is forgotten in pyproject.toml would be missing from an installed tokenmill."""
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for package in PACKAGES
        for path in (ROOT / package).rglob("__init__.py")
    }
    assert folders == set(PROJECT["tool"]["setuptools"]["packages"])


def test_no_job_script_is_named_like_a_standard_module():
    """``python jobs/batch.py`` puts jobs/ first on the path: such a file would hide the module."""
    names = {path.stem for path in (ROOT / "jobs").glob("*.py")} - {"__init__"}
    assert set() == names & sys.stdlib_module_names


def test_every_dependency_is_pinned_within_its_range():
    """The constraints file knows each direct dependency, in a version pyproject.toml allows."""
    project = PROJECT["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    versions = pinned()
    for requirement in map(Requirement, wanted):
        version = versions.get(canonicalize_name(requirement.name), "no version pinned")
        assert requirement.specifier.contains(version), f"{requirement}: {version}"


def test_constraints_name_no_index():
    """The user's own package index is used."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert [] == re.findall(r"^-|://", text, re.MULTILINE)


def test_readme_commands_are_make_targets():
    """The README promises no command that the Makefile does not have."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    promised = set(re.findall(r"\bmake (\w[\w-]*)$", readme, re.MULTILINE))
    assert {"demo", "test"} <= promised
    assert set() == promised - set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))


def test_document_links_lead_somewhere():
    """Every relative link of README and docs names a file that is there."""
    missing = [
        f"{page.name}: {target}"
        for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert [] == missing


def test_options_page_is_current():
    """docs/options.md lists every key and sampling parameter as the code has them."""
    page = ROOT / "docs" / "options.md"
    made = "import make_options as m; print(m.options_page(m.PAGE.read_text('utf-8')), end='')"
    done = subprocess.run(
        [sys.executable, "-c", made], cwd=ROOT / "docs", capture_output=True, check=True
    )
    assert page.read_bytes() == done.stdout, "run `python docs/make_options.py`"
