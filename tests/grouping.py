"""Which tests share what is dear: one process runs all of a group.

xdist has groups of its own, which change the ids of tests; in pytest 9 nobody can.
"""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Module → group. A browser and servers over each database, in parts of about a minute; the imports
# of every SDK; all tests, read for their marks; all sources, read for their imports.
GROUPS = {
    **{f"tests/ui/test_{name}.py": "browser 1" for name in ("first_minute", "forking")},
    "tests/ui/test_journeys.py": "browser 1",
    **{f"tests/ui/test_{name}.py": "browser 2" for name in ("everywhere", "page", "states")},
    "tests/ui/test_bad_input.py": "browser 3",
    **{f"tests/live/test_{name}.py": "sdks" for name in ("sdks", "sdks_through_proxy")},
    "tests/test_requirements.py": "requirements",
    "tests/test_architecture.py": "architecture",
}
MANY = 3  # processes, of which one may have nothing to do but the browser


def needs_browser(scope: str) -> bool:
    return scope.startswith(("browser", "tests/ui/"))


class Grouped(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Groups to one worker each, all else test by test to whoever is free, in their order.

    The browser comes last: whatever runs behind it in one process finds its event loop running.
    Where there are many workers, the first does nothing else from the beginning: a browser alone
    does not keep a machine busy, and all of them at the end would leave half of it idle.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._browsing: Any = None  # the worker that began with the browser

    def _split_scope(self, nodeid: str) -> str:
        return GROUPS.get(nodeid.partition("::")[0], nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        if (
            self._browsing is None
            and self.numnodes >= MANY
            and any(map(needs_browser, self.workqueue))
        ):
            self._browsing = node
        wanted = node is self._browsing
        scope = next((each for each in self.workqueue if needs_browser(each) is wanted), None)
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        if node is self._browsing and not any(map(needs_browser, self.workqueue)):
            node.shutdown()
        else:
            super()._reschedule(node)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        # What is done is counted anew with every test: a few thousand of them add up.
        work = self.assigned_work[node]
        scope = self._split_scope(self.registered_collections[node][item_index])
        if all(work[scope].values()):
            del work[scope]
