"""What the pages about services say is what the code does."""

import dataclasses
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tapes.cli.main import cli
from tapes.services.described import OWN_PATHS
from tapes.services.manifest import FIELDS
from tapes.services.problems import Stage
from tapes.services.settings import SettingType
from tapes.services.traffic import Limits
from tests.commands import environment

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "services-manifest.md").read_text()
SERVICES = (DOCS / "services.md").read_text()
README = (DOCS.parent / "README.md").read_text()


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


# --- the page about services ------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.row("C14")
def test_the_service_of_the_page_passes_the_test_of_the_page(tmp_path: Path) -> None:
    blocks = re.findall(r"```(?:python|toml)\n(.*?)```", SERVICES, re.DOTALL)
    toml, service, test = blocks[:3]
    (tmp_path / "cassette.toml").write_text(toml)
    (tmp_path / "service.py").write_text(service)
    (tmp_path / "test_service.py").write_text("from service import service\n" + test)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_application_of_the_page_can_be_made() -> None:
    blocks = re.findall(r"```python\n(.*?)```", SERVICES, re.DOTALL)
    (block,) = [block for block in blocks if "in_front_of" in block]
    made: dict[str, object] = {}
    exec(block, made)
    assert callable(made["app"])


def test_the_five_commands_stand_in_both_places_and_are_commands() -> None:
    (walk,) = [b for b in re.findall(r"```sh\n(.*?)```", SERVICES, re.DOTALL) if "inspector" in b]
    assert walk in README
    typed = [shlex.split(line) for line in walk.replace("\\\n", "").splitlines()]
    assert len(typed) == 5
    for words in (words for words in typed if words[0] == "tapes"):
        group = cli.get_command(None, words[1])  # type: ignore[arg-type]  # it needs no context
        assert words[2] in group.commands  # type: ignore[union-attr]  # they are groups


def test_paths_and_limits_of_the_page_are_those_of_the_code() -> None:
    paths = {path.replace("{name}", "<name>") for path in OWN_PATHS}
    assert {path for path in paths if f"{path}`" not in SERVICES} == set()
    limits = Limits()
    for row in (
        f"| requests at once | {limits.at_once} |",
        f"| size of a request | {limits.request_bytes // 2**20} MiB |",
        f"| connecting | {limits.connect_s:.0f} s |",
        f"| silence | {limits.silence_s:.0f} s |",
        f"| failures in a row until it rests | {limits.failures} |",
        *(f"`{field.name}`" for field in dataclasses.fields(limits)),
    ):
        assert row in SERVICES


def test_the_configuration_of_a_client_on_the_page_is_json() -> None:
    blocks = re.findall(r"```json\n(.*?)```", SERVICES, re.DOTALL)
    assert [list(json.loads(block)) for block in blocks] == [["mcpServers"]]
