import json

import pytest

from minicache.record.store import Recording

HERE = {"device": "A", "torch": "1", "triton": "2"}


def test_a_recording_continues_where_it_stopped(tmp_path):
    path = tmp_path / "family.json"
    measured = []
    first = Recording.open(path, HERE)
    assert first.measure("one", lambda: measured.append("one") or {"us": 1})
    with pytest.raises(ZeroDivisionError):
        first.measure("two", lambda: 1 / 0)
    again = Recording.open(path, HERE)
    assert not again.measure("one", lambda: measured.append("one") or {"us": 9})
    assert again.measure("two", lambda: measured.append("two") or {"us": 2})
    assert measured == ["one", "two"]
    stored = json.loads(path.read_text())
    assert stored == {"about": HERE, "parts": {"one": {"us": 1}, "two": {"us": 2}}}


def test_parts_of_another_device_are_not_kept(tmp_path):
    path = tmp_path / "family.json"
    Recording.open(path, HERE).measure("one", lambda: {"us": 1})
    assert Recording.open(path, {**HERE, "device": "B"}).parts == {}
    assert Recording.open(path, HERE).parts == {"one": {"us": 1}}
