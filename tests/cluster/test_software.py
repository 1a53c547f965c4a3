from cluster.software import difference, own_software, sources_hash


def test_the_same_software_is_no_difference():
    """Neither is another operating system or CPU: they are not told."""
    assert difference({**own_software(), "node": "mac-2", "machine": "arm64"}) is None


def test_a_difference_names_both_values_and_the_fix():
    """One that an older release does not tell yet is one, too."""
    told = {name: value for name, value in own_software().items() if name != "code"}
    assert f"code is not told there and {own_software()['code']} at the driver" in difference(told)
    assert "numpy is 1.0 there" in difference({**own_software(), "numpy": "1.0"})
    assert "install the same version" in difference({**own_software(), "numpy": "1.0"})


def test_the_hash_is_of_names_and_content_of_python_files(tmp_path):
    """A copy at another place has the same; an edit, a new name or another compiler has not."""
    for name in ("one", "two"):
        folder = tmp_path / name / "package" / "inner"
        folder.mkdir(parents=True)
        (folder / "module.py").write_text("x = 1\n")
    one, two = (sources_hash(tmp_path / name, ["package"]) for name in ("one", "two"))
    assert one == two
    assert one != sources_hash(tmp_path / "one", ["package"], "0.47")
    (tmp_path / "two/package/notes.txt").write_text("not code")
    assert one == sources_hash(tmp_path / "two", ["package"])
    source = tmp_path / "two/package/inner/module.py"
    source.rename(source.with_name("renamed.py"))
    assert one != sources_hash(tmp_path / "two", ["package"])
