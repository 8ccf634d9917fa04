"""Java's archive of Spark's classes: made once, used when it is whole, never in the way."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from postroad.pipeline.session import CLAIMED_S, shared_classes

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java"),
]


def archive(folder: Path) -> Path:
    [path] = folder.glob("spark-*.jsa")
    return path


def test_the_first_session_makes_the_archive_and_later_ones_use_it(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    first = shared_classes(folder)
    path = archive(folder)
    assert f'"-XX:ArchiveClassesAtExit={path}"' in first
    assert shared_classes(folder) == []  # it is being made
    path.write_bytes(bytes(64))
    assert shared_classes(folder) == []  # and not whole yet
    path.write_bytes(b"\xa8\xba\x0b\xf0" + bytes(64))
    assert f'"-XX:SharedArchiveFile={path}"' in shared_classes(folder)


def test_an_archive_of_which_nothing_came_is_made_again(tmp_path: Path) -> None:
    shared_classes(tmp_path)
    path = archive(tmp_path)
    path.write_bytes(bytes(64))
    long_ago = path.stat().st_mtime - CLAIMED_S - 1
    os.utime(path, (long_ago, long_ago))
    assert any("ArchiveClassesAtExit" in option for option in shared_classes(tmp_path))


def test_archives_of_another_java_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_classes(tmp_path)
    before = archive(tmp_path)
    home = tmp_path / "home/bin"
    home.mkdir(parents=True)
    (home / "java").write_text("")
    (home / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    shared_classes(tmp_path)
    assert archive(tmp_path) != before


def test_without_a_place_or_without_java_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    assert shared_classes(tmp_path / "file") == []
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert shared_classes(tmp_path / "archives") == []
