"""The kit for services in Python: a FastAPI application that a host admits as it stands.

from pydantic import BaseModel
from tapes.services.kit import Service

service = Service("cassette.toml")

class Text(BaseModel):
    text: str

@service.tool("count_words", read_only=True)
def count_words(asked: Text) -> dict[str, int]:
    "Count the words of a text."
    return {"words": len(asked.text.split())}

if __name__ == "__main__":
    service.run()
"""

from tapes.services.kit.service import Progress, Service
from tapes.services.kit.settings import Secret, Settings

__all__ = ["Progress", "Secret", "Service", "Settings"]
