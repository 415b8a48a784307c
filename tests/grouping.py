"""Which tests share what is dear: one process runs all of a group.

xdist has groups of its own, which change the ids of tests; in pytest 9 nobody can.
"""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Module → group. A browser and servers over each database, in parts of about a minute; the imports
# of every SDK; all tests, read for their marks; all sources, read for their imports.
GROUPS = {
    **{f"tests/ui/test_{name}.py": "journeys" for name in ("first_minute", "forking", "journeys")},
    **{f"tests/ui/test_{name}.py": "page" for name in ("everywhere", "page", "states")},
    "tests/ui/test_bad_input.py": "bad input",
    **{f"tests/live/test_{name}.py": "sdks" for name in ("sdks", "sdks_through_proxy")},
    "tests/test_requirements.py": "requirements",
    "tests/test_architecture.py": "architecture",
}


class Grouped(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Groups to one worker each, all else test by test to whoever is free, in their order.

    The browser comes last: whatever runs behind it in one process finds its event loop running.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return GROUPS.get(nodeid.partition("::")[0], nodeid)
