from lapwing.journal._story import changes, entry, opening, surroundings

ENVIRONMENT = {
    "command": ["lapwing", "train", "adding", "--note", "two words"],
    "device": "cpu",
    "host": "attic",
    "cores": 1,
    "platform": "Linux",
    "python": "3.11.7",
    "versions": {"jax": "0.10.2"},
    "git": {"commit": "0123456789abcdef", "dirty": True},
}


def test_the_opening_tells_a_person_what_was_started():
    settings = {"model": {"width": 8, "name": "a|b\nc"}, "long": "x" * 200}
    assert opening("20260101-000000-adding-aaaa", settings, ENVIRONMENT, 1767225600.0) == (
        "# 20260101-000000-adding-aaaa\n\n"
        "Started 2026-01-01 00:00:00 UTC by\n\n"
        "    lapwing train adding --note 'two words'\n\n"
        "on attic (1 core, cpu), Linux, Python 3.11.7, jax 0.10.2, "
        "git 0123456789 with uncommitted changes.\n\n"
        "| setting | value |\n|---|---|\n"
        "| model.width | 8 |\n| model.name | a\\|b c |\n| long | " + "x" * 79 + "… |\n\n"
        "## What happened\n\n"
    )


def test_without_settings_there_is_no_table():
    assert "setting" not in opening("x", {}, ENVIRONMENT, 0.0)


def test_surroundings_without_git_or_device():
    bare = {**ENVIRONMENT, "git": None, "device": None, "cores": 4}
    assert surroundings(bare) == "attic (4 cores, unknown device), Linux, Python 3.11.7, jax 0.10.2"


def test_a_second_line_stays_with_its_entry():
    assert entry("note: # a\n# b", 0.0) == "- 1970-01-01 00:00:00 note: # a\n  # b\n"


def test_changes_are_found_by_path():
    before = {"a": 1, "b": {"c": 2, "d": 3}, "gone": 0}
    now = {"a": 1, "b": {"c": 2, "d": 4}, "new": [1]}
    assert changes(before, now) == {"b.d": (3, 4), "gone": (0, None), "new": (None, [1])}
