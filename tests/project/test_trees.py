"""Folders of any depth, made by somebody else: removed whole, read within limits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from deep_trees import make_deep

from upcall.trees import MAX_DEPTH, TreeTooDeep, copy_tree, remove_tree, walk_tree


@pytest.mark.parametrize(("depth", "name"), [pytest.param(1_500, "d", marks=pytest.mark.slow), (60, "n" * 255)])
def test_tree_of_any_depth_is_removed(tmp_path: Path, depth: int, name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    make_deep(root, depth, name)
    assert remove_tree(root)
    assert not root.exists()


def test_tree_without_permissions_is_removed(tmp_path: Path) -> None:
    (tmp_path / "root" / "a" / "b").mkdir(parents=True)
    for folder in ("root/a/b", "root/a", "root"):
        (tmp_path / folder).chmod(0)
    assert remove_tree(tmp_path / "root")


def test_tree_is_removed_without_what_its_links_lead_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "root").mkdir()
    for name in ("root/link", "link"):
        (tmp_path / name).symlink_to(tmp_path / "kept")
        assert remove_tree(tmp_path / name.split("/")[0])
    assert os.listdir(tmp_path) == ["kept"]


def test_tree_in_use_is_left_without_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "root" / "b").write_text("b")

    def refuse(path: object) -> None:
        raise PermissionError(f"{path} is somebody else's")

    monkeypatch.setattr(os, "rmdir", refuse)
    monkeypatch.setattr(Path, "rmdir", refuse)
    assert not remove_tree(tmp_path / "root")
    assert not (tmp_path / "root" / "b").exists()


@pytest.mark.parametrize(("depth", "name"), [(MAX_DEPTH, "d"), (20, "n" * 255)])
def test_tree_too_deep_to_read_is_refused(tmp_path: Path, depth: int, name: str) -> None:
    make_deep(tmp_path, depth, name)
    with pytest.raises(TreeTooDeep):
        list(walk_tree(tmp_path))


def test_tree_copy_has_links_and_permissions_without_pipes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "locked").mkdir(parents=True)
    (source / "locked" / "tool").write_text("x")
    (source / "locked" / "tool").chmod(0o750)
    (source / "link").symlink_to("locked/tool")
    os.mkfifo(source / "pipe")
    (source / "locked").chmod(0o555)
    copy_tree(source, target)
    assert sorted(place for place, _ in walk_tree(target)) == ["link", "locked", "locked/tool"]
    assert os.readlink(target / "link") == "locked/tool"
    assert [(target / each).stat().st_mode & 0o777 for each in ("locked", "locked/tool")] == [0o555, 0o750]
