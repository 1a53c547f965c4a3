"""Files that processes have open."""

from worker.open_files import open_files


def test_an_open_file_is_found_under_its_real_name(tmp_path):
    """By whatever link it was opened; once it is closed it is not found."""
    path, link = (tmp_path / "real").resolve(), tmp_path / "link"
    path.touch()
    link.symlink_to(path)
    with link.open("rb"):
        assert path in open_files()
    assert path not in open_files()
