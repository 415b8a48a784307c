"""A service that offers one tool: it answers a ping.

    python examples/mcp-tool/service.py
    tapes serve services --cassettes=http://127.0.0.1:9999/openapi
    npx @modelcontextprotocol/inspector --cli http://127.0.0.1:8081/v1/mcp \
        --transport http --method tools/call --tool-name mcp-tool.ping --tool-arg ping=ping
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from tapes.services.kit import Service

service = Service(Path(__file__).with_name("cassette.toml"))


class Ping(BaseModel):
    model_config = ConfigDict(extra="forbid")
    ping: Literal["ping"]


class Pong(BaseModel):
    pong: Literal["pong"] = "pong"


@service.tool("ping", read_only=True, idempotent=True, open_world=False)
def ping(_asked: Ping) -> Pong:
    """Answer a ping with a pong."""
    return Pong()


if __name__ == "__main__":
    service.run()
