"""What the page about manifests says is what the code does."""

import re
from pathlib import Path

import pytest

from tapes.services.manifest import FIELDS
from tapes.services.problems import Stage
from tapes.services.settings import SettingType

PAGE = (Path(__file__).parents[2] / "docs" / "services-manifest.md").read_text()


def test_the_examples_of_the_page_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    exec("\n".join(blocks), {})


@pytest.mark.row("C2", "C11")
def test_every_member_and_every_type_of_setting_is_on_the_page() -> None:
    for table, members in FIELDS.items():
        for name in members:
            place = {"": name, "tables": f"tables[].{name}", "config": name}
            assert re.search(
                rf"`{re.escape(place.get(table, f'{table}.{name}'))}(`|\.|\[)", PAGE
            ), name
    assert all(f"| `{kind}` |" in PAGE for kind in SettingType)


@pytest.mark.row("C3")
def test_every_stage_is_on_the_page_in_its_order() -> None:
    stages = re.findall(r"^\| `(\w+)` \| ", PAGE[PAGE.index("| stage |") :], re.MULTILINE)
    assert stages[: len(Stage)] == [str(stage) for stage in Stage]
