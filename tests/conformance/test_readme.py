"""Every test that ``README.md`` names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = Path(__file__).with_name("README.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_exists():
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert named - defined == set()
    assert len(named) > 5
