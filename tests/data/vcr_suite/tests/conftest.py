import os

import pytest
from openai import OpenAI


@pytest.fixture(scope="module")
def vcr_config():
    return {
        "filter_headers": ["authorization", ("x-api-key", "REDACTED"), "user-agent"],
        "filter_query_parameters": ["api_key"],
        "match_on": ["method", "scheme", "path", "query", "body"],
        "decode_compressed_response": True,
        "ignore_localhost": False,
    }


@pytest.fixture
def base_url():
    return os.environ.get("MODEL_URL", "http://127.0.0.1:9")


@pytest.fixture
def client(base_url):
    return OpenAI(
        base_url=f"{base_url}/v1", api_key=os.environ.get("MODEL_KEY", "sk-none"), max_retries=0
    )


@pytest.fixture
def anyio_backend():
    return "asyncio"
