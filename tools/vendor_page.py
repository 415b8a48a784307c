"""Take the web page's third-party files from npm anew: pinned, checked, with their licences.

    make vendor

Each file is taken as its authors publish it, but for two things that a browser needs: a name of a
package becomes the address of its file, and no line points to a map that is not there. They are
written nowhere but into `src/tapes/ui/vendor` (what the page loads) and `tests/ui/vendor` (what
only the tests load).
"""

import base64
import hashlib
import re
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "src" / "tapes" / "ui" / "vendor"
TESTS = ROOT / "tests" / "ui" / "vendor"


@dataclass(frozen=True, slots=True)
class Package:
    """A published package, its checksum, and which of its files are taken to where."""

    name: str
    version: str
    sha512: str
    folder: Path
    files: dict[str, str]


PACKAGES = (
    Package(
        "preact",
        "10.29.8",
        "ej2aVZ+vZ8WO7tvlQWRM9N63A0KzF9q4mWJfDUHgYaIofWY9hu74QdnQrjoPMmZi2/nZ5gN0bJCQF49xQqx09Q==",
        PAGE / "preact",
        {
            "dist/preact.module.js": "preact.js",
            "hooks/dist/hooks.module.js": "hooks.js",
            "LICENSE": "LICENSE",
        },
    ),
    Package(
        "htm",
        "3.1.1",
        "983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        PAGE / "htm",
        {"dist/htm.module.js": "htm.js", "LICENSE": "LICENSE"},
    ),
    Package(
        "swagger-ui-dist",
        "5.35.0",
        "U06rpMtW9V3XPGOBeamTUSr0Z09jMX4IJuANpE/EZbAhw0G8CgwrzU4YmXkn/h0wCDNsXdGarTNNHC3sU8yVUQ==",
        PAGE / "swagger-ui",
        {
            "swagger-ui-bundle.js": "swagger-ui-bundle.js",
            "swagger-ui-bundle.js.LICENSE.txt": "LICENSE-bundled",
            "swagger-ui.css": "swagger-ui.css",
            "LICENSE": "LICENSE",
            "NOTICE": "NOTICE",
        },
    ),
    Package(
        "axe-core",
        "4.14.1",
        "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
        TESTS,
        {"axe.min.js": "axe.min.js", "LICENSE": "LICENSE-axe-core"},
    ),
)


# Names of packages, as they are imported, and the files that they mean here.
ADDRESSES = ((b'from"preact"', b'from"./preact.js"'),)
MAP = re.compile(rb"\n?//# sourceMappingURL=\S+\s*$")


def fitted(text: bytes) -> bytes:
    """A file as a browser can load it."""
    for name, address in ADDRESSES:
        text = text.replace(name, address)
    return MAP.sub(b"\n", text)


def take(package: Package) -> None:
    """Fetch a package, hold it against its checksum, and write its files."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{package.name}@{package.version}"
        subprocess.run(
            ["npm", "pack", "--silent", wanted], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        [archive] = Path(folder).glob("*.tgz")
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != package.sha512:
            raise SystemExit(f"{wanted} has the checksum {found}, not {package.sha512}")
        package.folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as files:
            for inside, name in package.files.items():
                part = files.extractfile(f"package/{inside}")
                assert part is not None, inside
                (package.folder / name).write_bytes(fitted(part.read()))
    print(f"{wanted}: {len(package.files)} files in {package.folder.relative_to(ROOT)}")


if __name__ == "__main__":
    for each in PACKAGES:
        take(each)
