"""What the operator says of services: the sources, the hosts that are trusted, the limits.

Rule 1: what a flag or a variable says stands; what the file decides is read anew while a host runs.
Rule 2: it is taken up whole or not at all. A file that cannot be read, or says nothing of sources
        any more where it did, changes nothing: neither sources nor hosts nor limits.

Knows nothing of what follows from it.
"""

from dataclasses import dataclass, field
from pathlib import Path

from tapes.errors import BadSetting
from tapes.services.discovery import REMEDIES
from tapes.services.limiting import Limited, limits_in
from tapes.services.problems import Stage
from tapes.services.sources import Listed, source_list, trusted_hosts
from tapes.services.trust import Trust


@dataclass(frozen=True, slots=True)
class Told:
    """What is said, and by whom."""

    sources: Listed = field(default_factory=Listed)
    trusted: Listed = field(default_factory=Listed)
    limited: Limited = field(default_factory=Limited)

    @property
    def file(self) -> Path | None:
        """The file that decides any of it, or None."""
        return self.sources.file or self.trusted.file or self.limited.file

    @property
    def _stands_in_a_file(self) -> bool:
        lists = (self.sources, self.trusted)
        return (
            any(said.file is not None and said.is_said for said in lists)
            or self.limited != Limited()
        )

    def anew(self) -> "Told":
        """What is said now. Raises BadSetting, and then nothing of it holds (rule 2)."""
        sources, trusted, limited = self.sources, self.trusted, self.limited
        if self._stands_in_a_file and self.file is not None and not self.file.is_file():
            raise BadSetting(f"{self.file} is gone", REMEDIES[Stage.SOURCE_LIST])
        # In this order: when the file is changed in between, no source goes before its host.
        if sources.file is not None:
            sources = source_list((), {}, sources.file)
            if self.sources.values and not sources.is_said:
                gone = f"{sources.file}: there is no list of sources any more"
                raise BadSetting(gone, REMEDIES[Stage.SOURCE_LIST])
        if trusted.file is not None:
            trusted = trusted_hosts((), {}, trusted.file)
            Trust(trusted.values)
        if limited.file is not None:
            limited = limits_in(limited.file)
        return Told(sources, trusted, limited)
